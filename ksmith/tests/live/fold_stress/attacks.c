/* Programs that write to zero pages, and change their mappings at once. Where folding and the change race, a write would be lost,
 * or memory that was given up would keep what it held. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "contents.h"

#define HUGE_PAGES 2
#define PAGES (HUGE_PAGES * PAGES_OF_HUGE)

/* As an instruction that a compiler at run time might emit. */
#define CODE 0xc3

struct attacker {
    const char *name;
    unsigned char *area, *other;
    uint64_t random;
    int is_broken;
};

/* Zero pages in huge ones, as new memory has them, and a wait by chance, in which they may be folded. */
static void empty_area(struct attacker *own) {
    if (next_random(&own->random) % 4) {
        REQUIRE(own->name, madvise(own->area, PAGES * PAGE, MADV_DONTNEED) == 0);
        for (size_t page = 0; page < PAGES; page += PAGES_OF_HUGE)
            *(volatile unsigned char *)(own->area + page * PAGE) = 0;
    } else {
        memset(own->area, 0, PAGES * PAGE);
        madvise(own->area, PAGES * PAGE, MADV_COLLAPSE);
    }
    uint64_t spins = next_random(&own->random) % 400000;
    for (volatile uint64_t spin = 0; spin < spins; spin++)
        ;
}

static unsigned char *draw_pages(struct attacker *own, size_t most, size_t *count) {
    *count = 1 + next_random(&own->random) % most;
    return own->area + next_random(&own->random) % (PAGES - *count) * PAGE;
}

static void write_number(unsigned char *page, uint64_t number) { *(volatile uint64_t *)page = number; }

static void check_number(const struct attacker *own, const unsigned char *page, uint64_t number) {
    uint64_t got = *(const volatile uint64_t *)page;
    for (size_t byte = 0; byte < 8; byte++)
        if ((got >> 8 * byte & 0xff) != (number >> 8 * byte & 0xff))
            report_difference(own->name, page, byte, number >> 8 * byte & 0xff, got >> 8 * byte & 0xff);
}

#define NUMBER(page) (0xc3c3c3c3c3ul + (page))

