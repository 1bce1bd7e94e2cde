/* ksmith.h: KSM (kernel samepage merging) from within a program.
 *
 * Link with -lksmith, or open libksmith.so.
 *
 * Every function that answers `int` answers 0 if it was done, else a negated errno, as named with each; ksmith_strerror
 * has a sentence for each. errno itself stays as it was. All may be called by any thread, and none allocates memory.
 * Sizes are in bytes, waits in milliseconds.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef KSMITH_H
#define KSMITH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. It grows when something is added; nothing is taken away within a version of the library. */
#define KSMITH_VERSION 2

/* The version that the loaded library has. */
int ksmith_version(void);

/* Returns the mode of the library in this process: "none", "prctl", "madvise", "guided", or "quiet" (the program has sandboxed
 * itself with seccomp). See docs/reference/libksmith.md. */
const char *ksmith_method(void);

/* Offers memory to KSM: the whole pages within [start, start + length). It must be private and anonymous, as of malloc or
  * mmap; on any other kind the kernel ignores the mark without an error. A page is merged at the second visit by ksmd.
 *   -EINVAL  there is no whole page in the range
 *   -ENOMEM  part of the range is not mapped (the rest is marked)
 *   -ENOSYS  this kernel has no KSM */
int ksmith_mark(void *start, size_t length);

/* Takes memory back: each page that has a byte of [start, start + length). When it returns, what was merged there has been
 * copied. The library will not mark this memory by itself again.
 *   -EINVAL  the range is empty
 *   -ENOMEM  part of the range is not mapped, or there is no memory for the copies (some pages remain merged)
 *   -ENOSYS  this kernel has no KSM */
int ksmith_unmark(void *start, size_t length);

/* Asks the daemon for clean passes over all marked memory now (1 to 16; 2 merge what is equal), and waits until they are
 * done, at most so many milliseconds (-1: as long as it takes). After a timeout the passes still take place.
 *   -EINVAL     passes is not from 1 to 16
 *   -ENOENT     there is no daemon
 *   -EACCES     this user may not ask it
 *   -EDQUOT     this user's budget of ksmd's CPU time, or of passes, is used up; ksmith_reason says until when
 *   -EBUSY      others are being served
 *   -EPERM      it refuses for a reason of its own: ksmith_reason
 *   -ETIMEDOUT  not done in that time
 *   -EOPNOTSUPP the daemon does not know the request
 *   -ECONNRESET, -EPROTO  the daemon ended meanwhile, or is no ksmith */
int ksmith_scan(unsigned passes, int milliseconds);

/* Source of the figures. */
#define KSMITH_FROM_DAEMON 1
/* The kernel shows a process only its own part: saved_bytes counts every merged page, also the one of each content that is
 * kept. So it is an upper bound and does not add up over processes. */
#define KSMITH_FROM_KERNEL 2

/* What merging does for this process, in bytes. */
struct ksmith_savings {
    uint64_t source;       /* KSMITH_FROM_... */
    uint64_t rss_bytes;    /* resident; merged pages count in full */
    uint64_t merged_bytes; /* in merged pages, zero pages included */
    uint64_t saved_bytes;  /* this process's part in what is saved, zero pages included */
    int64_t profit_bytes;  /* that without what KSM's records cost; may be negative */
    uint64_t zero_bytes;   /* in pages that became the kernel's zero page */
    uint64_t reserved[2];  /* 0 */
};

/* What this process saves: by the daemon, which has two seconds, else by the kernel.
 *   -EINVAL  savings is NULL
 *   -ENODATA neither can tell */
int ksmith_saves(struct ksmith_savings *savings);

/* What was marked. */
struct ksmith_guided {
    uint64_t ranges; /* ranges of whole pages, those included that the program marked itself */
    uint64_t bytes;  /* in them */
};

/* Asks the daemon which of this process's memory is worth merging, marks that, and takes the mark from all other private
 * anonymous memory but what ksmith_mark (or madvise) has marked. So ksmd need not visit the rest. The daemon
 * looks at the memory as it is now: ask when it has been filled. result may be NULL. Without an answer nothing changes.
 *   as ksmith_scan, and
 *   -EBUSY   another thread asks just now */
int ksmith_guided(int milliseconds, struct ksmith_guided *result);

/* Flags of ksmith_fold. */
#define KSMITH_FOLD_THREADS(n) ((unsigned)(n) & 0xffu) /* fold in so many threads, the caller among them; 0 is 1, 64 at most */

/* What was folded, and what was left alone. Bytes, but for the last two. */
struct ksmith_folded {
    uint64_t folded_bytes; /* given back */
    uint64_t looked_bytes; /* resident pages of this process alone, which were read */
    uint64_t shared_bytes; /* resident, but shared with a child of fork, merged by KSM, or the kernel's zero page */
    uint64_t locked_bytes; /* zero, but held by mlock */
    uint64_t huge_bytes;   /* zero, in huge pages that are in use for more than half */
    uint64_t other_bytes;  /* mappings of another kind: shared, of files, hugetlb, stacks, without the right to write */
    uint64_t nanoseconds;  /* time of the call */
    uint64_t threads;      /* threads that folded */
};

/* Gives the zero pages within [start, start + length) back to the system: they read as zero, and cost memory only when they are
 * written to again. Contents stay as they are. The caller promises: until the call returns the memory stays mapped, no thread
 * writes to it, and no I/O into it is under way. A write meanwhile may be lost. The memory is not registered for I/O (io_uring,
 * RDMA, VFIO), which would go on in the old pages, nor with a userfaultfd. Not for signal handlers. result may be NULL.
 * Memory that a program can't promise this of is folded from outside: `ksmith fold PID`.
 *   -EINVAL  there is no whole page in the range, or a flag is unknown
 *   -EPERM   the program has sandboxed itself (ksmith_method answers "quiet")
 *   -ENODATA /proc/self/maps or /proc/self/pagemap can't be read
 *   -ENOMEM  part of the range was unmapped meanwhile, or there is no memory for it */
int ksmith_fold(void *start, size_t length, unsigned flags, struct ksmith_folded *result);

/* A sentence on a code that a function answered. Never NULL; not to be freed. */
const char *ksmith_strerror(int code);

/* Copies what the daemon said when it last refused this process something: at most size - 1 bytes and a zero. Answers the
 * length of the whole; 0 if it did not refuse. */
size_t ksmith_reason(char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
