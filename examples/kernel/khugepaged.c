/* Ranges that khugepaged makes huge pages of again. With max_ptes_shared and max_ptes_none at the kernel's defaults it takes ranges with
 * merged, empty or zero pages too: what was merged gets a copy, and the zeros get memory. With 0 in both it leaves each range with a
 * single such page alone, and takes ranges of 512 ordinary pages all the same.
 *
 *     gcc -O2 -static khugepaged.c -o khugepaged && ./khugepaged
 */
#include "huge.h"

#define FOLDER "/sys/kernel/mm/transparent_hugepage/khugepaged/"

static const char *const FILES[] = {"scan_sleep_millisecs", "alloc_sleep_millisecs", "pages_to_scan", "max_ptes_shared", "max_ptes_none"};
#define FILE_COUNT (sizeof FILES / sizeof *FILES)
static long files_before[FILE_COUNT];

static void put_files_back(void) {
    if (getpid() != restorer)
        return;
    for (size_t at = 0; at < FILE_COUNT; at++)
        set_in(FOLDER, FILES[at], files_before[at]);
}

static void begin_khugepaged(void) {
    for (size_t at = 0; at < FILE_COUNT; at++)
        if ((files_before[at] = get_in(FOLDER, FILES[at])) == absent)
            end(NOT_APPLICABLE, "this kernel has no %s%s", FOLDER, FILES[at]);
    atexit(put_files_back);
    set_in(FOLDER, "alloc_sleep_millisecs", 10);
    set_in(FOLDER, "pages_to_scan", 1000000);
    set_in(FOLDER, "scan_sleep_millisecs", 10);
}

/* Ranges of one huge page each, in mappings of their own. */
enum { ORDINARY, MERGED, ZERO, EMPTY, RANGES };
static const char *const NAMES[RANGES] = {"ordinary pages", "a merged page", "a zero page", "an empty page"};
static unsigned char *ranges[RANGES];

/* A bit for each range that is a huge page. */
static unsigned huge_ranges(void) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[256];
    unsigned found = 0;
    int range = RANGES;
    if (!file)
        end(FAILED, "/proc/self/smaps: %s", strerror(errno));
    while (fgets(line, sizeof line, file)) {
        unsigned long first, last;
        long kib;
        if (sscanf(line, "%lx-%lx ", &first, &last) == 2 && line[0] != 'A')
            for (range = 0; range < RANGES && first != (unsigned long)ranges[range]; range++)
                ;
        else if (range < RANGES && sscanf(line, "AnonHugePages: %ld kB", &kib) == 1 && kib << 10 == HUGE)
            found |= 1U << range;
    }
    fclose(file);
    return found;
}

/* Waits for two whole walks of khugepaged. The first may have begun before. */
static void walks(void) {
    long wanted = get_in(FOLDER, "full_scans") + 3;
    for (long waits = 0; waits < 120000; waits++) {
        if (get_in(FOLDER, "full_scans") >= wanted)
            return;
        pause_ms(1);
    }
    end(FAILED, "khugepaged did not walk twice in two minutes");
}

static void describe(char *text, size_t length, unsigned found) {
    *text = 0;
    for (int range = 0; range < RANGES; range++)
        if (found & 1U << range)
            snprintf(text + strlen(text), length - strlen(text), "%s%s", *text ? ", " : "", NAMES[range]);
    if (!found)
        snprintf(text, length, "none");
}

int main(void) {
    begin();
    begin_huge(); /* khugepaged does not run under "never". */
    begin_khugepaged();
    unsigned char *place = huge_space(2 * RANGES, PROT_NONE);
    set_in(FOLDER, "max_ptes_shared", 0);
    set_in(FOLDER, "max_ptes_none", 0);
    volatile unsigned char sink = 0;
    for (int range = 0; range < RANGES; range++) {
        unsigned char *memory = ranges[range] = place + 2 * range * HUGE;
        mprotect(memory, HUGE, PROT_READ | PROT_WRITE);
        madvise(memory, HUGE, MADV_NOHUGEPAGE);
        size_t pages = range == ZERO || range == EMPTY ? 511 : 512;
        fill(memory, pages, range + 1);
        if (range == ZERO)
            sink = memory[pages * PAGE]; /* Reading maps the zero page. */
    }
    (void)sink;
    unsigned char *partner = offered(1);
    memcpy(partner, ranges[MERGED] + 5 * PAGE, PAGE);
    if (madvise(ranges[MERGED], HUGE, MADV_MERGEABLE))
        end(FAILED, "madvise(MADV_MERGEABLE): %s", strerror(errno));
    for (int pass = 0; pass < 8 && get("pages_sharing") < 1; pass++)
        passes(1);
    if (get("pages_sharing") != 1)
        end(FAILED, "%ld pages merged instead of one", get("pages_sharing"));
    for (int range = 0; range < RANGES; range++)
        madvise(ranges[range], HUGE, MADV_HUGEPAGE);
    walks();
    unsigned strict = huge_ranges();
    set_in(FOLDER, "max_ptes_shared", 256);
    set_in(FOLDER, "max_ptes_none", 511);
    walks();
    unsigned usual = huge_ranges();
    char one[128], other[128];
    describe(one, sizeof one, strict);
    describe(other, sizeof other, usual);
    int is_so = strict == 1U << ORDINARY && usual == (1U << RANGES) - 1;
    end(is_so ? REPRODUCED : NOT_REPRODUCED, "huge pages of ranges with, at 0 and 0: %s; at the defaults: %s", one, other);
}
