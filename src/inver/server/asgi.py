"""The application as an ASGI 3 callable, for tests and for other servers.

The limits are the same. What only the owner of a socket can see (slow heads and bodies, too many
connections, broken framing) is the hosting server's to enforce.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, nullcontext
from time import monotonic
from typing import Any
from urllib.parse import quote

from inver.errors import InverError
from inver.protocols.http import Request, Response
from inver.server.application import Application, Pending, log_failure
from inver.server.limits import Inflater, Limits, check_head, inflater, too_large
from inver.server.streaming import dispose
from inver.server.wire import bodiless

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Lifespan = Callable[[], AbstractAsyncContextManager[object]]


class ClientGone(Exception):
    """The client left before its request was complete; there is nobody to answer."""


class Asgi:
    """`lifespan` is entered when the hosting server starts and left when it stops."""

    def __init__(self, application: Application, lifespan: Lifespan = nullcontext) -> None:
        self._application = application
        self._lifespan = lifespan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            try:
                await self._serve(scope, receive, send)
            except ClientGone:
                return
        else:
            raise ValueError(f"ASGI scope {scope['type']!r} is not served")

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        stage = "startup"
        try:
            async with self._lifespan():
                await send({"type": "lifespan.startup.complete"})
                stage = "shutdown"
                await receive()
        except Exception as error:
            await send({"type": f"lifespan.{stage}.failed", "message": type(error).__name__})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        application = self._application
        request = _request(scope, application)
        try:
            check_head(len(request.raw_path) + len(request.query_string), request.headers, application.limits)
            request.body = await _body(request, receive, application.limits)
        except InverError as error:
            await _send(send, request, application.refuse(error, request))
            return
        result = application.dispatch(request)
        response = result if isinstance(result, Response) else await _in_time(result)
        if isinstance(response.body, bytes):
            await _send(send, request, response)
        else:
            await self._stream(send, request, response, response.body)

    async def _stream(
        self, send: Send, request: Request, response: Response, pieces: AsyncIterator[bytes]
    ) -> None:
        try:
            empty = bodiless(request.method, response.status)
            try:
                piece = None if empty else await anext(pieces, None)
            except Exception as error:
                await _send(send, request, self._application.refuse(error, request))
                return
            await send(_start(request, response, None))
            while piece is not None:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = await anext(pieces, None)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except Exception as error:
            log_failure(error, request, "a streamed answer")
            raise
        finally:
            await dispose(pieces, request)


def _request(scope: Scope, application: Application) -> Request:
    # Servers may leave the raw path out; then the decoded one is encoded again.
    raw_path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    client = scope.get("client")
    headers = [(bytes(name).lower(), bytes(value)) for name, value in scope["headers"]]
    request = Request(
        scope["method"],
        raw_path.partition(b"?")[0],
        scope.get("query_string", b""),
        headers,
        client=client[0] if client else "",
    )
    request.request_id = application.identify(request.header(b"x-request-id"))
    return request


async def _body(request: Request, receive: Receive, limits: Limits) -> bytes:
    encodings = [value for name, value in request.headers if name == b"content-encoding"]
    engine: Inflater | None = inflater(b", ".join(encodings), limits)
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = event.get("body", b"")
        size += len(part)
        if size > limits.body:
            raise too_large(limits)
        if part and engine is not None:
            engine.feed(part)
        elif part:
            parts.append(part)
        if not event.get("more_body", False):
            return engine.finish() if engine is not None else b"".join(parts)


async def _in_time(pending: Pending) -> Response:
    timer = asyncio.get_running_loop().call_later(pending.deadline - monotonic(), pending.expire)
    try:
        return await pending
    finally:
        timer.cancel()


async def _send(send: Send, request: Request, response: Response) -> None:
    body = response.body if isinstance(response.body, bytes) else b""
    await send(_start(request, response, body))
    shown = b"" if bodiless(request.method, response.status) else body
    await send({"type": "http.response.body", "body": shown})


def _start(request: Request, response: Response, body: bytes | None) -> MutableMapping[str, Any]:
    headers = [(b"X-Request-Id", request.request_id.encode()), *response.headers]
    if response.status not in (204, 304):
        length = response.length if body is None else len(body)
        if length is not None:
            headers.append((b"Content-Length", b"%d" % length))
        if body != b"" and response.content_type:
            headers.append((b"Content-Type", response.content_type))
    return {"type": "http.response.start", "status": response.status, "headers": headers}
