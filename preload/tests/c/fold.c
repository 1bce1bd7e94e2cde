/* Folds memory, and sees that contents stay, that zero pages are given back, and that other memory is left alone. The first
 * argument says which test; the last line that it prints is "ok". */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ksmith.h"

#define PAGE 4096ul
#define MIB (1ul << 20)
#define HUGE (2 * MIB)

static struct ksmith_folded result;

/* Memory at a multiple of HUGE, with a page on each side that keeps the kernel from joining it with other mappings. */
static unsigned char *map(size_t length, int advice) {
    unsigned char *all = mmap(NULL, length + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(all != MAP_FAILED);
    unsigned char *memory = (unsigned char *)(((size_t)all + HUGE) & ~(HUGE - 1));
    assert(mprotect(memory, length, PROT_READ | PROT_WRITE) == 0);
    if (madvise(memory, length, advice) != 0)
        printf("no huge pages here\n");
    return memory;
}

/* A figure of smaps over the mappings of a range, in bytes. */
static size_t figure(const char *name, const void *memory, size_t length) {
    char line[512], pattern[64];
    size_t found = 0, start = 0, end = 0, a, b, kib;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    snprintf(pattern, sizeof pattern, "%s: %%zu kB", name);
    while (fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%zx-%zx ", &a, &b) == 2)
            start = a, end = b;
        else if (sscanf(line, pattern, &kib) == 1 && start >= (size_t)memory && end <= (size_t)memory + length)
            found += kib << 10;
    }
    fclose(smaps);
    return found;
}

/* Huge pages that the kernel has split so far. */
static size_t splits(void) {
    char line[256];
    size_t count = 0;
    FILE *file = fopen("/proc/vmstat", "r");
    while (fgets(line, sizeof line, file) && sscanf(line, "thp_split_page %zu", &count) != 1)
        ;
    fclose(file);
    return count;
}

/* Runs of pages are zero by turns. The others differ. */
static int is_zero(size_t page, unsigned run) {
    return page / run % 2;
}

static void fill(unsigned char *memory, size_t pages, unsigned run) {
    for (size_t page = 0; page < pages; page++)
        memset(memory + page * PAGE, is_zero(page, run) ? 0 : 1 + page % 251, PAGE);
}

static void check(const unsigned char *memory, size_t pages, unsigned run) {
    for (size_t page = 0; page < pages; page++) {
        unsigned char expected = is_zero(page, run) ? 0 : 1 + page % 251;
        for (size_t at = 0; at < PAGE; at++)
            assert(memory[page * PAGE + at] == expected);
    }
}

static void contents(unsigned threads) {
    const size_t pages = 64 * MIB / PAGE, length = pages * PAGE;
    for (unsigned run = 1; run <= 600; run = run * 5 + 2) {
        unsigned char *memory = map(length, MADV_NOHUGEPAGE);
        fill(memory, pages, run);
        assert(figure("Anonymous", memory, length) == length);
        size_t zero = 0;
        for (size_t page = 0; page < pages; page++)
            zero += is_zero(page, run);
        errno = 4711;
        assert(ksmith_fold(memory, length, KSMITH_FOLD_THREADS(threads), &result) == 0);
        assert(errno == 4711);
        assert(result.folded_bytes == zero * PAGE && result.looked_bytes == length);
        assert(result.threads == threads && result.shared_bytes == 0 && result.other_bytes == 0);
        assert(figure("Anonymous", memory, length) == length - zero * PAGE);
        /* Nothing is left to fold. */
        assert(ksmith_fold(memory, length, 0, &result) == 0);
        assert(result.folded_bytes == 0 && result.looked_bytes == length - zero * PAGE);
        check(memory, pages, run);
        /* A write makes a page again. */
        memset(memory, 0x55, length);
        assert(figure("Anonymous", memory, length) == length && memory[length - 1] == 0x55);
        munmap(memory, length);
    }
}

/* Huge pages: one that is zero is given back whole. One that is in use for more than half stays as it is. Any other is split, so
 * that its zero part is given back at once. */
static void huge(void) {
    const size_t count = 128, length = count * HUGE;
    unsigned char *memory = map(length, MADV_HUGEPAGE);
    memset(memory, 0, length);
    if (figure("AnonHugePages", memory, length) != length) {
        printf("no huge pages here\n");
        return;
    }
    size_t folded = 0, left = 0;
    for (size_t number = 0; number < count; number++) {
        /* Used from the front, in pages: 0, 64, 192 or 320. */
        size_t used = (size_t[]){0, 64, 192, 320}[number % 4] * PAGE;
        memset(memory + number * HUGE, 1 + number % 200, used);
        *(used < HUGE / 2 ? &folded : &left) += HUGE - used;
    }
    size_t before = splits();
    assert(ksmith_fold(memory, length, KSMITH_FOLD_THREADS(2), &result) == 0);
    assert(result.folded_bytes == folded && result.huge_bytes == left && result.looked_bytes == length);
    assert(figure("AnonHugePages", memory, length) == count / 4 * HUGE);
    assert(figure("Pss", memory, length) == length - folded);
    /* A part that was discarded of a huge page is given back when that is split, and not before. */
    assert(splits() - before >= count / 2);
    for (size_t number = 0; number < count; number++) {
        size_t used = (size_t[]){0, 64, 192, 320}[number % 4] * PAGE;
        for (size_t at = 0; at < HUGE; at += 64)
            assert(memory[number * HUGE + at] == (at < used ? 1 + number % 200 : 0));
    }
}

/* Sets so many pages aside for hugetlb, if that is not negative. Returns how many there are. */
static int huge_pages(int wanted) {
    int have = -1;
    FILE *pool = fopen("/proc/sys/vm/nr_hugepages", wanted < 0 ? "r" : "w");
    if (pool && wanted >= 0)
        fprintf(pool, "%d", wanted);
    if (pool)
        fclose(pool);
    if ((pool = fopen("/proc/sys/vm/nr_hugepages", "r"))) {
        if (fscanf(pool, "%d", &have) != 1)
            have = -1;
        fclose(pool);
    }
    return have;
}

/* Memory of these kinds stays as it is. */
static void is_other(unsigned char *memory, size_t length) {
    assert(ksmith_fold(memory, length, 0, &result) == 0);
    assert(result.folded_bytes == 0 && result.looked_bytes == 0 && result.other_bytes == length);
}

static void kinds(void) {
    const size_t length = 4 * MIB;
    const int both = PROT_READ | PROT_WRITE;
    unsigned char *shared = mmap(NULL, length, both, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(shared, 0, length);
    is_other(shared, length);

    /* Discarded pages of a private file mapping would read as the file again. */
    FILE *file = tmpfile();
    static unsigned char ones[MIB];
    memset(ones, 1, sizeof ones);
    for (size_t at = 0; at < length; at += MIB)
        assert(fwrite(ones, 1, MIB, file) == MIB);
    fflush(file);
    unsigned char *of_file = mmap(NULL, length, both, MAP_PRIVATE, fileno(file), 0);
    memset(of_file, 0, length);
    is_other(of_file, length);
    for (size_t at = 0; at < length; at++)
        assert(of_file[at] == 0);

    int set_aside = huge_pages(-1), is_more = huge_pages(set_aside + 2) == set_aside + 2;
    unsigned char *pages = mmap(NULL, length, both, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (pages != MAP_FAILED) {
        memset(pages, 0, length);
        is_other(pages, length);
        munmap(pages, length);
    } else {
        printf("no hugetlb here\n");
    }
    assert(!is_more || huge_pages(set_aside) == set_aside);

    unsigned char *read_only = map(length, MADV_NOHUGEPAGE);
    memset(read_only, 0, length);
    mprotect(read_only, length, PROT_READ);
    is_other(read_only, length);

    unsigned char *locked = map(length, MADV_NOHUGEPAGE);
    memset(locked, 0, length);
    if (mlock(locked, length) == 0) {
        assert(ksmith_fold(locked, length, 0, &result) == 0);
        assert(result.folded_bytes == 0 && result.locked_bytes == length && figure("Anonymous", locked, length) == length);
    } else {
        printf("no mlock here\n");
    }

    /* A child of fork has the same pages; when it has ended they are the parent's own. */
    unsigned char *forked = map(length, MADV_NOHUGEPAGE);
    memset(forked, 0, length);
    int ready[2];
    assert(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ready[1]);
        assert(read(ready[0], &byte, 1) == 0);
        for (size_t at = 0; at < length; at++)
            if (forked[at])
                _exit(1);
        _exit(0);
    }
    assert(ksmith_fold(forked, length, 0, &result) == 0);
    assert(result.folded_bytes == 0 && result.looked_bytes == 0 && result.shared_bytes == length);
    int status;
    close(ready[1]);
    assert(waitpid(child, &status, 0) == child && status == 0);
    assert(ksmith_fold(forked, length, 0, &result) == 0 && result.folded_bytes == length);

    /* What was never written to costs nothing, nor does what is the kernel's zero page. */
    unsigned char *empty = map(length, MADV_NOHUGEPAGE);
    unsigned sum = 0;
    for (size_t at = 0; at < length; at += 2 * PAGE)
        sum += ((volatile unsigned char *)empty)[at];
    assert(sum == 0 && ksmith_fold(empty, length, 0, &result) == 0);
    assert(result.looked_bytes == 0 && result.folded_bytes == 0 && result.shared_bytes == length / 2);

    assert(ksmith_fold(empty, length, 0x100, NULL) == -EINVAL);
    assert(ksmith_fold(empty + 1, PAGE, 0, NULL) == -EINVAL);
    /* Only whole pages within the range. */
    memset(empty, 0, length);
    assert(ksmith_fold(empty + 1, 3 * PAGE - 2, 0, &result) == 0 && result.folded_bytes == PAGE);
    /* Over several mappings and holes. */
    munmap(empty + MIB, MIB);
    assert(ksmith_fold(empty, length, KSMITH_FOLD_THREADS(3), NULL) == 0);
    assert(figure("Anonymous", empty, MIB) == 0 && figure("Anonymous", empty + 2 * MIB, 2 * MIB) == 0);
}

/* Other threads fold ranges of their own, and read, meanwhile. */
static void *folder(void *unused) {
    const size_t pages = 16 * MIB / PAGE;
    unsigned char *memory = map(pages * PAGE, MADV_NOHUGEPAGE);
    for (unsigned round = 0; round < 20; round++) {
        fill(memory, pages, 3 + round);
        assert(ksmith_fold(memory, pages * PAGE, KSMITH_FOLD_THREADS(2), NULL) == 0);
        check(memory, pages, 3 + round);
    }
    return unused;
}

static void beside(void) {
    pthread_t threads[3];
    for (int at = 0; at < 3; at++)
        assert(pthread_create(&threads[at], NULL, folder, NULL) == 0);
    for (int at = 0; at < 3; at++)
        pthread_join(threads[at], NULL);
}

static void sandboxed(void) {
    unsigned char *memory = map(MIB, MADV_NOHUGEPAGE);
    memset(memory, 0, MIB);
    assert(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    assert(ksmith_fold(memory, MIB, 0, NULL) == -EPERM && figure("Anonymous", memory, MIB) == MIB);
}

int main(int count, char **words) {
    assert(count >= 2);
    const char *test = words[1];
    if (!strcmp(test, "contents"))
        contents(count > 2 ? atoi(words[2]) : 1);
    else if (!strcmp(test, "huge"))
        huge();
    else if (!strcmp(test, "kinds"))
        kinds();
    else if (!strcmp(test, "beside"))
        beside();
    else if (!strcmp(test, "sandboxed"))
        sandboxed();
    else
        return 2;
    printf("ok\n");
    return 0;
}
