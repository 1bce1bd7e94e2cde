/* Calls the functions of ksmith.h as its arguments say, one line of output for each. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ksmith.h"

static void say(const char *what, int code) {
    char reason[256];
    size_t length = ksmith_reason(reason, sizeof reason);
    assert(length == strlen(reason));
    printf("%s %d %s", what, code, length ? reason : ksmith_strerror(code));
}

int main(int count, char **words) {
    /* At addresses that a test can know. */
    char *memory = mmap((void *)0x100000000, 16 << 20, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    assert(memory == (void *)0x100000000);
    assert(ksmith_version() == KSMITH_VERSION);
    for (int at = 1; at < count; at++) {
        const char *word = words[at];
        errno = 4711;
        if (!strncmp(word, "scan:", 5)) {
            unsigned passes;
            int wait;
            assert(sscanf(word, "scan:%u:%d", &passes, &wait) == 2);
            say("scan", ksmith_scan(passes, wait));
        } else if (!strcmp(word, "saves")) {
            struct ksmith_savings savings;
            memset(&savings, 0xff, sizeof savings);
            int code = ksmith_saves(&savings);
            say("saves", code);
            if (code == 0) {
                assert(savings.reserved[0] == 0 && savings.reserved[1] == 0);
                printf(" source=%d rss=%llu merged=%llu saved=%llu profit=%lld zero=%llu", (int)savings.source,
                       (unsigned long long)savings.rss_bytes, (unsigned long long)savings.merged_bytes,
                       (unsigned long long)savings.saved_bytes, (long long)savings.profit_bytes,
                       (unsigned long long)savings.zero_bytes);
            }
        } else if (!strcmp(word, "guided")) {
            struct ksmith_guided guided = {77, 77};
            say("guided", ksmith_guided(5000, &guided));
            printf(" ranges=%llu bytes=%llu", (unsigned long long)guided.ranges, (unsigned long long)guided.bytes);
        } else if (!strncmp(word, "mark:", 5) || !strncmp(word, "unmark:", 7)) {
            unsigned long long offset, length;
            assert(sscanf(strchr(word, ':'), ":%lli:%lli", &offset, &length) == 2);
            int code = word[0] == 'm' ? ksmith_mark(memory + offset, length) : ksmith_unmark(memory + offset, length);
            say(word, code);
        } else if (!strcmp(word, "method")) {
            printf("method %s", ksmith_method());
        } else if (!strcmp(word, "marks")) {
            /* The marked ranges of the memory, as the kernel has them. */
            FILE *smaps = fopen("/proc/self/smaps", "r");
            char line[4096];
            unsigned long long start = 0, end = 0, a, b;
            char access[8];
            printf("marks");
            while (fgets(line, sizeof line, smaps)) {
                if (sscanf(line, "%llx-%llx %7s", &a, &b, access) == 3) {
                    start = a, end = b;
                } else if (!strncmp(line, "VmFlags:", 8) && strstr(line, " mg") && start >= 0x100000000 &&
                           end <= 0x101000000) {
                    printf(" %llx-%llx", start - 0x100000000, end - 0x100000000);
                }
            }
            fclose(smaps);
            errno = 4711;
        } else {
            fprintf(stderr, "unknown: %s\n", word);
            return 2;
        }
        if (strcmp(word, "method"))
            assert(errno == 4711);
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
