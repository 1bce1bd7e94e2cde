/* Threads of one process that write to their memory, and change its mappings. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "contents.h"

#define HUGE_PAGES 4

/* A range of an arena by chance. */
static void draw_range(struct arena *arena, size_t most, size_t *first, size_t *pages) {
    *pages = 1 + next_random(&arena->random) % most;
    *first = next_random(&arena->random) % (arena->pages - *pages + 1);
}

/* Now and then: all is checked, and a huge page is made whole again. */
static void keep_house(struct arena *arena, unsigned long turn) {
    if (turn % 64 == 63)
        renew_huge_page(arena);
    if (turn % 1024 == 1023)
        check_arena(arena);
    if (turn % 16 == 15)
        pause_shortly(&arena->random, 300);
}

static void *write_bytes(void *given) {
    struct arena *arena = given;
    for (unsigned long turn = 0; !shared->ends; turn++) {
        for (int write = 0; write < 16; write++) {
            write_once(arena);
            count(writes);
        }
        keep_house(arena, turn);
    }
    check_arena(arena);
    return NULL;
}

/* Two threads write to words of their own in the same pages. */
#define SHARERS 2
static unsigned char *common;
static unsigned *values[SHARERS];

static void *write_words(void *number) {
    size_t own = (size_t)number, pages = HUGE_PAGES * PAGES_OF_HUGE;
    uint64_t state = 4711 + own;
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t page = next_random(&state) % pages;
        unsigned char *start = common + page * PAGE;
        volatile unsigned *word = (volatile unsigned *)start + own * 300;
        unsigned got = *word;
        if (got != values[own][page])
            report_difference("shared words", start, own * 1200, values[own][page], got);
        *word = values[own][page] = turn % 3 ? 0 : (unsigned)next_random(&state);
        count(shared_writes);
        if (turn % 4096 == 4095)
            madvise(common + page / PAGES_OF_HUGE * HUGE_PAGE, HUGE_PAGE, MADV_COLLAPSE);
        if (turn % 256 == 255)
            pause_shortly(&state, 300);
    }
    return NULL;
}

