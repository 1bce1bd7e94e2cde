"""Has many idle processes with mergeable memory, as an ordinary user.

    many_processes.py UID COUNT

Each PID is printed. All end with the standard input.
"""

import ctypes
import os
import signal
import sys

from attacker import PAGE, become, die_with_parent, libc, memory

MADV_MERGEABLE, MADV_UNMERGEABLE = 12, 13


def main():
    user, count = int(sys.argv[1]), int(sys.argv[2])
    become(user)
    # The children inherit it, mergeable.
    mine = ctypes.c_void_p(memory(4 * PAGE))
    libc.madvise(mine, ctypes.c_size_t(4 * PAGE), MADV_MERGEABLE)
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            die_with_parent()
            signal.pause()
            os._exit(0)
        pids.append(pid)
    # This process is none of them.
    libc.madvise(mine, ctypes.c_size_t(4 * PAGE), MADV_UNMERGEABLE)
    for pid in pids:
        print(pid, flush=True)
    sys.stdin.read()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


main()
