/* Its first thread gives up the right to change the user, and tries to: the argument says for how many threads it waits first. */
#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

int main(int count, char **words) {
    if (geteuid() != 0)
        return 77;
    void *memory = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, 8 << 20);
    while (count > 1 && threads() != atoi(words[1]))
        usleep(1000);
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2] = {{0, 0, 0}, {0, 0, 0}};
    if (syscall(SYS_capset, &header, sets))
        return 77;
    if (setuid(65534) != -1 || errno != EPERM)
        return 1;
    puts("well");
    return 0;
}
