/* Knows nothing of KSM. Fills MIB of memory of each kind with pages that are equal in every process that does the same, and as
 * much with pages of its own; says so; and on a word on standard input checks all, writes to some, checks again and ends. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define KINDS 4

static uint64_t own;

static void fill(unsigned char *page, uint64_t seed, uint64_t salt) {
    for (int at = 0; at < PAGE / 8; at++)
        ((uint64_t *)page)[at] = (seed * 512 + at + 1) * 0x9e3779b97f4a7c15u ^ salt;
}

static void check(const unsigned char *page, uint64_t seed, uint64_t salt) {
    unsigned char expected[PAGE] __attribute__((aligned(8)));
    fill(expected, seed, salt);
    if (memcmp(page, expected, PAGE)) {
        fprintf(stderr, "a page is not as it was written\n");
        abort();
    }
}

int main(int count, char **words) {
    size_t pages = (size_t)atoi(words[count - 1]) * 256;
    own = (uint64_t)getpid() * 0x2545f4914f6cdd1du;
    void *aligned;
    if (posix_memalign(&aligned, PAGE, 2 * pages * PAGE))
        return 1;
    unsigned char *kinds[KINDS] = {aligned};
    kinds[1] = mmap(NULL, 2 * pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    kinds[2] = malloc((2 * pages + 1) * PAGE);
    kinds[2] += (PAGE - (uintptr_t)kinds[2] % PAGE) % PAGE;
    /* Of small blocks: the heap. What lies between them belongs to malloc alone, so it is not counted on. */
    unsigned char *first = NULL, *last = NULL;
    for (size_t at = 0; at < (2 * pages + 64) * PAGE / 2064; at++) {
        last = malloc(2048);
        first = first ? first : last;
    }
    kinds[3] = last > first && (size_t)(last - first) > 2 * pages * PAGE ? first : NULL;
    for (int kind = 0; kind < KINDS - 1; kind++)
        for (size_t at = 0; at < 2 * pages; at++)
            fill(kinds[kind] + at * PAGE, kind * 2 * pages + at, at < pages ? 0 : own);
    /* The blocks hold the same everywhere. */
    if (kinds[3])
        for (unsigned char *block = first; block <= last; block += 2064)
            memset(block, (block - first) / 2064 % 250 + 1, 2048);
    puts("ready");
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof line, stdin))
        return 1;
    for (int turn = 0; turn < 2; turn++) {
        for (int kind = 0; kind < KINDS - 1; kind++)
            for (size_t at = 0; at < 2 * pages; at++)
                check(kinds[kind] + at * PAGE, kind * 2 * pages + at + (turn && at % 3 == 0), at < pages ? 0 : own);
        if (kinds[3])
            for (unsigned char *block = first; block <= last; block += 2064)
                for (int at = 0; at < 2048; at++)
                    if (block[at] != (block - first) / 2064 % 250 + 1)
                        abort();
        for (int kind = 0; !turn && kind < KINDS - 1; kind++)
            for (size_t at = 0; at < 2 * pages; at += 3)
                fill(kinds[kind] + at * PAGE, kind * 2 * pages + at + 1, at < pages ? 0 : own);
    }
    puts("checked");
    return 0;
}
