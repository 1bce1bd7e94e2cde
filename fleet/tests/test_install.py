"""The package as a user installs it: a wheel in an environment of its own, and the README's steps from start to end."""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the wheel and installs it. Its dependencies are those of the environment that runs the tests."""
    directory = tmp_path_factory.mktemp("install")
    source = directory / "fleet"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "src", "pyproject.toml", "README.md"], cwd=ROOT / "fleet", capture_output=True
    )
    for name in listed.stdout.decode().splitlines():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / "fleet" / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(directory), str(source)], check=True)
    (wheel,) = directory.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory / "venv")], check=True)
    python = directory / "venv" / "bin" / "python"
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", str(wheel)], check=True)
    site = next((directory / "venv" / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return directory / "venv" / "bin"


def run(installed: Path, script: str, where: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{installed}:/usr/bin:/bin", "HOME": str(where)}
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=where, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_has_all_that_it_needs_and_nothing_of_the_tests(installed: Path, tmp_path: Path) -> None:
    said = run(installed, 'python -c "import ksmith_fleet; print(ksmith_fleet.__file__)"', tmp_path).stdout
    assert str(installed.parent) in said, "the installed package is tried, not the source"
    package = Path(said.strip()).parent
    source = ROOT / "fleet" / "src" / "ksmith_fleet"
    have = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    want = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert have == want


@pytest.mark.parametrize("command", ["", "overlap", "plan", "apply", "check", "simulate", "report", "serve", "fetch"])
def test_each_command_has_help(installed: Path, tmp_path: Path, command: str) -> None:
    done = run(installed, f"ksmith-fleet {command} --help", tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("usage: ksmith-fleet") and done.stderr == ""
    page = (ROOT / "docs" / "how-to" / "fleet.md").read_text()
    for line in re.findall(rf"ksmith-fleet {command} [^\n`]*", page) if command else []:
        for option in re.findall(r"(?<= )--[a-z-]+", line):
            assert option in done.stdout, f"{option} of the how-to is no option of {command}"


def test_the_steps_of_the_readme_run_from_start_to_end(installed: Path, tmp_path: Path) -> None:
    install, steps = re.findall(r"```sh\n(.*?)```", (ROOT / "fleet" / "README.md").read_text(), re.DOTALL)
    # The first block is what `installed` does, with a download.
    assert install.splitlines() == ["python3 -m venv venv && . venv/bin/activate", "pip install ./fleet"]
    (tmp_path / "fleet").symlink_to(ROOT / "fleet")
    done = run(installed, steps, tmp_path)
    assert done.returncode == 0, done.stderr
    shown = re.search(r"```text\n(.*?)```", (ROOT / "fleet" / "README.md").read_text(), re.DOTALL)
    assert shown and done.stdout.startswith(shown.group(1)), "the output in the README is stale"
    assert "virsh -c qemu+ssh://" in done.stdout and "of_bound" in done.stdout
    assert "<svg" in (tmp_path / "fleet.html").read_text()


def test_a_reader_that_goes_away_is_no_fault(installed: Path, tmp_path: Path) -> None:
    done = run(installed, f"set +o pipefail; ksmith-fleet overlap {ROOT}/fleet/testdata/debian --max-age 1e9 --json | head -1", tmp_path)
    assert done.returncode == 0 and done.stderr == ""
