"""The server of the service: uvicorn, with bounds on what clients without a token can hold."""

import asyncio

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 256
"""Open connections, far fewer than a process may have descriptors."""
WAIT_S = 30.0
"""The longest wait for a client, in seconds: for a whole head, or until it takes an answer. uvicorn itself waits for ever."""

_waiting: dict["BoundedProtocol", None] = {}
"""Connections that wait for their clients, those that wait longest first."""


class BoundedProtocol(H11Protocol):
    """A connection that is closed if it waits for its client too long, or longest of too many."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a head. If there are too many connections, the one that waits longest makes room."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS and _waiting:
            # One that still takes its answer only if all do.
            idle = (one for one in _waiting if not one.transport.get_write_buffer_size())
            next(idle, next(iter(_waiting)))._abort()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all waiting."""
        self._end_wait()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Ends the wait for a head if there is a whole one."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._wait_or_not()

    def on_response_complete(self) -> None:
        """Begins to wait for the next head, or until the client has taken the answer."""
        self._wait()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Begins to wait until the client has taken the answer."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """Begins to wait for the next head if the answer is complete."""
        super().resume_writing()
        self._wait_or_not()

    def _wait_or_not(self) -> None:
        if self.cycle is None or self.cycle.response_complete or self.flow.write_paused:
            self._wait()
        else:
            self._end_wait()

    def _wait(self) -> None:
        self._end_wait()
        _waiting[self] = None
        self._timer = self.loop.call_later(WAIT_S, self._abort)

    def _end_wait(self) -> None:
        _waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abort(self) -> None:
        self._end_wait()
        self.connections.discard(self)
        # Not `close`, which would wait until the client has taken all.
        self.transport.abort()


def make_server(app: ASGIApp, host: str, port: int) -> uvicorn.Server:
    """Makes a server that answers 503 while it has as many requests as it may have connections."""
    # A WebSocket would leave the bounds.
    config = uvicorn.Config(
        app, host, port, http=BoundedProtocol, ws="none", limit_concurrency=MOST_CONNECTIONS + 1, log_config=None, access_log=False
    )
    return uvicorn.Server(config)
