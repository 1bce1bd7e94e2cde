"""Has memory in ksmd's trees that it does not offer any more.

    unmark.py

Marks 256 pages that all differ, and prints a line. Un-marks them after a line of the standard input, and prints another. Ends with the
standard input.
"""

import mmap
import os
import sys

PAGES = 256
MERGEABLE, UNMERGEABLE = 12, 13

memory = mmap.mmap(-1, PAGES * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.write(os.urandom(len(memory)))
for advice in (MERGEABLE, UNMERGEABLE):
    memory.madvise(advice)
    print(flush=True)
    sys.stdin.readline()
