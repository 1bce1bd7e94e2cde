"""Sketches are fetched from servers of hosts that speak as `ksmith serve` does."""

import gzip
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
from made import two_images

from ksmith_fleet.cli.main import main

TOKEN = "0123456789abcdef"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Gives the sketch of h1 to holders of the token, and under other paths what no host should give."""
    two_images(tmp_path / "s")
    sketch = (tmp_path / "s" / "h1.parquet").read_bytes()
    bodies = {"": sketch, "/foreign": b"PAR1 and no more", "/large": b"PAR1" + bytes(32 << 20) + b"PAR1", "/packed": gzip.compress(sketch)}

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
            if path == "/packed":
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            del words

    with serving(Handler) as place:
        yield place


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls is not None:
        httpd.socket = tls.wrap_socket(httpd.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return authority


def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


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


def test_a_target_is_sent_its_own_token_alone(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sent = {}

    class Keeper(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent[self.headers["Host"].split(":")[0]] = self.headers["Authorization"]
            self.send_error(404)

        def log_message(self, *words: object) -> None:
            del words

    own = tmp_path / "own"
    own.write_text("the-token-of-one-host-alone")
    own.chmod(0o600)
    targets, without = tmp_path / "hosts.json", [word for word in command if word not in ("--token-file", str(tmp_path / "token"))]
    with serving(Keeper) as keeper:
        other = keeper.replace("127.0.0.1", "localhost")
        targets.write_text(json.dumps([{"targets": [keeper], "labels": {"__token_file__": str(own)}}, {"targets": [other]}]))
        assert main([*command, "--targets", str(targets)]) == 1
        assert sent == {"127.0.0.1": "Bearer the-token-of-one-host-alone", "localhost": f"Bearer {TOKEN}"}
        sent.clear()
        capsys.readouterr()
        assert main([*without, "--targets", str(targets)]) == 1
        assert f"http://{other} has no token: give --token-file, or the label __token_file__" in capsys.readouterr().err and not sent
        targets.write_text(json.dumps([{"targets": [keeper], "labels": {"__token_file__": str(own)}}]))
        assert main([*without, "--targets", str(targets)]) == 1 and list(sent) == ["127.0.0.1"]
        own.chmod(0o640)
        assert main([*without, "--targets", str(targets)]) == 1
        assert f"{own} can be read by other users: chmod 600" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/none", "it answered 404: no sketch is served here"),
        ("/foreign", "what it gave is no sketch"),
        ("/large", "what it gave is no sketch"),
        ("/packed", "what it gave is no sketch"),
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


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n"


@pytest.mark.parametrize("head", [HEAD + b"X-Slow: ", HEAD + b"\r\nPAR1", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0"])
def test_a_host_that_sends_a_byte_now_and_then_holds_a_worker_for_five_minutes(
    server: str,
    command: list[str],
    authority: trustme.CA,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    head: bytes,
) -> None:
    clock = [1000.0]

    class Dribbler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(head)
            for _ in range(11):
                clock[0] += 29.0
                self.wfile.write(b"0")
            # Sends no more until the other end hangs up.
            self.close_connection = not self.rfile.read(1)

        def log_message(self, *words: object) -> None:
            del words

    monkeypatch.setattr("ksmith_fleet.fetch.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("ksmith_fleet.fetch.AT_ONCE", 1)
    with serving(Dribbler) as slow, serving(Dribbler, server_context(authority)) as safe:
        assert main([*command, "--ca", str(tmp_path / "ca.pem"), f"http://{slow}", f"https://{safe}", f"http://{server}"]) == 0
    found = capsys.readouterr()
    assert f"https://{safe}: it gave no whole answer in 300 s" in found.err
    assert f"http://{slow}: it gave no whole answer in 300 s" in found.err and found.out == "1 of 3 sketches fetched\n"
    assert (tmp_path / "out" / "127.0.0.1.parquet").read_bytes() == (tmp_path / "s" / "h1.parquet").read_bytes()


def test_only_a_certificate_of_the_authority_is_believed(
    command: list[str], authority: trustme.CA, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            self.send_error(404)

        def log_message(self, *words: object) -> None:
            del words

    with serving(Empty, server_context(authority)) as known, serving(Empty, server_context(trustme.CA())) as foreign:
        assert main([*command, "--ca", str(tmp_path / "ca.pem"), f"https://{known}", f"https://{foreign}"]) == 1
    said = capsys.readouterr().err
    assert f"https://{known}: it answered 404" in said and "CERTIFICATE_VERIFY_FAILED" in said
    assert asked == [f"Bearer {TOKEN}"]


def test_a_host_that_is_silent_is_given_up(command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.close_connection = not self.rfile.read(1)

        def log_message(self, *words: object) -> None:
            del words

    monkeypatch.setattr("ksmith_fleet.fetch.SILENCE_S", 0.1)
    with serving(Mute) as mute:
        assert main([*command, f"http://{mute}"]) == 1
    assert f"http://{mute}: it sent nothing for 0.1 s" in capsys.readouterr().err


def test_a_host_that_asks_for_another_request_later_gets_none(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    asked = []

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(503)
            self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(b'{"error": "busy\\nksmith-fleet: all is well"}')

        def log_message(self, *words: object) -> None:
            del words

    with serving(Busy) as busy:
        assert main([*command, f"http://{busy}"]) == 1
    assert asked == ["/api/v1/sketch"]
    assert capsys.readouterr().err == f"ksmith-fleet: http://{busy}: it answered 503: busy\\nksmith-fleet: all is well\n"
