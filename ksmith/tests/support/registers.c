/* ptrace(2) for user-mode Linux 6.1 on processors with AMX. Their registers do not fit into its room of 2,696 bytes, and the kernel
   takes registers only as a whole (xstateregs_set in arch/x86/kernel/fpu/regset.c): it refuses what user-mode Linux writes back.
   The part that fits is kept here, AVX-512 included, and no program in the guest may use the rest. Load it with LD_PRELOAD. */
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
enum { GET = 0x4204, SET = 0x4205, XSTATE = 0x202, ROOM = 1 << 15 };
static long call(long request, long pid, long address, void *data) {
    return syscall(SYS_ptrace, request, pid, address, data);
}
long ptrace(int request, ...) {
    va_list list;
    va_start(list, request);
    long pid = va_arg(list, long);
    void *address = va_arg(list, void *), *data = va_arg(list, void *);
    va_end(list);
    if ((request == GET || request == SET) && (long) address == XSTATE) {
        static char all[ROOM];
        struct iovec *own = data, whole = { all, sizeof all };
        long result = call(GET, pid, XSTATE, &whole);
        if (result < 0)
            return result;
        size_t length = own->iov_len < whole.iov_len ? own->iov_len : whole.iov_len;
        if (request == GET) {
            memcpy(own->iov_base, all, length);
            own->iov_len = length;
            return 0;
        }
        memcpy(all, own->iov_base, length);
        /* XSTATE_BV: of the components that do not fit in, none is in use. */
        unsigned long *used = (unsigned long *) (all + 512);
        *used &= 0x2ff;
        return call(SET, pid, XSTATE, &whole);
    }
    long peeked = 0;
    int peeks = request >= 1 && request <= 3;
    long result = call(request, pid, (long) address, peeks ? (void *) &peeked : data);
    return result >= 0 && peeks ? peeked : result;
}
