"""A server of its own for a test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from ksmith_fleet.serve.server import make_server


@contextmanager
def running(app: ASGIApp) -> Iterator[tuple[int, uvicorn.Server]]:
    """Serves an application on a port of this machine."""
    server = make_server(app, "127.0.0.1", 0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        yield server.servers[0].sockets[0].getsockname()[1], server
    finally:
        server.should_exit = True
        thread.join()
