"""`--seconds` and `--memory` hold for the whole command, reading included."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from made import guest, problem, put, two_images

from ksmith_fleet import dataset, files
from ksmith_fleet.cli import common, limits, plan
from ksmith_fleet.cli.limits import CLOSING_PART, SEARCH_S, Deadline, capped_memory, process_age, share_memory
from ksmith_fleet.cli.main import main
from ksmith_fleet.files import read_sketch
from ksmith_fleet.incidence import Incidence
from ksmith_fleet.placement.build import build
from ksmith_fleet.placement.goal import Budget
from ksmith_fleet.placement.greedy import place_all
from ksmith_fleet.placement.moves import best_moves, order_moves
from ksmith_fleet.placement.search import SHARE
from ksmith_fleet.placement.state import BYTES_OF_CELL
from ksmith_fleet.planner import plan_goal
from ksmith_fleet.simulate.write import MadeHost


class SetClock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def slow_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], list[float]]:
    """Makes the reading of each file take some seconds of a clock, and gives the seconds that searches then have."""

    def make(each: float) -> list[float]:
        clock, found = SetClock(), list[float]()

        def read(*given: object) -> object:
            clock.now += each
            return read_sketch(*given)  # type: ignore[arg-type]

        def search(problem: object, goal: object, budget: object, seconds: float) -> object:
            found.append(seconds)
            return plan_goal(problem, goal, budget, 0.0)  # type: ignore[arg-type]

        monkeypatch.setattr(dataset, "read_sketch", read)
        monkeypatch.setattr(plan, "plan_goal", search)
        monkeypatch.setattr(plan, "Deadline", lambda seconds, begun: Deadline(seconds, 0.0, clock))
        return found

    return make


def test_a_search_has_the_seconds_that_reading_left(tmp_path: Path, slow_reading: Callable[[float], list[float]]) -> None:
    two_images(tmp_path)
    found = slow_reading(4.0)
    assert main(["plan", "new", str(tmp_path), "--seconds", "20"]) == 0
    assert main(["plan", "new", str(tmp_path)]) == 0
    assert found == [20 - 8 - 8 * CLOSING_PART, SEARCH_S]


def test_reading_that_takes_all_seconds_ends_the_command(
    tmp_path: Path, slow_reading: Callable[[float], list[float]], capsys: pytest.CaptureFixture[str]
) -> None:
    two_images(tmp_path / "s")
    found, out = slow_reading(12.0), tmp_path / "plan.json"
    assert main(["plan", "new", str(tmp_path / "s"), "--seconds", "20", "--out", str(out)]) == 1
    assert "reading the sketches took all of --seconds 20: allow more" in capsys.readouterr().err
    assert found == [] and not out.exists()


def test_a_query_ends_when_the_time_is_up() -> None:
    clock = SetClock()
    deadline = Deadline(5.0, 0.0, clock)
    connection = duckdb.connect()

    def interrupted() -> None:
        clock.now = 5.0
        raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")

    with pytest.raises(TimeoutError, match="took all of --seconds 5"), deadline.stopping(connection.interrupt):
        interrupted()
    with pytest.raises(duckdb.InterruptException), Deadline(None, 0.0).stopping(connection.interrupt):
        interrupted()
    # The time is up when the question begins: its timer ends it.
    with pytest.raises(TimeoutError), deadline.stopping(connection.interrupt):
        connection.sql("SELECT COUNT(*) FROM range(10_000_000_000_000) AS a(x) WHERE hash(x) % 7 = 3").fetchall()


def test_no_step_of_a_search_goes_on_after_its_end(tmp_path: Path) -> None:
    two_images(tmp_path)
    one = problem(tmp_path)[1].problem
    target = 1 - one.current
    clock = SetClock()
    assert len(order_moves(one, target, 1.0, clock)[0]) == one.items and order_moves(one, target, 0.0, clock)[0] == []
    assert best_moves(one, SHARE, Budget(), 1.0, clock) and best_moves(one, SHARE, Budget(), 0.0, clock) == []
    assert place_all(one, end=1.0, clock=clock)[1] == [] and len(place_all(one, end=0.0, clock=clock)[1]) == one.items


def test_the_age_of_a_process_counts_its_libraries() -> None:
    # The first line that a process runs comes after its start, and the libraries are read after that line.
    code = (
        "import time; began = time.monotonic(); from ksmith_fleet.cli.limits import process_age; "
        "ran = time.monotonic() - began; print(process_age(), ran)"
    )
    age, ran = map(float, subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    # Ages are in hundredths, of the start and of now.
    assert age >= ran - 0.02 and process_age() > 0


def test_a_placement_is_within_the_memory_of_the_command() -> None:
    little, much = share_memory("1GiB"), share_memory("4GiB")
    assert little.cells < much.cells <= limits.MOST_CELLS
    for memory, text in ((little, 1 << 30), (much, 4 << 30)):
        numbers = memory.incidence_rows * limits.BYTES_OF_ROW + memory.cells * BYTES_OF_CELL * limits.PLACEMENTS
        assert limits.FIXED_BYTES + max(memory.engine_bytes, numbers) <= text


def test_contents_are_thinned_until_a_placement_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_images(tmp_path)
    whole = share_memory(None)
    found: list[int] = []

    def build_it(fleet: object, incidence: Incidence, *given: object) -> object:
        found.append(incidence.number)
        return build(fleet, incidence, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(plan, "build", build_it)
    for cells in (1 << 30, 2 * 500):
        monkeypatch.setattr(common, "share_memory", lambda _, cells=cells: limits.MemoryShares(whole.engine_bytes, whole.incidence_rows, cells))
        assert main(["plan", "new", str(tmp_path)]) == 0
    assert found[0] == 2050 and 0 < found[1] <= 500


def run(directory: Path, *command: str) -> tuple[int, int, str]:
    """Runs a command in a process of its own. Gives its exit code, its peak of memory in bytes, and its messages."""
    errors = directory / "errors"
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.execv(sys.executable, [sys.executable, "-m", "ksmith_fleet.cli.main", *command])
    _, status, used = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), used.ru_maxrss * 1024, errors.read_text()


def test_commands_stay_within_their_memory(tmp_path: Path) -> None:
    for host in range(4):
        put(tmp_path / "s", MadeHost(f"h{host}", [guest(f"g{host}-{n}", [(n, 6000), (100 + host, 2000)]) for n in range(6)]))
    sketches, memory = str(tmp_path / "s"), "500MiB"
    for command in (["overlap"], ["plan", "improve", "--goal", "relieve"], ["plan", "admit", "--like", "g0-0"]):
        code, peak, said = run(tmp_path, *command, sketches, "--memory", memory)
        assert code == 0, said
        assert peak <= 500 << 20


def test_memory_that_is_lacking_is_no_fault_of_a_sketch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)

    def lack(*_: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    for module, name in ((files, "whole_file"), (files, "check_pages"), (files, "_guests")):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, lack)
            patched.setattr(dataset, "whole_file", lambda path: files.whole_file(path))
            assert main(["overlap", str(tmp_path), "--memory", "4GB"]) == 1
            assert "--memory 4GB is too little for these sketches: give more" in capsys.readouterr().err


def test_more_memory_than_the_limit_ends_the_command() -> None:
    """In a process of its own, which would take memory without end."""
    code = (
        "import time\n"
        "import numpy as np\n"
        "from ksmith_fleet.cli.limits import capped_memory\n"
        "kept = []\n"
        "with capped_memory('600MiB'):\n"
        "    while len(kept) < 4000:\n"
        "        kept.append(np.ones(1 << 17))\n"
        "        time.sleep(0.001)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "--memory 600MiB is too little for these sketches: give more" in done.stderr


def test_a_limit_leaves_signals_and_other_faults_as_they_were() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    with pytest.raises(RuntimeError, match="another"), capped_memory("64GB"):
        raise RuntimeError("another")
    assert signal.getsignal(signal.SIGUSR2) is before
