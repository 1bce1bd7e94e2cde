"""Limits of a whole command: its time, and its memory."""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from ksmith_fleet.cli.numbers import memory_bytes
from ksmith_fleet.placement.goal import Clock
from ksmith_fleet.placement.state import BYTES_OF_CELL

SEARCH_S: Final = 30.0
"""The time of a search, if no option limits the command. Reading then takes what it takes."""
CLOSING_PART: Final = 0.25
"""The time that a plan takes after its search, as a part of that before."""
WATCH_S: Final = 0.05
"""The time between two looks at the memory of this process."""
STOP_AGAIN_S: Final = 0.1
"""The time between two calls that end a query."""
FIXED_BYTES: Final = 300 << 20
"""What the program takes with its libraries, and the file that it reads."""
LEAST_BYTES: Final = 200 << 20
"""The least that the parts that grow with the fleet can work in."""
BYTES_OF_ROW: Final = 100
"""What a row of a shared content takes in all numbers that are made of it."""
MOST_ROWS: Final = 1 << 24
"""The rows of shared contents that are fetched at most. More contents make no plan better, and each takes its time."""
MOST_CELLS: Final = 1 << 30
"""Contents times hosts that a placement keeps numbers of at most."""
PLACEMENTS: Final = 5
"""The placements that a search keeps at once."""


@dataclass(frozen=True)
class Deadline:
    """The time at which a command has to be done."""

    seconds: float | None
    """The time that it has. `None` is no limit."""
    begun: float
    clock: Clock = time.monotonic

    def left(self) -> float | None:
        """Gives the seconds that are left, from 0 on."""
        return None if self.seconds is None else max(0.0, self.begun + self.seconds - self.clock())

    def search_seconds(self) -> float:
        """Gives the seconds that a search has. What comes after it takes a part of what came before it, since both read all contents."""
        left = self.left()
        if left is None or self.seconds is None:
            return SEARCH_S
        return max(0.0, left - (self.seconds - left) * CLOSING_PART)

    def check(self) -> None:
        """Raises `TimeoutError` if the time is up before a search has begun."""
        if self.left() == 0.0:
            raise TimeoutError(f"reading the sketches took all of --seconds {self.seconds:g}: allow more")

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Calls `stop` when the time is up and until the `with` ends, for queries that only another thread can end.

        A query that has not begun yet is not ended by one call.
        """
        left = self.left()
        if left is None:
            yield
            return
        done = threading.Event()

        def watch(wait: float) -> None:
            while not done.wait(wait):
                stop()
                wait = STOP_AGAIN_S

        thread = threading.Thread(target=watch, args=(left,), daemon=True)
        thread.start()
        try:
            yield
        except duckdb.InterruptException:
            self.check()
            raise
        finally:
            done.set()
            thread.join()


@dataclass(frozen=True)
class MemoryShares:
    """What the parts of a command may take of its memory."""

    engine_bytes: int
    incidence_rows: int
    cells: int
    """Contents times hosts of a placement. The engine is closed before there is one, and leaves its share."""


def share_memory(text: str | None) -> MemoryShares:
    """Divides the memory of the command, or four fifths of the machine's, among the parts that grow with the fleet."""
    whole = memory_bytes(text) if text else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 4 // 5
    rest = whole - FIXED_BYTES
    if rest < LEAST_BYTES:
        raise ValueError(f"--memory {text} is too little: give {(FIXED_BYTES + LEAST_BYTES) >> 20}MiB or more")
    cells = int(rest // 2 / BYTES_OF_CELL / PLACEMENTS)
    return MemoryShares(rest // 2, min(MOST_ROWS, rest * 2 // 5 // BYTES_OF_ROW), min(MOST_CELLS, cells))


@contextmanager
def capped_memory(text: str | None) -> Iterator[None]:
    """Ends what is done with `RuntimeError` once this process has more memory than the option allows.

    Limits of the kernel count what is reserved (`RLIMIT_AS`, `RLIMIT_DATA`), of which allocators keep much that holds nothing. Only the
    main thread can be ended so: in the service, the parts alone are bounded.
    """
    if text is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    most = memory_bytes(text)
    done, is_over = threading.Event(), threading.Event()

    def watch() -> None:
        while not done.wait(WATCH_S):
            if resident_bytes() > most:
                is_over.set()
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)
                return

    before = signal.signal(signal.SIGUSR2, _lack_memory)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    except (MemoryError, RuntimeError, duckdb.Error) as error:
        if is_over.is_set() or isinstance(error, MemoryError | duckdb.OutOfMemoryException):
            raise RuntimeError(f"--memory {text} is too little for these sketches: give more") from error
        raise
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGUSR2, before)


def _lack_memory(number: int, frame: object) -> None:
    raise MemoryError("this process has more memory than it may have")


def resident_bytes() -> int:
    """Gives the memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak_bytes() -> int:
    """Gives the most memory that this process had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def process_age() -> float:
    """Gives the seconds since this process began, by `/proc/self/stat`: its libraries are read before any command."""
    began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)
