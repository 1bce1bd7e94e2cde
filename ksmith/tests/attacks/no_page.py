"""Has processes with a page that never comes, as an ordinary user.

    no_page.py UID PLACE FUSE COUNT

Each process maps a page of a file system of the user's own at address 0x10000000, which never gives that page. Not even SIGKILL
ends a read of it through /proc/PID/mem. Only root can run this, as fusermount3 would mount for the user. UID, PLACE and FUSE are those of hold_lock.py. Each PID is printed once the page is
mapped. All end with the standard input.

No process has mergeable memory: ksmd must not meet such a page.
"""

import os
import signal
import sys

from attacker import PAGE, become, die_with_parent, end_with_input, libc
from slow_file import mount_as_administrator, open_slow_file

ADDRESS = 0x10000000
MAP_SHARED, MAP_FIXED_NOREPLACE = 0x1, 0x100000


def victim(fuse, file, tell):
    die_with_parent()
    os.close(fuse)
    if libc.mmap(ADDRESS, PAGE, 1, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0) == ADDRESS:
        os.write(tell, b"x")
        os.close(tell)
        signal.pause()


def main():
    user, place, device, count = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    fuse, path = mount_as_administrator(place, device, user)
    become(user)
    file = open_slow_file(fuse, path)
    for _ in range(count):
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(told)
            victim(fuse, file, tell)
            os._exit(1)
        os.close(tell)
        if os.read(told, 1) != b"x":
            sys.exit("a child has failed")
        os.close(told)
        print(pid, flush=True)
    # The file system ends with its server, and so does each wait.
    end_with_input()


main()
