/* Folds memory while everything that may write to it does, and sees that no byte is lost. The first argument says which test;
 * the last line that it prints is "ok". */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/userfaultfd.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

#include "ksmith.h"

#define PAGE 4096ul
#define MIB (1ul << 20)

static struct ksmith_folded result;
static atomic_ulong signals; /* or turns */

static unsigned char *map(size_t length) {
    /* With a page on each side that keeps the kernel from joining it with other mappings. */
    unsigned char *memory = mmap(NULL, length + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(memory != MAP_FAILED && mprotect(memory + PAGE, length, PROT_READ | PROT_WRITE) == 0);
    assert(madvise(memory + PAGE, length, MADV_NOHUGEPAGE) == 0);
    return memory + PAGE;
}

/* Bytes of the range that are resident in pages of their own, by the page map: neither holes nor the kernel's zero page. */
static size_t resident(const void *memory, size_t length) {
    char line[512];
    size_t found = 0, start = 0, end = 0, a, b;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    size_t kib;
    while (fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%zx-%zx ", &a, &b) == 2)
            start = a, end = b;
        else if (sscanf(line, "Anonymous: %zu kB", &kib) == 1 && start >= (size_t)memory && end <= (size_t)memory + length)
            found += kib << 10;
    }
    fclose(smaps);
    return found;
}

static unsigned long random_of(unsigned long *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* Every page gets a content by its number: zero if its bit in the pattern is set. */
static void fill(unsigned char *memory, size_t pages, unsigned run) {
    for (size_t page = 0; page < pages; page++)
        if (page / run % 2)
            memset(memory + page * PAGE, 0, PAGE), memory[page * PAGE] = 1, memory[page * PAGE] = 0;
        else
            memset(memory + page * PAGE, 1 + page % 251, PAGE);
}

static void check(const unsigned char *memory, size_t pages, unsigned run) {
    for (size_t page = 0; page < pages; page++) {
        unsigned char expected = page / run % 2 ? 0 : 1 + page % 251;
        for (size_t at = 0; at < PAGE; at++)
            assert(memory[page * PAGE + at] == expected);
    }
}

static void contents(unsigned flags) {
    const size_t pages = 64 * MIB / PAGE;
    for (unsigned run = 1; run <= 600; run = run * 5 + 2) {
        unsigned char *memory = map(pages * PAGE);
        fill(memory, pages, run);
        assert(resident(memory, pages * PAGE) == pages * PAGE);
        size_t zero = 0;
        for (size_t page = 0; page < pages; page++)
            zero += page / run % 2;
        errno = 4711;
        int code = ksmith_fold(memory, pages * PAGE, flags, &result);
        assert(errno == 4711);
        if (code != 0) {
            printf("code %d\n", code);
            return;
        }
        assert(result.folded_bytes == zero * PAGE && result.looked_bytes == pages * PAGE);
        assert(resident(memory, pages * PAGE) == (pages - zero) * PAGE);
        /* Nothing is left to fold. */
        assert(ksmith_fold(memory, pages * PAGE, flags, &result) == 0);
        assert(result.folded_bytes == 0 && result.looked_bytes == (pages - zero) * PAGE);
        check(memory, pages, run);
        munmap(memory, pages * PAGE);
    }
    printf("method %u threads %u\n", result.method, result.threads);
}

/* Writers: each has slots of its own all over the memory, and notes what it wrote there last. */
#define WRITERS 3
#define WRITTEN_PAGES (8 * MIB / PAGE)
static unsigned char *common;
static atomic_int ends;
static unsigned values[WRITERS][WRITTEN_PAGES];

static void *writer(void *number) {
    unsigned long own = (unsigned long)number, state = 88172645463325252ul + own;
    for (unsigned long turn = 0; !ends; turn++) {
        unsigned long page = random_of(&state) % WRITTEN_PAGES;
        /* Zero again and again, so that pages become zero and are folded. */
        unsigned value = turn % 3 ? 0 : (unsigned)random_of(&state);
        ((volatile unsigned *)(common + page * PAGE))[own * 300] = value;
        values[own][page] = value;
    }
    return NULL;
}

static void check_writers(void) {
    for (unsigned own = 0; own < WRITERS; own++)
        for (size_t page = 0; page < WRITTEN_PAGES; page++)
            assert(((unsigned *)(common + page * PAGE))[own * 300] == values[own][page]);
}

static void writers(unsigned flags, unsigned rounds) {
    pthread_t threads[WRITERS];
    common = map(WRITTEN_PAGES * PAGE);
    for (unsigned long own = 0; own < WRITERS; own++)
        pthread_create(&threads[own], NULL, writer, (void *)own);
    size_t folded = 0;
    for (unsigned round = 0; round < rounds; round++) {
        assert(ksmith_fold(common, WRITTEN_PAGES * PAGE, flags, &result) == 0);
        folded += result.folded_bytes;
    }
    ends = 1;
    for (unsigned own = 0; own < WRITERS; own++)
        pthread_join(threads[own], NULL);
    assert(ksmith_fold(common, WRITTEN_PAGES * PAGE, flags, &result) == 0);
    check_writers();
    assert(folded > 0);
    printf("folded %zu while written to\n", folded);
}

/* System calls that write: reads of a file of known bytes, by page, plain or past the cache. */
static int file;
static const char *path;
static void *reader(void *direct) {
    unsigned long state = 4711;
    int descriptor = open(path, O_RDONLY | (direct ? O_DIRECT : 0));
    assert(descriptor >= 0);
    for (unsigned turn = 0; !ends; turn++) {
        size_t page = random_of(&state) % WRITTEN_PAGES, from = random_of(&state) % 64;
        assert(pread(descriptor, common + page * PAGE, PAGE, from * PAGE) == (ssize_t)PAGE);
        for (size_t at = 0; at < PAGE; at += 64)
            assert(common[page * PAGE + at] == (unsigned char)(from % 5 ? from : 0));
        if (turn % 2)
            memset(common + page * PAGE, 0, PAGE);
    }
    close(descriptor);
    return NULL;
}

static void reads(int direct, unsigned rounds) {
    char name[] = "fold-XXXXXX";
    static unsigned char bytes[PAGE] __attribute__((aligned(4096)));
    path = name;
    file = mkstemp(name);
    for (unsigned page = 0; page < 64; page++) {
        memset(bytes, page % 5 ? page : 0, PAGE);
        assert(write(file, bytes, PAGE) == (ssize_t)PAGE);
    }
    fsync(file);
    if (direct) {
        int probe = open(name, O_RDONLY | O_DIRECT);
        if (probe < 0 || pread(probe, bytes, PAGE, 0) != (ssize_t)PAGE) {
            printf("no O_DIRECT here\n");
            unlink(name);
            return;
        }
        close(probe);
    }
    common = map(WRITTEN_PAGES * PAGE);
    memset(common, 0, WRITTEN_PAGES * PAGE);
    pthread_t thread;
    pthread_create(&thread, NULL, reader, (void *)(long)direct);
    size_t folded = 0;
    for (unsigned round = 0; round < rounds; round++) {
        assert(ksmith_fold(common, WRITTEN_PAGES * PAGE, 0, &result) == 0);
        folded += result.folded_bytes;
    }
    ends = 1;
    pthread_join(thread, NULL);
    unlink(name);
    assert(folded > 0);
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

/* Memory that must be left alone, and is named. */
static void kinds(void) {
    const size_t length = 4 * MIB;
    unsigned char *shared = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(shared, 0, length);
    assert(ksmith_fold(shared, length, 0, &result) == 0);
    assert(result.folded_bytes == 0 && result.other_bytes == length);

    int set_aside = huge_pages(-1), is_more = huge_pages(set_aside + 2) == set_aside + 2;
    unsigned char *pages = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (pages != MAP_FAILED) {
        memset(pages, 0, length);
        assert(ksmith_fold(pages, length, 0, &result) == 0);
        assert(result.folded_bytes == 0 && result.other_bytes == length);
        munmap(pages, length);
    } else {
        printf("no hugetlb here\n");
    }
    assert(!is_more || huge_pages(set_aside) == set_aside);

    unsigned char *read_only = map(length);
    memset(read_only, 0, length);
    mprotect(read_only, length, PROT_READ);
    assert(ksmith_fold(read_only, length, 0, &result) == 0);
    assert(result.folded_bytes == 0 && result.other_bytes == length);

    for (unsigned flags = 0; flags <= KSMITH_FOLD_STILL; flags += KSMITH_FOLD_STILL) {
        unsigned char *locked = map(length);
        memset(locked, 0, length);
        if (mlock(locked, length) == 0) {
            assert(ksmith_fold(locked, length, flags, &result) == 0);
            assert(result.folded_bytes == 0 && result.locked_bytes == length && resident(locked, length) == length);
        } else {
            printf("no mlock here\n");
        }
    }

    /* Another userfaultfd has it: of a debugger, or of a virtual machine that migrates. */
    unsigned char *taken = map(length);
    memset(taken, 0, length);
    int other = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    assert(other >= 0 && ioctl(other, UFFDIO_API, &api) == 0);
    struct uffdio_register registered = {.range = {(size_t)taken, length}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    assert(ioctl(other, UFFDIO_REGISTER, &registered) == 0);
    assert(ksmith_fold(taken, length, 0, &result) == 0);
    assert(result.folded_bytes == 0 && result.taken_bytes == length);
    close(other);
    assert(ksmith_fold(taken, length, 0, &result) == 0 && result.folded_bytes == length);

    /* A child of fork has the same pages; when it has ended and the parent has written, they are the parent's own. */
    unsigned char *forked = map(length);
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
    assert(result.folded_bytes == 0 && result.shared_bytes == length);
    int status;
    close(ready[1]);
    assert(waitpid(child, &status, 0) == child && status == 0);
    for (size_t at = 0; at < length; at += PAGE)
        ((volatile unsigned char *)forked)[at] = 0;
    assert(ksmith_fold(forked, length, 0, &result) == 0 && result.folded_bytes == length);

    /* Huge pages: one that is in use stays whole, one that is not is given back. */
    unsigned char *area = mmap(NULL, 3 * 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *huge = (unsigned char *)(((size_t)area + 2 * MIB - 1) & ~(2 * MIB - 1));
    if (madvise(huge, 4 * MIB, MADV_HUGEPAGE) == 0) {
        memset(huge, 0, 4 * MIB);
        memset(huge, 7, MIB + PAGE);
        assert(ksmith_fold(huge, 4 * MIB, 0, &result) == 0);
        printf("huge: folded %lu, left %lu\n", (unsigned long)result.folded_bytes, (unsigned long)result.huge_bytes);
        assert(result.folded_bytes + result.huge_bytes == 3 * MIB - PAGE);
        for (size_t at = 0; at < 4 * MIB; at++)
            assert(huge[at] == (at < MIB + PAGE ? 7 : 0));
    }

    /* What was never written to, or is the kernel's zero page already, costs nothing. */
    unsigned char *empty = map(length);
    unsigned sum = 0;
    for (size_t at = 0; at < length; at += 2 * PAGE)
        sum += ((volatile unsigned char *)empty)[at];
    assert(sum == 0 && ksmith_fold(empty, length, 0, &result) == 0);
    assert(result.looked_bytes == 0 && result.folded_bytes == 0);

    assert(ksmith_fold(empty, length, 0x400, NULL) == -EINVAL);
    assert(ksmith_fold(empty + 1, PAGE, 0, NULL) == -EINVAL);
    assert(ksmith_fold_all(KSMITH_FOLD_STILL, NULL) == -EINVAL);
    /* Only whole pages within the range. */
    memset(empty, 0, length);
    assert(ksmith_fold(empty + 1, 3 * PAGE - 2, 0, &result) == 0 && result.folded_bytes == PAGE);
}

/* Memory that is pinned for I/O: buffers that io_uring has registered. */
static void pinned(void) {
    const size_t length = 4 * MIB;
    unsigned char *memory = map(length);
    memset(memory, 0, length);
    struct io_uring_params parameters;
    memset(&parameters, 0, sizeof parameters);
    int ring = syscall(SYS_io_uring_setup, 4, &parameters);
    if (ring < 0) {
        printf("no io_uring here: %s\n", strerror(errno));
        return;
    }
    struct iovec buffer = {memory + MIB, MIB};
    if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) != 0) {
        printf("no registered buffers here: %s\n", strerror(errno));
        return;
    }
    assert(ksmith_fold(memory, length, KSMITH_FOLD_THREADS(2), &result) == 0);
    assert(result.pinned_bytes == MIB && result.folded_bytes == 3 * MIB);
    assert(resident(memory, length) == MIB);
    /* What the device writes to is what the program reads. */
    char name[] = "fold-XXXXXX";
    file = mkstemp(name);
    unlink(name);
    unsigned char bytes[PAGE];
    memset(bytes, 0x5a, PAGE);
    assert(write(file, bytes, PAGE) == (ssize_t)PAGE);
    size_t size = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
    unsigned char *queue = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entries = mmap(NULL, parameters.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED,
                                        ring, IORING_OFF_SQES);
    assert(queue != MAP_FAILED && entries != MAP_FAILED);
    memset(&entries[0], 0, sizeof entries[0]);
    entries[0].opcode = IORING_OP_READ_FIXED, entries[0].fd = file, entries[0].addr = (size_t)(memory + MIB + 8 * PAGE);
    entries[0].len = PAGE;
    ((unsigned *)(queue + parameters.sq_off.array))[0] = 0;
    atomic_store((_Atomic unsigned *)(queue + parameters.sq_off.tail), 1);
    assert(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    assert(memcmp(memory + MIB + 8 * PAGE, bytes, PAGE) == 0);
}

/* FNV-1a, by words. */
static unsigned long hash_of(const unsigned char *memory, size_t length) {
    unsigned long hash = 14695981039346656037ul;
    for (size_t at = 0; at < length / 8; at++)
        hash = (hash ^ ((const unsigned long *)memory)[at]) * 1099511628211ul;
    return hash;
}

static unsigned char in_file(size_t page) { return page % 3 ? 0 : 1 + page; }

/* Pins its half of the memory, has the kernel read into it, lets it go, and compares: again and again. */
static void *pinner(void *unused) {
    const size_t pages = 64;
    struct io_uring_params parameters;
    memset(&parameters, 0, sizeof parameters);
    int ring = syscall(SYS_io_uring_setup, 4, &parameters);
    if (ring < 0)
        return "io_uring";
    size_t size = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
    unsigned char *queue = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, parameters.sq_entries * sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
                                      IORING_OFF_SQES);
    assert(queue != MAP_FAILED && entry != MAP_FAILED);
    struct iovec buffer = {common, pages * PAGE};
    for (unsigned turn = 0; !ends; turn++) {
        memset(common, 0, pages * PAGE);
        if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) != 0)
            return "registered buffers";
        memset(entry, 0, sizeof *entry);
        entry->opcode = IORING_OP_READ_FIXED, entry->fd = file, entry->addr = (size_t)common, entry->len = pages * PAGE;
        ((unsigned *)(queue + parameters.sq_off.array))[turn % parameters.sq_entries] = 0;
        atomic_store((_Atomic unsigned *)(queue + parameters.sq_off.tail), turn + 1);
        assert(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
        atomic_store((_Atomic unsigned *)(queue + parameters.cq_off.head), turn + 1);
        if (turn % 2)
            assert(syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0);
        for (size_t at = 0; at < pages * PAGE; at++)
            assert(common[at] == in_file(at / PAGE));
        if (turn % 2 == 0)
            assert(syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0);
        signals++;
    }
    return unused;
}

/* A program that pins memory is folded at that moment: nothing is lost, and what is pinned is named. */
static void pins(unsigned rounds) {
    char name[] = "fold-XXXXXX";
    unsigned char bytes[PAGE];
    pthread_t thread;
    void *lacks;
    size_t pinned = 0, folded = 0;
    file = mkstemp(name);
    unlink(name);
    for (size_t page = 0; page < 64; page++) {
        memset(bytes, in_file(page), PAGE);
        assert(write(file, bytes, PAGE) == (ssize_t)PAGE);
    }
    common = map(128 * PAGE);
    for (size_t page = 64; page < 128; page++)
        memset(common + page * PAGE, page % 2 ? (int)page : 0, PAGE);
    unsigned long hash = hash_of(common + 64 * PAGE, 64 * PAGE);
    pthread_create(&thread, NULL, pinner, NULL);
    for (unsigned round = 0; round < rounds || (pinned == 0 && round < 100 * rounds); round++) {
        assert(ksmith_fold(common, 128 * PAGE, 0, &result) == 0);
        pinned += result.pinned_bytes, folded += result.folded_bytes;
        assert(hash_of(common + 64 * PAGE, 64 * PAGE) == hash);
    }
    ends = 1;
    pthread_join(thread, &lacks);
    if (lacks) {
        printf("no %s here\n", (char *)lacks);
        return;
    }
    printf("pinned %zu, folded %zu in %lu turns\n", pinned, folded, (unsigned long)signals);
    assert(pinned > 0 && folded > 0);
}

/* Another thread maps, unmaps, moves and discards memory, while all memory is folded. */
static void *changer(void *number) {
    unsigned long state = 1234567 + (unsigned long)number;
    while (!ends) {
        size_t length = (1 + random_of(&state) % 512) * PAGE;
        unsigned char value = random_of(&state) % 4 ? 0 : 1 + random_of(&state) % 255;
        unsigned char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert(memory != MAP_FAILED);
        memset(memory, value, length);
        switch (random_of(&state) % 5) {
        case 0: {
            unsigned char *moved = mremap(memory, length, 2 * length, MREMAP_MAYMOVE);
            assert(moved != MAP_FAILED);
            for (size_t at = 0; at < 2 * length; at += 64)
                assert(moved[at] == (at < length ? value : 0));
            memset(moved, 9, 2 * length);
            for (size_t at = 0; at < 2 * length; at += 64)
                assert(moved[at] == 9);
            assert(munmap(moved, 2 * length) == 0);
            continue;
        }
        case 1:
            assert(madvise(memory, length / 2 & ~(PAGE - 1), MADV_DONTNEED) == 0);
            memset(memory, 8, length);
            for (size_t at = 0; at < length; at += 64)
                assert(memory[at] == 8);
            break;
        case 2: {
            /* Malloc's memory too, which is trimmed and grows. */
            unsigned char *block = malloc(length);
            assert(block != NULL);
            memset(block, 3, length);
            for (size_t at = 0; at < length; at += 64)
                assert(block[at] == 3);
            free(block);
            break;
        }
        default:
            for (size_t at = 0; at < length; at += 64)
                assert(memory[at] == value);
        }
        assert(munmap(memory, length) == 0);
    }
    return NULL;
}

static void *forker(void *unused) {
    (void)unused;
    while (!ends) {
        pid_t child = fork();
        if (child == 0) {
            /* A child has what the parent had, and may write. */
            volatile unsigned sum = 0;
            for (size_t at = 0; at < MIB; at += PAGE)
                sum += common[at], common[at] = 5;
            _exit(0);
        }
        int status;
        assert(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    return NULL;
}

static void on_signal(int number) {
    (void)number;
    /* Writes to memory that may be protected just now. */
    common[(signals++ * 7919 * PAGE) % (WRITTEN_PAGES * PAGE) + 8] = 0;
}

static void all(unsigned rounds, int with_forks) {
    pthread_t threads[WRITERS + 3];
    unsigned count = 0;
    common = map(WRITTEN_PAGES * PAGE);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (unsigned long own = 0; own < WRITERS; own++)
        pthread_create(&threads[count++], NULL, writer, (void *)own);
    pthread_create(&threads[count++], NULL, changer, (void *)1);
    pthread_create(&threads[count++], NULL, changer, (void *)2);
    if (with_forks)
        pthread_create(&threads[count++], NULL, forker, NULL);
    size_t folded = 0;
    for (unsigned round = 0; round < rounds; round++) {
        assert(ksmith_fold_all(KSMITH_FOLD_THREADS(1 + round % 3), &result) == 0);
        folded += result.folded_bytes;
    }
    ends = 1;
    for (unsigned thread = 0; thread < count; thread++)
        pthread_join(threads[thread], NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    check_writers();
    assert(folded > 0);
    printf("folded %zu, %lu signals\n", folded, (unsigned long)signals);
}

/* Memory grows and moves in a small program that is folded again and again: many a call begins in one folding, which has divided its
 * mapping, and ends after it. */
static void *mover(void *unused) {
    while (!ends) {
        const size_t length = 8 * PAGE;
        unsigned char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert(memory != MAP_FAILED);
        memory[0] = 1;
        for (size_t at = PAGE; at < length; at += PAGE)
            memory[at] = 0;
        unsigned char *moved = mremap(memory, length, 2 * length, MREMAP_MAYMOVE);
        assert(moved != MAP_FAILED && moved[0] == 1 && moved[length] == 0);
        assert(munmap(moved, 2 * length) == 0);
        signals++;
    }
    return unused;
}

/* Memory of nine pages that the kernel holds for three mappings for good: each part has had its first page while its flags were others
 * than its neighbours'. Every page has its number. */
#define PART (3 * PAGE)
static unsigned char *divided(void) {
    unsigned char *memory = map(16 * PAGE);
    assert(munmap(memory + 9 * PAGE, 7 * PAGE) == 0);
    assert(madvise(memory + PART, PART, MADV_DONTDUMP) == 0);
    for (size_t page = 0; page < 9; page++)
        memory[page * PAGE + 5] = 1 + page;
    assert(madvise(memory + PART, PART, MADV_DODUMP) == 0);
    /* By its number: the library's own call is the one that is tried. */
    assert(syscall(SYS_mremap, memory, 9 * PAGE, 12 * PAGE, MREMAP_MAYMOVE) == -1 && errno == EFAULT);
    return memory;
}

static void has_its_numbers(const unsigned char *memory, size_t pages) {
    for (size_t page = 0; page < pages; page++)
        assert(memory[page * PAGE + 5] == (page < 9 ? 1 + page : 0));
}

static void filter_calls(struct sock_filter *rules, unsigned short count);

static void pieces(void) {
    unsigned char *memory = map(MIB);
    assert(ksmith_fold(memory, MIB, 0, &result) == 0);
    /* In its place. */
    memory = divided();
    assert(mremap(memory, 9 * PAGE, 12 * PAGE, 0) == memory);
    has_its_numbers(memory, 12);
    /* Elsewhere: behind it is the page that map() keeps closed. */
    memory = divided();
    assert(mremap(memory, 9 * PAGE, 40 * PAGE, 0) == MAP_FAILED && errno == EFAULT);
    unsigned char *moved = mremap(memory, 9 * PAGE, 40 * PAGE, MREMAP_MAYMOVE);
    assert(moved != MAP_FAILED && moved != memory);
    has_its_numbers(moved, 40);
    assert(resident(memory, 9 * PAGE) == 0 && msync(memory, PAGE, MS_ASYNC) == -1 && errno == ENOMEM);
    /* At an address of the caller's choice, larger and smaller. */
    unsigned char *place = map(64 * PAGE);
    memory = divided();
    assert(mremap(memory, 9 * PAGE, 20 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    has_its_numbers(place, 20);
    memory = divided();
    assert(mremap(memory, 9 * PAGE, 7 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    has_its_numbers(place, 7);
    assert(msync(memory + 7 * PAGE, 2 * PAGE, MS_ASYNC) == -1 && errno == ENOMEM);
    /* What has a hole is no memory of one mapping. */
    memory = divided();
    assert(munmap(memory + 4 * PAGE, PAGE) == 0);
    assert(mremap(memory, 9 * PAGE, 12 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT && memory[8 * PAGE + 5] == 9);
    /* The kernel refuses to move the first part, after the two others: all is as it was. */
    memory = divided();
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(size_t)memory, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PART, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    filter_calls(rules, sizeof rules / sizeof rules[0]);
    assert(mremap(memory, 9 * PAGE, 40 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
    has_its_numbers(memory, 9);
}

static void remaps(unsigned rounds) {
    pthread_t threads[4];
    alarm(240);
    for (unsigned thread = 0; thread < 4; thread++)
        pthread_create(&threads[thread], NULL, mover, NULL);
    for (unsigned round = 0; round < rounds; round++)
        assert(ksmith_fold_all(0, &result) == 0);
    ends = 1;
    for (unsigned thread = 0; thread < 4; thread++)
        pthread_join(threads[thread], NULL);
    printf("%lu mappings moved\n", (unsigned long)signals);
}

/* Threads begin and end on stacks that are folded meanwhile. As a thread ends the kernel writes the word that pthread_join waits
 * for, and does not wait for a userfaultfd there: were that page protected, the join would never return. */
static void *nothing(void *unused) { return unused; }

static void *starter(void *area) {
    const size_t length = 32 * PAGE;
    unsigned char *stack = area;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    while (!ends) {
        pthread_t thread;
        /* Zero pages where the thread's data will be, at the end of its stack, and behind it. */
        memset(stack, 0, 2 * length);
        assert(pthread_attr_setstack(&attributes, stack, length) == 0);
        assert(pthread_create(&thread, &attributes, nothing, NULL) == 0);
        assert(pthread_join(thread, NULL) == 0);
        assert(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
        signals++;
    }
    return NULL;
}

static void threads_end(unsigned rounds) {
    pthread_t threads[4];
    unsigned char *area = map(MIB);
    for (unsigned thread = 0; thread < 4; thread++) {
        memset(area + thread * 64 * PAGE, 1, 64 * PAGE);
        pthread_create(&threads[thread], NULL, starter, area + thread * 64 * PAGE);
    }
    size_t folded = 0;
    alarm(240);
    for (unsigned round = 0; round < rounds; round++) {
        assert(ksmith_fold(area, MIB, 0, &result) == 0);
        folded += result.folded_bytes;
        assert(round % 8 || ksmith_fold_all(KSMITH_FOLD_THREADS(3), &result) == 0);
    }
    ends = 1;
    for (unsigned thread = 0; thread < 4; thread++)
        pthread_join(threads[thread], NULL);
    assert(folded > 0);
    printf("folded %zu while %lu pairs of threads ended\n", folded, (unsigned long)signals);
}

/* A thread ends with a robust mutex of its own that was zero a moment ago. If the kernel does not mark it, the next thread that
 * wants it waits for ever. */
static void *takes_robust(void *place) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    assert(pthread_mutex_init(place, &attributes) == 0 && pthread_mutex_lock(place) == 0);
    return NULL;
}

static void *robust_user(void *area) {
    while (!ends) {
        pthread_t thread;
        memset(area, 0, 16 * PAGE);
        assert(pthread_create(&thread, NULL, takes_robust, (char *)area + 8 * PAGE) == 0);
        assert(pthread_join(thread, NULL) == 0);
        pthread_mutex_t *mutex = (void *)((char *)area + 8 * PAGE);
        assert(pthread_mutex_lock(mutex) == EOWNERDEAD && pthread_mutex_consistent(mutex) == 0);
        assert(pthread_mutex_unlock(mutex) == 0);
        signals++;
    }
    return NULL;
}

static void robust(unsigned rounds) {
    pthread_t threads[2];
    unsigned char *area = map(MIB);
    memset(area, 0, MIB);
    for (unsigned thread = 0; thread < 2; thread++)
        pthread_create(&threads[thread], NULL, robust_user, area + thread * 64 * PAGE);
    alarm(240);
    for (unsigned round = 0; round < rounds; round++)
        assert(ksmith_fold(area, MIB, 0, &result) == 0);
    ends = 1;
    for (unsigned thread = 0; thread < 2; thread++)
        pthread_join(threads[thread], NULL);
    printf("%lu mutexes of threads that ended\n", (unsigned long)signals);
}

/* Another thread discards memory again and again: what it asked for before the range was watched comes in between. */
static void *discarder(void *area) {
    for (unsigned turn = 0; !ends; turn++) {
        memset(area, 0, MIB);
        assert(madvise(area, MIB, MADV_DONTNEED) == 0);
        memset(area, 3, 4 * PAGE);
        for (size_t at = 0; at < 8 * PAGE; at++)
            assert(((volatile unsigned char *)area)[at] == (at < 4 * PAGE ? 3 : 0));
    }
    return NULL;
}

static void discards(unsigned rounds) {
    pthread_t threads[4];
    unsigned char *area = map(4 * MIB);
    for (unsigned thread = 0; thread < 4; thread++)
        pthread_create(&threads[thread], NULL, discarder, area + thread * MIB);
    alarm(240);
    for (unsigned round = 0; round < rounds; round++)
        assert(ksmith_fold(area, 4 * MIB, KSMITH_FOLD_THREADS(2), &result) == 0);
    ends = 1;
    for (unsigned thread = 0; thread < 4; thread++)
        pthread_join(threads[thread], NULL);
}

/* A child that lives on has none of the descriptors that folding opens, and neither does the program afterwards. */
static int descriptors(const char *wanted) {
    char path_of[64], target[64];
    int found = 0;
    for (int number = 0; number < 256; number++) {
        snprintf(path_of, sizeof path_of, "/proc/self/fd/%d", number);
        ssize_t length = readlink(path_of, target, sizeof target - 1);
        if (length > 0)
            target[length] = 0, found += strstr(target, wanted) != NULL;
    }
    return found;
}

static void *folder(void *area) {
    struct ksmith_folded own;
    while (!ends) {
        memset(area, 0, 4 * MIB);
        assert(ksmith_fold(area, 4 * MIB, 0, &own) == 0);
    }
    return NULL;
}

static void inherits(unsigned rounds) {
    pthread_t thread;
    unsigned char *area = map(4 * MIB);
    int done[2], status;
    assert(pipe(done) == 0);
    pthread_create(&thread, NULL, folder, area);
    alarm(240);
    for (unsigned round = 0; round < rounds; round++) {
        pid_t child = fork();
        if (child == 0) {
            if (descriptors("userfaultfd") || descriptors("pagemap"))
                _exit(1);
            char byte;
            close(done[1]);
            _exit(read(done[0], &byte, 1) == 0 ? 0 : 2);
        }
        if (child < 0)
            perror("fork");
        assert(child > 0);
        assert(descriptors("userfaultfd") == 0);
    }
    /* All children live until here, while memory is discarded, folded and forked. */
    ends = 1;
    pthread_join(thread, NULL);
    close(done[1]);
    for (unsigned round = 0; round < rounds; round++)
        assert(wait(&status) > 0 && status == 0);
}

/* setuid(2) and its relatives are made by libc in each thread, while memory is folded. */
static void users(unsigned rounds) {
    pthread_t thread;
    unsigned char *area = map(4 * MIB);
    pthread_create(&thread, NULL, folder, area);
    alarm(240);
    for (unsigned round = 0; round < rounds; round++)
        assert(setresgid(0, round % 2 ? 65534 : 0, 0) == 0 && setresuid(0, 0, 0) == 0);
    ends = 1;
    pthread_join(thread, NULL);
}

/* A program is replaced while a thread of it folds; the argument counts down. From the moment it asks for that the kernel makes
 * no thread for it (in_exec in fs/exec.c), so there may be none to fold. */
static void *folder_until_replaced(void *area) {
    struct ksmith_folded own;
    for (int code = 0; code == 0; assert(code == 0 || code == -EAGAIN)) {
        memset(area, 0, 4 * MIB);
        code = ksmith_fold(area, 4 * MIB, 0, &own);
    }
    return NULL;
}

static void replaced(const char *self, unsigned rounds) {
    char left[16];
    pthread_t thread;
    unsigned char *area = map(4 * MIB);
    alarm(240);
    assert(descriptors("userfaultfd") == 0);
    if (rounds == 0)
        return;
    pthread_create(&thread, NULL, folder_until_replaced, area);
    usleep(1000 * (rounds % 7));
    snprintf(left, sizeof left, "%u", rounds - 1);
    execl(self, self, "replaced", left, NULL);
    assert(0);
}

/* Without the right to a userfaultfd, but with access to the device. */
static void by_device(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2];
    memset(none, 0, sizeof none);
    unsigned char *memory = map(4 * MIB);
    memset(memory, 0, 4 * MIB);
    assert(syscall(SYS_capset, &header, none) == 0);
    int full = syscall(SYS_userfaultfd, O_CLOEXEC), device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (full >= 0 || device < 0) {
        printf("no such device here\n");
        return;
    }
    assert(ksmith_fold(memory, 4 * MIB, 0, &result) == 0);
    assert(result.method == KSMITH_FOLD_BY_FULL && result.folded_bytes == 4 * MIB);
}

/* A virtual machine of KVM counts in each page of its memory, in real mode, while that is folded. */
static void *counts(void *vcpu) {
    while (!ends)
        assert(ioctl(*(int *)vcpu, KVM_RUN, 0) == 0 || errno == EINTR);
    return NULL;
}

static void kvm(unsigned rounds) {
    const size_t length = 512 << 10;
    /* Adds 1 to the word at 0x100 of each page from 64 KiB on, and to all of them the same; leaves by a port at the end. */
    static const unsigned char code[] = {
        0xbb, 0x00, 0x10,             /* mov bx, 0x1000 */
        0x8e, 0xdb,                   /* again: mov ds, bx */
        0xff, 0x06, 0x00, 0x01,       /* inc word [0x100] */
        0x81, 0xc3, 0x00, 0x01,       /* add bx, 0x100 */
        0x81, 0xfb, 0x00, 0x80,       /* cmp bx, 0x8000 */
        0x75, 0xf0,                   /* jne again */
        0xe6, 0x10,                   /* out 0x10, al */
        0xeb, 0xe9,                   /* jmp start */
    };
    int system = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    int machine = system < 0 ? -1 : ioctl(system, KVM_CREATE_VM, 0);
    if (machine < 0) {
        printf("no KVM here\n");
        return;
    }
    unsigned char *memory = map(length);
    memset(memory, 0, length);
    memcpy(memory + 0x1000, code, sizeof code);
    struct kvm_userspace_memory_region region = {.memory_size = length, .userspace_addr = (size_t)memory};
    assert(ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region) == 0);
    int vcpu = ioctl(machine, KVM_CREATE_VCPU, 0);
    size_t size = ioctl(system, KVM_GET_VCPU_MMAP_SIZE, 0);
    struct kvm_run *state = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
    struct kvm_sregs special;
    struct kvm_regs registers = {.rip = 0x1000, .rflags = 2};
    assert(vcpu >= 0 && state != MAP_FAILED && ioctl(vcpu, KVM_GET_SREGS, &special) == 0);
    special.cs.base = special.cs.selector = 0;
    assert(ioctl(vcpu, KVM_SET_SREGS, &special) == 0 && ioctl(vcpu, KVM_SET_REGS, &registers) == 0);
    size_t folded = 0;
    alarm(240);
    unsigned turn = 0;
    for (; turn < rounds; turn++) {
        /* What was counted is zero again after 65,536 turns, and for the program in each that it clears. */
        if (turn % 4 == 0)
            for (size_t page = 16; page < 128; page++)
                memset(memory + page * PAGE, 0, PAGE);
        assert(ksmith_fold(memory, length, 0, &result) == 0);
        folded += result.folded_bytes;
        assert(ioctl(vcpu, KVM_RUN, 0) == 0 && state->exit_reason == KVM_EXIT_IO);
        for (size_t page = 16; page < 128; page++)
            assert(*(unsigned short *)(memory + page * PAGE + 0x100) == turn % 4 + 1);
    }
    /* The same at once: no count is lost. */
    pthread_t thread;
    for (size_t page = 16; page < 128; page++)
        memset(memory + page * PAGE, 0, PAGE);
    pthread_create(&thread, NULL, counts, &vcpu);
    for (unsigned round = 0; round < rounds; round++) {
        assert(ksmith_fold(memory, length, 0, &result) == 0);
        folded += result.folded_bytes;
    }
    ends = 1;
    pthread_join(thread, NULL);
    unsigned short first = *(unsigned short *)(memory + 16 * PAGE + 0x100);
    for (size_t page = 17; page < 128; page++)
        assert(*(unsigned short *)(memory + page * PAGE + 0x100) == first);
    assert(folded > 0 && first > 0);
    printf("folded %zu, counted to %u\n", folded, first);
}

/* Without rights: only by a promise. */
static void unprivileged(void) {
    assert(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    prctl(PR_SET_DUMPABLE, 1);
    unsigned char *memory = map(4 * MIB);
    memset(memory, 0, 4 * MIB);
    int code = ksmith_fold(memory, 4 * MIB, 0, &result);
    printf("none %d\n", code);
    assert(code == -EPERM && ksmith_fold_all(0, &result) == -EPERM);
    assert(ksmith_fold(memory, 2 * MIB, KSMITH_FOLD_WITHOUT_IO, &result) == 0);
    assert(result.method == KSMITH_FOLD_BY_USER && result.folded_bytes == 2 * MIB);
    assert(ksmith_fold(memory, 4 * MIB, KSMITH_FOLD_STILL, &result) == 0);
    assert(result.method == KSMITH_FOLD_BY_STILL && result.folded_bytes == 2 * MIB);
}

/* Has the kernel filter the calls of this program from now on. */
static void filter_calls(struct sock_filter *rules, unsigned short count) {
    struct sock_fprog program = {count, rules};
    /* By its number: the library steps back from a program that calls prctl for it. */
    assert(syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    assert(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}

/* In a sandbox that refuses the call. */
static void sandboxed(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    filter_calls(rules, sizeof rules / sizeof rules[0]);
    unsigned char *memory = map(4 * MIB);
    memset(memory, 0, 4 * MIB);
    int code = ksmith_fold(memory, 4 * MIB, 0, &result);
    /* /dev/userfaultfd may still be there for root. */
    printf("sandboxed %d\n", code);
    assert(code == 0 || code == -EPERM);
    assert(ksmith_fold(memory, 4 * MIB, KSMITH_FOLD_STILL, &result) == 0);
}

/* On a kernel with a userfaultfd that moves no pages: it refuses a feature that it does not know. */
static void old_kernel(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UFFDIO_API, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    filter_calls(rules, sizeof rules / sizeof rules[0]);
    unsigned char *memory = map(4 * MIB);
    memset(memory, 0, 4 * MIB);
    assert(ksmith_fold(memory, 4 * MIB, 0, &result) == -ENOSYS && ksmith_fold_all(0, &result) == -ENOSYS);
    assert(ksmith_fold(memory, 4 * MIB, KSMITH_FOLD_WITHOUT_IO, &result) == -ENOSYS);
    assert(ksmith_fold(memory, 4 * MIB, KSMITH_FOLD_STILL, &result) == 0 && result.folded_bytes == 4 * MIB);
    for (size_t at = 0; at < 4 * MIB; at++)
        assert(memory[at] == 0);
}

int main(int count, char **words) {
    assert(count >= 2);
    const char *test = words[1];
    unsigned rounds = count > 2 ? strtoul(words[2], NULL, 0) : 200;
    if (!strcmp(test, "probe")) {
        unsigned char *memory = map(PAGE);
        memory[0] = 0;
        printf("code %d\n", ksmith_fold(memory, PAGE, 0, &result));
    } else if (!strcmp(test, "contents"))
        contents(rounds);
    else if (!strcmp(test, "writers"))
        writers(KSMITH_FOLD_THREADS(2), rounds);
    else if (!strcmp(test, "reads"))
        reads(0, rounds);
    else if (!strcmp(test, "direct"))
        reads(1, rounds);
    else if (!strcmp(test, "kinds"))
        kinds();
    else if (!strcmp(test, "pinned"))
        pinned();
    else if (!strcmp(test, "all"))
        all(rounds, 0);
    else if (!strcmp(test, "forks"))
        all(rounds, 1);
    else if (!strcmp(test, "pieces"))
        pieces();
    else if (!strcmp(test, "remaps"))
        remaps(rounds);
    else if (!strcmp(test, "pins"))
        pins(rounds);
    else if (!strcmp(test, "users"))
        users(rounds);
    else if (!strcmp(test, "replaced"))
        replaced(words[0], rounds);
    else if (!strcmp(test, "by-device"))
        by_device();
    else if (!strcmp(test, "kvm"))
        kvm(rounds);
    else if (!strcmp(test, "threads-end"))
        threads_end(rounds);
    else if (!strcmp(test, "robust"))
        robust(rounds);
    else if (!strcmp(test, "discards"))
        discards(rounds);
    else if (!strcmp(test, "inherits"))
        inherits(rounds);
    else if (!strcmp(test, "unprivileged"))
        unprivileged();
    else if (!strcmp(test, "sandboxed"))
        sandboxed();
    else if (!strcmp(test, "old-kernel"))
        old_kernel();
    else
        return 2;
    printf("ok\n");
    return 0;
}
