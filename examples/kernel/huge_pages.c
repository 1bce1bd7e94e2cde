/* What splits a transparent huge page: not that ksmd visits its pages, but that a single one of them merges. Then all 512 lie in
 * small pages from there on, whatever the other 511 hold.
 *
 *     gcc -O2 -static huge_pages.c -o huge_pages && ./huge_pages
 */
#include "ksm.h"

#define HUGE (2UL << 20)
#define COUNT 4

/* Bytes of this process in transparent huge pages. */
static long huge_bytes(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long kib = 0;
    if (!file)
        end(FAILED, "/proc/self/smaps_rollup: %s", strerror(errno));
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "AnonHugePages: %ld kB", &kib) == 1)
            break;
    fclose(file);
    return kib << 10;
}

static const char *const MODES[] = {"always", "madvise", "never"};
static const char *huge_before;

/* Reads the mode of transparent huge pages, which stands in brackets, or sets it. NULL: there is none. */
static const char *huge_mode(const char *wanted) {
    char text[64] = "";
    int file = open("/sys/kernel/mm/transparent_hugepage/enabled", wanted ? O_WRONLY : O_RDONLY);
    if (file < 0 || (wanted ? write(file, wanted, strlen(wanted)) : read(file, text, sizeof text - 1)) < 0)
        return NULL;
    close(file);
    for (int at = 0; at < 3; at++) {
        char *found = strstr(text, MODES[at]);
        if (found && found > text && found[-1] == '[')
            return MODES[at];
    }
    return wanted;
}

static void put_huge_back(void) {
    if (getpid() == restorer)
        huge_mode(huge_before);
}

int main(void) {
    begin();
    huge_before = huge_mode(NULL);
    if (!huge_before)
        end(NOT_APPLICABLE, "this kernel has no transparent huge pages");
    atexit(put_huge_back);
    huge_mode("madvise"); /* On small machines the kernel starts with "never". */
    unsigned char *place = mmap(NULL, (COUNT + 1) * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED)
        end(FAILED, "mmap: %s", strerror(errno));
    unsigned char *memory = (unsigned char *)(((uintptr_t)place + HUGE - 1) & -HUGE);
    madvise(memory, COUNT * HUGE, MADV_HUGEPAGE);
    if (madvise(memory, COUNT * HUGE, MADV_MERGEABLE))
        end(FAILED, "madvise(MADV_MERGEABLE): %s", strerror(errno));
    fill(memory, COUNT * 512, 1);
    long at_first = huge_bytes();
    if (at_first != COUNT * HUGE)
        end(NOT_APPLICABLE, "the kernel gave %ld of %lu bytes in huge pages", at_first, COUNT * HUGE);
    passes(3);
    long visited = huge_bytes();
    /* One page of the second huge page gets an equal one in an ordinary page. */
    unsigned char *small = offered(1);
    memcpy(small, memory + HUGE + 5 * PAGE, PAGE);
    for (int pass = 0; pass < 8 && get("pages_sharing") < 1; pass++)
        passes(1);
    if (get("pages_sharing") != 1)
        end(FAILED, "%ld pages merged instead of one", get("pages_sharing"));
    long merged = huge_bytes();
    int is_so = visited == at_first && merged == at_first - (long)HUGE;
    end(is_so ? REPRODUCED : NOT_REPRODUCED, "%ld huge pages, %ld after three passes that visited them, %ld after one of their "
        "%d pages merged", at_first / (long)HUGE, visited / (long)HUGE, merged / (long)HUGE, COUNT * 512);
}
