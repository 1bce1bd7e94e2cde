/* What the reproducers share: KSM's files, known pages, and ksmd led pass by pass. All need root and no other user of KSM. */
#ifndef KSM_H
#define KSM_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL

/* Exit codes: the kernel shows the fact, it does not, or it can't be asked. */
enum { REPRODUCED = 0, NOT_REPRODUCED = 1, FAILED = 2, NOT_APPLICABLE = 4 };

static const char *const KNOBS[] = {"pages_to_scan", "sleep_millisecs", "smart_scan", "use_zero_pages", "run"};
#define KNOB_COUNT (sizeof KNOBS / sizeof *KNOBS)
static long knobs_before[KNOB_COUNT];
static pid_t restorer;

__attribute__((format(printf, 2, 3))) static void end(int code, const char *format, ...) {
    static const char *const words[] = {"reproduced", "not reproduced", "failed", "", "not applicable"};
    va_list more;
    va_start(more, format);
    printf("%s: ", words[code]);
    vprintf(format, more);
    puts("");
    va_end(more);
    exit(code);
}

#define KSM_FOLDER "/sys/kernel/mm/ksm/"

/* The number in a file of a folder, or `absent`, which no file can hold. */
#define absent (-4611686018427387904L)
static long get_in(const char *folder, const char *name) {
    char path[128], text[64] = "";
    snprintf(path, sizeof path, "%s%s", folder, name);
    int file = open(path, O_RDONLY);
    if (file < 0)
        return absent;
    long length = read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? strtol(text, NULL, 10) : absent;
}

static void set_in(const char *folder, const char *name, long value) {
    char path[128];
    snprintf(path, sizeof path, "%s%s", folder, name);
    int file = open(path, O_WRONLY);
    if (file < 0 || dprintf(file, "%ld", value) < 0)
        end(FAILED, "%s = %ld: %s", path, value, strerror(errno));
    close(file);
}

static long get(const char *name) {
    return get_in(KSM_FOLDER, name);
}

static void set(const char *name, long value) {
    set_in(KSM_FOLDER, name, value);
}

static void set_if_there(const char *name, long value) {
    if (get(name) != absent)
        set(name, value);
}

static void put_back(void) {
    if (getpid() != restorer)
        return;
    set("run", 2); /* What was merged here is unmerged. */
    for (size_t at = 0; at < KNOB_COUNT; at++)
        set_if_there(KNOBS[at], knobs_before[at]);
}

/* Stops ksmd, forgets all that it knew, and has every setting put back at the end. */
static void begin(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (get("run") == absent)
        end(NOT_APPLICABLE, "this kernel has no KSM");
    if (get("run") != 0 || get("pages_shared") != 0)
        end(FAILED, "KSM is in use: run = %ld, pages_shared = %ld", get("run"), get("pages_shared"));
    for (size_t at = 0; at < KNOB_COUNT; at++)
        knobs_before[at] = get(KNOBS[at]);
    restorer = getpid();
    atexit(put_back);
    set("run", 2);
    set("run", 0);
    set("pages_to_scan", 1000000); /* A whole pass in one batch. */
    set_if_there("smart_scan", 0);
    set_if_there("use_zero_pages", 0);
}

static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* The state of ksmd in /proc/PID/stat: S while it sleeps between two batches. */
static char ksmd_state(void) {
    static int pid;
    char path[64], text[256];
    for (int candidate = pid ? pid : 2; candidate < 32768; candidate++) {
        snprintf(path, sizeof path, "/proc/%d/stat", candidate);
        int file = open(path, O_RDONLY);
        if (file < 0)
            continue;
        long length = read(file, text, sizeof text - 1);
        close(file);
        text[length > 0 ? length : 0] = 0;
        char *state = strstr(text, " (ksmd) ");
        if (state) {
            pid = candidate;
            return state[8];
        }
    }
    end(FAILED, "there is no ksmd below /proc");
    return 0;
}

/* Wakes ksmd for one batch: it sleeps for minutes, and a changed sleep_millisecs ends that, if it already sleeps. No value comes
 * twice. */
static void kick(void) {
    static long sleep_ms = 600000;
    while (ksmd_state() != 'S')
        pause_ms(1);
    set("sleep_millisecs", ++sleep_ms);
    if (get("run") == 0)
        set("run", 1);
}

/* Has ksmd make one batch and waits until it has brought a figure to a value. */
static void batch_until(const char *name, long value) {
    kick();
    for (long waits = 0; waits < 120000; waits++) {
        if (get(name) >= value)
            return;
        pause_ms(1);
    }
    end(FAILED, "ksmd did not bring %s to %ld in two minutes: %ld", name, value, get(name));
}

/* So many passes, each of one batch. */
static void passes(int count) {
    for (int done = 0; done < count; done++)
        batch_until("full_scans", get("full_scans") + 1);
}

/* Memory of so many pages that is offered to KSM. */
__attribute__((unused)) static unsigned char *offered(size_t pages) {
    unsigned char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        end(FAILED, "mmap: %s", strerror(errno));
    madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
    if (madvise(memory, pages * PAGE, MADV_MERGEABLE))
        end(FAILED, "madvise(MADV_MERGEABLE): %s", strerror(errno));
    return memory;
}

/* SplitMix64. */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* Fills pages with contents that depend on the seed and their number, so that no two of one seed are equal. */
__attribute__((unused)) static void fill(unsigned char *memory, size_t pages, uint64_t seed) {
    for (size_t word = 0; word < pages * PAGE / 8; word++)
        ((uint64_t *)memory)[word] = mix(seed << 40 | (word + 1));
}

/* A child that waits for a byte, does its part, answers with a byte, and waits until it is ended. */
struct child {
    pid_t pid;
    int to, from;
};

__attribute__((unused)) static struct child start_child(void (*part)(void)) {
    int to[2], from[2];
    if (pipe(to) || pipe(from))
        end(FAILED, "pipe: %s", strerror(errno));
    struct child child = {fork(), to[1], from[0]};
    if (child.pid < 0)
        end(FAILED, "fork: %s", strerror(errno));
    if (child.pid == 0) {
        char byte;
        close(to[1]);
        close(from[0]);
        if (read(to[0], &byte, 1) == 1) {
            part();
            if (write(from[1], "", 1) == 1)
                while (read(to[0], &byte, 1) == 1)
                    ;
        }
        _exit(0);
    }
    close(to[0]);
    close(from[1]);
    return child;
}

__attribute__((unused)) static void let_go(struct child *child) {
    char byte;
    if (write(child->to, "", 1) != 1 || read(child->from, &byte, 1) != 1)
        end(FAILED, "the child did not do its part");
}

__attribute__((unused)) static void end_child(struct child *child) {
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
    close(child->to);
    close(child->from);
}

#endif
