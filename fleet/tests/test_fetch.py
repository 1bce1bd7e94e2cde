"""Sketches are fetched from servers of hosts that speak as `ksmith serve` does."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from made import two_images

from ksmith_fleet.cli.main import main

TOKEN = "0123456789abcdef"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Gives the sketch of h1 to holders of the token, and under other paths what no host should give."""
    two_images(tmp_path / "s")
    sketch = (tmp_path / "s" / "h1.parquet").read_bytes()
    bodies = {"": sketch, "/foreign": b"PAR1 and no more", "/large": b"PAR1" + bytes(32 << 20) + b"PAR1"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.removesuffix("/api/v1/sketch")
            status, body = 200, bodies.get(path, b"")
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, body = 401, b'{"error": "the token is missing or wrong"}'
            elif path == "/moved":
                status = 302
            elif path not in bodies:
                status, body = 404, b'{"error": "no sketch is served here"}'
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            del words

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
    thread.start()
    yield f"127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "token").write_text(TOKEN + "\nthe-token-that-comes-next\n")
    (tmp_path / "token").chmod(0o600)
    (tmp_path / "out").mkdir()
    return ["fetch", "--out", str(tmp_path / "out"), "--token-file", str(tmp_path / "token")]


def test_sketches_come_from_the_targets_of_prometheus(server: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hosts.json").write_text(json.dumps([{"targets": [server], "labels": {"job": "ksmith"}}]))
    assert main([*command, "--targets", str(tmp_path / "hosts.json")]) == 0
    assert capsys.readouterr().out == "1 of 1 sketches fetched\n"
    assert (tmp_path / "out" / "127.0.0.1.parquet").read_bytes() == (tmp_path / "s" / "h1.parquet").read_bytes()
    assert main(["overlap", str(tmp_path / "out"), "--json"]) == 0
    assert [host["host"] for host in json.loads(capsys.readouterr().out)["hosts"]] == ["h1"]
    for wrong in ("{}", '[{"targets": []}]', '[{"targets": [3]}]', "- targets: [h1]"):
        (tmp_path / "hosts.json").write_text(wrong)
        assert main([*command, "--targets", str(tmp_path / "hosts.json")]) == 1
        assert "is no file of Prometheus' file discovery in JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/none", "it answered 404: no sketch is served here"),
        ("/foreign", "what it gave is no sketch"),
        ("/large", "what it gave is no sketch"),
        ("/moved", "it answered 302"),
    ],
)
def test_a_host_that_gives_none_keeps_its_old_file(
    server: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, said: str
) -> None:
    (tmp_path / "out" / "127.0.0.1.parquet").write_bytes(b"old")
    assert main([*command, f"http://{server}{path}", "--json"]) == 1
    found = capsys.readouterr()
    assert said in found.err and json.loads(found.out)["hosts"][0]["path"] is None
    assert (tmp_path / "out" / "127.0.0.1.parquet").read_bytes() == b"old"
    assert main([*command, f"http://{server}{path}", "--strict"]) == 4
    assert main([*command, f"http://{server}{path}", f"http://{server}"]) == 0, "the others are fetched"


def test_a_wrong_token_and_a_wrong_address_are_named(server: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("another-token-that-is-long")
    assert main([*command, f"http://{server}"]) == 1
    said = capsys.readouterr().err
    assert "it answered 401: the token is missing or wrong" in said and "another-token" not in said
    for url in ("ftp://h1", "h1:9797", "http://ann:x@h1"):
        assert main([*command, url]) == 1
        assert "is no server of a host" in capsys.readouterr().err
    assert main(command) == 1
    assert "name servers of hosts, or give --targets" in capsys.readouterr().err
