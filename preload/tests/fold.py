"""Folds an array by the Python module, and checks its contents."""

import numpy

import ksmith

table = numpy.zeros(16 << 17)
table[:] = 0
table[:1 << 17] = numpy.arange(1 << 17)
before = table.sum()
folded = ksmith.fold(table, threads=2, still=True)
assert folded.folded_bytes >= 12 << 20 and folded.method == 3, folded
assert table.sum() == before and (table[1 << 17:] == 0).all()
table[-1] = 7
assert table[-1] == 7
print("ok")
