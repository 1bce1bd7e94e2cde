/* Knows nothing of KSM. Fills MIB of memory, an eighth of it with pages that are equal in every process that does the same, in
 * one stretch, and the rest with pages of its own; says its number and where the memory and the stretch begin; and when HOLD is
 * gone checks all. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

static void fill(uint64_t *page, uint64_t seed, uint64_t salt) {
    for (int at = 0; at < PAGE / 8; at++)
        page[at] = (seed * 512 + at + 1) * 0x9e3779b97f4a7c15u ^ salt;
}

int main(int count, char **words) {
    if (count != 3)
        return 2;
    size_t pages = (size_t)atoi(words[1]) * 256, first = pages / 4, behind = first + pages / 8;
    uint64_t own = (uint64_t)getpid() * 0x2545f4914f6cdd1du, expected[PAGE / 8];
    unsigned char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    for (size_t at = 0; at < pages; at++)
        fill((uint64_t *)(memory + at * PAGE), at, at >= first && at < behind ? 0 : own);
    char line[80];
    int length = snprintf(line, sizeof line, "%d %lx %lx %lx %lx\n", getpid(), (long)memory, (long)memory + pages * PAGE,
                          (long)memory + first * PAGE, (long)memory + behind * PAGE);
    if (write(1, line, length) != length)
        return 2;
    while (access(words[2], F_OK) == 0)
        usleep(20000);
    for (size_t at = 0; at < pages; at++) {
        fill(expected, at, at >= first && at < behind ? 0 : own);
        for (int word = 0; word < PAGE / 8; word++)
            if (((uint64_t *)(memory + at * PAGE))[word] != expected[word])
                return 1;
    }
    return 0;
}
