"""A Proxmox VE cluster that speaks the documented schema of its API over HTTPS, and refuses what the schema has not."""

import hashlib
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import trustme

TOKEN = "fleet@pve!ksmith=12345678-1234-1234-1234-123456789abc"
UUID = "00000000-0000-4000-9000-00000000000"
PARAMETERS = {
    ("GET", "/cluster/resources"): {"type"},
    ("GET", "/cluster/ha/resources"): {"type"},
    ("GET", "/cluster/ha/rules"): {"type", "resource"},
    ("GET", "/cluster/ha/groups"): set(),
    ("GET", "/nodes/NODE/status"): set(),
    ("GET", "/nodes/NODE/qemu/VMID/config"): {"current", "snapshot"},
    ("GET", "/nodes/NODE/qemu/VMID/migrate"): {"target"},
    ("POST", "/nodes/NODE/qemu/VMID/migrate"): {
        "target", "online", "force", "migration_type", "migration_network", "with-local-disks", "targetstorage", "bwlimit", "with-conntrack-state",
    },
    ("GET", "/nodes/NODE/tasks/UPID/status"): set(),
    ("DELETE", "/nodes/NODE/tasks/UPID"): set(),
}  # fmt: skip
"""The parameters of each method of the API."""
_PLACES = re.compile(r"/nodes/([^/]+)(?:/qemu/(\d+)|/tasks/([^/]+))?")


