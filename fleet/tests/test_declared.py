"""A file of each format names the file, the field and what it takes when it is refused."""

import json
from importlib import resources
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from made import guest, put, two_images

from ksmith_fleet.cli.main import main
from ksmith_fleet.declared import LARGEST
from ksmith_fleet.rules import BadRulesError, read_rules
from ksmith_fleet.simulate.fit import load
from ksmith_fleet.simulate.write import MadeHost


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("divergence = 7", "divergence is 7: it should be less than or equal to 1"),
        ('[hosts.h1]\ncpus = "x"', "hosts.h1.cpus is 'x': it should be a valid number"),
        ("[hosts.h1]\ncpu = 1", "hosts.h1.cpu is not known: remove it, or mend its name"),
        ('apart = [["a", 1]]', r"apart\[0\]\[1\] is 1: it should be a valid string"),
        ("[guests.a]\nhost = 1979-05-27", "date is not JSON serializable"),
    ],
)
def test_a_fault_of_rules_names_its_place_and_what_it_takes(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "rules.toml").write_text(text)
    with pytest.raises(BadRulesError, match=rf"rules\.toml: .*{said}"):
        read_rules(str(tmp_path / "rules.toml"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"reserved_bytes": -1}, "metadata ksmith.host: reserved_bytes is -1: it should be greater than or equal to 0"),
        ({"ksm": {"use_zero_pages": 2}}, "metadata ksmith.host: ksm.use_zero_pages is 2: it should be less than or equal to 1"),
        ({"shmem_bytes": LARGEST + 1}, f"metadata ksmith.host: shmem_bytes is {LARGEST + 1}: it should be less than or equal to {LARGEST}"),
        ({"time_ms": 10**5000}, "metadata ksmith.host: "),
    ],
)
def test_a_fault_of_a_host_names_its_place(tmp_path: Path, more: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    made = MadeHost("h9", [guest("liar", [(1, 500)])], more={key: value for key, value in more.items() if key != "time_ms"})
    put(tmp_path, made)
    if "time_ms" in more:
        spoil(tmp_path / "h9.parquet")
    assert main(["overlap", str(tmp_path)]) == 0
    assert f"h9.parquet: {said}" in capsys.readouterr().err


def spoil(path: Path) -> None:
    """Gives the host a time of 5000 digits, which Python itself writes in no text."""
    table = pq.read_table(path)
    host = table.schema.metadata[b"ksmith.host"]
    meta = dict(table.schema.metadata) | {b"ksmith.host": host.replace(b'"time_ms": ', b'"time_ms": 1' + b"0" * 5000, 1)}
    pq.write_table(table.replace_schema_metadata(meta), path)


def test_only_the_first_of_many_faults_of_guests_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    put(tmp_path, MadeHost("h9", [guest(f"liar{n}", [(1, 50)], more={"vcpus": 0}) for n in range(100)]))
    assert main(["overlap", str(tmp_path)]) == 0
    assert "metadata ksmith.guests: [0].vcpus is 0: it should be greater than or equal to 1\n" in capsys.readouterr().err


def test_keys_of_newer_hosts_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, MadeHost("h1", [guest("a", [(1, 500)], more={"newer": 1})], more={"newer": [1], "ksm": {"newer": 1}}))
    assert main(["overlap", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


def test_a_model_is_whole_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = json.loads(resources.files("ksmith_fleet").joinpath("simulate", "debian.json").read_text())
    path = tmp_path / "model.json"
    path.write_text(json.dumps(whole))
    assert load(path).atoms[0][0] == int(whole["atoms"][0][0], 16)
    for change, said in (
        ({"rate": "x"}, "rate is 'x': it should be a valid number"),
        ({"atoms": [["zz", 1]]}, r"atoms[0][0] is 'zz'"),
        ({"seen": [{}]}, "seen[0].name is not there"),
        ({"more": 1}, "more is not known"),
    ):
        path.write_text(json.dumps(whole | change))
        assert main(["simulate", "fill", "--model", str(path), "--hosts", "2"]) == 1
        assert f"model.json is no model: {said}" in capsys.readouterr().err
