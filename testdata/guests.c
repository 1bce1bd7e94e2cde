/* Four processes whose memory is known to the page, for ksmd to merge and testdata/capture to look at.
 *
 *   alpha, beta   pretend to be QEMU by name and arguments; mergeable: 64 pages that all three share, 32 that only
 *                 the two share, 16 that are empty, 48 unique ones
 *   gamma         some other program with mergeable memory: the 64 shared pages and 48 unique ones
 *   plain         the same memory as gamma, but not mergeable
 *
 * Started without arguments it prints their four PIDs on one line once all memory is filled, and ends them when
 * its standard input closes. Merged at full convergence, use_zero_pages=0: 64 + 32 + 1 frames (pages_shared) for
 * 3x64 + 2x32 + 2x16 = 288 mappings, so pages_sharing is 191.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, COMMON = 64, PAIRED = 32, EMPTY = 16, UNIQUE = 48 };

struct guest {
    const char *comm;
    char *argv[8];
    int paired, mergeable;
};

static struct guest guests[] = {
    {"qemu-system-x86", {"/usr/bin/qemu-system-x86_64", "-name", "guest=alpha,debug-threads=on", "-m", "1", NULL}, 1, 1},
    {"qemu-system-x86", {"/usr/bin/qemu-system-x86_64", "-name", "beta", "-m", "1", NULL}, 1, 1},
    {"gamma", {"/usr/bin/gamma", "--rank", "3", NULL}, 0, 1},
    {"plain", {"/usr/bin/plain", NULL}, 0, 0},
};
enum { GUESTS = sizeof guests / sizeof *guests };

/* Fills pages from `next` on with numbers made from `seed` and the page's index, so that equal seeds give equal pages. */
static char *fill(char *next, int pages, unsigned seed) {
    for (int page = 0; page < pages; page++, next += PAGE) {
        unsigned state = seed * 1000003u + (unsigned)page * 7919u + 1;
        for (int i = 0; i < PAGE; i += 4) {
            state = state * 1664525u + 1013904223u;
            memcpy(next + i, &state, 4);
        }
    }
    return next;
}

/* What a guest does once it runs under its own name: fills its memory, says so, and waits for its end. */
static int be(int index) {
    const struct guest *self = &guests[index];
    prctl(PR_SET_NAME, self->comm);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    size_t size = (COMMON + PAIRED + EMPTY + UNIQUE) * PAGE;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    madvise(memory, size, MADV_NOHUGEPAGE);
    if (self->mergeable && madvise(memory, size, MADV_MERGEABLE) != 0) return 1;
    char *next = fill(memory, COMMON, 1);
    if (self->paired) {
        next = fill(next, PAIRED, 2);
        memset(next, 1, EMPTY * PAGE);
        memset(next, 0, EMPTY * PAGE);
        next += EMPTY * PAGE;
    }
    fill(next, UNIQUE, 100 + (unsigned)index);
    if (write(STDOUT_FILENO, "", 1) != 1) return 1;
    for (;;) pause();
}

int main(void) {
    /* A guest is this program again, told by its environment which one it is: its arguments are the guest's. */
    const char *me = getenv("GUEST");
    if (me) return be(atoi(me));

    pid_t pids[GUESTS];
    for (int i = 0; i < GUESTS; i++) {
        int ready[2];
        char byte, environment[16];
        if (pipe(ready) != 0) return 1;
        pids[i] = fork();
        if (pids[i] == 0) {
            dup2(ready[1], STDOUT_FILENO);
            snprintf(environment, sizeof environment, "GUEST=%d", i);
            execve("/proc/self/exe", guests[i].argv, (char *[]){environment, NULL});
            _exit(1);
        }
        close(ready[1]);
        if (pids[i] < 0 || read(ready[0], &byte, 1) != 1) {
            fprintf(stderr, "guests: %s did not start; is there KSM in this kernel?\n", guests[i].comm);
            return 1;
        }
        close(ready[0]);
    }
    printf("%d %d %d %d\n", pids[0], pids[1], pids[2], pids[3]);
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {}
    for (int i = 0; i < GUESTS; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    return 0;
}
