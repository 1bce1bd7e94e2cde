"""Is in a user namespace of its own, as an ordinary user.

    own_namespace.py UID

The PID is printed. It ends with the standard input.
"""

import os
import sys

from attacker import become, end_with_input
from slow_file import enter_namespace


def main():
    become(int(sys.argv[1]))
    enter_namespace()
    print(os.getpid(), flush=True)
    end_with_input()


main()
