/* What the reproducers on transparent huge pages share. */
#ifndef HUGE_H
#define HUGE_H

#include "ksm.h"

#define HUGE (2UL << 20)
#define HUGE_ENABLED "/sys/kernel/mm/transparent_hugepage/enabled"

static char enabled_before[16];

static void enable(const char *mode) {
    int file = open(HUGE_ENABLED, O_WRONLY);
    if (file < 0 || write(file, mode, strlen(mode)) < 0)
        end(FAILED, "%s = %s: %s", HUGE_ENABLED, mode, strerror(errno));
    close(file);
}

static void put_enabled_back(void) {
    if (getpid() == restorer)
        enable(enabled_before);
}

/* Lets programs have huge pages that ask for them, until the end: small machines start with "never". */
static void begin_huge(void) {
    char text[64] = "", *mode;
    int file = open(HUGE_ENABLED, O_RDONLY);
    if (file < 0 || read(file, text, sizeof text - 1) < 0 || !(mode = strchr(text, '[')) || !strchr(mode, ']'))
        end(NOT_APPLICABLE, "this kernel has no transparent huge pages");
    close(file);
    *strchr(mode, ']') = 0;
    snprintf(enabled_before, sizeof enabled_before, "%s", mode + 1);
    atexit(put_enabled_back);
    enable("madvise");
}

/* Address space for so many huge pages, from the start of one on. */
static unsigned char *huge_space(size_t count, int protection) {
    unsigned char *place = mmap(NULL, (count + 1) * HUGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED)
        end(FAILED, "mmap: %s", strerror(errno));
    return (unsigned char *)(((uintptr_t)place + HUGE - 1) & -HUGE);
}

/* A sum of this process in /proc/self/smaps_rollup, in bytes: "AnonHugePages", "Rss". */
__attribute__((unused)) static long own_bytes(const char *name) {
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    size_t length = strlen(name);
    long kib = 0;
    if (!file)
        end(FAILED, "/proc/self/smaps_rollup: %s", strerror(errno));
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, length) && sscanf(line + length, ": %ld kB", &kib) == 1)
            break;
    fclose(file);
    return kib << 10;
}

/* So many whole huge pages that are offered to KSM, all zero. */
__attribute__((unused)) static unsigned char *offered_huge(size_t count) {
    unsigned char *memory = huge_space(count, PROT_READ | PROT_WRITE);
    long before = own_bytes("AnonHugePages");
    madvise(memory, count * HUGE, MADV_HUGEPAGE);
    if (madvise(memory, count * HUGE, MADV_MERGEABLE))
        end(FAILED, "madvise(MADV_MERGEABLE): %s", strerror(errno));
    for (size_t at = 0; at < count; at++)
        ((volatile unsigned char *)memory)[at * HUGE] = 0;
    long given = own_bytes("AnonHugePages") - before;
    if (given != (long)(count * HUGE))
        end(NOT_APPLICABLE, "the kernel gave %ld of %lu bytes in huge pages", given, count * HUGE);
    return memory;
}

#endif
