"""What the attacks share: system calls, becoming an ordinary user, and ending with the test.

Each script imports this before it becomes another user: that user may not be able to read the sources.
"""

import ctypes
import os
import signal
import sys

PAGE = 4096

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_MM, PR_SET_MEMORY_MERGE = 1, 4, 15, 35, 67

# A name that ksmith takes for a hypervisor's.
HYPERVISOR = b"qemu-system-x86"

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def call(name, *arguments):
    """Makes a system call of libc's, and raises its error."""
    if getattr(libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def prctl(option, *arguments):
    """Calls prctl(2) with all its arguments."""
    call("prctl", option, *arguments, *[0] * (4 - len(arguments)))


def memory(length):
    """Private anonymous memory, for reading and writing. Returns its address."""
    return libc.mmap(None, length, 3, 0x22, -1, 0)


def become(user):
    """Becomes an ordinary user. The process may still write its own files under /proc/self."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        prctl(PR_SET_DUMPABLE, 1)


def die_with_parent():
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_input():
    """Waits for the end of the standard input, and ends with all threads and children."""
    sys.stdin.read()
    os._exit(0)
