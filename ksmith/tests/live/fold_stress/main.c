/* Memory of huge pages under everything that writes to it and changes it, while another program folds it.
 *
 * `fold-stress SECONDS all|ATTACK|attacks [swap] [ksm] [broken] [limited=CGROUP] [victims=CGROUP]` runs in the working directory,
 * where its files are. It prints `ready PID...`, then parts that it can't run here, at last its counts and `ok`. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contents.h"

static const char *const counter_names[COUNTER_KINDS] = {
#define NAME(name) #name,
    COUNTERS(NAME)
#undef NAME
};

#define MOST 16
static pid_t children[MOST];
static size_t child_count;

static int start_child(void) {
    fflush(stdout);
    pid_t child = fork();
    REQUIRE("start", child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return 1;
    }
    children[child_count++] = child;
    return 0;
}

static void start_part(void (*run)(const struct options *), const struct options *options) {
    if (start_child()) {
        run(options);
        exit(0);
    }
}

static void start_attacks(const char *name, int is_broken) {
    for (size_t number = 0; number < attack_count; number++)
        if ((strcmp(name, "attacks") == 0 || strcmp(name, attacks[number].name) == 0) && start_child()) {
            attacks[number].run(is_broken);
            exit(0);
        }
}

static void start_all(const struct options *options) {
    make_sibling_state();
    start_part(run_threads, options);
    start_part(run_forks, options);
    start_part(run_io, options);
    start_part(run_sibling, options);
    if (options->has_ksm)
        start_part(run_merging, options);
    if (options->limited)
        start_part(run_limited, options);
    if (options->victims)
        start_part(run_victims, options);
}

/* Ends with the first child that fails; true if all have ended well. */
static int watch_children(unsigned seconds) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    size_t left = child_count;
    int is_well = 1;
    while (left > 0) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended > 0) {
            left--;
            int is_early = !shared->ends;
            if (status != 0 || (is_early && shared->has_failed))
                is_well = 0;
            if (status != 0)
                fprintf(stderr, "process %d ended with status %#x\n", ended, status);
        } else {
            usleep(10000);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - begin.tv_sec >= (time_t)seconds)
            shared->ends = 1;
        if (!is_well || shared->has_failed) {
            shared->ends = 1;
            usleep(200000);
            for (size_t child = 0; child < child_count; child++)
                kill(children[child], SIGKILL);
            return 0;
        }
    }
    return 1;
}

int main(int argument_count, char **arguments) {
    if (argument_count < 3)
        return 2;
    struct options options = {.seconds = (unsigned)strtoul(arguments[1], NULL, 10)};
    for (int number = 3; number < argument_count; number++) {
        const char *word = arguments[number];
        options.has_swap |= strcmp(word, "swap") == 0;
        options.has_ksm |= strcmp(word, "ksm") == 0;
        options.is_broken |= strcmp(word, "broken") == 0;
        if (strncmp(word, "limited=", 8) == 0)
            options.limited = word + 8;
        if (strncmp(word, "victims=", 8) == 0)
            options.victims = word + 8;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The program that folds is to have its turn among so many threads. */
    setpriority(PRIO_PROCESS, 0, 5);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    if (strcmp(arguments[2], "all") == 0)
        start_all(&options);
    else
        start_attacks(arguments[2], options.is_broken);
    printf("ready");
    for (size_t child = 0; child < child_count; child++)
        printf(" %d", children[child]);
    printf("\n");
    fflush(stdout);
    int is_well = watch_children(options.seconds);
    const char *separator = "counts: ";
    for (int kind = 0; kind < COUNTER_KINDS; kind++)
        if (shared->counts[kind]) {
            printf("%s%lu %s", separator, (unsigned long)shared->counts[kind], counter_names[kind]);
            separator = ", ";
        }
    printf("\n%s\n", is_well ? "ok" : "failed");
    return is_well ? 0 : 1;
}
