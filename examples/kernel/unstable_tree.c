/* The unstable tree is ordered by contents that may change while pages are in it. Pages that change put it out of order, so that
 * a search goes astray and equal pages miss each other in a pass that visits both. The next pass builds a new tree and finds them.
 * mm/ksm.c says so ("the unstable tree may be corrupted"); this shows how much of a pass that costs.
 *
 * One mapping: pages, pages that will change, the first pages again. ksmd visits them by address, in batches. The middle part is
 * rewritten between the batch that puts it into the tree and the batch that looks for equal pages there.
 *
 *     gcc -O2 -static unstable_tree.c -o unstable_tree && ./unstable_tree
 */
#include "ksm.h"

#define PAIRS 1024
#define CHANGING 1024

/* How many pairs merge in the pass in which they can first, and in the next. */
static void try(int changes, long *first, long *next) {
    size_t all = PAIRS + CHANGING + PAIRS;
    unsigned char *memory = offered(all), *changing = memory + PAIRS * PAGE;
    fill(memory, PAIRS, 1);
    fill(changing, CHANGING, 2);
    fill(changing + CHANGING * PAGE, PAIRS, 1);
    passes(1); /* Takes the checksums. */
    set("pages_to_scan", PAIRS + CHANGING);
    long done = get("full_scans");
    batch_until("pages_unshared", PAIRS + CHANGING);
    if (changes)
        fill(changing, CHANGING, 3);
    set("pages_to_scan", 1000000);
    batch_until("full_scans", done + 1);
    *first = get("pages_sharing");
    passes(2);
    *next = get("pages_sharing");
    munmap(memory, all * PAGE);
    set("run", 2);
    set("run", 0);
}

int main(void) {
    begin();
    long calm, calm_next, torn, torn_next;
    try(0, &calm, &calm_next);
    try(1, &torn, &torn_next);
    if (calm != PAIRS || torn_next != PAIRS)
        end(FAILED, "of %d pairs %ld merged where nothing changed, %ld in the end where pages did", PAIRS, calm, torn_next);
    end(torn < PAIRS ? REPRODUCED : NOT_REPRODUCED, "%ld of %d equal pairs missed each other in a pass in which %d other pages "
        "changed in the tree; without changes none did, and later passes merged all", PAIRS - torn, PAIRS, CHANGING);
}
