/* smart_scan (Linux 6.7, on by default) can keep equal pages apart for ever. A page that does not merge is visited ever more
 * rarely, in the end in one pass of nine, and is in the unstable tree only in passes that visit it. Two pages with visits that never
 * fall into one pass never meet, although both stay as they are.
 *
 *     gcc -O2 -static smart_scan.c -o smart_scan && ./smart_scan
 */
#include "ksm.h"

#define PAGES 64
#define LATER 60

static void late(void) {
    fill(offered(PAGES), PAGES, 1);
}

/* How many pages of a process that starts after `age` passes merge with equal, older ones within LATER passes. */
static long merged_after(int age) {
    struct child old = start_child(late), young = start_child(late);
    set("smart_scan", 1);
    let_go(&old);
    passes(age);
    let_go(&young);
    passes(LATER);
    long merged = get("pages_sharing");
    set("smart_scan", 0);
    passes(3);
    if (get("pages_sharing") != PAGES)
        end(FAILED, "%ld of %d equal pairs merged without smart_scan", get("pages_sharing"), PAGES);
    end_child(&old);
    end_child(&young);
    set("run", 2);
    set("run", 0);
    return merged;
}

int main(void) {
    begin();
    if (get("smart_scan") == absent)
        end(NOT_APPLICABLE, "this kernel has no smart_scan: ksmd visits every page in every pass");
    for (int age = 13; age < 22; age++) {
        long merged = merged_after(age);
        if (merged < PAGES)
            end(REPRODUCED, "%ld of %d equal pairs merged in %d passes where one process started %d passes before the other; all "
                "did in 3 passes with smart_scan = 0", merged, PAGES, LATER, age);
    }
    end(NOT_REPRODUCED, "all equal pairs merged within %d passes, whichever process started first", LATER);
}
