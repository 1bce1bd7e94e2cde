"""Runs a program from a file system of the user's own, which lies about it and then answers nothing, and asks the daemon.

    lying_program.py UID PLACE FUSE SOCKET

UID, PLACE and FUSE are those of hold_lock.py. The program is Python. Its file has another length at each look, and once the program
runs, nobody is told anything of the file but its contents. The program connects to the socket, prints its PID, and asks for `saves`
and `ranges` after a line of the standard input. The last lines of the answers are in the file `answers` in PLACE. All ends with the
standard input.
"""

import os
import struct
import sys
import threading

from attacker import PAGE, become, die_with_parent
from slow_file import (
    ENOSYS,
    FUSE_BATCH_FORGET,
    FUSE_FORGET,
    FUSE_GETATTR,
    FUSE_INIT,
    FUSE_INTERRUPT,
    FUSE_OPEN,
    FUSE_READ,
    mount_in_namespace,
)

PROGRAM = os.path.realpath(sys.executable)

# What the program does. It was started by another name, by which it finds its library.
ASK = """
import os, socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
answers = peer.makefile()
out = open(sys.argv[2], "a")
print(os.getpid(), flush=True)
sys.stdin.readline()
for request in b"saves\\n", b"ranges\\n":
    peer.sendall(request)
    line = "range "
    while line.startswith("range "):
        line = answers.readline()
    out.write(line or "closed\\n")
    out.flush()
sys.stdin.read()
"""


def serve(fuse, contents, is_silent):
    looks = 0
    while True:
        try:
            request = os.read(fuse, 1 << 18)
        except OSError:
            return
        _, operation, unique = struct.unpack_from("<IIQ", request)
        if operation in (FUSE_FORGET, FUSE_INTERRUPT, FUSE_BATCH_FORGET):
            continue
        body, error = b"", 0
        if operation == FUSE_INIT:
            body = struct.pack("<IIIIHHIIHHI7I", 7, 31, 1 << 17, 0, 12, 9, PAGE, 1, 0, 0, 0, *([0] * 7))[:64]
        elif operation == FUSE_GETATTR:
            if is_silent.is_set():
                continue
            looks += 1
            size = len(contents) + looks * PAGE
            body = struct.pack("<QII", 0, 0, 0)
            body += struct.pack("<6Q10I", 1, size, size >> 9, 0, 0, 0, 0, 0, 0, 0o100755, 1, 0, 0, 0, PAGE, 0)
        elif operation == FUSE_OPEN:
            body = struct.pack("<QII", 1, 0, 0)
        elif operation == FUSE_READ:
            _, offset, length = struct.unpack_from("<QQI", request, 40)
            body = contents[offset : offset + length]
        else:
            error = -ENOSYS
        os.write(fuse, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


def main():
    user, place, device, path = int(sys.argv[1]), *sys.argv[2:5]
    with open(PROGRAM, "rb") as file:
        contents = file.read()
    become(user)
    fuse, program = mount_in_namespace(place, device)
    is_silent = threading.Event()
    threading.Thread(target=serve, args=(fuse, contents, is_silent), daemon=True).start()
    told, tell = os.pipe()
    go, goes = os.pipe()
    if os.fork() == 0:
        try:
            die_with_parent()
            for descriptor in (fuse, told, goes):
                os.close(descriptor)
            os.dup2(go, 0)
            os.dup2(tell, 1)
            os.execv(program, [sys.executable, "-c", ASK, path, os.path.join(place, "answers")])
        finally:
            os._exit(1)
    os.close(tell)
    pid = os.read(told, 20)
    if not pid:
        sys.exit("the program has not begun")
    is_silent.set()
    print(pid.decode(), end="", flush=True)
    for line in sys.stdin:
        os.write(goes, line.encode())
    # The file system ends with its server, and so does each wait.
    os._exit(0)


main()
