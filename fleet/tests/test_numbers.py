"""Options refuse numbers that would be read as no limit, or as another one."""

from pathlib import Path

import pytest
from made import guest, problem, put, two_images

from ksmith_fleet.cli.main import main
from ksmith_fleet.cli.numbers import memory_bytes
from ksmith_fleet.interval import Z95, normal_interval
from ksmith_fleet.placement.moves import may_arrive
from ksmith_fleet.placement.state import State
from ksmith_fleet.simulate.write import MadeHost


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "-0.5", "1e400", "x", ""])
@pytest.mark.parametrize(
    "command",
    [
        "plan improve S --gib",
        "plan improve S --moves",
        "plan improve S --least-gain",
        "plan new S --seconds",
        "overlap S --max-age",
        "overlap S --max-apart",
        "overlap S --top",
        "overlap S --popular-above",
        "overlap S --min-common",
        "check P S --within",
        "apply P --wait",
        "apply P --settle",
        "simulate fill --hosts",
        "simulate fill --guests-per-host",
        "simulate fill --divergence",
    ],
)
def test_a_number_that_is_none_or_no_limit_is_refused(command: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), value])
    assert ended.value.code == 2 and "from 0" in capsys.readouterr().err.replace("from 1 on", "from 0 on")


def test_no_moves_and_no_gib_move_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    for limit in (["--moves", "0"], ["--gib", "0"]):
        assert main(["plan", "improve", str(tmp_path), *limit]) == 0
        assert "moves: none" in capsys.readouterr().out
    assert main(["plan", "improve", str(tmp_path)]) == 0
    assert "\n1. " in capsys.readouterr().out


@pytest.mark.parametrize(("expected", "spread"), [(-100.0, 10.0), (-100.0, 300.0), (5.0, 1.0), (99.0, 50.0), (300.0, 10.0)])
def test_the_bounds_of_an_interval_are_in_order(expected: float, spread: float) -> None:
    found = normal_interval(expected, (spread / Z95) ** 2, 100.0)
    assert 0 <= found.low <= found.expected <= found.high <= 100


def test_what_a_guest_has_in_swap_must_have_room_where_it_arrives(tmp_path: Path) -> None:
    def fleet(swap_bytes: int) -> bool:
        put(tmp_path, MadeHost("h1", [guest("a", [(1, 1000)], more={"swap_bytes": swap_bytes})], 3000 * 4096))
        put(tmp_path, MadeHost("h2", [guest("b", [(1, 1000)])], 3000 * 4096))
        _, built, _ = problem(tmp_path)
        return bool(may_arrive(State(built.problem, built.problem.current), 0)[1])

    assert fleet(0) and fleet(500 * 4096) and not fleet(1500 * 4096)


@pytest.mark.parametrize(("text", "size"), [("4GB", 4 * 10**9), ("512MiB", 512 << 20), ("1.5 gib", 3 << 29), ("700m", 700_000_000)])
def test_sizes_of_memory_are_read(text: str, size: int) -> None:
    assert memory_bytes(text) == size


@pytest.mark.parametrize("text", ["", "4", "-4GB", "no size", "4 PB", "1e9GB", "GB"])
def test_what_is_no_size_of_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size of memory"):
        memory_bytes(text)


def test_too_little_memory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    assert main(["overlap", str(tmp_path), "--memory", "400MiB"]) == 1
    assert "--memory 400MiB is too little: give 500MiB or more" in capsys.readouterr().err
