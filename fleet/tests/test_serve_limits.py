"""Clients of the service hold neither its descriptors nor its answers to others, with or without a token."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import urllib3
import uvicorn
from service import running
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def app_of(text: str, before: Callable[[], object] = lambda: None) -> Starlette:
    """Answers with a text, after what is to be done before."""

    def answer(_: Request) -> Response:
        before()
        return PlainTextResponse(text)

    return Starlette(routes=[Route("/", answer)])


def client(clients: ExitStack, port: int, sent: bytes) -> socket.socket:
    made = clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
    made.sendall(sent)
    return made


def ask(port: int) -> tuple[int, bytes]:
    answer = urllib3.request("GET", f"http://127.0.0.1:{port}/", retries=False, timeout=60)
    return answer.status, answer.data


def taking(server: uvicorn.Server) -> int:
    """The number of connections whose clients have yet to take a part of their answers."""
    return sum(one.transport.get_write_buffer_size() > 0 for one in list(server.server_state.connections))


def is_closed(one: socket.socket) -> bool:
    """Reads what is left. A connection that stays open ends the test by its timeout."""
    try:
        while one.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(
    ("answered", "rest"),
    [(b"", b""), (b"", HEAD), (HEAD + b"\r\n", HEAD), (HEAD + b"Content-Length: 100\r\n\r\nx", b"x")],
)
def test_a_connection_without_a_whole_request_is_closed(answered: bytes, rest: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_little() -> None:
        monkeypatch.setattr("ksmith_fleet.serve.server.WAIT_S", 0.1)

    monkeypatch.setattr("ksmith_fleet.serve.server.WAIT_S", 3600.0 if answered else 0.1)
    with running(app_of("x", wait_little)) as (port, _), ExitStack() as clients:
        one = client(clients, port, answered)
        assert not answered or one.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
        one.sendall(rest)
        assert is_closed(one)


def test_a_connection_whose_answer_is_not_read_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_little() -> None:
        monkeypatch.setattr("ksmith_fleet.serve.server.WAIT_S", 0.1)

    monkeypatch.setattr("ksmith_fleet.serve.server.WAIT_S", 3600.0)
    with running(app_of("x" * (64 << 20), wait_little)) as (port, server), ExitStack() as clients:
        client(clients, port, HEAD + b"\r\n")
        end = time.monotonic() + 60
        while (server.server_state.total_requests == 0 or server.server_state.connections) and time.monotonic() < end:
            time.sleep(0.01)
        assert server.server_state.total_requests == 1 and not server.server_state.connections


def test_half_requests_hold_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ksmith_fleet.serve.server.MOST_CONNECTIONS", 4)
    monkeypatch.setattr("ksmith_fleet.serve.server.WAIT_S", 3600.0)
    with running(app_of("x")) as (port, server), ExitStack() as clients:
        halves = [client(clients, port, HEAD) for _ in range(20)]
        assert ask(port) == (200, b"x")
        assert len(server.server_state.connections) <= 4
        assert all(is_closed(half) for half in halves[:16]), "those that wait longest make room"
        halves[-1].sendall(b"\r\n")
        assert halves[-1].recv(1 << 16).startswith(b"HTTP/1.1 200 OK"), "the newest stay"


def test_a_client_that_takes_its_answer_makes_room_only_if_all_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ksmith_fleet.serve.server.MOST_CONNECTIONS", 2)
    monkeypatch.setattr("ksmith_fleet.serve.server.WAIT_S", 3600.0)
    size = 64 << 20
    with running(app_of("x" * size)) as (port, server), ExitStack() as clients:

        def take(count: int) -> socket.socket:
            """Asks, and waits until so many connections have answers of which not all is taken."""
            taker = client(clients, port, HEAD + b"\r\n")
            end = time.monotonic() + 60
            while taking(server) < count and time.monotonic() < end:
                time.sleep(0.01)
            assert taking(server) == count
            return taker

        oldest = take(1)
        half = client(clients, port, HEAD)
        newest = take(2)
        assert is_closed(half), "it waits less long than the oldest, and for a whole head"
        client(clients, port, HEAD)
        assert is_closed(oldest), "now all take their answers"
        taken = 0
        while taken < size:
            part = newest.recv(1 << 20)
            assert part, "the newest has all of its answer"
            taken += len(part)


def test_a_full_house_answers_503(monkeypatch: pytest.MonkeyPatch) -> None:
    until, asked = threading.Event(), threading.Semaphore(0)

    def hold() -> None:
        asked.release()
        until.wait()

    monkeypatch.setattr("ksmith_fleet.serve.server.MOST_CONNECTIONS", 2)
    monkeypatch.setattr("ksmith_fleet.serve.server.WAIT_S", 3600.0)
    with running(app_of("x", hold)) as (port, _), ExitStack() as clients:
        try:
            busy = [client(clients, port, HEAD + b"\r\n") for _ in range(2)]
            assert all(asked.acquire(timeout=60) for _ in busy)
            assert [ask(port)[0] for _ in range(3)] == [503, 503, 503]
        finally:
            until.set()
        assert all(one.recv(1 << 16).startswith(b"HTTP/1.1 200 OK") for one in busy), "requests that are being answered are never broken off"
        assert ask(port) == (200, b"x")
