"""`check` finds broken promises, and `report` shows names without trusting them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made import guest, put, two_images

from ksmith_fleet.cli.main import main
from ksmith_fleet.plan_file import read_plan
from ksmith_fleet.simulate.write import MadeHost, write_sketch


def after(plan_path: Path, directory: Path, part: float) -> None:
    """Writes the sketches of hosts that carried out the plan and save this part of what was promised."""
    plan = read_plan(str(plan_path))
    image = {name: 1 if name in "ace" else 2 for name in "abcdef"}
    for promise in plan.hosts:
        names = [i.removeprefix("id-") for i, host in plan.placement.items() if host == promise.host]
        each = int(part * promise.saved_after.expected / max(1, len(names)))
        guests = [replace(guest(n, [(image[n], 1000), (99, 50), (100 + ord(n), 100)]), more={"saved_bytes": each}) for n in names]
        put(directory, MadeHost(promise.host, guests))


@pytest.mark.parametrize(("part", "code"), [(1.0, 0), (0.97, 0), (0.9, 1), (1.3, 0)])
def test_check_says_whether_promises_were_kept(tmp_path: Path, part: float, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "before")
    rules = tmp_path / "rules.toml"
    rules.write_text('apart = [["a", "b"]]\n')
    plan = tmp_path / "plan.json"
    assert main(["plan", "new", str(tmp_path / "before"), "--rules", str(rules), "--out", str(plan)]) == 0
    after(plan, tmp_path / "after", part)
    capsys.readouterr()
    assert main(["check", str(plan), str(tmp_path / "after")]) == code
    assert capsys.readouterr().out.startswith("the plan: not kept" if code else "the plan: kept")
    # The guests are still where they were: the plan was not carried out.
    two_images(tmp_path / "still")
    assert main(["check", str(plan), str(tmp_path / "still")]) == 1
    assert "is not there" in capsys.readouterr().out


def test_report_escapes_names_and_loads_nothing(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    put(tmp_path / "s", MadeHost("h1", [guest(evil, [(1, 500)]), guest("b", [(1, 500)])]))
    page, prom = tmp_path / "page.html", tmp_path / "fleet.prom"
    assert main(["report", str(tmp_path / "s"), "--html", str(page), "--metrics", str(prom)]) == 0
    text = page.read_text()
    assert "<script" not in text and "&lt;script&gt;" in text and "http" not in text and "<svg" in text
    metrics = prom.read_text()
    saved = [line for line in metrics.splitlines() if line.startswith('ksmith_fleet_expected_saved_bytes{host="h1"}')]
    assert saved == [f'ksmith_fleet_expected_saved_bytes{{host="h1"}} {500 * 4096}']


def test_report_has_the_look_of_all_reports(tmp_path: Path) -> None:
    look = (Path(__file__).parents[2] / "serve/assets/look.css").read_text()
    put(tmp_path / "s", MadeHost("h1", [guest("a", [(1, 500)])]))
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "s"), "--html", str(page)]) == 0
    text = page.read_text()
    assert look in text, "fleet/src/ksmith_fleet/report/look.css is no link to serve/assets/look.css"
    assert "<body class=report>" in text


def test_overlap_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    assert main(["overlap", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {frozenset((pair["a"][-1], pair["b"][-1])) for pair in said["pairs"] if pair["bytes"]["expected"] > 4096 * 900} == {
        frozenset(pair) for pair in ("ac", "ae", "ce", "bd", "bf", "df")
    }
    assert [host["saved_bytes"]["expected"] / 4096 for host in said["hosts"]] == [1100, 1100]


def test_faults_of_use_are_said_and_not_traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "s")
    (tmp_path / "rules.toml").write_text("divergence = 7\n")
    (tmp_path / "plan.json").write_text('{"format": 1, "steps": 3}')
    for arguments in (
        ["plan", "new", str(tmp_path / "s"), "--rules", str(tmp_path / "rules.toml")],
        ["plan", "admit", str(tmp_path / "s"), "--like", "nothing-like-it"],
        ["apply", str(tmp_path / "plan.json")],
        ["check", str(tmp_path / "none.json"), str(tmp_path / "s")],
        ["report", str(tmp_path / "s")],
    ):
        assert main(arguments) == 1
        assert capsys.readouterr().err.startswith("ksmith-fleet: ")


def one_pair(directory: Path, **host: object) -> Path:
    """Writes a host with two guests that have 1000 contents in common and 300 zero pages each, and a plan that leaves them there."""
    guests = [guest(n, [(1, 1000)], zero=300) for n in "ab"]
    write_sketch(MadeHost("h1", guests, more=host), directory / "before" / "h1.parquet")
    plan = directory / "plan.json"
    assert main(["plan", "new", str(directory / "before"), "--out", str(plan)]) == 0
    assert read_plan(str(plan)).hosts[0].saved_after.expected == 1000 * 4096
    return plan


def saves(directory: Path, plan: Path, account: dict[str, int], ksm: dict[str, int]) -> int:
    """Checks the plan against a host with this account of each guest, in pages."""
    more = {key: pages * 4096 for key, pages in account.items()}
    guests = [guest(n, [(1, 1000)], zero=300, more=more) for n in "ab"]
    write_sketch(MadeHost("h1", guests, more={"ksm": ksm}), directory / "after" / "h1.parquet")
    return main(["check", str(plan), str(directory / "after")])


def test_zero_pages_keep_no_promise(tmp_path: Path) -> None:
    plan = one_pair(tmp_path)
    zero = {"merge_across_nodes": 1, "use_zero_pages": 1, "max_page_sharing": 256, "ksm_zero_pages": 600}
    assert saves(tmp_path, plan, {"saved_bytes": 800, "zero_saved_bytes": 300}, zero) == 0
    assert saves(tmp_path, plan, {"saved_bytes": 600, "zero_saved_bytes": 300}, zero) == 1
    # A sketch that does not tell guests' zero pages apart has the host's.
    assert saves(tmp_path, plan, {"saved_bytes": 800}, zero) == 0
    assert saves(tmp_path, plan, {"saved_bytes": 600}, zero) == 1
    # Without the kernel's zero page they merge like other contents, and the account has them with the others.
    plain = zero | {"use_zero_pages": 0, "ksm_zero_pages": 0}
    assert saves(tmp_path, plan, {"saved_bytes": 799, "zero_saved_bytes": 0}, plain) == 0
    assert saves(tmp_path, plan, {"saved_bytes": 600, "zero_saved_bytes": 0}, plain) == 1


def test_savings_that_no_page_tables_confirm_keep_no_promise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = one_pair(tmp_path)
    ksm = {"merge_across_nodes": 1, "use_zero_pages": 1, "max_page_sharing": 256, "ksm_zero_pages": 600}
    account = {"saved_bytes": 800, "zero_saved_bytes": 300}
    assert saves(tmp_path, plan, account, ksm | {"unverified_bytes": 10 * 4096}) == 0
    assert saves(tmp_path, plan, account, ksm | {"unverified_bytes": 500 * 4096}) == 3
    assert "can't tell, since no page tables confirm 2" in capsys.readouterr().out
    assert saves(tmp_path, plan, {"saved_bytes": 600, "zero_saved_bytes": 300}, ksm | {"unverified_bytes": 500 * 4096}) == 1


def test_a_host_that_lost_all_its_guests_keeps_its_promise_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "before")
    plan = tmp_path / "plan.json"
    assert main(["plan", "new", str(tmp_path / "before"), "--least-gain", "0", "--out", str(plan)]) == 0
    assert min(host.guests_after for host in read_plan(str(plan)).hosts) == 0
    after(plan, tmp_path / "after", 1.0)
    assert main(["check", str(plan), str(tmp_path / "after")]) == 0


def test_sketches_from_before_the_plan_say_nothing_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = one_pair(tmp_path)
    assert main(["check", str(plan), str(tmp_path / "before")]) == 3
    assert "can't tell, since its sketch is no newer than the plan's" in capsys.readouterr().out


def test_guests_are_missed_by_newer_sketches_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "before")
    plan = tmp_path / "plan.json"
    assert main(["plan", "new", str(tmp_path / "before"), "--least-gain", "0", "--out", str(plan)]) == 0
    moved = read_plan(str(plan)).steps[0]
    capsys.readouterr()
    assert main(["check", str(plan), str(tmp_path / "before")]) == 3
    said = capsys.readouterr().out
    assert f"  {moved.guest} is" not in said and "take one after `apply`" in said
    after(plan, tmp_path / "after", 1.0)
    (tmp_path / "after" / f"{moved.target}.parquet").write_bytes((tmp_path / "before" / f"{moved.target}.parquet").read_bytes())
    assert main(["check", str(plan), str(tmp_path / "after")]) == 3, "the target may have it by now"
    after(plan, tmp_path / "after", 1.0)
    (tmp_path / "after" / f"{moved.source}.parquet").write_bytes((tmp_path / "before" / f"{moved.source}.parquet").read_bytes())
    assert main(["check", str(plan), str(tmp_path / "after")]) == 3, "the source has an old sketch that claims it, too"


def test_old_sketches_are_left_out_unless_their_age_is_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_sketch(MadeHost("h1", [guest("a", [(1, 100)])], time_ms=1_790_000_000_000), tmp_path / "h1.parquet")
    for command in (["overlap"], ["plan", "new"], ["report", "--html", str(tmp_path / "page")]):
        assert main([*command, str(tmp_path)]) == 1
        assert "take a new one, or allow its age with --max-age" in capsys.readouterr().err
        assert main([*command, str(tmp_path), "--max-age", "1e9"]) == 0


def test_a_smaller_limit_of_sharing_promises_less(tmp_path: Path) -> None:
    held = guest("a", [(1, 10)])
    held = replace(held, copies=held.copies * 100, pages=1000)
    saved = []
    for sharing in (256, 10):
        ksm = {"merge_across_nodes": 1, "use_zero_pages": 1, "max_page_sharing": sharing, "ksm_zero_pages": 0}
        write_sketch(MadeHost("h1", [held], more={"ksm": ksm}), tmp_path / "s" / "h1.parquet")
        assert main(["plan", "new", str(tmp_path / "s"), "--out", str(tmp_path / "p")]) == 0
        saved.append(read_plan(str(tmp_path / "p")).hosts[0].saved_after.expected / 4096)
    assert saved == [990, 900]


def test_faults_of_files_are_said_and_not_traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "s")
    for arguments in (
        ["plan", "new", str(tmp_path / "s"), "--out", str(tmp_path / "none" / "plan.json")],
        ["overlap", str(tmp_path / "s"), "--memory", "no size"],
        ["overlap", str(tmp_path / "s"), "--work-dir", str(tmp_path / "none")],
        ["simulate", "fit", "--sketches", str(tmp_path / "s"), "--out", str(tmp_path / "none" / "m")],
        ["simulate", "fill", "--model", str(tmp_path / "none")],
    ):
        assert main(arguments) == 1
        assert capsys.readouterr().err.startswith("ksmith-fleet: ")


def test_a_new_user_tries_everything_with_sketches_that_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sketches"
    assert main(["simulate", "sketches", "--hosts", "3", "--guests-per-host", "3", "--out", str(out)]) == 0
    assert f"ksmith-fleet overlap {out}" in capsys.readouterr().out
    assert main(["overlap", str(out)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("3 hosts with ") and said[1].startswith("KSM saves on the hosts as they are"), "the summary comes first"


def test_a_report_of_many_hosts_is_no_longer_than_one_of_few(tmp_path: Path) -> None:
    long = "x" * 60
    for host in range(40):
        put(tmp_path / "s", MadeHost(f"h{host}", [guest(f"{long}{host}", [(1, 40), (host + 2, 20)])]))
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "s"), "--html", str(page)]) == 0
    text = page.read_text()
    assert "<summary>10 more hosts</summary>" in text and text.index("Saved by KSM on the hosts") < text.index("<table>")
    assert f">…{'x' * 20}1<title>h1/{long}1</title>" in text


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0 and capsys.readouterr().out.startswith("ksmith-fleet 0.")
