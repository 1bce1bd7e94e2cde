"""Has processes with mergeable memory that execute programs all the time, as an ordinary user.

    execute_always.py UID COUNT

Each second process executes itself again and again, so that its PID stays; the others start a short-lived child again and again. They
have the lowest priority. Each PID is printed. All end with the standard input, and after GUARD seconds whatever happens.
"""

import os
import signal
import sys

from attacker import PR_SET_MEMORY_MERGE, become, die_with_parent, end_with_input, libc

GUARD = 120

# What the two kinds of processes run.
AGAIN = 'exec "$SHELL" -c "$AGAIN"'
CHILDREN = "while :; do /bin/true; done"


def child(user, line):
    become(user)
    # It stays when a program is executed.
    die_with_parent()
    os.nice(19)
    # Mergeable memory, which each program keeps from Linux 6.7 on.
    libc.prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0)
    os.execve("/bin/sh", ["sh", "-c", line], {"AGAIN": AGAIN, "SHELL": "/bin/sh"})


def main():
    user, count = int(sys.argv[1]), int(sys.argv[2])
    signal.alarm(GUARD)
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            signal.alarm(0)
            child(user, AGAIN if number % 2 else CHILDREN)
        print(pid, flush=True)
    end_with_input()


main()
