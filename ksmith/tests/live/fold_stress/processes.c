/* Processes that fork, are merged, or have little memory. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contents.h"

#define HUGE_PAGES 6

/* Ends with the process that has forked it. */
static pid_t fork_bound(void) {
    pid_t child = fork();
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    REQUIRE("fork", child >= 0);
    return child;
}

static void collect(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) != child)
        REQUIRE("fork", errno == EINTR);
    if (status != 0) {
        fprintf(stderr, "a forked child ended with status %#x\n", status);
        report_error("fork", "a child's memory");
    }
}

static void check_and_write(struct arena *arena) {
    check_arena(arena);
    for (int write = 0; write < 300; write++)
        write_once(arena);
}

/* A child's work: what it was given, what it writes, and now and then a child of its own. */
_Noreturn static void live_as_child(struct arena *arena, unsigned kind) {
    arena->worker = "forked child";
    check_and_write(arena);
    if (kind % 4 == 0) {
        pid_t child = fork_bound();
        if (child == 0) {
            check_and_write(arena);
            check_arena(arena);
            _exit(0);
        }
        for (int write = 0; write < 300; write++)
            write_once(arena);
        collect(child);
    }
    if (kind % 8 == 7)
        for (int wait = 0; wait < 40 && !shared->ends; wait++) {
            usleep(20000);
            write_once(arena);
        }
    if (kind % 2) {
        unsigned char *moved = mremap(arena->start, arena->pages * PAGE, arena->pages * PAGE + HUGE_PAGE, MREMAP_MAYMOVE);
        REQUIRE(arena->worker, moved != MAP_FAILED);
        arena->start = moved;
    }
    check_arena(arena);
    _exit(0);
}

void run_forks(const struct options *options) {
    (void)options;
    struct arena *arena = make_arena("forking parent", HUGE_PAGES);
    pid_t living = 0;
    for (unsigned turn = 0; !shared->ends; turn++) {
        pid_t child = fork_bound();
        if (child == 0)
            live_as_child(arena, turn);
        count(forks);
        for (int write = 0; write < 1000; write++)
            write_once(arena);
        check_arena(arena);
        if (turn % 8 == 7) { /* It lives beside those that follow. */
            if (living)
                collect(living);
            living = child;
        } else {
            collect(child);
        }
        renew_huge_page(arena);
        pause_shortly(&arena->random, 5000);
    }
    if (living)
        collect(living);
    check_arena(arena);
}

/* Two processes with the same contents, which ksmd merges. */
static void be_merged(void) {
    struct arena *arena = make_arena("merged", HUGE_PAGES);
    if (madvise(arena->start, arena->pages * PAGE, MADV_MERGEABLE) != 0)
        return skip_part("merging", strerror(errno));
    /* Every third page is the same in both processes. */
    for (size_t page = 0; page < arena->pages; page += 3)
        change_page(arena, page, 1 + (seed_t)page % 97);
    for (unsigned long turn = 0; !shared->ends; turn++) {
        write_once(arena);
        size_t page = next_random(&arena->random) % (arena->pages / 3) * 3;
        check_page(arena, page);
        change_page(arena, page, next_random(&arena->random) % 4 ? 1 + (seed_t)page % 97 : 0);
        count(writes_to_merged);
        if (turn % 512 == 511)
            check_arena(arena);
        if (turn % 4096 == 4095)
            renew_huge_page(arena);
        pause_shortly(&arena->random, 1000);
    }
    check_arena(arena);
}

void run_merging(const struct options *options) {
    (void)options;
    pid_t child = fork_bound();
    be_merged();
    if (child == 0)
        _exit(0);
    collect(child);
}

static int join_cgroup(const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/cgroup.procs", directory);
    int file = open(path, O_WRONLY);
    int joined = file >= 0 && write(file, "0", 1) == 1;
    close(file);
    return joined;
}

/* Half as much memory again as its cgroup may have. */
_Noreturn static void live_at_limit(const char *cgroup) {
    REQUIRE("memory limit", join_cgroup(cgroup));
    struct arena *arena = make_arena("memory limit", 36);
    for (unsigned long turn = 0; !shared->ends; turn++) {
        for (int write = 0; write < 64; write++) {
            write_once(arena);
            count(writes_at_limit);
        }
        if (turn % 256 == 255)
            check_arena(arena);
        if (turn % 64 == 63)
            renew_huge_page(arena);
        pause_shortly(&arena->random, 500);
    }
    check_arena(arena);
    _exit(0);
}

/* Waits for a child. True if the kernel has killed it, false if it has ended well. */
static int was_killed(const char *worker, pid_t child) {
    int status;
    while (waitpid(child, &status, 0) != child)
        REQUIRE(worker, errno == EINTR);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return 1;
    if (status != 0) {
        fprintf(stderr, "%s ended with status %#x\n", worker, status);
        report_error(worker, "its memory, or its limit");
    }
    return 0;
}

/* The kernel may give up reclaim and kill it: another one begins. */
void run_limited(const struct options *options) {
    while (!shared->ends) {
        pid_t child = fork_bound();
        if (child == 0)
            live_at_limit(options->limited);
        if (was_killed("memory limit", child))
            count(kills_at_limit);
    }
}

/* Needs ever more memory until the kernel kills it. */
_Noreturn static void be_victim(const char *cgroup, uint64_t random) {
    REQUIRE("victim", join_cgroup(cgroup));
    struct arena *arena = make_arena("victim", 4);
    size_t huge_pages = 64;
    unsigned char *more = map_huge(huge_pages);
    for (size_t page = 0; page < huge_pages * PAGES_OF_HUGE; page++) {
        seed_t seed = next_random(&random) % 2 ? 0 : 1 + (seed_t)page;
        fill_page(more + page * PAGE, seed);
        check_bytes("victim", more + page * PAGE, seed);
        write_once(arena);
        if (page % PAGES_OF_HUGE == 0)
            usleep(5000);
    }
    /* What was folded is written to again: this is more than the limit. */
    for (size_t page = 0; page < huge_pages * PAGES_OF_HUGE; page++)
        fill_page(more + page * PAGE, 1 + (seed_t)page);
    _exit(42);
}

void run_victims(const struct options *options) {
    uint64_t random = 17;
    while (!shared->ends) {
        next_random(&random);
        pid_t child = fork_bound();
        if (child == 0)
            be_victim(options->victims, random);
        REQUIRE("victim", was_killed("victim", child));
        count(oom_kills);
        for (int wait = 0; wait < 10 && !shared->ends; wait++)
            usleep(50000);
    }
}