/* Writes, then makes what was written read-only: as a linker (RELRO) or a garbage collector does. */
static void seal_pages(struct attacker *own) {
    size_t pages;
    REQUIRE(own->name, mprotect(own->area, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
    empty_area(own);
    unsigned char *start = draw_pages(own, 16, &pages);
    for (size_t page = 0; page < pages; page++)
        write_number(start + page * PAGE, NUMBER(page));
    REQUIRE(own->name, mprotect(start, pages * PAGE, PROT_READ) == 0);
    for (int again = 0; again < 2; again++) {
        for (size_t page = 0; page < pages; page++)
            check_number(own, start + page * PAGE, NUMBER(page));
        usleep(again ? 0 : 1000);
    }
    count(seals);
}

static void lock_written(struct attacker *own) {
    size_t pages;
    empty_area(own);
    unsigned char *start = draw_pages(own, 16, &pages);
    for (size_t page = 0; page < pages; page++)
        write_number(start + page * PAGE, NUMBER(page));
    REQUIRE(own->name, mlock(start, pages * PAGE) == 0);
    for (int again = 0; again < 2; again++) {
        for (size_t page = 0; page < pages; page++)
            check_number(own, start + page * PAGE, NUMBER(page));
        usleep(again ? 0 : 1000);
    }
    REQUIRE(own->name, munlock(start, pages * PAGE) == 0);
    count(attack_locks);
}

/* Writes, then gives up what was written: it must read as zero. */
static void discard_written(struct attacker *own) {
    size_t pages;
    empty_area(own);
    unsigned char *start = draw_pages(own, 30, &pages);
    for (size_t page = 0; page < pages; page++)
        write_number(start + page * PAGE, NUMBER(page));
    REQUIRE(own->name, madvise(start, pages * PAGE, MADV_DONTNEED) == 0);
    for (int again = 0; again < 2; again++) {
        for (size_t page = 0; page < pages; page++)
            check_number(own, start + page * PAGE, 0);
        usleep(again ? 0 : 1000);
    }
    /* And once more, with a write that must stay. */
    for (size_t page = 0; page < pages; page++)
        write_number(start + page * PAGE, NUMBER(page));
    usleep(500);
    for (size_t page = 0; page < pages; page++)
        check_number(own, start + page * PAGE, NUMBER(page));
    count(attack_discards);
}

/* Writes, then moves what was written, with and without the old range staying mapped. */
static void move_written(struct attacker *own) {
    size_t pages;
    empty_area(own);
    unsigned char *start = draw_pages(own, 30, &pages);
    for (size_t page = 0; page < pages; page++)
        write_number(start + page * PAGE, NUMBER(page));
    int keeps_old = next_random(&own->random) % 2;
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (keeps_old ? MREMAP_DONTUNMAP : 0);
    REQUIRE(own->name, mremap(start, pages * PAGE, pages * PAGE, flags, own->other) == own->other);
    usleep(1000);
    for (size_t page = 0; page < pages; page++)
        check_number(own, own->other + page * PAGE, NUMBER(page));
    if (keeps_old)
        for (size_t page = 0; page < pages; page++)
            check_number(own, start + page * PAGE, 0);
    /* One mapping again. */
    munmap(own->area, PAGES * PAGE);
    own->area = map_huge(HUGE_PAGES);
    count(attack_moves);
}

/* Emits code into one page after another and seals each, as LuaJIT does. */
static void emit_code(struct attacker *own) {
    empty_area(own);
    for (int turn = 0; turn < 64; turn++) {
        unsigned char *page = own->area + next_random(&own->random) % PAGES * PAGE;
        memset(page, CODE, 64);
        REQUIRE(own->name, mprotect(page, PAGE, PROT_READ) == 0);
        for (volatile int spin = 0; spin < 3000; spin++)
            ;
        for (size_t byte = 0; byte < 64; byte++)
            if (((volatile unsigned char *)page)[byte] != CODE)
                report_difference(own->name, page, byte, CODE, page[byte]);
        REQUIRE(own->name, mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
        memset(page, 0, 64);
        count(jit_seals);
    }
}

/* Moves several mappings by one call, which works since Linux 6.17 and must go on working. */
static void move_group(struct attacker *own) {
    static int cannot;
    empty_area(own);
    for (size_t page = 0; page < PAGES; page += 2)
        write_number(own->area + page * PAGE, NUMBER(page));
    /* Every eighth of it is a mapping of its own. */
    size_t part = PAGES / 8 * PAGE;
    for (size_t at = part; at < PAGES * PAGE && !cannot; at += 2 * part)
        REQUIRE(own->name, mprotect(own->area + at, part, PROT_READ) == 0);
    unsigned char *to = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *moved = mremap(own->area, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    if (moved == MAP_FAILED && errno == EFAULT && !cannot) {
        cannot = 1;
        skip_part("mremap of several mappings", "this kernel moves one at a time (Linux 6.17)");
        munmap(to, PAGES * PAGE);
    } else {
        REQUIRE(own->name, moved == to);
        munmap(own->area, PAGES * PAGE);
        own->area = to;
    }
    REQUIRE(own->name, mprotect(own->area, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
    for (size_t page = 0; page < PAGES; page++)
        check_number(own, own->area + page * PAGE, page % 2 ? 0 : NUMBER(page));
    if (next_random(&own->random) % 4 == 0) {
        munmap(own->area, PAGES * PAGE);
        own->area = map_huge(HUGE_PAGES);
    }
    count(moved_groups);
}

/* The attacker's area moves: what is broken looks for it anew. */
static void *discard_all(void *given) {
    struct attacker *own = given;
    while (!shared->ends)
        for (size_t page = 0; page < PAGES; page++) {
            unsigned char *start = *(unsigned char *volatile *)&own->area + page * PAGE;
            /* Read by the kernel: the page may just be unmapped. */
            static unsigned char bytes[PAGE] __attribute__((aligned(8)));
            struct iovec local = {bytes, PAGE}, remote = {start, PAGE};
            if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != (ssize_t)PAGE || !has_contents(bytes, 0))
                continue;
            for (volatile int wait = 0; wait < 300; wait++)
                ;
            madvise(start, PAGE, MADV_DONTNEED);
        }
    return NULL;
}

static void run_attack(const char *name, void (*turn)(struct attacker *), int is_broken) {
    struct attacker own = {.name = name, .random = 88172645463325252ul, .is_broken = is_broken};
    own.area = map_huge(HUGE_PAGES);
    own.other = mmap(NULL, 64 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t thread;
    if (is_broken)
        REQUIRE(name, pthread_create(&thread, NULL, discard_all, &own) == 0);
    while (!shared->ends)
        turn(&own);
    if (is_broken)
        pthread_join(thread, NULL);
}

#define ATTACK(name)                                                                                                   \
    static void run_##name(int is_broken) { run_attack(#name, name, is_broken); }
ATTACK(seal_pages)
ATTACK(lock_written)
ATTACK(discard_written)
ATTACK(move_written)
ATTACK(emit_code)
ATTACK(move_group)

const struct attack attacks[] = {
    {"seal", run_seal_pages},      {"lock", run_lock_written}, {"discard", run_discard_written},
    {"move", run_move_written}, {"jit", run_emit_code},     {"group", run_move_group},
};
const size_t attack_count = sizeof attacks / sizeof *attacks;
