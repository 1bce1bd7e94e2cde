/* A program that has its memory merged when it suits it: after filling it, before computing on.
 *
 *     cc -I preload/include examples/c/scan.c -L target/preload -lksmith -o scan
 *     LD_LIBRARY_PATH=target/preload ./scan */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ksmith.h>

enum { PAGE = 4096, PAGES = 16384 };

/* Says what failed, with what the daemon said about it. */
static int failed(const char *what, int code) {
    char reason[256];
    fprintf(stderr, "%s: %s", what, ksmith_strerror(code));
    if (ksmith_reason(reason, sizeof reason) > 0)
        fprintf(stderr, " (%s)", reason);
    fputc('\n', stderr);
    return 1;
}

static int say(const char *when) {
    struct ksmith_savings savings;
    int code = ksmith_saves(&savings);
    if (code != 0)
        return failed("ksmith_saves", code);
    printf("%s: %llu of %llu MiB saved, says the %s\n", when, (unsigned long long)savings.saved_bytes >> 20,
           (unsigned long long)savings.rss_bytes >> 20, savings.source == KSMITH_FROM_DAEMON ? "daemon" : "kernel");
    return 0;
}

int main(void) {
    /* Of every four pages three are equal to others. */
    unsigned char *memory = aligned_alloc(PAGE, (size_t)PAGE * PAGES);
    if (memory == NULL)
        return 1;
    for (size_t page = 0; page < PAGES; page++) {
        memset(memory + page * PAGE, (int)(page % 4), PAGE);
        if (page % 4 == 3)
            memcpy(memory + page * PAGE, &page, sizeof page);
    }

    int code = ksmith_mark(memory, (size_t)PAGE * PAGES);
    if (code != 0)
        return failed("ksmith_mark", code);
    if (say("marked") != 0)
        return 1;

    /* Now, and not while we compute: two passes merge what is equal. */
    code = ksmith_scan(2, 60 * 1000);
    if (code != 0)
        failed("ksmith_scan", code);
    if (say("scanned") != 0)
        return 1;

    /* This part is about to be written all the time. */
    code = ksmith_unmark(memory, (size_t)PAGE * PAGES / 2);
    if (code != 0)
        return failed("ksmith_unmark", code);
    if (say("half taken back") != 0)
        return 1;
    free(memory);
    return 0;
}
