"""A program that knows nothing of the library: fills memory, half of it zero, and checks it when it is told to."""

import hashlib
import sys

MIB = 1 << 20
parts = [bytearray(bytes([part % 5 + 1]) * MIB) if part % 2 else bytearray(b"\0" * MIB) for part in range(64)]


def fingerprint() -> str:
    """Return the hash of all parts."""
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()


before = fingerprint()
print("ready", flush=True)
sys.stdin.readline()
assert fingerprint() == before
for part in parts:
    part[4711] ^= 0x55
assert fingerprint() != before
for part in parts:
    part[4711] ^= 0x55
assert fingerprint() == before
print("checked", flush=True)
