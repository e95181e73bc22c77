"""One HTTP/1.1 connection on a socket.

Requests of a connection are served one at a time, in order. There is no timer per request: a
sweeper looks at every connection now and then and enforces all limits on time. A client that
goes away stops a stream, and nothing else: what a handler has begun it may finish.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from time import monotonic
from typing import cast

import msgspec

from inver.errors import InverError, Overloaded
from inver.protocols.http import BadMessage, Pieces, Request, Response
from inver.server.application import Application, Pending, log_failure
from inver.server.forwarded import Proxies
from inver.server.reader import BODY, HEAD, IDLE, Heads, Reader
from inver.server.streaming import Valve, dispose, pour
from inver.server.wire import CLOSE, CONTINUE, KEEP_ALIVE, bodiless, encode, encode_head

# How long a client may take to read the last answer. Closing at once, with input unread, would
# reset the connection and often take the answer with it.
LINGER = 2.0
# More than this is sent no faster than its client takes it.
AT_ONCE = 1024 * 1024


class Hub:
    """What the connections of one listener share."""

    __slots__ = ("application", "connections", "date", "draining", "heads", "proxies")

    def __init__(self, application: Application, proxies: Proxies) -> None:
        self.application = application
        self.proxies = proxies
        self.connections: set[Connection] = set()
        self.heads = Heads()
        self.date = b""
        self.draining = False


class Connection(asyncio.Protocol):
    """Socket events on one side, the application on the other."""

    _transport: asyncio.Transport
    _reader: Reader

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._dispatch = hub.application.dispatch
        self._limits = hub.application.limits
        self._valve = Valve()
        self._pending: Pending | None = None
        self._stream: asyncio.Task[None] | None = None
        self._moved = monotonic()
        self._keep = True
        self._legacy = False
        self._refused = False
        self._paused = False
        self._lingering = False
        self._lost = False

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        plain = transport.get_extra_info("socket")
        if plain is not None and plain.family in (socket.AF_INET, socket.AF_INET6):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peername = transport.get_extra_info("peername")
        peer = str(peername[0]) if isinstance(peername, tuple) else ""
        hub = self._hub
        proxies = hub.proxies if hub.proxies.trusts(peer) else None
        self._reader = Reader(self._limits, hub.application.identify, peer, proxies, hub.heads)
        others = len(hub.connections)
        hub.connections.add(self)
        if hub.draining:
            self._transport.close()
        elif others >= 2 * self._limits.connections:
            self._transport.abort()  # even refusing politely has its limit
        elif others >= self._limits.connections:
            self._refuse(Overloaded("the server has too many connections"))

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader.closed:
            return  # nobody's request; it must not keep the connection from ending either
        now = self._moved = monotonic()
        reader.feed(data, now)
        if reader.messages:
            self._serve()
        if reader.expects:
            self._permit_body()

    def eof_received(self) -> bool:
        """A client that has ended only its own side still gets the answers it asked for."""
        self._reader.closed = True
        return self._busy()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._reader.closed = True
        self._reader.messages.clear()
        if self._stream is not None:
            self._stream.cancel()
        if self._pending is None:
            self._hub.connections.discard(self)

    def pause_writing(self) -> None:
        self._valve.shut()

    def resume_writing(self) -> None:
        self._valve.release()
        self._moved = monotonic()
        self._serve()

    # What the listener calls.

    def sweep(self, now: float) -> None:
        """Enforce the limits on time."""
        limits, reader, transport = self._limits, self._reader, self._transport
        waited = now - self._moved
        if self._pending is not None:
            if now >= self._pending.deadline:
                self._pending.expire()
        elif self._stream is not None:
            if now - self._valve.moved > limits.idle_time:
                transport.abort()
        elif self._lingering or transport.is_closing() or not self._valve.open:
            if waited > (LINGER if self._valve.open else limits.idle_time):
                transport.abort()
        elif reader.phase == HEAD:
            if now - reader.begun > limits.head_time:
                self._refuse(BadMessage("the request's headers came too slowly", status=408))
        elif reader.phase == BODY:
            if waited > limits.idle_time:
                self._refuse(BadMessage("the request body came too slowly", status=408))
        elif waited > limits.keep_alive:
            transport.close()

    def drain(self) -> None:
        """The listener is stopping: leave now, or with the next answer."""
        if self._reader.phase == IDLE and not self._busy():
            self._transport.close()

    def give_up(self) -> None:
        """The listener waits no longer: answer what can be answered, and end."""
        if self._pending is not None:
            self._pending.expire()
        if self._stream is None and self._valve.open:
            self._transport.close()
        else:
            self._transport.abort()

    def cut(self) -> None:
        self._transport.abort()

    # Serving.

    def _busy(self) -> bool:
        return self._pending is not None or self._stream is not None or bool(self._reader.messages)

    def _serve(self) -> None:
        messages = self._reader.messages
        turns = self._limits.pipelined
        while messages and self._pending is None and self._stream is None and self._valve.open:
            if turns == 0:
                # A client with many requests in one packet takes turns with all the others.
                asyncio.get_running_loop().call_soon(self._serve)
                break
            turns -= 1
            request, self._keep, self._legacy, refusal = messages.popleft()
            if refusal is None:
                result = self._dispatch(request)
            else:
                self._refused = True
                result = self._hub.application.refuse(refusal, request)
            if isinstance(result, Response):
                self._answer(request, result)
            else:
                self._pending = result
                result.on_done(self._done)
        if messages or self._paused:
            self._pause(len(messages) >= self._limits.pipelined)

    def _done(self, response: Response) -> None:
        assert self._pending is not None
        request = self._pending.request
        self._pending = None
        if self._lost:
            self._hub.connections.discard(self)
        self._answer(request, response)
        self._next()

    def _next(self) -> None:
        # Time that went by while we were busy is not the client's slowness.
        self._moved = self._reader.begun = monotonic()
        if self._reader.messages:
            self._serve()
        if self._reader.expects:
            self._permit_body()

    def _answer(self, request: Request, response: Response) -> None:
        body = response.body
        if isinstance(body, Pieces) and self._send(request, response, body.all):
            return
        if not isinstance(body, bytes):
            self._valve.moved = monotonic()
            self._stream = asyncio.get_running_loop().create_task(self._pour(request, response, body))
        elif not self._lost:
            head_only = request.method == "HEAD"
            date, request_id = self._hub.date, request.request_id
            line = self._connection_line() if not self._keep or self._legacy or self._hub.draining else b""
            try:
                head, rest = encode(response, body, head_only, date, request_id, line)
            except ValueError as error:
                response = msgspec.structs.replace(self._hub.application.refuse(error, request), headers=())
                body = response.body if isinstance(response.body, bytes) else b""
                head, rest = encode(response, body, head_only, date, request_id, line)
            if rest:
                self._transport.writelines((head, rest))
            else:
                self._transport.write(head)
            if line or self._reader.closed:
                self._answered()

    def _send(self, request: Request, response: Response, pieces: Sequence[bytes]) -> bool:
        """The whole of a body that is there already; False where it needs the care of a stream."""
        if self._lost or not 0 < (response.length or 0) <= AT_ONCE:
            return False
        if bodiless(request.method, response.status):
            return False
        line = self._connection_line()
        try:
            head = encode_head(response, False, self._hub.date, request.request_id, line)
        except ValueError:
            return False
        self._transport.writelines((head, *pieces))
        if line or self._reader.closed:
            self._answered()
        return True

    async def _pour(self, request: Request, response: Response, pieces: AsyncIterator[bytes]) -> None:
        try:
            if self._lost:
                return
            try:
                empty = bodiless(request.method, response.status)
                first = None if empty else await anext(pieces, b"")
                chunked = not self._legacy and response.length is None
                self._keep = self._keep and (chunked or response.length is not None)
                line = self._connection_line()
                framed = chunked and response.status not in (204, 304)
                head = encode_head(response, framed, self._hub.date, request.request_id, line)
            except Exception as error:  # nothing is sent yet, so the face can still say it properly
                self._answer(request, self._hub.application.refuse(error, request))
            else:
                self._transport.write(head)
                await pour(first, pieces, self._transport, self._valve, chunked and not empty)
                self._answered()
        except Exception as error:
            # A body that breaks off unfinished is the only way left to say that it is not whole.
            log_failure(error, request, "a streamed answer")
            self._transport.abort()
        finally:
            self._stream = None
            await dispose(pieces, request)
        self._next()

    def _connection_line(self) -> bytes:
        if not self._keep or self._hub.draining:
            return CLOSE
        return KEEP_ALIVE if self._legacy else b""

    def _answered(self) -> None:
        """An answer is written: go on, or end the connection."""
        if self._refused or self._hub.draining:
            self._linger()
        elif not self._keep or (self._reader.closed and not self._reader.messages):
            self._transport.close()

    def _linger(self) -> None:
        self._lingering = True
        self._moved = monotonic()
        self._reader.closed = True
        self._reader.messages.clear()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _refuse(self, error: InverError) -> None:
        self._reader.refuse(error)
        self._serve()

    def _permit_body(self) -> None:
        """`100 Continue`, once the answers to earlier requests are out."""
        if not self._busy():
            self._reader.expects = False
            self._transport.write(CONTINUE)

    def _pause(self, pause: bool) -> None:
        if pause is self._paused or self._transport.is_closing():
            return
        self._paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
