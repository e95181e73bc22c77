"""From a request to a response: route, authenticate, check, call, and render what went wrong.

Whatever hosts the application (our own socket protocol, an ASGI server, a test) builds a
`Request` and calls `dispatch`. A handler that answers at once costs no coroutine and no task.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from itertools import count
from time import monotonic, time
from typing import Any

import msgspec

from inver.domain.principals import Principal
from inver.errors import (
    Broken,
    InverError,
    MethodNotAllowed,
    OutcomeUnknown,
    Stale,
    Unauthenticated,
    Unavailable,
)
from inver.protocols.http import BadMessage, Face, Later, Request, Response
from inver.server.limits import DEFAULTS, Limits, check_depth
from inver.server.router import Entry, Router
from inver.server.telemetry import Meter

Authenticate = Callable[[Request], Principal | Awaitable[Principal]]

log = logging.getLogger("inver.server")

# Each one lost means that another request has moved the epoch, so somebody always gets on: with many who
# rename tables at once, it takes as many turns as there are others.
_DECISIONS = 64
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_VISIBLE = re.compile(rb"[\x21-\x7e]{1,128}")
_WORD_BREAK = re.compile(r"[\s=;,]+")
_LAST_RESORT = Response(500, b'{"error":{"message":"internal error","code":500}}')


class Failure(msgspec.Struct, frozen=True):
    """One line of the error ring. It names what failed and never what was sent."""

    at: float
    request_id: str
    method: str
    route: str
    status: int
    error: str


class Application:
    """Routes, limits and the authentication hook of one listener, with its counters."""

    def __init__(
        self,
        router: Router,
        authenticate: Authenticate,
        limits: Limits = DEFAULTS,
        remembered_failures: int = 256,
    ) -> None:
        self.router = router
        self.limits = limits
        self.in_flight = 0
        self.failures: deque[Failure] = deque(maxlen=remembered_failures)
        self._authenticate = authenticate
        self._resolve = router.resolve
        self._meters = [Meter(entry.method, entry.template) for entry in router.entries]
        self._unrouted: dict[tuple[str, str], Meter] = {}
        self._prefix = secrets.token_hex(4) + "-"
        self._serial = count()

    def dispatch(self, request: Request) -> Response | Pending:
        """The answer, or where the handler must be waited for, something that will have it."""
        started = monotonic()
        try:
            entry, request.args = self._resolve(request.method, request.raw_path)
        except InverError as error:
            return self.refuse(error, request)
        try:
            if not entry.public:
                principal = self._authenticate(request)
                if not isinstance(principal, Principal):
                    return Pending(self, entry, request, started, self._after(principal, entry, request))
                request.principal = principal
            response = self._call(entry, request)
            if not isinstance(response, Response):
                return Pending(self, entry, request, started, response)
        except Stale:
            return Pending(self, entry, request, started, self.decide_again(entry, request))
        except Exception as error:
            response = self._render(error, request, entry.face, entry.template)
        self._meters[entry.index].record(response.status, monotonic() - started)
        return response

    def refuse(self, error: Exception, request: Request) -> Response:
        """An answer to what never reached a route, or failed after its handler was done with it."""
        owner = self.router.owner(request.raw_path)
        template = f"{owner.mount}/*"
        response = self._render(error, request, owner.face, template)
        method = request.method if request.method in _METHODS else "OTHER"
        key = (method, template)
        meter = self._unrouted.get(key)
        if meter is None:
            meter = self._unrouted[key] = Meter(*key)
        meter.record(response.status, 0.0)
        return response

    def identify(self, given: bytes | None) -> str:
        """The client's request id if it is one, else a new one."""
        if given is not None and _VISIBLE.fullmatch(given):
            return given.decode()
        return f"{self._prefix}{next(self._serial)}"

    def meters(self) -> Iterator[Meter]:
        yield from self._meters
        yield from self._unrouted.values()

    async def decide_again(self, entry: Entry, request: Request) -> Response:
        """Grants or credentials changed under a request: nothing of it was done, so it starts over."""
        for _ in range(_DECISIONS):
            try:
                if not entry.public:
                    principal = self._authenticate(request)
                    request.principal = principal if isinstance(principal, Principal) else await principal
                result = self._call(entry, request)
                return result if isinstance(result, Response) else await result
            except Stale:
                continue
        raise Unavailable("grants are changing too fast; send the request again")

    async def _after(self, identity: Awaitable[Principal], entry: Entry, request: Request) -> Response:
        request.principal = await identity
        result = self._call(entry, request)
        return result if isinstance(result, Response) else await result

    def _call(self, entry: Entry, request: Request) -> Response | Awaitable[Response]:
        if request.body:
            check_depth(request.body, self.limits.depth)
        return entry.handler(request)

    def _settle(self, entry: Entry, started: float, response: Response) -> None:
        self.in_flight -= 1
        self._meters[entry.index].record(response.status, monotonic() - started)

    def _render(self, error: Exception, request: Request, face: Face, route: str) -> Response:
        if not isinstance(error, InverError) or isinstance(error, Broken):
            log_failure(error, request, route)
        try:
            response = face.render(error, request)
        except Exception as defect:
            log_failure(defect, request, route)
            response = _LAST_RESORT
        response = _with_http_duties(response, error)
        self.failures.append(
            Failure(
                at=time(),
                request_id=request.request_id,
                method=request.method,
                route=route,
                status=response.status,
                error=type(error).__name__,
            )
        )
        return response


