/* Pages with known contents: filled, changed and checked to the last byte. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "contents.h"

struct shared *shared;

/* The compiler must not know what memory holds. */
#define FORGET() __asm__ volatile("" ::: "memory")

seed_t draw_seed(uint64_t *state) {
    uint64_t number = next_random(state);
    switch (number % 10) {
    case 0: case 1: case 2: case 3: case 4: case 5:
        return 0;
    case 6: case 7:
        return SINGLE | (number >> 20 & 0xfff) << 8 | (1 + (number >> 40) % 255);
    default:
        return 1 + (number >> 32) % (SINGLE - 1);
    }
}

unsigned char *map_huge(size_t huge_pages) {
    size_t length = huge_pages * HUGE_PAGE;
    unsigned char *memory = mmap(NULL, length + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE("map", memory != MAP_FAILED);
    unsigned char *aligned = (unsigned char *)(((uintptr_t)memory + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
    if (aligned > memory)
        munmap(memory, aligned - memory);
    munmap(aligned + length, memory + HUGE_PAGE - aligned);
    /* Fails where the kernel has no huge pages: then nothing is folded, and all else stays as it is. */
    madvise(aligned, length, MADV_HUGEPAGE);
    return aligned;
}

void *map_plain(size_t length) {
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE("map", memory != MAP_FAILED);
    madvise(memory, length, MADV_NOHUGEPAGE);
    return memory;
}

struct arena *make_arena(const char *worker, size_t huge_pages) {
    static atomic_ulong number;
    struct arena *arena = map_plain(sizeof *arena);
    arena->worker = worker;
    arena->pages = huge_pages * PAGES_OF_HUGE;
    arena->seeds = map_plain(arena->pages * sizeof *arena->seeds);
    arena->start = map_huge(huge_pages);
    arena->random = 88172645463325252ul + ++number * 0x9e3779b97f4a7c15ul;
    for (size_t page = 0; page < arena->pages; page++)
        change_page(arena, page, draw_seed(&arena->random));
    return arena;
}

static uint64_t word_of(seed_t seed, size_t index) {
    return (seed + 1ul) * 0x9e3779b97f4a7c15ul + index * 0xbf58476d1ce4e5b9ul;
}

static size_t offset_of(seed_t seed) { return seed >> 8 & 0xfff; }

void fill_page(unsigned char *page, seed_t seed) {
    FORGET();
    if (seed == 0 || seed & SINGLE) {
        memset(page, 0, PAGE);
        if (seed & SINGLE)
            page[offset_of(seed)] = (unsigned char)seed;
    } else {
        for (size_t index = 0; index < PAGE / 8; index++)
            ((uint64_t *)page)[index] = word_of(seed, index);
    }
    FORGET();
}

void change_page(struct arena *arena, size_t page, seed_t seed) {
    unsigned char *bytes = arena->start + page * PAGE;
    seed_t before = arena->seeds[page];
    int was_single = (before & SINGLE) != 0, is_single = (seed & SINGLE) != 0;
    if ((before == 0 || was_single) && (seed == 0 || is_single)) {
        if (is_single)
            *(volatile unsigned char *)(bytes + offset_of(seed)) = (unsigned char)seed;
        if (was_single && !(is_single && offset_of(before) == offset_of(seed)))
            *(volatile unsigned char *)(bytes + offset_of(before)) = 0;
    } else {
        fill_page(bytes, seed);
    }
    arena->seeds[page] = seed;
}

int has_contents(const unsigned char *page, seed_t seed) {
    const uint64_t *words = (const uint64_t *)page;
    uint64_t differs = 0;
    FORGET();
    if (seed != 0 && !(seed & SINGLE)) {
        for (size_t index = 0; index < PAGE / 8; index++)
            differs |= words[index] ^ word_of(seed, index);
        return differs == 0;
    }
    size_t special = seed ? offset_of(seed) / 8 : 0;
    uint64_t want = seed ? (uint64_t)(seed & 0xff) << offset_of(seed) % 8 * 8 : 0;
    for (size_t index = 0; index < PAGE / 8; index++)
        differs |= words[index] ^ (index == special ? want : 0);
    return differs == 0;
}

void check_bytes(const char *worker, const unsigned char *page, seed_t seed) {
    if (has_contents(page, seed))
        return;
    unsigned char want[PAGE], got[PAGE];
    memcpy(got, page, PAGE);
    fill_page(want, seed);
    for (size_t offset = 0; offset < PAGE; offset++)
        if (want[offset] != got[offset])
            report_difference(worker, page, offset, want[offset], got[offset]);
    fprintf(stderr, "%s: %p differed from seed %#x, and does no longer\n", worker, (void *)page, seed);
    report_difference(worker, page, 0, want[0], got[0]);
}

void check_page(struct arena *arena, size_t page) {
    check_bytes(arena->worker, arena->start + page * PAGE, arena->seeds[page]);
}

void check_pages(struct arena *arena, size_t from, size_t count) {
    for (size_t page = from; page < from + count; page++)
        check_page(arena, page);
}

void check_arena(struct arena *arena) {
    check_pages(arena, 0, arena->pages);
    atomic_fetch_add_explicit(&shared->counts[checked_mib], arena->pages * PAGE >> 20, memory_order_relaxed);
}

void renew_huge_page(struct arena *arena) {
    size_t first = next_random(&arena->random) % (arena->pages / PAGES_OF_HUGE) * PAGES_OF_HUGE;
    unsigned char *start = arena->start + first * PAGE;
    if (next_random(&arena->random) % 2) {
        /* It may fail for want of memory, or beside another collapse. */
        madvise(start, HUGE_PAGE, MADV_COLLAPSE);
    } else if (madvise(start, HUGE_PAGE, MADV_DONTNEED) == 0) {
        for (size_t page = first; page < first + PAGES_OF_HUGE; page++)
            if (arena->seeds[page] != 0)
                fill_page(arena->start + page * PAGE, arena->seeds[page]);
            else
                *(volatile unsigned char *)(arena->start + page * PAGE) = 0;
    }
    count(renewed_huge_pages);
}

void write_once(struct arena *arena) {
    size_t page = next_random(&arena->random) % arena->pages;
    check_page(arena, page);
    change_page(arena, page, draw_seed(&arena->random));
    if (next_random(&arena->random) % 4 == 0)
        check_page(arena, page);
}

/* What the kernel says of a page, for a report. */
static void describe_page(const unsigned char *page) {
    int file = open("/proc/self/pagemap", O_RDONLY);
    uint64_t entry = 0;
    if (file >= 0 && pread(file, &entry, 8, (uintptr_t)page / PAGE * 8) == 8)
        fprintf(stderr, "its entry in pagemap: %#lx\n", entry);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned long low, high;
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &low, &high) == 2 && low <= (uintptr_t)page && (uintptr_t)page < high)
            fprintf(stderr, "its mapping: %s", line);
}

_Noreturn void report_difference(const char *worker, const unsigned char *page, size_t offset, unsigned want, unsigned got) {
    atomic_store(&shared->has_failed, 1);
    fprintf(stderr, "DIFFERS: worker %s, process %d, page %p, byte %zu: %#x, expected %#x", worker, getpid(), (void *)page,
            offset, got, want);
    FORGET();
    unsigned now = page[offset];
    usleep(10000);
    FORGET();
    fprintf(stderr, "; read again: %#x, after 10 ms: %#x\n", now, page[offset]);
    describe_page(page);
    _exit(1);
}

_Noreturn void report_error(const char *worker, const char *call) {
    int error = errno;
    atomic_store(&shared->has_failed, 1);
    fprintf(stderr, "FAILED: worker %s, process %d: %s: %s\n", worker, getpid(), call, strerror(error));
    _exit(1);
}

void pause_shortly(uint64_t *state, unsigned most) { usleep(1 + next_random(state) % most); }

void skip_part(const char *part, const char *why) {
    printf("skipped: %s: %s\n", part, why);
    fflush(stdout);
}

void *discard_zero_pages(void *given) {
    const struct range range = *(const struct range *)given;
    for (size_t page = 0; !shared->ends; page = (page + 1) % range.pages) {
        unsigned char *start = range.start + page * PAGE;
        if (!has_contents(start, 0))
            continue;
        for (volatile int wait = 0; wait < 2000; wait++)
            ;
        madvise(start, PAGE, MADV_DONTNEED);
    }
    return NULL;
}
