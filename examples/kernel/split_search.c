/* A merge splits a huge page, and all of its pages merge in the same pass: none of them waits in an LRU batch. But a split frees an
 * empty page that may be a node of the unstable tree, and each search that comes to that node ends. As the root it keeps the whole
 * pass from merging, also where all LRU batches are drained meanwhile. The next pass has a new tree.
 *
 *     gcc -O2 -static split_search.c -o split_search && ./split_search
 */
#include "huge.h"

#define COUNT 4L
#define PAGES (COUNT * 512)

/* Drains the LRU batches of all CPUs: `madvise_collapse` in mm/khugepaged.c begins with that. */
static void drain(void) {
    unsigned char *memory = huge_space(1, PROT_READ | PROT_WRITE);
    memset(memory, 1, PAGE);
    if (madvise(memory, HUGE, 25 /* MADV_COLLAPSE */) && errno == EINVAL)
        end(NOT_APPLICABLE, "this kernel has no MADV_COLLAPSE");
    munmap(memory, HUGE);
}

/* Pages of two equal areas that merge in the second pass and in the third. With `empty` the first page of both is empty. */
static void merge(int empty, int drains, long merged[2]) {
    unsigned char *one = offered_huge(COUNT), *other = offered_huge(COUNT);
    size_t first = empty ? PAGE : 0;
    fill(one, PAGES, 1);
    memset(one, 0, first);
    memcpy(other, one, COUNT * HUGE);
    set("run", 2);
    set("run", 0);
    set("use_zero_pages", 1);
    passes(1);
    if (drains) {
        /* The pass in pieces: the batches are empty before each. The first piece has the split. */
        set("pages_to_scan", 64);
        for (long wanted = get("full_scans") + 1; get("full_scans") < wanted;) {
            long scanned = get("pages_scanned");
            kick();
            while (get("pages_scanned") == scanned && get("full_scans") < wanted)
                pause_ms(1);
            while (ksmd_state() != 'S')
                pause_ms(1);
            drain();
        }
        set("pages_to_scan", 1000000);
    } else {
        passes(1);
    }
    merged[0] = get("pages_sharing");
    passes(1);
    merged[1] = get("pages_sharing");
    set("run", 2);
    set("run", 0);
    munmap(one, COUNT * HUGE);
    munmap(other, COUNT * HUGE);
}

int main(void) {
    begin();
    begin_huge();
    if (get("use_zero_pages") == absent || get("pages_scanned") == absent)
        end(NOT_APPLICABLE, "this kernel has no use_zero_pages or no pages_scanned");
    long plain[2], blocked[2], drained[2];
    merge(0, 0, plain);
    merge(1, 0, blocked);
    merge(1, 1, drained);
    /* With one empty page in front 511 more pages lie behind it in its huge page. */
    int is_so = plain[0] == PAGES && blocked[0] == 0 && drained[0] == 0 && blocked[1] == PAGES - 1 && drained[1] == PAGES - 1;
    end(is_so ? REPRODUCED : NOT_REPRODUCED, "of %ld equal pages in huge pages %ld merge in the second pass; with an empty page before "
        "them %ld, with LRU batches drained %ld; in the third pass %ld and %ld", PAGES, plain[0], blocked[0], drained[0], blocked[1],
        drained[1]);
}
