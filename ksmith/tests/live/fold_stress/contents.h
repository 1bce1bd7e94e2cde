/* Memory of huge pages with known contents, and the counters that all workers share. */
#ifndef CONTENTS_H
#define CONTENTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE 4096ul
#define HUGE_PAGE (2ul << 20)
#define PAGES_OF_HUGE (HUGE_PAGE / PAGE)

/* As in linux/mman.h since 5.14 and 6.1. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define COUNTERS(X)                                                                                                    \
    X(writes) X(shared_writes) X(moves) X(mappings) X(protections) X(locks) X(discards) X(lazy_frees) X(collapses)     \
    X(pageouts) X(pipes) X(forks) X(direct_reads) X(direct_writes) X(ring_reads) X(registered_reads)                   \
    X(remote_writes) X(mem_file_writes) X(writes_to_merged) X(writes_at_limit) X(kills_at_limit) X(oom_kills) X(renewed_huge_pages)      \
    X(checked_mib) X(seals) X(attack_locks) X(attack_discards) X(attack_moves) X(jit_seals) X(moved_groups)

enum counter {
#define NAME(name) name,
    COUNTERS(NAME)
#undef NAME
        COUNTER_KINDS
};

struct shared {
    atomic_int ends;
    atomic_int has_failed;
    atomic_ulong counts[COUNTER_KINDS];
};

extern struct shared *shared;

/* Counts one turn of a worker. */
static inline void count(enum counter kind) { atomic_fetch_add_explicit(&shared->counts[kind], 1, memory_order_relaxed); }

/* xorshift64. */
static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* The contents of a page in four bytes: 0 for zeros, SINGLE | offset << 8 | value for zeros but for one byte, any other number
 * for a page full of words that follow from it. */
typedef uint32_t seed_t;
#define SINGLE 0x80000000u

/* A seed by chance: six pages in ten are zero, two have a single byte. */
seed_t draw_seed(uint64_t *state);

/* Pages of one worker, and what they must hold. The seeds lie in memory that has no huge pages. */
struct arena {
    const char *worker;
    unsigned char *start;
    seed_t *seeds;
    size_t pages;
    uint64_t random;
};

/* Maps so many huge pages, aligned, that are wanted huge. */
unsigned char *map_huge(size_t huge_pages);

/* Memory without huge pages, which is never folded. */
void *map_plain(size_t length);

/* An arena that is filled by chance. */
struct arena *make_arena(const char *worker, size_t huge_pages);

/* Writes to a page of an arena what the seed says: where the least that differs is one byte, only that. */
void change_page(struct arena *arena, size_t page, seed_t seed);

/* Writes all of a page, as for `change_page`. */
void fill_page(unsigned char *page, seed_t seed);

/* Ends everything if a byte is not as the seed says. */
void check_bytes(const char *worker, const unsigned char *page, seed_t seed);
void check_page(struct arena *arena, size_t page);
void check_pages(struct arena *arena, size_t from, size_t count);
void check_arena(struct arena *arena);

/* True if all bytes of a page are as the seed says. */
int has_contents(const unsigned char *page, seed_t seed);

/* Makes a huge page of an arena whole again: by collapse, or by new memory with the same contents. */
void renew_huge_page(struct arena *arena);

/* Writes by chance to one page of an arena, and checks it before and after. */
void write_once(struct arena *arena);

/* Ends everything for a byte that differs. */
_Noreturn void report_difference(const char *worker, const unsigned char *page, size_t offset, unsigned want, unsigned got);

/* Ends everything for a call that must not fail. */
_Noreturn void report_error(const char *worker, const char *call);
#define REQUIRE(worker, condition) ((condition) ? (void)0 : report_error(worker, #condition))

/* Sleeps for so many microseconds at most. */
void pause_shortly(uint64_t *state, unsigned most);

/* Says that a part does not run here. */
void skip_part(const char *part, const char *why);

/* A fault of our own, to see that it is found: discards pages that it has seen to be zero, whatever is written meanwhile. */
void *discard_zero_pages(void *range);
struct range {
    unsigned char *start;
    size_t pages;
};

/* The attacks: each a process that works until the end. */
extern const struct attack {
    const char *name;
    void (*run)(int is_broken);
} attacks[];
extern const size_t attack_count;

/* Parts of the stress: each starts its threads or works until the end. */
struct options {
    unsigned seconds;
    int has_swap, has_ksm, is_broken;
    const char *limited, *victims;
};
void run_threads(const struct options *options);
void run_forks(const struct options *options);
void run_io(const struct options *options);
void run_sibling(const struct options *options);
void run_merging(const struct options *options);
void run_limited(const struct options *options);
void run_victims(const struct options *options);

/* Memory that `run_io` and `run_sibling` share about each other. */
void make_sibling_state(void);

#endif
