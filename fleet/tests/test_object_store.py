"""Sketches are read from an object store, also from one that fails half way."""

import http.client
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from made import two_images

from ksmith_fleet.cli.main import main

Fault = Callable[[str, bytes], tuple[int, bytes, bool] | None]
"""Takes a path and the true body. Gives a status, a body and whether the connection ends in the middle, or `None` for the truth."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server_module = pytest.importorskip("moto.server")
    import boto3

    settings = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1"}
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    use(monkeypatch, address)
    reset = http.client.HTTPConnection(host, port)
    reset.request("POST", "/moto-api/reset")
    assert reset.getresponse().status == 200
    boto3.client("s3", endpoint_url=address).create_bucket(Bucket="fleet")
    yield address
    server.stop()


def use(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)


def fill(directory: Path, address: str) -> None:
    import boto3

    two_images(directory)
    client = boto3.client("s3", endpoint_url=address)
    for name in ("h1", "h2"):
        client.upload_file(str(directory / f"{name}.parquet"), "fleet", f"sketches/{name}.parquet")


def test_sketches_are_read_from_an_object_store(tmp_path: Path, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    import boto3

    fill(tmp_path, bucket)
    boto3.client("s3", endpoint_url=bucket).put_object(Bucket="fleet", Key="sketches/h3.parquet", Body=b"PAR1 cut off")
    assert main(["plan", "improve", "s3://fleet/sketches", "--out", str(tmp_path / "plan.json")]) == 0
    said = capsys.readouterr()
    assert "s3://fleet/sketches/h3.parquet: it is damaged" in said.err
    (tmp_path / "local").mkdir()
    for name in ("h1", "h2"):
        shutil.copy(tmp_path / f"{name}.parquet", tmp_path / "local")
    assert main(["plan", "improve", str(tmp_path / "local")]) == 0
    local = capsys.readouterr().out.rsplit(";", 1)[0]
    assert said.out.rsplit(";", 1)[0] == local


@contextmanager
def failing(address: str, fault: Fault) -> Iterator[str]:
    """Stands before the store, and answers some requests in its place."""
    store = address.removeprefix("http://")

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            connection = http.client.HTTPConnection(store)
            connection.request(self.command, self.path, headers=dict(self.headers))
            told = connection.getresponse()
            body = told.read()
            status, sent, is_cut = fault(self.path, body) or (told.status, body, False)
            self.send_response(status)
            for key, value in told.getheaders() if sent is body else []:
                if key.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                    self.send_header(key, value)
            length = told.getheader("content-length") if self.command == "HEAD" else str(len(sent))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(sent[: len(sent) // 2] if is_cut else sent)
            self.close_connection = True

        do_GET = do_HEAD = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def error(status: int, code: str) -> tuple[int, bytes, bool]:
    return status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode(), False


FAULTS: dict[str, Fault] = {
    "refused": lambda path, body: error(403, "AccessDenied") if "h2.parquet" in path else None,
    "overloaded": lambda path, body: error(503, "SlowDown") if "h2.parquet" in path else None,
    "broken": lambda path, body: error(500, "InternalError") if "h2.parquet" in path else None,
    "cut": lambda path, body: (206, body, True) if "h2.parquet" in path else None,
    "gone": lambda path, body: error(404, "NoSuchKey") if "h2.parquet" in path else None,
    "garbage": lambda path, body: (206, b"<html>a portal</html>", False) if "h2.parquet" in path else None,
}


@pytest.mark.parametrize("kind", FAULTS)
def test_an_object_that_cannot_be_read_is_left_out_by_name(
    tmp_path: Path, bucket: str, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, bucket)
    with failing(bucket, FAULTS[kind]) as address:
        use(monkeypatch, address)
        assert main(["plan", "new", "s3://fleet/sketches"]) == 0
    said = capsys.readouterr()
    assert "s3://fleet/sketches/h2.parquet: it " in said.err and "h1 is the fullest" in said.out and "stay as they are: 1" in said.out


@pytest.mark.parametrize("kind", ["refused", "overloaded", "broken", "cut", "garbage"])
def test_a_list_of_objects_that_fails_plans_nothing(
    tmp_path: Path, bucket: str, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, bucket)

    def fault(path: str, body: bytes) -> tuple[int, bytes, bool] | None:
        return FAULTS[kind]("h2.parquet", body) if "list-type=2" in path else None

    with failing(bucket, fault) as address:
        use(monkeypatch, address)
        assert main(["plan", "new", "s3://fleet/sketches", "--out", str(tmp_path / "plan.json")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("ksmith-fleet: ") and not (tmp_path / "plan.json").exists()


def test_a_list_that_fails_at_its_second_page_is_none(
    tmp_path: Path, bucket: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, bucket)
    more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"
    pages = []

    def fault(path: str, body: bytes) -> tuple[int, bytes, bool] | None:
        if "list-type=2" not in path or "max-keys" in path:
            return None
        pages.append(path)
        if "continuation-token" in path:
            return error(500, "InternalError")
        assert b"IsTruncated>false" in body.replace(b"False", b"false")
        return 200, body.replace(b"False", b"false").replace(b"<IsTruncated>false</IsTruncated>", more), False

    with failing(bucket, fault) as address:
        use(monkeypatch, address)
        assert main(["plan", "new", "s3://fleet/sketches"]) == 1
    assert "cannot be listed" in capsys.readouterr().err and any("continuation-token" in path for path in pages)


def test_a_store_that_is_not_there_is_said(bucket: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "http://127.0.0.1:1")
    assert main(["overlap", "s3://fleet/sketches"]) == 1
    assert capsys.readouterr().err.startswith("ksmith-fleet: ")
