/* Filters its system calls so that opening a file in any thread ends it, and gets memory after that.
 * filter HOW THREADS [user]: HOW is "syscall" or "prctl", THREADS the threads that are waited for first; "user": as another user. */
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *task; (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static char *get_memory(size_t length) {
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, length);
    return memory;
}

static int fails(const char *what) {
    perror(what);
    return 1;
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    int is_raw = !strcmp(words[1], "syscall"), is_user = count > 3;
    if (is_user && (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
        return fails("setresuid");
    char *memory = get_memory(8 << 20);
    for (int at = 0; threads() != atoi(words[2]); at++, usleep(1000))
        if (at == 30000)
            return fails("another number of threads");

    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    /* Root may filter without giving up new rights first. */
    if (is_user && (is_raw ? syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)))
        return fails("no_new_privs");
    errno = 4711;
    long failed = is_raw ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter)
                         : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    if (failed)
        return fails("seccomp");
    if (errno != 4711)
        return fails("errno has changed");
    sleep(3);
    char *more = get_memory(8 << 20);
    char *block = malloc(4 << 20);
    memset(block, 2, 4 << 20);
    more = mremap(more, 8 << 20, 32 << 20, MREMAP_MAYMOVE);
    sleep(2);
    return write(1, "well\n", 5) == 5 && memory[5] == 1 && more[5] == 1 && block[5] == 2 ? 0 : 1;
}
