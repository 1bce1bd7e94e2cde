/* Zeros that no counter of KSM knows. When KSM merges one page of a transparent huge page, the kernel splits it and maps every page of it
 * that holds zeros to the zero page: their memory is free, and neither pages_sharing nor ksm_zero_pages says so. Who adds up KSM's
 * counters takes the saving, and the memory that writing to all of it would need, for too small.
 *
 *     gcc -O2 -static uncounted_zeros.c -o uncounted_zeros && ./uncounted_zeros
 */
#include "huge.h"

#define COUNT 4
#define PAGES (HUGE / PAGE)

int main(void) {
    begin();
    begin_huge();
    unsigned char *memory = offered_huge(COUNT), *small = offered(COUNT);
    /* The second half of each huge page stays zero, and its first page has an equal one elsewhere. */
    for (int at = 0; at < COUNT; at++) {
        fill(memory + at * HUGE, PAGES / 2, at + 1);
        memcpy(small + at * PAGE, memory + at * HUGE, PAGE);
    }
    long at_first = own_bytes("Rss");
    for (int pass = 0; pass < 8 && get("pages_sharing") < COUNT; pass++)
        passes(1);
    if (get("pages_sharing") < COUNT)
        end(FAILED, "%ld pages merged instead of %d", get("pages_sharing"), COUNT);
    long freed = (at_first - own_bytes("Rss")) / (long)PAGE;
    long zero = get("ksm_zero_pages") == absent ? 0 : get("ksm_zero_pages");
    int is_so = freed >= (long)(COUNT * PAGES / 4) && get("pages_sharing") + zero < freed / 2;
    end(is_so ? REPRODUCED : NOT_REPRODUCED, "of %lu zero pages in %d huge pages %ld came free; pages_sharing = %ld, ksm_zero_pages = %ld",
        COUNT * PAGES / 2, COUNT, freed, get("pages_sharing"), zero);
}
