"""A plan file is a plan or is refused, whatever is in it."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made import two_images

from ksmith_fleet import plan_file
from ksmith_fleet.cli.main import main
from ksmith_fleet.plan_file import BadPlanError, read_plan

OTHERS = ["x", "a\nb", None, -1, 1.5, True, [], {}, float("nan"), float("inf"), 10**400, [1], {"x": 1}]
Place = tuple[str | int, ...]


def places(said: Any, place: Place = ()) -> Iterator[Place]:
    """Gives the place of each value. The first entry of a list stands for all."""
    keys = list(said) if isinstance(said, dict) else [0] if isinstance(said, list) and said else []
    for key in keys:
        yield (*place, key)
        yield from places(said[key], (*place, key))


def changed(said: Any, place: Place, value: Any) -> Any:
    new = copy.deepcopy(said)
    at = new
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return new


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    two_images(tmp_path / "s")
    assert main(["plan", "new", str(tmp_path / "s"), "--out", str(tmp_path / "plan.json")]) == 0
    return tmp_path / "plan.json"


def test_each_value_has_its_type_or_the_plan_is_refused(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = json.loads(plan.read_text())
    refused = 0
    taken: dict[Place, str] = {}
    for place in places(whole):
        for value in OTHERS:
            plan.write_text(json.dumps(changed(whole, place, value)))
            try:
                read_plan(str(plan))
                taken.setdefault(place, plan.read_text())
            except BadPlanError as error:
                assert str(error).startswith(str(plan))
                refused += 1
    assert refused > 400 and all(isinstance(place[-1], str) for place in taken if place[-1] != 0)
    # What is taken is shown by each command without a trace.
    for text in taken.values():
        plan.write_text(text)
        assert main(["apply", str(plan)]) == 0
        assert main(["check", str(plan), str(tmp_path / "s")]) in (1, 3)
        capsys.readouterr()


def test_a_key_that_is_missing_or_unknown_is_named(plan: Path) -> None:
    whole = json.loads(plan.read_text())
    for text, said in (
        (json.dumps({key: value for key, value in whole.items() if key != "steps"}), "steps is not there"),
        (json.dumps(whole | {"moves": 1}), "moves is not known"),
        (json.dumps(changed(whole, ("hosts", 0, "saved_after", "expected"), "x")), r"hosts\[0\]\.saved_after\.expected is 'x'"),
        (json.dumps(whole | {"hosts": []}), "no hosts"),
        (json.dumps(whole | {"placement": {"id-a": "-oProxyCommand=x"}}), "names that no host has"),
        (json.dumps(whole | {"placement": {"id-\x1b[2J": "h1"}}), "names that are not printable"),
        (json.dumps(changed(whole, ("hosts", 0, "saved_after", "high"), -1)), "what it promises of h1 cannot be"),
        (json.dumps(changed(whole, ("hosts", 0, "saved_after", "low"), 1e300)), "what it promises of h1 cannot be"),
        (json.dumps(changed(whole, ("hosts", 0, "shmem_bytes"), -1)), r"hosts\[0\]\.shmem_bytes is -1: it should be greater than or equal to 0"),
        (json.dumps(whole | {"format": True}), "format is True: it should be 4; make it anew with `ksmith-fleet plan --out`"),
        (json.dumps(whole | {"format": 3}), "format is 3: it should be 4"),
        ("[" * 200_000, "cannot be read as a plan"),
        ("[]", r"it is \[\]: it should be an object"),
        ("", "cannot be read as a plan"),
    ):
        plan.write_text(text)
        with pytest.raises(BadPlanError, match=said):
            read_plan(str(plan))


def test_a_plan_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_file, "MOST_BYTES", 1 << 20)
    with pytest.raises(BadPlanError, match="has more than 1 MiB"):
        read_plan("/dev/zero")
