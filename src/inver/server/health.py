"""Probes and metrics: small faces of one path each, open to everybody who reaches the listener.

`/livez` says that the process answers, and touches nothing else. `/readyz` asks every named
check. `/metrics` belongs on the management listener only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from inver.errors import Invalid, InverError, MethodNotAllowed, NotFound, TooLarge, Unavailable
from inver.protocols.http import Request, Response, Route
from inver.server.telemetry import Telemetry

# A check passes by returning and fails by raising.
Check = Callable[[], Awaitable[object]]

_ALIVE = Response(200, b'{"status":"alive"}')
_STATUSES: tuple[tuple[type[InverError], int], ...] = (
    (NotFound, 404),
    (MethodNotAllowed, 405),
    (TooLarge, 413),
    (Invalid, 400),
    (Unavailable, 503),
)
_PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"


class Livez:
    """The process is up and its event loop turns."""

    mounts = ("/livez",)

    def __init__(self) -> None:
        self.routes = (Route("GET", "", lambda request: _ALIVE, public=True),)

    def render(self, error: Exception, request: Request | None) -> Response:
        return _render(error)


class Readyz:
    """Everything that serving a request needs is there."""

    mounts = ("/readyz",)

    def __init__(self, checks: Mapping[str, Check], patience_s: float = 5.0) -> None:
        self.routes = (Route("GET", "", self._answer, public=True),)
        self._checks = dict(checks)
        self._patience_s = patience_s

    def render(self, error: Exception, request: Request | None) -> Response:
        return _render(error)

    async def _answer(self, request: Request) -> Response:
        outcomes = await asyncio.gather(*(self._run(check) for check in self._checks.values()))
        results = dict(zip(self._checks, outcomes, strict=True))
        ready = all(outcome == "ok" for outcome in outcomes)
        body = {"status": "ready" if ready else "not ready", "checks": results}
        return Response(200 if ready else 503, msgspec.json.encode(body))

    async def _run(self, check: Check) -> str:
        """Only the kind of failure is shown: a message may name hosts, paths or users."""
        try:
            await asyncio.wait_for(check(), self._patience_s)
        except Exception as error:
            return type(error).__name__
        return "ok"


class Metrics:
    """Prometheus text of everything that is counted."""

    mounts = ("/metrics",)

    def __init__(self, telemetry: Telemetry) -> None:
        self.routes = (Route("GET", "", self._answer, public=True),)
        self._telemetry = telemetry

    def render(self, error: Exception, request: Request | None) -> Response:
        return _render(error)

    def _answer(self, request: Request) -> Response:
        return Response(200, self._telemetry.render(), _PROMETHEUS)


def _render(error: Exception) -> Response:
    status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
    message = error.message if isinstance(error, InverError) and status != 500 else "internal error"
    return Response(status, msgspec.json.encode({"error": {"code": status, "message": message}}))
