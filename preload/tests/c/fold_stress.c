/* Folds all memory for so many seconds (the first argument), while threads write, fork, map, move and unmap memory, read past the
 * page cache, by io_uring and through pipes, and take signals. Each thread knows what its memory has to hold, and looks. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ksmith.h"

#define PAGE 4096ul
#define MIB (1ul << 20)
#define WRITERS 2
#define WRITTEN (8 * MIB / PAGE)
#define STILL (8 * MIB / PAGE)
#define AREA (4 * MIB / PAGE)
#define FILE_PAGES 64

static atomic_int ends;
#define KINDS 10
static atomic_ulong turns[KINDS];
enum { WRITES, FORKS, CHANGES, DIRECT, RING, PIPES, SIGNALS, CHECKS, ENDED, LIVING };
static const char *const names[KINDS] = {"writes", "forks",   "changes", "direct",        "io_uring",
                                         "pipes",  "signals", "checks",  "ended threads", "living children"};

static unsigned char *common, *still, *signalled;
static unsigned values[WRITERS][WRITTEN];
static char path[] = "fold-stress-XXXXXX";

static unsigned char *map(size_t length, int keeps_from_children) {
    unsigned char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(memory != MAP_FAILED && madvise(memory, length, MADV_NOHUGEPAGE) == 0);
    /* open(2) forbids reads past the cache beside a fork, unless children do not get the memory. */
    assert(!keeps_from_children || madvise(memory, length, MADV_DONTFORK) == 0);
    return memory;
}

