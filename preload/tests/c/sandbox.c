/* Shuts itself in so that a system call which it does not make itself ends it, and gets memory after that. */
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

#define ALLOW(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(__NR_mmap), ALLOW(__NR_munmap), ALLOW(__NR_mremap), ALLOW(__NR_brk), ALLOW(__NR_mprotect),
        ALLOW(__NR_write), ALLOW(__NR_getrandom), ALLOW(__NR_exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 77;
    char *mapped = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(mapped, 1, 8 << 20);
    char *block = malloc(2 << 20);
    memset(block, 2, 2 << 20);
    for (int at = 0; at < 100000; at++)
        *(volatile char *)malloc(500) = 1;
    void *place;
    if (posix_memalign(&place, 4096, 1 << 20))
        return 1;
    mapped = mremap(mapped, 8 << 20, 16 << 20, MREMAP_MAYMOVE);
    block = realloc(block, 4 << 20);
    return write(1, "well\n", 5) == 5 && mapped[5] == 1 && block[5] == 2 ? 0 : 1;
}
