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

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]

PAGE = 4096
LENGTH = 16 << 20


def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def become(user):
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    call("prctl", 4, 1, 0, 0, 0)


def long_command_line():
    """Moves the command line. The kernel wants all addresses of prctl_mm_map at once."""
    memory = libc.mmap(None, LENGTH, 3, 0x22, -1, 0)
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
    fields = [*code, *data, brk, now_brk, stack, memory, memory + LENGTH, of(50), of(51), ctypes.addressof(held)]
    text = struct.pack("<12QII", *fields, len(auxv), 0xFFFFFFFF)
    call("prctl", 35, 14, ctypes.c_char_p(text), ctypes.c_ulong(len(text)), 0)


def offer_memory():
    call("prctl", 67, 1, 0, 0, 0)
    memory = libc.mmap(None, 16 * PAGE, 3, 0x22, -1, 0)
    ctypes.memset(memory, 9, 16 * PAGE)


def many_mappings(count):
    """Neighbours with different rights are mappings of their own."""
    memory = libc.mmap(None, count * PAGE, 1, 0x22, -1, 0)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for page in range(0, count, 2):
        if libc.mprotect(memory + page * PAGE, PAGE, 3) < 0:
            break


def child(user, work):
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        become(user)
        call("prctl", 1, signal.SIGKILL, 0, 0, 0)
        call("prctl", 15, b"qemu-system-x86", 0, 0, 0)
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
    sys.stdin.read()
    os._exit(0)


main()