static unsigned long random_of(unsigned long *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* FNV-1a, by words. */
static unsigned long hash_of(const unsigned char *memory, size_t length) {
    unsigned long hash = 14695981039346656037ul;
    for (size_t at = 0; at < length / 8; at++)
        hash = (hash ^ ((const unsigned long *)memory)[at]) * 1099511628211ul;
    return hash;
}

static unsigned char held(size_t page) { return page % 5 ? 1 + page % 251 : 0; }

static void expect(const unsigned char *memory, size_t length, unsigned char value) {
    for (size_t at = 0; at < length; at++)
        if (memory[at] != value) {
            fprintf(stderr, "at %p + %zu: %u, not %u\n", (void *)memory, at, memory[at], value);
            abort();
        }
}

static void *writer(void *number) {
    unsigned long own = (unsigned long)number, state = 88172645463325252ul + own;
    for (unsigned long turn = 0; !ends; turn++) {
        unsigned long page = random_of(&state) % WRITTEN;
        volatile unsigned *word = (volatile unsigned *)(common + page * PAGE) + own * 300;
        assert(*word == values[own][page]);
        *word = values[own][page] = turn % 3 ? 0 : (unsigned)random_of(&state);
        turns[WRITES]++;
        if (turn % 1024 == 0)
            usleep(500);
    }
    return NULL;
}

static unsigned long still_hash;

static void *forker(void *unused) {
    while (!ends) {
        pid_t child = fork();
        if (child == 0) {
            if (hash_of(still, STILL * PAGE) != still_hash)
                _exit(1);
            for (size_t page = 0; page < STILL; page += 3)
                still[page * PAGE + 5] = 7;
            _exit(0);
        }
        int status;
        assert(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        turns[FORKS]++;
        usleep(20000);
    }
    return unused;
}

/* Makes the pages that children share the parent's own again, and looks at their contents. */
static void *checker(void *unused) {
    while (!ends) {
        for (size_t page = 0; page < STILL; page++)
            ((volatile unsigned char *)still)[page * PAGE] = held(page);
        assert(hash_of(still, STILL * PAGE) == still_hash);
        turns[CHECKS]++;
        usleep(10000);
    }
    return unused;
}

static void *changer(void *number) {
    unsigned long state = 1234567 + (unsigned long)number;
    while (!ends) {
        size_t length = (1 + random_of(&state) % 512) * PAGE;
        unsigned char value = random_of(&state) % 4 ? 0 : 1 + random_of(&state) % 255;
        unsigned char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert(memory != MAP_FAILED);
        memset(memory, value, length);
        turns[CHANGES]++;
        switch (random_of(&state) % 4) {
        case 0: {
            unsigned char *moved = mremap(memory, length, 2 * length, MREMAP_MAYMOVE);
            assert(moved != MAP_FAILED);
            expect(moved, length, value);
            expect(moved + length, length, 0);
            memset(moved, 9, 2 * length);
            expect(moved, 2 * length, 9);
            munmap(moved, 2 * length);
            continue;
        }
        case 1:
            assert(madvise(memory, length / 2 & ~(PAGE - 1), MADV_DONTNEED) == 0);
            memset(memory, 8, length);
            expect(memory, length, 8);
            break;
        case 2: {
            unsigned char *block = malloc(length);
            memset(block, value, length);
            expect(block, length, value);
            free(block);
            break;
        }
        default:
            expect(memory, length, value);
        }
        munmap(memory, length);
    }
    return NULL;
}

static void *reader(void *unused) {
    unsigned char *memory = map(AREA * PAGE, 1);
    unsigned long state = 4711;
    int file = open(path, O_RDONLY | O_DIRECT);
    if (file < 0)
        return unused;
    while (!ends) {
        size_t page = random_of(&state) % AREA, from = random_of(&state) % FILE_PAGES;
        memset(memory + page * PAGE, 0, PAGE);
        if (pread(file, memory + page * PAGE, PAGE, from * PAGE) != (ssize_t)PAGE)
            return unused;
        expect(memory + page * PAGE, PAGE, held(from));
        turns[DIRECT]++;
    }
    return unused;
}

/* Reads by io_uring into memory that is registered, and into memory that is not. */
static void *ring(void *unused) {
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    int descriptor = syscall(SYS_io_uring_setup, 4, &p);
    if (descriptor < 0)
        return unused;
    unsigned char *memory = map(AREA * PAGE, 1);
    struct iovec buffer = {memory, AREA * PAGE / 2};
    int is_registered = syscall(SYS_io_uring_register, descriptor, IORING_REGISTER_BUFFERS, &buffer, 1) == 0;
    size_t size = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    size_t answers = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    size = size > answers ? size : answers;
    unsigned char *queue = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, p.sq_entries * sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                                      IORING_OFF_SQES);
    assert(queue != MAP_FAILED && entry != MAP_FAILED && (p.features & IORING_FEAT_SINGLE_MMAP));
    int files[2] = {open(path, O_RDONLY), open(path, O_RDONLY | O_DIRECT)};
    unsigned long state = 99;
    for (unsigned turn = 0; !ends; turn++) {
        size_t half = AREA / 2, page = random_of(&state) % half, from = random_of(&state) % FILE_PAGES;
        int is_fixed = is_registered && turn % 2;
        unsigned char *target = memory + (is_fixed ? page : half + page) * PAGE;
        memset(target, 0, PAGE);
        memset(entry, 0, sizeof *entry);
        entry->opcode = is_fixed ? IORING_OP_READ_FIXED : IORING_OP_READ;
        entry->fd = files[1] >= 0 ? files[turn / 2 % 2] : files[0];
        entry->addr = (size_t)target, entry->len = PAGE, entry->off = from * PAGE;
        ((unsigned *)(queue + p.sq_off.array))[turn % p.sq_entries] = 0;
        atomic_store((_Atomic unsigned *)(queue + p.sq_off.tail), turn + 1);
        int done;
        do
            done = syscall(SYS_io_uring_enter, descriptor, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        while (done < 0 && errno == EINTR);
        assert(done >= 0);
        while (atomic_load((_Atomic unsigned *)(queue + p.cq_off.tail)) != turn + 1)
            syscall(SYS_io_uring_enter, descriptor, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        struct io_uring_cqe *answer = (struct io_uring_cqe *)(queue + p.cq_off.cqes) + turn % p.cq_entries;
        assert(answer->res == (int)PAGE);
        atomic_store((_Atomic unsigned *)(queue + p.cq_off.head), turn + 1);
        expect(target, PAGE, held(from));
        turns[RING]++;
    }
    return unused;
}

/* Pages that a pipe refers to: what comes out is what they held. */
static void *pipes(void *unused) {
    unsigned char *memory = map(2 * 16 * PAGE, 1);
    int ends_of[2];
    unsigned long state = 5;
    assert(pipe(ends_of) == 0);
    while (!ends) {
        size_t count = 1 + random_of(&state) % 15;
        unsigned char value = random_of(&state) % 2 ? 0 : 1 + random_of(&state) % 255;
        memset(memory, value, count * PAGE);
        struct iovec from = {memory, count * PAGE};
        ssize_t sent = vmsplice(ends_of[1], &from, 1, 0);
        if (sent < 0 && errno == EINTR)
            continue;
        assert(sent > 0);
        for (ssize_t at = 0; at < sent;) {
            ssize_t got = read(ends_of[0], memory + 16 * PAGE + at, sent - at);
            assert(got > 0 || errno == EINTR);
            at += got > 0 ? got : 0;
        }
        expect(memory + 16 * PAGE, sent, value);
        turns[PIPES]++;
        if (turns[PIPES] % 64 == 0)
            usleep(500);
    }
    return unused;
}

static void *nothing(void *unused) { return unused; }

/* Threads end while their stacks are folded: on stacks of the library's, and on one among zero pages. */
static void *ender(void *unused) {
    const size_t length = 32 * PAGE;
    unsigned char *memory = map(3 * length, 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    memset(memory + length, 1, length);
    while (!ends) {
        pthread_t threads[2];
        memset(memory, 0, 2 * length - 2 * PAGE);
        memset(memory + 2 * length, 0, length);
        assert(pthread_attr_setstack(&attributes, memory + length, length) == 0);
        assert(pthread_create(&threads[0], &attributes, nothing, NULL) == 0);
        assert(pthread_create(&threads[1], NULL, nothing, NULL) == 0);
        assert(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
        turns[ENDED] += 2;
        usleep(1000);
    }
    return unused;
}

/* A child that lives for a while, without exec, beside all that is folded and forked meanwhile. */
static void *parent(void *unused) {
    while (!ends) {
        int done[2];
        assert(pipe(done) == 0);
        pid_t child = fork();
        if (child == 0) {
            char byte;
            close(done[1]);
            while (read(done[0], &byte, 1) < 0)
                assert(errno == EINTR);
            _exit(hash_of(still, STILL * PAGE) == still_hash ? 0 : 1);
        }
        usleep(700000);
        close(done[1]), close(done[0]);
        int status;
        assert(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        turns[LIVING]++;
    }
    return unused;
}

static void on_signal(int number) {
    (void)number;
    size_t turn = turns[SIGNALS]++;
    unsigned char *byte = signalled + turn * 7919 * PAGE % (2 * MIB) + 8;
    *byte = (unsigned char)(turn % 2);
    *byte = 0;
}

int main(int count, char **words) {
    assert(count == 2);
    unsigned seconds = strtoul(words[1], NULL, 0);
    common = map(WRITTEN * PAGE, 0), still = map(STILL * PAGE, 0), signalled = map(2 * MIB, 0);
    for (size_t page = 0; page < STILL; page++)
        memset(still + page * PAGE, held(page), PAGE);
    still_hash = hash_of(still, STILL * PAGE);
    int file = mkstemp(path);
    unsigned char bytes[PAGE];
    for (size_t page = 0; page < FILE_PAGES; page++) {
        memset(bytes, held(page), PAGE);
        assert(write(file, bytes, PAGE) == (ssize_t)PAGE);
    }
    fsync(file);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &often, NULL);
    void *(*const work[])(void *) = {writer, writer, forker, checker, changer, reader, ring, pipes, ender, parent};
    pthread_t threads[KINDS];
    for (unsigned long thread = 0; thread < KINDS; thread++)
        pthread_create(&threads[thread], NULL, work[thread], (void *)thread);
    time_t begin = time(NULL);
    unsigned long folded = 0, passes = 0, pinned = 0;
    struct ksmith_folded result;
    for (; time(NULL) - begin < (time_t)seconds; passes++) {
        int code = passes % 4 ? ksmith_fold_all(KSMITH_FOLD_THREADS(1 + passes % 3), &result)
                              : ksmith_fold(common, WRITTEN * PAGE, KSMITH_FOLD_THREADS(2), &result);
        if (code != 0) {
            printf("code %d\n", code);
            unlink(path);
            return 0;
        }
        folded += result.folded_bytes, pinned += result.pinned_bytes;
    }
    ends = 1;
    for (unsigned thread = 0; thread < KINDS; thread++)
        pthread_join(threads[thread], NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    for (unsigned own = 0; own < WRITERS; own++)
        for (size_t page = 0; page < WRITTEN; page++)
            assert(((unsigned *)(common + page * PAGE))[own * 300] == values[own][page]);
    assert(hash_of(still, STILL * PAGE) == still_hash);
    expect(signalled, 2 * MIB, 0);
    unlink(path);
    printf("%u s: %lu passes, folded %lu MiB, pinned %lu MiB", seconds, passes, folded >> 20, pinned >> 20);
    for (unsigned kind = 0; kind < KINDS; kind++)
        printf(", %lu %s", (unsigned long)turns[kind], names[kind]);
    printf("\nok\n");
    return 0;
}
