"""What a platform is asked: a host that hangs stops an apply, and memory that cannot be freed is not free."""

import stat
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from made import guest, put, two_images

from ksmith_fleet.apply import run as run_module
from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.apply.libvirt import Libvirt
from ksmith_fleet.apply.openstack import OpenStack
from ksmith_fleet.cli import apply as apply_cli
from ksmith_fleet.cli.main import main
from ksmith_fleet.plan_file import read_plan
from ksmith_fleet.simulate.write import MadeHost


def test_a_tool_that_hangs_ends_the_question_although_its_child_has_its_pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "virsh"
    tool.write_text("#!/bin/sh\nsleep 60 &\nsleep 60\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(run_module, "ASK_MOST_S", 0.5)
    begin = time.monotonic()
    with pytest.raises(ApplyError, match=r"virsh list gave no answer in 0 s"):
        run_module.ask_command([str(tool), "list"], None)
    assert time.monotonic() - begin < 30


def test_the_command_asks_for_a_limited_time_and_moves_for_as_long_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_images(tmp_path / "s")
    path = str(tmp_path / "plan.json")
    assert main(["plan", "new", str(tmp_path / "s"), "--out", path]) == 0
    asked: list[str] = []

    def ask(argv: Sequence[str], stdin: str | None) -> str:
        asked.append(argv[3])
        raise ApplyError("it hangs")

    monkeypatch.setattr(apply_cli, "ask_command", ask)
    assert main(["apply", path, "--run"]) == 1 and asked == ["list"]


def test_shared_memory_of_a_host_is_not_free_although_libvirt_calls_it_cache(tmp_path: Path) -> None:
    two_images(tmp_path / "s")
    shared = MadeHost("h1", [guest("a", [(1, 1000), (99, 50), (197, 100)])], 1 << 30, more={"shmem_bytes": 300 << 20})
    put(tmp_path / "s", shared)
    path = str(tmp_path / "plan.json")
    assert main(["plan", "new", str(tmp_path / "s"), "--out", path]) == 0
    of_plan = {host.host: host.shmem_bytes for host in read_plan(path).hosts}
    assert of_plan == {"h1": 300 << 20, "h2": 0}
    said = f"total  :  {4 << 20} KiB\nfree   :  {100 << 10} KiB\nbuffers:  {10 << 10} KiB\ncached :  {350 << 10} KiB\n"
    libvirt = Libvirt(shmem_bytes=of_plan)
    assert [(libvirt.free_bytes(host, lambda *_: said) or 0) >> 20 for host in ("h1", "h2", "h9")] == [160, 460, 460]
    assert Libvirt(shmem_bytes={"h1": 1 << 50}).free_bytes("h1", lambda *_: said) == 110 << 20


@pytest.mark.parametrize("said", ["", "None\n", "²", "-", "12.5", "a\nb"])
def test_openstack_that_does_not_say_what_is_free_stops_the_apply(said: str) -> None:
    with pytest.raises(ApplyError, match="does not say how much memory"):
        OpenStack().free_bytes("h1", lambda *_: said)
    assert OpenStack().free_bytes("h1", lambda *_: " 512\n") == 512 << 20 and OpenStack().free_bytes("h1", lambda *_: "-1") is None
