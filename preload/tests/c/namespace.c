/* Has a thread of the library at work, and makes the calls that only a process with one thread may make.
 * namespace plain: waits for no thread. namespace FILE: waits for this file too, which shows what the thread does. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <dirent.h>

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *task; (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Memory that makes the library start its thread, which is waited for. */
static void with_thread(const char *file) {
    char *memory = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, 8 << 20);
    if (!strcmp(file, "plain"))
        return;
    while (threads() != 2)
        usleep(1000);
    while (access(file, F_OK))
        usleep(1000);
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    if (geteuid() == 0) {
        with_thread(arguments[1]);
        int mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
        errno = 0;
        if (setns(mounts, CLONE_NEWNS)) {
            printf("setns: %s\n", strerror(errno));
            return 1;
        }
        close(mounts);
    }
    with_thread(arguments[1]);
    if (unshare(CLONE_NEWUSER)) {
        printf("unshare: %s\n", strerror(errno));
        return 1;
    }
    puts("well");
    return 0;
}