/* An address range that is free, and at a huge page's border or a page after it. */
static unsigned char *reserve(struct arena *arena, size_t length) {
    unsigned char *memory =
        mmap(NULL, length + 2 * HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(arena->worker, memory != MAP_FAILED);
    unsigned char *target = (unsigned char *)(((uintptr_t)memory + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
    if (next_random(&arena->random) % 4 == 0)
        target += PAGE;
    /* The rest is given back. */
    if (target > memory)
        munmap(memory, target - memory);
    munmap(target + length, memory + 2 * HUGE_PAGE - target);
    return target;
}

/* As realloc does: new memory at a huge page's border. */
static void copy_to_new_memory(struct arena *arena) {
    unsigned char *to = map_huge(arena->pages / PAGES_OF_HUGE);
    memcpy(to, arena->start, arena->pages * PAGE);
    munmap(arena->start, arena->pages * PAGE);
    arena->start = to;
}

static void *move_memory(void *given) {
    struct arena *arena = given;
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t length = arena->pages * PAGE, first, pages;
        write_once(arena);
        switch (next_random(&arena->random) % 5) {
        case 0: {
            unsigned char *to = reserve(arena, length);
            unsigned char *moved = mremap(arena->start, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to);
            if (moved == MAP_FAILED && errno == EFAULT) { /* Several mappings, which move at once since 6.17. */
                munmap(to, length);
                copy_to_new_memory(arena);
                break;
            }
            REQUIRE(arena->worker, moved == to);
            arena->start = to;
            break;
        }
        case 1: { /* Part of it away, and back. Its place stays mapped, or another thread might map something there. */
            draw_range(arena, 700, &first, &pages);
            unsigned char *from = arena->start + first * PAGE, *to = reserve(arena, pages * PAGE);
            unsigned char *moved = mremap(from, pages * PAGE, pages * PAGE,
                                          MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
            if (moved == MAP_FAILED && errno == EFAULT) {
                munmap(to, pages * PAGE);
                copy_to_new_memory(arena);
                break;
            }
            REQUIRE(arena->worker, moved == to);
            for (size_t page = 0; page < pages; page++)
                check_bytes(arena->worker, to + page * PAGE, arena->seeds[first + page]);
            REQUIRE(arena->worker, mremap(to, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, from) == from);
            break;
        }
        case 2: { /* Longer, and shorter again. */
            unsigned char *moved = mremap(arena->start, length, length + HUGE_PAGE, MREMAP_MAYMOVE);
            REQUIRE(arena->worker, moved != MAP_FAILED);
            arena->start = moved;
            for (size_t page = 0; page < PAGES_OF_HUGE; page += 7) {
                check_bytes(arena->worker, moved + length + page * PAGE, 0);
                fill_page(moved + length + page * PAGE, (seed_t)page + 1);
            }
            for (size_t page = 0; page < PAGES_OF_HUGE; page += 7)
                check_bytes(arena->worker, moved + length + page * PAGE, (seed_t)page + 1);
            REQUIRE(arena->worker, mremap(moved, length + HUGE_PAGE, length, 0) == moved);
            break;
        }
        case 3: { /* The old range stays mapped, and is empty. */
            unsigned char *old = arena->start, *to = reserve(arena, length);
            unsigned char *moved =
                mremap(old, length, length, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
            if (moved == MAP_FAILED && errno == EFAULT) {
                munmap(to, length);
                copy_to_new_memory(arena);
                break;
            }
            REQUIRE(arena->worker, moved == to);
            arena->start = to;
            for (size_t page = 0; page < arena->pages; page++)
                check_bytes(arena->worker, old + page * PAGE, 0);
            munmap(old, length);
            break;
        }
        default:
            copy_to_new_memory(arena);
        }
        count(moves);
        check_arena(arena);
        pause_shortly(&arena->random, 3000);
    }
    return NULL;
}

static void *change_mappings(void *given) {
    struct arena *arena = given;
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t first, pages;
        write_once(arena);
        draw_range(arena, turn % 4 ? 64 : arena->pages, &first, &pages);
        unsigned char *start = arena->start + first * PAGE;
        if (turn % 2)
            REQUIRE(arena->worker, munmap(start, pages * PAGE) == 0);
        if (first > 0)
            check_page(arena, first - 1);
        if (first + pages < arena->pages)
            check_page(arena, first + pages);
        unsigned char *again = mmap(start, pages * PAGE, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | (turn % 2 ? MAP_FIXED_NOREPLACE : MAP_FIXED), -1, 0);
        if (again == MAP_FAILED) {
            /* Another thread was given the hole: this arena begins anew. */
            if (first > 0)
                munmap(arena->start, first * PAGE);
            if (first + pages < arena->pages)
                munmap(start + pages * PAGE, (arena->pages - first - pages) * PAGE);
            arena->start = map_huge(arena->pages / PAGES_OF_HUGE);
            memset(arena->seeds, 0, arena->pages * sizeof *arena->seeds);
        } else {
            REQUIRE(arena->worker, again == start);
            madvise(start, pages * PAGE, MADV_HUGEPAGE);
            memset(arena->seeds + first, 0, pages * sizeof *arena->seeds);
        }
        for (int write = 0; write < 200; write++)
            write_once(arena);
        check_pages(arena, first, pages);
        count(mappings);
        keep_house(arena, turn);
    }
    check_arena(arena);
    return NULL;
}

static void *protect_pages(void *given) {
    struct arena *arena = given;
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t first, pages;
        draw_range(arena, turn % 4 ? 16 : 1024, &first, &pages);
        unsigned char *start = arena->start + first * PAGE;
        for (size_t page = first; page < first + pages; page++)
            change_page(arena, page, draw_seed(&arena->random));
        if (turn % 8 == 0) {
            REQUIRE(arena->worker, mprotect(start, pages * PAGE, PROT_NONE) == 0);
            pause_shortly(&arena->random, 500);
        }
        REQUIRE(arena->worker, mprotect(start, pages * PAGE, PROT_READ) == 0);
        check_pages(arena, first, pages);
        pause_shortly(&arena->random, 500);
        check_pages(arena, first, pages);
        REQUIRE(arena->worker, mprotect(start, pages * PAGE, PROT_READ | PROT_WRITE) == 0);
        for (size_t page = first; page < first + pages; page++)
            change_page(arena, page, 0);
        count(protections);
        keep_house(arena, turn);
    }
    check_arena(arena);
    return NULL;
}

static void *lock_pages(void *given) {
    struct arena *arena = given;
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t first, pages;
        draw_range(arena, turn % 4 ? 16 : 1024, &first, &pages);
        unsigned char *start = arena->start + first * PAGE;
        for (size_t page = first; page < first + pages; page++)
            change_page(arena, page, draw_seed(&arena->random));
        if (turn % 2 ? mlock(start, pages * PAGE) : mlock2(start, pages * PAGE, MLOCK_ONFAULT)) {
            skip_part("mlock", strerror(errno));
            return NULL;
        }
        check_pages(arena, first, pages);
        for (size_t page = first; page < first + pages; page += 3)
            change_page(arena, page, draw_seed(&arena->random));
        pause_shortly(&arena->random, 500);
        check_pages(arena, first, pages);
        REQUIRE(arena->worker, munlock(start, pages * PAGE) == 0);
        check_pages(arena, first, pages);
        count(locks);
        keep_house(arena, turn);
    }
    check_arena(arena);
    return NULL;
}

static void *discard_pages(void *given) {
    struct arena *arena = given;
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t first, pages;
        draw_range(arena, turn % 4 ? 32 : 1024, &first, &pages);
        unsigned char *start = arena->start + first * PAGE;
        for (size_t page = first; page < first + pages; page++)
            change_page(arena, page, draw_seed(&arena->random));
        REQUIRE(arena->worker, madvise(start, pages * PAGE, MADV_DONTNEED) == 0);
        memset(arena->seeds + first, 0, pages * sizeof *arena->seeds);
        check_pages(arena, first, pages);
        pause_shortly(&arena->random, 300);
        check_pages(arena, first, pages);
        count(discards);
        keep_house(arena, turn);
    }
    check_arena(arena);
    return NULL;
}

