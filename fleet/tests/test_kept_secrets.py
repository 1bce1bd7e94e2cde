"""Secrets of URLs are in no message, plan or report."""

from pathlib import Path

import pytest
from made import two_images

from ksmith_fleet.cli.main import main
from ksmith_fleet.model import LeftOut
from ksmith_fleet.text import shown


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("https://ann:hunter2@store/x: gone", "https://***@store/x: gone"),
        ("https://:hunter2@store/x", "https://***@store/x"),
        ("https://store/x?X-Amz-Signature=hunter2&a=1", "https://store/x?X-Amz-Signature=***&a=1"),
        ("https://store/x?a=1&sig_token=hunter2#y", "https://store/x?a=1&sig_token=***#y"),
        ("qemu+ssh://root@h1/system failed", "qemu+ssh://root@h1/system failed"),
        ("s3://bucket/h1.parquet: at 10:30 ann@store", "s3://bucket/h1.parquet: at 10:30 ann@store"),
    ],
)
def test_a_message_has_no_password_and_no_signature(said: str, wanted: str) -> None:
    assert shown(said) == wanted
    assert str(LeftOut(said, "x")) == f"{wanted}: x"


def test_a_place_that_cannot_be_listed_is_named_without_its_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    assert main(["overlap", "nothing://ann:hunter2@store/x"]) == 1
    said = capsys.readouterr()
    assert "nothing://***@store/x cannot be listed" in said.err and "hunter2" not in said.out + said.err