class Said:
    """An API that says one thing."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def get(self, path: str, **words: str) -> Any:
        return self.said

    def post(self, path: str, **words: str) -> Any:
        raise AssertionError("nothing is moved")

    def delete(self, path: str) -> Any:
        raise AssertionError("nothing is moved")


@dataclass
class Vm:
    """A guest. `checks` are added to its preconditions, and `fails` is the exit status of its migration."""

    name: str
    node: str
    uuid: str
    cpu: str = "x86-64-v2-AES"
    checks: dict[str, Any] = field(default_factory=dict)
    fails: str = "OK"
    ha: dict[str, Any] | None = None
    lock: str | None = None
    hastate: list[str] = field(default_factory=list)
    """What the HA manager does at each look from a migration on, before the guest arrives. The last one stays."""


@dataclass
class Task:
    """A task, and at how many looks more it still runs."""

    vmid: int
    target: str
    kind: str
    looks: int


@dataclass
class Cluster:
    """The cluster's state."""

    guests: dict[int, Vm]
    models: dict[str, str] = field(default_factory=lambda: dict.fromkeys(("h1", "h2", "h3"), "EPYC 7302"))
    free: int = 1 << 40
    rules: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    version: int = 9
    looks: int = 2
    tasks: dict[str, Task] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    lost: int = 0
    """Answers that are lost from now on."""

    def answer(self, method: str, path: str, words: dict[str, str]) -> tuple[int, str, Any]:
        """Gives status, reason and data."""
        self.asked.append(f"{method} {path}")
        if self.lost:
            self.lost -= 1
            return 595, "No route to host", None
        shape = re.sub(r"/tasks/[^/]+", "/tasks/UPID", re.sub(r"/qemu/\d+", "/qemu/VMID", re.sub(r"^/nodes/[^/]+", "/nodes/NODE", path)))
        known = PARAMETERS.get((method, shape))
        if known is None or (self.version < 9 and shape == "/cluster/ha/rules"):
            return 501, f"Method '{method} {path}' not implemented", None
        if wrong := words.keys() - known:
            return 400, "Parameter verification failed.", {"errors": dict.fromkeys(wrong, "property is not defined in schema")}
        if shape.startswith("/cluster"):
            return 200, "OK", {"data": self._of_cluster(shape, words)}
        found = _PLACES.match(path)
        assert found
        node, vmid, upid = found.group(1), found.group(2), unquote(found.group(3) or "")
        if upid:
            return 200, "OK", {"data": self._of_task(method, upid)}
        if vmid is None:
            return 200, "OK", {"data": {"cpuinfo": {"model": self.models[node]}, "memory": {"total": 1 << 41, "used": (1 << 41) - self.free}}}
        vm = self.guests[int(vmid)]
        if vm.node != node:
            return 500, f"Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist", None
        if vm.lock and shape.endswith("/migrate"):
            return 500, f"VM is locked ({vm.lock})", None
        return self._of_vm(method, shape, int(vmid), vm, words)

    def _of_cluster(self, shape: str, words: dict[str, str]) -> Any:
        if shape == "/cluster/ha/resources":
            return [{"sid": f"vm:{number}", "type": "vm", "state": "started"} | vm.ha for number, vm in self.guests.items() if vm.ha is not None]
        if shape == "/cluster/ha/rules":
            of_type = [rule for rule in self.rules if rule["type"] == words.get("type", rule["type"])]
            return [rule for rule in of_type if "resource" not in words or words["resource"] in rule["resources"].split(",")]
        if shape == "/cluster/ha/groups":
            return self.groups
        entries = []
        for number, vm in self.guests.items():
            entry = {"id": f"qemu/{number}", "type": "qemu", "vmid": number, "name": vm.name, "node": vm.node, "status": "running"}
            if vm.ha is not None:
                entry["hastate"] = "started"
                for task in self.tasks.values():
                    if task.vmid == number and task.kind == "hamigrate" and vm.node != task.target:
                        entry["hastate"] = vm.hastate.pop(0) if len(vm.hastate) > 1 else vm.hastate[0]
                        if entry["hastate"] == "arrive":
                            vm.node = entry["node"] = task.target
            entries.append(entry)
        return entries

    def _of_vm(self, method: str, shape: str, vmid: int, vm: Vm, words: dict[str, str]) -> tuple[int, str, Any]:
        if shape.endswith("/config"):
            return 200, "OK", {"data": {"smbios1": f"base64=1,uuid={vm.uuid}", "memory": "512", "cpu": vm.cpu}}
        if method == "GET":
            checks = {"running": 1, "allowed_nodes": ["h2"], "not_allowed_nodes": {}, "local_disks": [], "local_resources": [], "has-dbus-vmstate": 1}
            return 200, "OK", {"data": checks | vm.checks}
        if words.get("online") != "1":
            return 500, "can't migrate running VM without --online", None
        kind = "qmigrate" if vm.ha is None else "hamigrate"
        upid = f"UPID:{vm.node}:0000{len(self.tasks):04X}:00C0FFEE:6920AAAA:{kind}:{vmid}:fleet@pve!ksmith:"
        self.tasks[upid] = Task(vmid, words["target"], kind, self.looks)
        return 200, "OK", {"data": upid}

    def _of_task(self, method: str, upid: str) -> Any:
        task = self.tasks[upid]
        if method == "DELETE":
            task.looks, self.guests[task.vmid].fails = 0, "received interrupt"
            return None
        task.looks -= 1
        if task.looks > 0:
            return {"upid": upid, "type": task.kind, "status": "running"}
        vm = self.guests[task.vmid]
        if vm.fails.startswith(("OK", "WARNINGS")) and task.kind == "qmigrate":
            vm.node = task.target
        return {"upid": upid, "type": task.kind, "status": "stopped", "exitstatus": vm.fails}


@dataclass(frozen=True)
class Served:
    """A cluster that is served, and how its certificate is trusted."""

    cluster: Cluster
    url: str
    ca_file: str
    fingerprint: str


@contextmanager
def served(cluster: Cluster, directory: Any) -> Iterator[Served]:
    """Serves a cluster on a port of its own."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            place = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            path = place.path.removeprefix("/api2/json")
            if self.headers.get("Authorization") != f"PVEAPIToken={TOKEN}":
                status, reason, data = 401, "invalid token value!", None
            elif path == place.path:
                status, reason, data = 404, "no such file", None
            else:
                status, reason, data = cluster.answer(self.command, path, dict(parse_qsl(place.query) + parse_qsl(body)))
            text = json.dumps({"data": None} if data is None else data).encode()
            self.send_response(status, reason)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = _handle  # noqa: N815

        def log_message(self, *words: object) -> None:
            del words

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        pem = certificate.cert_chain_pems[0].bytes().decode()
        digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest().upper()
        fingerprint = ":".join(digest[at : at + 2] for at in range(0, 64, 2))
        yield Served(cluster, f"https://127.0.0.1:{server.server_port}", str(directory / "ca.pem"), fingerprint)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