/* After MADV_FREE a page is as it was or zero, until it is written to. */
static void *free_lazily(void *given) {
    struct arena *arena = given;
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t first, pages;
        draw_range(arena, turn % 4 ? 32 : 1024, &first, &pages);
        unsigned char *start = arena->start + first * PAGE;
        if (madvise(start, pages * PAGE, MADV_FREE) != 0) {
            skip_part("MADV_FREE", strerror(errno));
            return NULL;
        }
        for (size_t page = first; page < first + pages; page++) {
            /* A write of the last byte keeps what the page has from then on, be it old or zero. */
            volatile unsigned char *last = arena->start + page * PAGE + PAGE - 1;
            unsigned char value = *last;
            *last = value;
            if (!has_contents(arena->start + page * PAGE, arena->seeds[page])) {
                /* The byte may be that of the old contents, and the rest zero. */
                *last = 0;
                check_bytes(arena->worker, arena->start + page * PAGE, 0);
                arena->seeds[page] = 0;
            }
        }
        pause_shortly(&arena->random, 300);
        check_pages(arena, first, pages);
        for (size_t page = first; page < first + pages; page++)
            change_page(arena, page, draw_seed(&arena->random));
        check_pages(arena, first, pages);
        count(lazy_frees);
        keep_house(arena, turn);
    }
    check_arena(arena);
    return NULL;
}

