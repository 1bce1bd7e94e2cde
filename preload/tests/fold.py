"""Folds an array by the Python module, and checks its contents."""

import numpy

import ksmith

table = numpy.zeros(16 << 17)
table[:] = 0
table[:1 << 17] = numpy.arange(1 << 17)
before = table.sum()
folded = ksmith.fold(table, threads=2)
assert folded.folded_bytes >= 12 << 20 and folded.threads == 2, folded
assert table.sum() == before and (table[1 << 17:] == 0).all()
table[-1] = 7
assert table[-1] == 7
print("ok")
