"""The HTTP API of Proxmox VE, for the holder of an API token."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import HTTPError, SSLError
from urllib3.util import Retry, Timeout

from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.secret_file import read_secret

TOKEN_VARIABLE = "PROXMOX_VE_API_TOKEN"
"""The environment variable that Terraform's provider for Proxmox reads, too."""
URL_VARIABLE = "PROXMOX_VE_ENDPOINT"
ANSWER_S = 60.0
"""The longest time that an answer may take. `pveproxy` itself waits 30 s for another node."""
LOST = (502, 503, 504, 595, 596, 599)
"""What `pveproxy` answers when another node of the cluster does not."""
RETRIES = Retry(4, redirect=False, backoff_factor=1.0, allowed_methods={"GET"}, status_forcelist=LOST, raise_on_status=False)
"""Questions are asked again for 15 s. Nothing that changes a cluster is, since it may have been done where no answer came."""
CONNECTIONS = 8
"""Requests that are made at once."""
_TOKEN = re.compile(r"[^\s@!:/]+@[^\s@!:/]+![A-Za-z][A-Za-z0-9._-]*=[0-9a-fA-F-]{36}")
_URL = re.compile(r"https://[A-Za-z0-9.\[\]:_-]+/?")
_FINGERPRINT = re.compile(r"(?:[0-9A-Fa-f]{2}:?){32}")


class RefusedError(ApplyError):
    """The API answered a request with an error."""

    def __init__(self, text: str, status: int) -> None:
        """Keeps the status of the answer."""
        super().__init__(text)
        self.status = status


class Api(Protocol):
    """Requests to a cluster. Paths are those of the API viewer, from `/cluster` or `/nodes` on."""

    def get(self, path: str, **words: str) -> Any:
        """Gives the data of an answer."""

    def post(self, path: str, **words: str) -> Any:
        """Changes something, and gives the data of the answer."""

    def delete(self, path: str) -> Any:
        """Removes or stops something."""


def path_of(*parts: object) -> str:
    """Makes a path of parts, of which none can become two."""
    return "".join("/" + quote(str(part), safe="") for part in parts)


def read_token(path: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Reads USER@REALM!NAME=SECRET from a file of which others can read nothing, or from the environment.

    It is never an option, since all users of a machine see those of its processes.
    """
    if path is None:
        token, where = environment.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
        if not token:
            raise ApplyError(f"Proxmox needs an API token: give --token-file FILE, or set {TOKEN_VARIABLE}")
    else:
        where = path
        try:
            token = read_secret(path)
        except ValueError as error:
            raise ApplyError(str(error)) from error
    if not _TOKEN.fullmatch(token):
        raise ApplyError(f"{where} has no API token of Proxmox: it is USER@REALM!NAME=SECRET")
    return token


@dataclass(frozen=True)
class ProxmoxApi:
    """The API of a cluster by one of its nodes, which asks the others. The node is who its certificate says, or nothing is sent."""

    url: str
    token: str = field(repr=False)
    ca_file: str | None = None
    """Certificates that may sign the node's, such as `/etc/pve/pve-root-ca.pem`, instead of the system's."""
    fingerprint: str | None = None
    """The SHA-256 fingerprint of the node's certificate, instead of a signature."""
    retries: Retry = RETRIES

    def __post_init__(self) -> None:
        """Refuses what would send the token in the clear, or to whom it may concern."""
        if not _URL.fullmatch(self.url):
            raise ApplyError(f"{self.url[:80]!r} is no address of a Proxmox cluster: give --api https://NODE:8006")
        if self.fingerprint is not None and not _FINGERPRINT.fullmatch(self.fingerprint):
            raise ApplyError("--fingerprint takes the SHA-256 fingerprint of the node's certificate, 32 pairs of hexadecimal digits")

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        trust: dict[str, Any] = {"cert_reqs": "CERT_REQUIRED", "ca_certs": self.ca_file}
        if self.fingerprint is not None:
            trust = {"cert_reqs": "CERT_NONE", "assert_fingerprint": self.fingerprint}
        return urllib3.PoolManager(maxsize=CONNECTIONS, timeout=Timeout(ANSWER_S), retries=self.retries, **trust)

    def get(self, path: str, **words: str) -> Any:
        """Gives the data of an answer. A question without an answer is asked again."""
        return self._request("GET", path, words)

    def post(self, path: str, **words: str) -> Any:
        """Changes something, and gives the data of the answer."""
        return self._request("POST", path, words)

    def delete(self, path: str) -> Any:
        """Removes or stops something."""
        return self._request("DELETE", path, {})

    def _request(self, method: str, path: str, words: dict[str, str]) -> Any:
        headers = {"Authorization": f"PVEAPIToken={self.token}"}
        url, sent = f"{self.url.rstrip('/')}/api2/json{path}", urlencode(words)
        try:
            if method == "POST":
                headers["Content-Type"] = "application/x-www-form-urlencoded"
                answer = self._pool.request(method, url, body=sent, headers=headers, redirect=False)
            else:
                answer = self._pool.request(method, f"{url}?{sent}" if sent else url, headers=headers, redirect=False)
        except SSLError as error:
            raise ApplyError(_distrust(self.url, error)) from error
        except HTTPError as error:
            if isinstance(reason := getattr(error, "reason", None), SSLError):
                raise ApplyError(_distrust(self.url, reason)) from error
            raise ApplyError(f"{self.url} gave no answer to {method} {path}: {getattr(error, 'reason', error)}") from error
        if answer.status in (401, 403):
            raise ApplyError(f"{self.url} refused {method} {path}: {_said(answer)}; the token needs Sys.Audit, VM.Audit and VM.Migrate on /")
        if answer.status in LOST:
            raise ApplyError(f"{self.url} gave no answer to {method} {path}: {_said(answer)}")
        if answer.status != 200:
            raise RefusedError(_said(answer), answer.status)
        try:
            return answer.json()["data"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ApplyError(f"{self.url} gave no data to {method} {path}: is it a Proxmox cluster?") from error


def _distrust(url: str, error: SSLError) -> str:
    return f"{url} cannot be trusted: {error}; give --ca FILE (of the cluster: /etc/pve/pve-root-ca.pem) or --fingerprint SHA256"


def _said(answer: urllib3.BaseHTTPResponse) -> str:
    """Gives the reason of a refusal: Proxmox writes it into the status line, and what is wrong with parameters into the body."""
    try:
        errors = answer.json().get("errors") or {}
    except (ValueError, AttributeError, RecursionError):
        errors = {}
    more = f" {json.dumps(errors)}" if errors else ""
    return f"{(answer.reason or str(answer.status)).strip()}{more}"[:400]
