"""Fetches sketches from `ksmith serve` of each host."""

import io
import json
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, TypeAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.util import parse_url

from ksmith_fleet.declared import OPEN, parse_json
from ksmith_fleet.text import clean, is_host_name
from ksmith_fleet.write import replace_bytes

PATH = "/api/v1/sketch"
MOST_BYTES = 32 << 20
"""The most that `ksmith serve` gives."""
AT_ONCE = 16
"""Hosts that are asked at once."""
SILENCE_S = 30.0
"""The longest time without a byte of an answer, in seconds."""
ANSWER_S = 300.0
"""The longest time for a whole answer, in seconds: a host that sends a byte now and then holds a worker no longer."""


@dataclass(frozen=True)
class _Targets:
    """A group of Prometheus' file discovery."""

    __pydantic_config__ = OPEN

    targets: Annotated[list[str], Field(min_length=1)]
    labels: dict[str, str] | None = None


_DISCOVERY = TypeAdapter(list[_Targets])


@dataclass(frozen=True)
class Target:
    """A server of a host."""

    url: str
    token_file: str | None
    """The file of the token that this server is sent."""


@dataclass(frozen=True)
class Fetched:
    """What became of one host's sketch."""

    url: str
    path: str | None
    """The file that was written. `None`: the old one stays."""
    why: str | None
    """Why none was fetched."""


def read_targets(path: str, token_file: str | None) -> list[Target]:
    """Reads a JSON file of Prometheus' file discovery.

    The label `__scheme__` is that of its groups' URLs, or else `http`. The label `__token_file__` goes before `token_file`.
    """
    try:
        groups = parse_json(_DISCOVERY, Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no file of Prometheus' file discovery in JSON: {error}") from error
    found = [(target, group.labels or {}) for group in groups for target in group.targets]
    return [Target(f"{labels.get('__scheme__', 'http')}://{target}", labels.get("__token_file__", token_file)) for target, labels in found]


class SlowAnswerError(HTTPError):
    """A host sends its answer too slowly."""


class _DeadlineReader(io.RawIOBase):
    """Reads a socket until a deadline. The timeout of a socket begins anew with each byte, in the head of an answer too."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, end: float) -> None:
        self._sock, self._raw, self._end = sock, raw, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._end - time.monotonic()
        try:
            if left > 0:
                self._sock.settimeout(min(left, SILENCE_S))
                return self._raw.readinto(buffer)
        except TimeoutError:
            if left > SILENCE_S:
                raise SlowAnswerError(f"it sent nothing for {SILENCE_S:g} s") from None
        raise SlowAnswerError(f"it gave no whole answer in {ANSWER_S:g} s")

    def close(self) -> None:
        self._raw.close()
        super().close()


class _DeadlineResponse(HTTPResponse):
    """An answer whose head and body are read until a deadline."""

    def __init__(self, sock: socket.socket, *args: Any, end: float, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_DeadlineReader(sock, self.fp.detach(), end))


def fetch_all(urls: Sequence[str], tokens: Sequence[str], directory: Path, ca_file: str | None) -> Iterator[Fetched]:
    """Fetches the sketches of hosts into `HOST.parquet`, several at once. A host that gives none within five minutes keeps its old file.

    Each host is sent its own of the tokens. No request is repeated: when to ask again is not for a host to say.
    """

    def fetch(url: str, token: str) -> Fetched:
        host = urlsplit(url).hostname or ""
        if not is_host_name(host):
            return Fetched(url, None, "its address is no name of a host")
        try:
            status, data = _ask(url.rstrip("/") + PATH, token, ca_file)
        except (HTTPError, HTTPException, OSError) as error:
            return Fetched(url, None, clean(str(error)))
        if status != 200:
            return Fetched(url, None, f"it answered {status}: {_reason(data)}")
        if len(data) > MOST_BYTES or not (data.startswith(b"PAR1") and data.endswith(b"PAR1")):
            return Fetched(url, None, "what it gave is no sketch")
        path = directory / f"{host}.parquet"
        replace_bytes(path, data)
        return Fetched(url, str(path), None)

    with ThreadPoolExecutor(AT_ONCE) as executor:
        yield from executor.map(fetch, urls, tokens)


def _ask(url: str, token: str, ca_file: str | None) -> tuple[int, bytes]:
    """Returns the status of an answer, and its body up to a byte more than a sketch may have."""
    place = parse_url(url)
    end = time.monotonic() + ANSWER_S
    connection = (
        HTTPSConnection(place.host or "", place.port, timeout=SILENCE_S, cert_reqs="CERT_REQUIRED", ca_certs=ca_file)
        if place.scheme == "https"
        else HTTPConnection(place.host or "", place.port, timeout=SILENCE_S)
    )
    connection.response_class = partial(_DeadlineResponse, end=end)  # type: ignore[assignment]
    headers = {"Authorization": f"Bearer {token}"}
    try:
        # Nothing is unpacked: no sketch comes packed, and a few bytes can unpack to any size.
        connection.request("GET", place.request_uri, headers=headers, preload_content=False, decode_content=False)
        answer = connection.getresponse()
        try:
            return answer.status, answer.read(MOST_BYTES + 1)
        finally:
            answer.close()
    finally:
        connection.close()


def _reason(data: bytes) -> str:
    try:
        return clean(str(json.loads(data)["error"])[:200])
    except (ValueError, KeyError, TypeError, RecursionError):
        return clean(data[:80].decode(errors="replace"))
