"""The requests that the service answers, on Starlette."""

import hmac
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ksmith_fleet.plan_file import plan_json
from ksmith_fleet.rules import BadRulesError
from ksmith_fleet.serve.state import FleetState, NotReadyError

LOOPBACK = ("127.0.0.1", "localhost")
"""Addresses at which only this machine asks."""


class BearerToken:
    """Lets only those in who have one of the tokens."""

    def __init__(self, app: ASGIApp, tokens: Sequence[str]) -> None:
        """Keeps the tokens."""
        self.app = app
        self.expected = [f"Bearer {token}".encode() for token in tokens]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers 401, or passes the request on."""
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not any(hmac.compare_digest(given, expected) for expected in self.expected):
                await _error("a token is needed", 401)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def make_app(state: FleetState, tokens: Sequence[str]) -> Starlette:
    """Makes the application. Without tokens only names of this machine are answered, so that no page of another site reads guests' names."""

    # Starlette runs functions that are not `async` on threads of their own.
    def admit(request: Request) -> Response:
        like = request.query_params.get("like")
        if not like:
            return _error("name a guest that has a sketch: /admit?like=NAME", 400)
        try:
            return JSONResponse(state.admit(like))
        except NotReadyError as error:
            return _error(str(error), 503)
        except BadRulesError as error:
            return _error(str(error), 404)

    def metrics(_: Request) -> Response:
        try:
            return PlainTextResponse(state.metrics(), media_type="text/plain; version=0.0.4")
        except NotReadyError as error:
            return _error(str(error), 503)

    def plan(_: Request) -> Response:
        found = state.newest_plan()
        return _error("no plan has been made yet", 404) if found is None else JSONResponse(plan_json(found))

    routes = [Route("/admit", admit), Route("/metrics", metrics), Route("/plan", plan)]
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=list(LOOPBACK)) if not tokens else Middleware(BearerToken, tokens=tokens)
    return Starlette(routes=routes, middleware=[guard])


def _error(text: str, status: int) -> JSONResponse:
    return JSONResponse({"error": text}, status_code=status)