static void *collapse_pages(void *given) {
    struct arena *arena = given;
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t first = turn % HUGE_PAGES * PAGES_OF_HUGE;
        for (int write = 0; write < 8; write++)
            write_once(arena);
        int code = madvise(arena->start + first * PAGE, HUGE_PAGE, MADV_COLLAPSE);
        if (code != 0 && errno == EINVAL && turn == 0) {
            skip_part("MADV_COLLAPSE", "this kernel has none (Linux 6.1)");
            return NULL;
        }
        check_pages(arena, first, PAGES_OF_HUGE);
        if (code == 0)
            count(collapses);
        pause_shortly(&arena->random, 2000);
    }
    check_arena(arena);
    return NULL;
}

static void *page_out(void *given) {
    struct arena *arena = given;
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t first, pages;
        draw_range(arena, turn % 4 ? 64 : 1024, &first, &pages);
        for (int write = 0; write < 16; write++)
            write_once(arena);
        madvise(arena->start + first * PAGE, pages * PAGE, MADV_PAGEOUT);
        count(pageouts);
        if (turn % 2)
            check_pages(arena, first, pages);
        keep_house(arena, turn);
    }
    check_arena(arena);
    return NULL;
}

/* Pages that a pipe refers to: what leaves it is what they held. */
static void *send_pipes(void *given) {
    struct arena *arena = given;
    int ends[2];
    REQUIRE(arena->worker, pipe(ends) == 0);
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t half = arena->pages / 2, pages = 1 + next_random(&arena->random) % 15;
        size_t from = next_random(&arena->random) % (half - pages), to = half + next_random(&arena->random) % (half - pages);
        for (size_t page = from; page < from + pages; page++)
            change_page(arena, page, draw_seed(&arena->random));
        struct iovec vector = {arena->start + from * PAGE, pages * PAGE};
        ssize_t sent = vmsplice(ends[1], &vector, 1, 0);
        REQUIRE(arena->worker, sent > 0 && sent % (ssize_t)PAGE == 0);
        if (turn % 4 == 0)
            pause_shortly(&arena->random, 1000);
        for (ssize_t at = 0; at < sent;) {
            ssize_t got = read(ends[0], arena->start + to * PAGE + at, sent - at);
            REQUIRE(arena->worker, got > 0);
            at += got;
        }
        memcpy(arena->seeds + to, arena->seeds + from, sent / PAGE * sizeof *arena->seeds);
        check_pages(arena, to, sent / PAGE);
        check_pages(arena, from, pages);
        count(pipes);
        keep_house(arena, turn);
    }
    check_arena(arena);
    return NULL;
}

void run_threads(const struct options *options) {
    static const struct {
        const char *name;
        void *(*run)(void *);
    } workers[] = {
        {"writer", write_bytes},     {"second writer", write_bytes}, {"mremap", move_memory},     {"munmap", change_mappings},
        {"mprotect", protect_pages}, {"mlock", lock_pages},          {"discard", discard_pages},  {"lazy free", free_lazily},
        {"collapse", collapse_pages}, {"pipes", send_pipes},         {"pageout", page_out},
    };
    enum { KINDS = sizeof workers / sizeof *workers };
    pthread_t threads[KINDS + SHARERS + 1];
    size_t started = 0;
    common = map_huge(HUGE_PAGES);
    for (size_t kind = 0; kind < KINDS; kind++) {
        if (workers[kind].run == page_out && !options->has_swap)
            continue;
        struct arena *arena = make_arena(workers[kind].name, HUGE_PAGES);
        REQUIRE("threads", pthread_create(&threads[started++], NULL, workers[kind].run, arena) == 0);
        if (kind == 0 && options->is_broken) {
            static struct range range;
            range = (struct range){arena->start, arena->pages};
            REQUIRE("threads", pthread_create(&threads[started++], NULL, discard_zero_pages, &range) == 0);
        }
    }
    for (size_t own = 0; own < SHARERS; own++) {
        values[own] = map_plain(HUGE_PAGES * PAGES_OF_HUGE * sizeof **values);
        REQUIRE("threads", pthread_create(&threads[started++], NULL, write_words, (void *)own) == 0);
    }
    for (size_t thread = 0; thread < started; thread++)
        pthread_join(threads[thread], NULL);
}
