/* Reads and writes past the page cache, by io_uring, and from another process, into memory that is folded. */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "contents.h"

#define HUGE_PAGES 4
#define FILE_PAGES 256

static char path[] = "fold-stress-XXXXXX", target_path[] = "fold-stress-XXXXXX";
static seed_t file_seeds[FILE_PAGES];

static int make_file(char *name, int is_filled) {
    int file = mkstemp(name);
    REQUIRE("file", file >= 0);
    unsigned char bytes[PAGE] __attribute__((aligned(8)));
    uint64_t random = 3;
    for (size_t page = 0; page < FILE_PAGES; page++) {
        seed_t seed = is_filled ? draw_seed(&random) : 0;
        if (is_filled)
            file_seeds[page] = seed;
        fill_page(bytes, seed);
        REQUIRE("file", write(file, bytes, PAGE) == (ssize_t)PAGE);
    }
    REQUIRE("file", fsync(file) == 0);
    return file;
}

static void *read_directly(void *given) {
    struct arena *arena = given;
    int file = open(path, O_RDONLY | O_DIRECT), target = open(target_path, O_RDWR | O_DIRECT);
    if (file < 0 || target < 0) {
        skip_part("O_DIRECT", strerror(errno));
        return NULL;
    }
    static seed_t written[FILE_PAGES];
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t pages = 1 + next_random(&arena->random) % (turn % 8 ? 8 : 64);
        size_t from = next_random(&arena->random) % (FILE_PAGES - pages), to = next_random(&arena->random) % (arena->pages - pages);
        unsigned char *start = arena->start + to * PAGE;
        if (turn % 4 == 3) { /* From memory to the file. */
            check_pages(arena, to, pages);
            REQUIRE(arena->worker, pwrite(target, start, pages * PAGE, from * PAGE) == (ssize_t)(pages * PAGE));
            memcpy(written + from, arena->seeds + to, pages * sizeof *written);
            count(direct_writes);
            continue;
        }
        /* Zero pages look as if they might be folded, while the device writes to them. */
        for (size_t page = to; page < to + pages; page++)
            change_page(arena, page, 0);
        int is_own = turn % 4 == 2;
        REQUIRE(arena->worker, pread(is_own ? target : file, start, pages * PAGE, from * PAGE) == (ssize_t)(pages * PAGE));
        memcpy(arena->seeds + to, (is_own ? written : file_seeds) + from, pages * sizeof *written);
        check_pages(arena, to, pages);
        count(direct_reads);
        if (turn % 64 == 63)
            renew_huge_page(arena);
        if (turn % 512 == 511)
            check_arena(arena);
    }
    check_arena(arena);
    return NULL;
}

#define ENTRIES 8

/* Reads, several at once, by io_uring: into memory that is registered, which stays pinned, and into memory that is not. */
static void *read_by_ring(void *given) {
    struct arena *arena = given;
    struct io_uring_params parameters;
    memset(&parameters, 0, sizeof parameters);
    int ring = (int)syscall(SYS_io_uring_setup, ENTRIES, &parameters);
    if (ring < 0 || !(parameters.features & IORING_FEAT_SINGLE_MMAP)) {
        skip_part("io_uring", ring < 0 ? strerror(errno) : "this kernel's is too old");
        return NULL;
    }
    size_t half = arena->pages / 2;
    struct iovec buffer = {arena->start, half * PAGE};
    int is_registered = syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) == 0;
    if (!is_registered)
        skip_part("registered buffers", strerror(errno));
    size_t size = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
    size_t completions = parameters.cq_off.cqes + parameters.cq_entries * sizeof(struct io_uring_cqe);
    size = size > completions ? size : completions;
    unsigned char *queue = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entries =
        mmap(NULL, parameters.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    REQUIRE(arena->worker, queue != MAP_FAILED && (void *)entries != MAP_FAILED);
    int files[2] = {open(path, O_RDONLY | O_DIRECT), open(path, O_RDONLY)};
    if (files[0] < 0)
        files[0] = files[1];
    _Atomic unsigned *sq_tail = (_Atomic unsigned *)(queue + parameters.sq_off.tail);
    _Atomic unsigned *cq_head = (_Atomic unsigned *)(queue + parameters.cq_off.head);
    _Atomic unsigned *cq_tail = (_Atomic unsigned *)(queue + parameters.cq_off.tail);
    for (unsigned turn = 0; !shared->ends; turn++) {
        int is_fixed = is_registered && turn % 4 == 0;
        /* Targets in one stretch, each page once. */
        size_t first = (is_fixed ? 0 : half) + next_random(&arena->random) % (half - ENTRIES);
        unsigned tail = atomic_load(sq_tail);
        for (unsigned number = 0; number < ENTRIES; number++) {
            size_t from = next_random(&arena->random) % FILE_PAGES, page = first + number;
            struct io_uring_sqe *entry = &entries[number];
            change_page(arena, page, 0);
            memset(entry, 0, sizeof *entry);
            entry->opcode = is_fixed ? IORING_OP_READ_FIXED : IORING_OP_READ;
            entry->fd = files[turn % 3 == 0];
            entry->addr = (uintptr_t)(arena->start + page * PAGE), entry->len = PAGE, entry->off = from * PAGE;
            entry->user_data = (uint64_t)page << 32 | from;
            ((unsigned *)(queue + parameters.sq_off.array))[(tail + number) & (parameters.sq_entries - 1)] = number;
        }
        atomic_store(sq_tail, tail + ENTRIES);
        unsigned submitted = 0, done = 0;
        while (done < ENTRIES) {
            long code = syscall(SYS_io_uring_enter, ring, ENTRIES - submitted, 1, IORING_ENTER_GETEVENTS, NULL, 0);
            REQUIRE(arena->worker, code >= 0 || errno == EINTR);
            submitted += code > 0 ? (unsigned)code : 0;
            for (unsigned head = atomic_load(cq_head); head != atomic_load(cq_tail); done++) {
                struct io_uring_cqe *completion =
                    (struct io_uring_cqe *)(queue + parameters.cq_off.cqes) + (head & (parameters.cq_entries - 1));
                REQUIRE(arena->worker, completion->res == (int)PAGE);
                size_t page = completion->user_data >> 32;
                arena->seeds[page] = file_seeds[completion->user_data & 0xffffffff];
                check_page(arena, page);
                count(is_fixed ? registered_reads : ring_reads);
                atomic_store(cq_head, ++head);
            }
        }
        check_pages(arena, first, ENTRIES);
        if (turn % 32 == 31) /* The half that is not pinned. */
            madvise(arena->start + half * PAGE, half * PAGE, MADV_COLLAPSE);
        if (turn % 512 == 511)
            check_arena(arena);
    }
    check_arena(arena);
    return NULL;
}

