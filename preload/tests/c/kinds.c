/* Knows nothing of KSM. Gets memory in every way that there is, and prints how much of each is marked: in permille. */
#include <assert.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1 << 20)

/* Bytes of a range that lie in mappings with the flag mg. */
static size_t marked(const void *start, size_t length) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    unsigned long first = (unsigned long)start, last = first + length, from = 0, to = 0, a, b;
    char line[4096], access[8];
    size_t sum = 0;
    while (fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx %7s", &a, &b, access) == 3) {
            from = a > first ? a : first;
            to = b < last ? b : last;
        } else if (!strncmp(line, "VmFlags:", 8) && strstr(line, " mg") && from < to) {
            sum += to - from;
        }
    }
    fclose(smaps);
    return sum;
}

static void say(const char *what, const void *start, size_t length) {
    assert(start && start != MAP_FAILED);
#ifdef WAIT
    /* A thread looks from time to time. */
    int waits = !strcmp(what, "heap") || !strcmp(what, "posix_memalign") || !strcmp(what, "arena_last");
    for (int at = 0; waits && at < WAIT * 20 && marked(start, length) < length / 100 * 99; at++)
        usleep(50000);
#endif
    printf("%s %zu\n", what, marked(start, length) * 1000 / length);
}

static void *map(size_t length, int access, int flags) {
    return mmap(NULL, length, access, flags | MAP_ANONYMOUS, -1, 0);
}

static void *in_thread(void *unused) {
    (void)unused;
    /* Below the size that malloc maps by itself, which has grown meanwhile: from an arena of this thread. */
    char *blocks[16];
    for (int at = 0; at < 16; at++)
        blocks[at] = malloc(300000);
    assert(((uintptr_t)blocks[0] >> 26) != ((uintptr_t)sbrk(0) >> 26));
    say("arena", blocks[0], 300000);
    say("arena_last", blocks[15], 300000);
    for (int at = 0; at < 16; at++)
        free(blocks[at]);
    return NULL;
}

int main(int count, char **words) {
    (void)count;
    setvbuf(stdout, NULL, _IOLBF, 4096);
    char *small = NULL;
    size_t total = 32 * MIB;
    char *first = malloc(100);
    for (size_t sum = 0; sum < total; sum += 112)
        small = malloc(100);
    assert(small > first);
    say("heap", first, small - first);
    char *block = malloc(3 * MIB);
    say("malloc", block, 3 * MIB);
    say("calloc", calloc(3, MIB), 3 * MIB);
    char *grown = malloc(100);
    for (size_t size = 1000; size <= 40 * MIB; size *= 2)
        grown = realloc(grown, size);
    grown = realloc(grown, 40 * MIB);
    say("realloc", grown, 40 * MIB);
    say("aligned_alloc", aligned_alloc(4096, 5 * MIB), 5 * MIB);
    say("memalign", memalign(64, 5 * MIB), 5 * MIB);
    void *place;
    assert(posix_memalign(&place, 2 * MIB, 6 * MIB) == 0);
    say("posix_memalign", place, 6 * MIB);
    free(block); /* From now on, malloc serves blocks up to this size from its arenas. */
    pthread_t thread;
    assert(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    pthread_join(thread, NULL);

    int both = PROT_READ | PROT_WRITE;
    char *mapped = map(MIB, both, MAP_PRIVATE);
    say("mmap", mapped, MIB);
    char *little = map(3 * 4096, both, MAP_PRIVATE);
    say("little", little, 3 * 4096);
    little = mremap(little, 3 * 4096, 4 * MIB, MREMAP_MAYMOVE);
    say("mremap", little, 4 * MIB);
    mapped = mremap(mapped, MIB, 64 * MIB, MREMAP_MAYMOVE);
    say("mremap_of_marked", mapped, 64 * MIB);
    char *reserved = map(8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE);
    say("reserved", reserved, 8 * MIB);
    assert(mprotect(reserved, 4 * MIB, both) == 0);
    say("mprotect", reserved, 4 * MIB);
    char *shared = map(MIB, both, MAP_SHARED);
    say("shared", shared, MIB);
    char *huge = map(8 * MIB, both, MAP_PRIVATE);
    madvise(huge, 8 * MIB, MADV_HUGEPAGE);
    say("huge", huge, 8 * MIB);
    char *own = map(8 * MIB, both, MAP_PRIVATE);
    madvise(own, 8 * MIB, MADV_MERGEABLE);
    madvise(own, 8 * MIB, MADV_HUGEPAGE);
    say("own_mark_of_huge", own, 8 * MIB);
    char *left = map(8 * MIB, both, MAP_PRIVATE);
    madvise(left, 8 * MIB, MADV_UNMERGEABLE);
    left = mremap(left, 8 * MIB, 128 * MIB, MREMAP_MAYMOVE);
    say("left", left, 128 * MIB);
    fflush(stdout);
    if (fork() == 0) {
        say("fork", grown, 40 * MIB);
        say("fork_new", malloc(50 * MIB), 50 * MIB);
        _exit(0);
    }
    wait(NULL);
    if (words[1]) {
        execl(words[0], words[0], NULL);
        return 1;
    }
    return 0;
}
