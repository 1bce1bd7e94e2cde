/* A page that equals a merged page merges when ksmd first visits it (before Linux 6.11), without a second visit that finds it
 * unchanged. cmp_and_merge_page() searched the stable tree before it compared checksums.
 *
 * Why it matters: a program that keeps owners of memory apart by watching for processes that offer memory has a pass of time from
 * 6.11 on. Before, a new process may be merged with one of another owner by the batch that first finds it.
 *
 *     gcc -O2 -static first_visit.c -o first_visit && ./first_visit
 */
#include "ksm.h"

#define PAGES 256

static void young(void) {
    fill(offered(PAGES), PAGES, 1);
}

int main(void) {
    begin();
    /* Before anything is offered, so that the child has nothing of it. */
    struct child child = start_child(young);
    for (int copy = 0; copy < 2; copy++)
        fill(offered(PAGES), PAGES, 1);
    for (int pass = 0; pass < 8 && get("pages_sharing") < PAGES; pass++)
        passes(1);
    if (get("pages_sharing") != PAGES)
        end(FAILED, "%ld of %d pairs merged beforehand", get("pages_sharing"), PAGES);
    let_go(&child);
    long before = get("full_scans");
    passes(1);
    long first = get("pages_sharing") - PAGES;
    if (get("full_scans") != before + 1)
        end(FAILED, "ksmd made %ld passes instead of one", get("full_scans") - before);
    passes(1);
    long second = get("pages_sharing") - PAGES;
    end_child(&child);
    if (second != PAGES)
        end(FAILED, "%ld of the new process's %d pages merged in two passes", second, PAGES);
    end(first > 0 ? REPRODUCED : NOT_REPRODUCED, "%ld of a new process's %d pages merged on ksmd's first visit, %ld by its second",
        first, PAGES, second);
}
