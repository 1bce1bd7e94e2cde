/* ksm_zero_pages falls below zero (Linux 6.6 to 6.17, but for late releases of some). A fork copies page table entries that map the zero page through KSM, but
 * not the count of them; when the child unmaps them, the count falls by what it was never raised by, and never recovers.
 *
 *     gcc -O2 -static zero_pages.c -o zero_pages && ./zero_pages
 */
#include "ksm.h"

#define PAGES 256

int main(void) {
    begin();
    if (get("ksm_zero_pages") == absent)
        end(NOT_APPLICABLE, "this kernel does not count pages that KSM maps to the zero page");
    set("use_zero_pages", 1);
    long before = get("ksm_zero_pages");
    unsigned char *memory = offered(PAGES);
    for (size_t page = 0; page < PAGES; page++)
        memory[page * PAGE] = 0; /* Written, so that there is a page. */
    for (int pass = 0; pass < 8 && get("ksm_zero_pages") < before + PAGES; pass++)
        passes(1);
    if (get("ksm_zero_pages") != before + PAGES)
        end(FAILED, "%ld of %d empty pages merged", get("ksm_zero_pages") - before, PAGES);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    long with_parent = get("ksm_zero_pages") - before;
    munmap(memory, PAGES * PAGE);
    long after = get("ksm_zero_pages") - before;
    end(after < 0 ? REPRODUCED : NOT_REPRODUCED, "the count went from 0 to %d by a merge, to %ld when a forked child ended, and to "
        "%ld when nothing was left", PAGES, with_parent, after);
}