class Pending:
    """A request whose handler is still at work."""

    __slots__ = (
        "_application",
        "_entry",
        "_finish",
        "_reply",
        "_response",
        "_started",
        "_work",
        "deadline",
        "request",
    )

    def __init__(
        self,
        application: Application,
        entry: Entry,
        request: Request,
        started: float,
        work: Awaitable[Response],
    ) -> None:
        limit = entry.route.timeout
        self.request = request
        self.deadline = started + (application.limits.request_time if limit is None else limit)
        self._application = application
        self._entry = entry
        self._started = started
        self._response: Response | None = None
        self._reply: Callable[[Response], None] | None = None
        self._work: asyncio.Future[Any]
        self._finish: Callable[[Any], Response | Awaitable[Response]] | None = None
        if isinstance(work, Later):
            self._work, self._finish = work.work, work.finish
        else:
            self._work = work if isinstance(work, asyncio.Future) else asyncio.ensure_future(work)
        application.in_flight += 1
        self._work.add_done_callback(self._finished)

    def on_done(self, reply: Callable[[Response], None]) -> None:
        """Call `reply` once, with the answer."""
        if self._response is not None:
            reply(self._response)
        else:
            self._reply = reply

    def expire(self) -> None:
        """Stop waiting: cancel the work, and answer that its time is over."""
        if self._response is None:
            self._settle_with(_overdue(self.request))
            if self._finish is None:
                self._work.cancel()

    def __await__(self) -> Generator[Any, None, Response]:
        waiter: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def wake(response: Response) -> None:
            if not waiter.done():
                waiter.set_result(response)

        self.on_done(wake)
        return waiter.__await__()

    def _finished(self, work: asyncio.Future[Any]) -> None:
        if work.cancelled():
            outcome: Any = _overdue(self.request)
        else:
            # Not raised: a traceback would tie the error to this frame, and both to the garbage collector.
            outcome = work.exception() or work.result()
        if self._response is not None:
            return
        if self._finish is not None and not isinstance(outcome, BaseException):
            try:
                outcome = self._finish(outcome)
            except Exception as error:
                outcome = error.with_traceback(None)
        if isinstance(outcome, Stale):
            self._go_on(self._application.decide_again(self._entry, self.request))
        elif isinstance(outcome, Response | Exception):
            self._settle_with(outcome)
        else:
            self._go_on(outcome)

    def _go_on(self, work: Awaitable[Response]) -> None:
        """What is waited for now belongs to this request alone."""
        self._finish = None
        self._work = asyncio.ensure_future(work)
        self._work.add_done_callback(self._finished)

    def _settle_with(self, outcome: Response | Exception) -> None:
        application, entry = self._application, self._entry
        if isinstance(outcome, Exception):
            outcome = application._render(outcome, self.request, entry.face, entry.template)
        self._response = outcome
        application._settle(entry, self._started, outcome)
        if self._reply is not None:
            self._reply(outcome)


def log_failure(error: Exception, request: Request, route: str) -> None:
    """An unexpected failure, for the operator. Nothing that came in a header may reach the log."""
    text = "".join(traceback.format_exception(error))
    for _, value in request.headers:
        whole = value.decode("latin-1")
        for secret in (whole, *_WORD_BREAK.split(whole)):
            if len(secret) >= 8:
                text = text.replace(secret, "[redacted]")
    log.error("request %s to %s failed: %s", request.request_id, route, text)


def _overdue(request: Request) -> InverError:
    if request.method in ("GET", "HEAD"):
        return Unavailable("the request took longer than its time limit")
    return OutcomeUnknown("the request took longer than its time limit; it may or may not have been applied")


def _with_http_duties(response: Response, error: Exception) -> Response:
    """The status and headers that HTTP itself asks for, whatever the protocol's envelope looks like."""
    if isinstance(error, BadMessage) and response.status != error.status:
        response = msgspec.structs.replace(response, status=error.status)
    if isinstance(error, Unauthenticated):
        return _with_header(response, b"WWW-Authenticate", "Bearer")
    if isinstance(error, MethodNotAllowed):
        return _with_header(response, b"Allow", ", ".join(error.allowed))
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        return _with_header(response, b"Retry-After", str(retry_after))
    return response


def _with_header(response: Response, name: bytes, value: str) -> Response:
    if any(known.lower() == name.lower() for known, _ in response.headers):
        return response
    return msgspec.structs.replace(response, headers=(*response.headers, (name, value.encode())))
