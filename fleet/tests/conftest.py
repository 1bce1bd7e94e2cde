"""What all tests have in common."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keeps the locks of hosts apart from those of other programs on this machine."""
    directory = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    return directory
