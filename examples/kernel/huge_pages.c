/* What splits a transparent huge page: not that ksmd visits its pages, but that a single one of them merges. Then all 512 lie in
 * small pages from there on, whatever the other 511 hold.
 *
 *     gcc -O2 -static huge_pages.c -o huge_pages && ./huge_pages
 */
#include "huge.h"

#define COUNT 4

int main(void) {
    begin();
    begin_huge();
    unsigned char *memory = offered_huge(COUNT);
    fill(memory, COUNT * 512, 1);
    long at_first = own_bytes("AnonHugePages");
    passes(3);
    long visited = own_bytes("AnonHugePages");
    /* One page of the second huge page gets an equal one in an ordinary page. */
    unsigned char *small = offered(1);
    memcpy(small, memory + HUGE + 5 * PAGE, PAGE);
    for (int pass = 0; pass < 8 && get("pages_sharing") < 1; pass++)
        passes(1);
    if (get("pages_sharing") != 1)
        end(FAILED, "%ld pages merged instead of one", get("pages_sharing"));
    long merged = own_bytes("AnonHugePages");
    int is_so = visited == at_first && merged == at_first - (long)HUGE;
    end(is_so ? REPRODUCED : NOT_REPRODUCED, "%ld huge pages, %ld after three passes that visited them, %ld after one of their "
        "%d pages merged", at_first / (long)HUGE, visited / (long)HUGE, merged / (long)HUGE, COUNT * 512);
}