/* Pages that two processes write to, each under its lock. */
#define REMOTE_PAGES (2 * PAGES_OF_HUGE)
static struct sibling {
    atomic_int pid;
    unsigned char *start;
    struct remote_page {
        atomic_flag is_locked;
        seed_t seed;
    } pages[REMOTE_PAGES];
} *sibling;

void make_sibling_state(void) {
    sibling = mmap(NULL, sizeof *sibling, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE("sibling", sibling != MAP_FAILED);
}

static struct remote_page *lock_page(size_t page) {
    while (atomic_flag_test_and_set(&sibling->pages[page].is_locked))
        sched_yield();
    return &sibling->pages[page];
}

static void *share_with_sibling(void *unused) {
    uint64_t random = 5;
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t page = next_random(&random) % REMOTE_PAGES;
        struct remote_page *locked = lock_page(page);
        unsigned char *start = sibling->start + page * PAGE;
        check_bytes("written to by a sibling", start, locked->seed);
        if (turn % 4 == 0) {
            locked->seed = turn % 8 ? 0 : draw_seed(&random);
            fill_page(start, locked->seed);
        }
        atomic_flag_clear(&locked->is_locked);
        if (turn % 4096 == 4095)
            madvise(sibling->start, REMOTE_PAGES * PAGE, MADV_COLLAPSE);
        if (turn % 64 == 63)
            pause_shortly(&random, 300);
    }
    for (size_t page = 0; page < REMOTE_PAGES; page++) {
        struct remote_page *locked = lock_page(page);
        check_bytes("written to by a sibling", sibling->start + page * PAGE, locked->seed);
        atomic_flag_clear(&locked->is_locked);
    }
    return unused;
}

void run_sibling(const struct options *options) {
    (void)options;
    while (!sibling->pid && !shared->ends)
        usleep(1000);
    if (shared->ends)
        return;
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/mem", sibling->pid);
    int file = open(name, O_RDWR);
    if (file < 0)
        skip_part("writes by /proc/PID/mem", strerror(errno));
    static unsigned char bytes[PAGE] __attribute__((aligned(8)));
    uint64_t random = 11;
    for (unsigned long turn = 0; !shared->ends; turn++) {
        size_t page = next_random(&random) % REMOTE_PAGES;
        struct remote_page *locked = lock_page(page);
        seed_t seed = draw_seed(&random);
        fill_page(bytes, seed);
        struct iovec local = {bytes, PAGE}, remote = {sibling->start + page * PAGE, PAGE};
        int is_by_file = file >= 0 && turn % 2;
        ssize_t done = is_by_file ? pwrite(file, bytes, PAGE, (off_t)(uintptr_t)remote.iov_base)
                                  : process_vm_writev(sibling->pid, &local, 1, &remote, 1, 0);
        if (done != (ssize_t)PAGE && turn == 0) {
            atomic_flag_clear(&locked->is_locked);
            return skip_part("process_vm_writev", strerror(errno));
        }
        REQUIRE("sibling", done == (ssize_t)PAGE);
        locked->seed = seed;
        /* Read back the same way. */
        REQUIRE("sibling", process_vm_readv(sibling->pid, &local, 1, &remote, 1, 0) == (ssize_t)PAGE);
        check_bytes("sibling that writes", bytes, seed);
        atomic_flag_clear(&locked->is_locked);
        count(is_by_file ? mem_file_writes : remote_writes);
        if (turn % 16 == 15)
            pause_shortly(&random, 300);
    }
}

void run_io(const struct options *options) {
    (void)options;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    make_file(path, 1);
    make_file(target_path, 0);
    sibling->start = map_huge(REMOTE_PAGES / PAGES_OF_HUGE);
    memset(sibling->start, 0, REMOTE_PAGES * PAGE);
    sibling->pid = getpid();
    pthread_t threads[3];
    pthread_create(&threads[0], NULL, read_directly, make_arena("O_DIRECT", HUGE_PAGES));
    pthread_create(&threads[1], NULL, read_by_ring, make_arena("io_uring", HUGE_PAGES));
    pthread_create(&threads[2], NULL, share_with_sibling, NULL);
    for (int thread = 0; thread < 3; thread++)
        pthread_join(threads[thread], NULL);
    unlink(path), unlink(target_path);
}
