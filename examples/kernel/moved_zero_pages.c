/* ksm_zero_pages stays too high (seen on Linux 6.18). UFFDIO_MOVE of a page that KSM has mapped to the zero page makes an ordinary page table entry of it without
 * taking it off the count, which therefore never falls again: each run leaves 16 pages more in it until the next boot.
 *
 *     gcc -O2 -static moved_zero_pages.c -o moved_zero_pages && ./moved_zero_pages
 */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "ksm.h"

#define PAGES 16

#ifndef UFFDIO_MOVE /* Headers before 6.8. */
struct uffdio_move {
    __u64 dst, src, len, mode;
    __s64 move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif

int main(void) {
    begin();
    if (get("ksm_zero_pages") == absent)
        end(NOT_APPLICABLE, "this kernel does not count pages that KSM maps to the zero page");
    set("use_zero_pages", 1);
    long before = get("ksm_zero_pages");
    unsigned char *memory = offered(PAGES);
    for (size_t page = 0; page < PAGES; page++)
        memory[page * PAGE] = 0; /* Written, so that there is a page. */
    for (int pass = 0; pass < 8 && get("ksm_zero_pages") < before + PAGES; pass++)
        passes(1);
    if (get("ksm_zero_pages") != before + PAGES)
        end(FAILED, "%ld of %d empty pages merged", get("ksm_zero_pages") - before, PAGES);
    void *target = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = (int)syscall(SYS_userfaultfd, 0);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register watched = {
        .range = {(unsigned long)target, PAGES * PAGE},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    if (target == MAP_FAILED || fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &watched))
        end(FAILED, "there is no userfaultfd");
    struct uffdio_move move = {.dst = (unsigned long)target, .src = (unsigned long)memory, .len = PAGES * PAGE};
    if (ioctl(fd, UFFDIO_MOVE, &move))
        end(NOT_APPLICABLE, "this kernel does not move pages by userfaultfd");
    munmap(memory, PAGES * PAGE);
    munmap(target, PAGES * PAGE);
    long after = get("ksm_zero_pages") - before;
    end(after > 0 ? REPRODUCED : NOT_REPRODUCED, "the count went from 0 to %d by a merge, and to %ld when the pages were moved and unmapped", PAGES, after);
}
