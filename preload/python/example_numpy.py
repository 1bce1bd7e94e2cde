"""A NumPy array that merges with itself: half of it ones, the other half one ramp again and again.

    KSMITH_LIBRARY=target/preload/libksmith.so python3 preload/python/example_numpy.py

asks the daemon for two passes; with --wait it waits for a line on standard input instead.
"""

import sys

import numpy

import ksmith

ROWS, ROW = 8192, 512  # a row is a page: 512 numbers of 8 bytes

memory = numpy.zeros((ROWS + 1, ROW))
start = -memory.ctypes.data // 8 % ROW  # to the next page
array = memory.reshape(-1)[start : start + ROWS * ROW].reshape(ROWS, ROW)
array[:] = 1.0
array[ROWS // 2 :] = numpy.arange(ROW) + 1.0
ksmith.mark(array)
print("marked", array.nbytes, "bytes", flush=True)

if "--wait" in sys.argv:
    sys.stdin.readline()
else:
    try:
        ksmith.scan(passes=2, timeout=60)
    except ksmith.KsmithError as error:
        print("not scanned:", error)

saved = ksmith.saves()
print(f"saved {saved.saved_bytes >> 20} of {array.nbytes >> 20} MiB, says the {saved.source}")

assert (array[: ROWS // 2] == 1.0).all() and (array[ROWS // 2 :] == numpy.arange(ROW) + 1.0).all()
print("every number is unchanged")
