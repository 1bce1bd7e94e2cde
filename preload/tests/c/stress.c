/* Threads that get memory in every way, write what they can tell again, and check it throughout; and children, of forks and
 * of fork and exec, that do the same. Any byte that is not as it was written ends the program. SECONDS and THREADS are its arguments. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 24
#define MIB ((size_t)1 << 20)
/* Seconds after which a program that hangs is ended by its alarm: under valgrind it needs some. */
#define TOO_LONG 240

static double until;
static const char *program;
static __thread uint64_t state;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static uint64_t roll(uint64_t sides) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % sides;
}

static void die(const char *what) {
    fprintf(stderr, "stress: %s: errno %d\n", what, errno);
    abort();
}

/* Memory with content by its seed: of seed 0 zeros, of 1 to 3 pages that are equal anywhere, else its own. */
struct block {
    unsigned char *bytes;
    size_t length;
    uint64_t seed;
    int is_mapped;
};

static uint64_t word(uint64_t seed, size_t at) {
    if (seed < 4)
        return seed * 0x0101010101010101u * (at % 512 < 500);
    return (seed + at) * 0x9e3779b97f4a7c15u;
}

static void fill(struct block *block, size_t from) {
    for (size_t at = from / 8; at < block->length / 8; at++)
        ((uint64_t *)block->bytes)[at] = word(block->seed, at);
}

static void check(const struct block *block, size_t length) {
    for (size_t at = 0; at < length / 8; at++)
        if (((uint64_t *)block->bytes)[at] != word(block->seed, at))
            die("memory is not as it was written");
}

static void release(struct block *block) {
    if (!block->bytes)
        return;
    check(block, block->length);
    if (!block->is_mapped)
        free(block->bytes);
    else if (munmap(block->bytes, block->length))
        die("munmap");
    block->bytes = NULL;
}

static size_t size(void) {
    static const size_t most[] = {64, 4096, 40000, 200000, MIB, 3 * MIB};
    return (roll(most[roll(6)]) + 8) & ~(size_t)7;
}

static void renew(struct block *block) {
    release(block);
    block->length = size();
    block->seed = roll(2) ? roll(4) : roll(1 << 30) + 4;
    block->is_mapped = 0;
    void *place;
    switch (roll(7)) {
    case 0: block->bytes = calloc(block->length / 8, 8); break;
    case 1: block->bytes = aligned_alloc(64, (block->length + 63) & ~(size_t)63); break;
    case 2:
        if (posix_memalign(&place, (size_t)64 << roll(8), block->length))
            die("posix_memalign");
        block->bytes = place;
        break;
    case 3:
    case 4:
        block->is_mapped = 1;
        block->length = (block->length + 4095) & ~(size_t)4095;
        block->bytes = mmap(NULL, block->length, roll(4) ? PROT_READ | PROT_WRITE : PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block->bytes == MAP_FAILED)
            die("mmap");
        if (mprotect(block->bytes, block->length, PROT_READ | PROT_WRITE))
            die("mprotect");
        static const int advice[] = {MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE, MADV_UNMERGEABLE};
        if (roll(2))
            madvise(block->bytes, block->length, advice[roll(4)]);
        break;
    default: block->bytes = malloc(block->length);
    }
    if (!block->bytes)
        die("no memory");
    fill(block, 0);
}

static void change(struct block *block) {
    size_t before = block->length, length = size();
    if (!block->bytes)
        return;
#ifdef __SANITIZE_THREAD__
    /* It does not know that mremap gives addresses back, and takes their next owner for an intruder. */
    if (block->is_mapped)
        return;
#endif
    if (block->is_mapped) {
        length = (length + 4095) & ~(size_t)4095;
        block->bytes = mremap(block->bytes, before, length, MREMAP_MAYMOVE);
        if (block->bytes == MAP_FAILED)
            die("mremap");
    } else {
        block->bytes = realloc(block->bytes, length);
        if (!block->bytes)
            die("realloc");
    }
    block->length = length;
    check(block, length < before ? length : before);
    if (length > before)
        fill(block, before & ~(size_t)7);
}

/* A handler that gets memory, as a handler of crashes may, while its thread is anywhere. */
static void handler(int signal) {
    (void)signal;
    int before = errno = 4711;
    void *place = mmap(NULL, MIB / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place != MAP_FAILED) {
        memset(place, 7, 5000);
        munmap(place, MIB / 2);
    }
    if (errno != before)
        abort();
}

static void child(struct block *blocks) {
#ifdef __SANITIZE_ADDRESS__
    /* The sanitizer's own allocator does not take its locks over a fork: one that another thread held is held in the child for
     * ever. Forks are for the other runs. */
    (void)blocks;
    return;
#endif
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        alarm(TOO_LONG);
        for (int at = 0; at < SLOTS; at++)
            if (blocks[at].bytes) {
                check(&blocks[at], blocks[at].length);
                blocks[at].seed += 4;
                fill(&blocks[at], 0);
                check(&blocks[at], blocks[at].length);
            }
        for (int at = 0; at < 50; at++)
            renew(&blocks[roll(SLOTS)]);
        if (roll(2))
            execl(program, program, "0.05", "1", (char *)NULL);
        _exit(0);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            die("waitpid");
    if (status)
        die("a child failed");
}

static void *work(void *seed) {
    struct block blocks[SLOTS] = {{0}};
    state = (uintptr_t)seed * 0x2545f4914f6cdd1du;
    unsigned long turns = 0;
    while (now() < until) {
        struct block *block = &blocks[roll(SLOTS)];
        switch (roll(8)) {
        case 0: change(block); break;
        case 1:
            if (block->bytes)
                check(block, block->length);
            break;
        case 2: release(block); break;
        default: renew(block);
        }
        if (++turns % 500 == 0)
            child(blocks);
        if (turns % 50 == 0)
            pthread_kill(pthread_self(), SIGUSR1);
    }
    for (int at = 0; at < SLOTS; at++)
        release(&blocks[at]);
    return (void *)turns;
}

int main(int count, char **words) {
    double seconds = count > 1 ? atof(words[1]) : 1;
    int threads = count > 2 ? atoi(words[2]) : 4;
    program = words[0];
    alarm(TOO_LONG);
    until = now() + seconds;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    unsigned long turns = 0;
    /* Threads come and go. */
    for (uintptr_t round = 1; round == 1 || now() < until; round++) {
        double end = until;
        pthread_t all[64];
        for (int at = 0; at < threads && at < 64; at++)
            if (pthread_create(&all[at], NULL, work, (void *)(round * 64 + at)))
                die("pthread_create");
        for (int at = 0; at < threads && at < 64; at++) {
            void *done;
            pthread_join(all[at], &done);
            turns += (uintptr_t)done;
        }
        until = end;
    }
    if (threads > 1)
        printf("turns %lu\n", turns);
    return 0;
}
