"""Floods the daemon's socket for users, as a user of the group that may connect.

    flood_socket.py UID SOCKET COUNT

COUNT threads connect, send requests as fast as they are taken, read no answer, and connect again when they are closed out.
A line is printed for each thread. All end with the standard input.
"""

import os
import socket
import sys
import threading

from attacker import become, end_with_input

LINES = b"hello 1\nsaves\nranges\nscan 1\nnonsense\n" * 100


def flood(path):
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(path)
                peer.settimeout(0.2)
                while True:
                    peer.sendall(LINES)
        except OSError:
            pass


def main():
    user, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    become(user)
    for _ in range(count):
        threading.Thread(target=flood, args=(path,), daemon=True).start()
        print(os.getpid(), flush=True)
    end_with_input()


main()
