/* A mapping that was divided behind the program's back is moved all the same, also one that the program wants left out (if there
   is an argument). The raw calls are the library's own: it does not see them. */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **arguments) {
    (void)arguments;
    const size_t half = 1 << 20;
    char *all = mmap(NULL, 2 * half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    if (count > 1 && madvise(all, 2 * half, MADV_UNMERGEABLE)) {
        perror("madvise");
        return 2;
    }
    all[0] = all[2 * half - 1] = 'x';
    if (syscall(SYS_madvise, all, 2 * half, MADV_UNMERGEABLE) || syscall(SYS_madvise, all, half, MADV_MERGEABLE)) {
        perror("madvise");
        return 2;
    }
    char *moved = mremap(all, 2 * half, 4 * half, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) {
        perror("mremap");
        return 1;
    }
    puts(moved[0] == 'x' && moved[2 * half - 1] == 'x' ? "moved" : "changed");
    return 0;
}
