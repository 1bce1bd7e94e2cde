"""Fetches sketches from `ksmith serve` of each host."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import urllib3
from pydantic import Field, TypeAdapter
from urllib3.exceptions import HTTPError
from urllib3.util import Retry, Timeout

from ksmith_fleet.declared import OPEN, parse_json
from ksmith_fleet.text import is_host_name
from ksmith_fleet.write import replace_bytes

PATH = "/api/v1/sketch"
MOST_BYTES = 32 << 20
"""The most that `ksmith serve` gives."""
AT_ONCE = 16
"""Hosts that are asked at once."""
ANSWER_S = 30.0
"""The longest time without a byte of an answer."""


@dataclass(frozen=True)
class _Targets:
    """A group of Prometheus' file discovery."""

    __pydantic_config__ = OPEN

    targets: Annotated[list[str], Field(min_length=1)]
    labels: dict[str, str] | None = None


_DISCOVERY = TypeAdapter(list[_Targets])


@dataclass(frozen=True)
class Fetched:
    """What became of one host's sketch."""

    url: str
    path: str | None
    """The file that was written. `None`: the old one stays."""
    why: str | None
    """Why none was fetched."""


def read_targets(path: str) -> list[str]:
    """Reads a JSON file of Prometheus' file discovery. The label `__scheme__` is that of its groups' URLs, or else `http`."""
    try:
        groups = parse_json(_DISCOVERY, Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no file of Prometheus' file discovery in JSON: {error}") from error
    return [f"{(group.labels or {}).get('__scheme__', 'http')}://{target}" for group in groups for target in group.targets]


def fetch_all(urls: Sequence[str], token: str, directory: Path, ca_file: str | None) -> Iterator[Fetched]:
    """Fetches the sketches of hosts into `HOST.parquet`, several at once. A host that gives none keeps its old file."""
    retries = Retry(2, redirect=False, backoff_factor=0.5)
    pool = urllib3.PoolManager(num_pools=AT_ONCE, timeout=Timeout(ANSWER_S), retries=retries, cert_reqs="CERT_REQUIRED", ca_certs=ca_file)
    headers = {"Authorization": f"Bearer {token}"}

    def fetch(url: str) -> Fetched:
        host = urlsplit(url).hostname or ""
        if not is_host_name(host):
            return Fetched(url, None, "its address is no name of a host")
        try:
            answer = pool.request("GET", url.rstrip("/") + PATH, headers=headers, preload_content=False, redirect=False)
            try:
                data = answer.read(MOST_BYTES + 1)
            finally:
                answer.release_conn()
        except HTTPError as error:
            return Fetched(url, None, str(getattr(error, "reason", None) or error))
        if answer.status != 200:
            return Fetched(url, None, f"it answered {answer.status}: {_reason(data)}")
        if len(data) > MOST_BYTES or not (data.startswith(b"PAR1") and data.endswith(b"PAR1")):
            return Fetched(url, None, "what it gave is no sketch")
        path = directory / f"{host}.parquet"
        replace_bytes(path, data)
        return Fetched(url, str(path), None)

    with ThreadPoolExecutor(AT_ONCE) as executor:
        yield from executor.map(fetch, urls)


def _reason(data: bytes) -> str:
    try:
        return str(json.loads(data)["error"])[:200]
    except (ValueError, KeyError, TypeError, RecursionError):
        return data[:80].decode(errors="replace")
