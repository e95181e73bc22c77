"""Responses as HTTP/1.1 bytes. Header names go out exactly as a face wrote them."""

from __future__ import annotations

from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from inver.protocols.http import Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
CLOSE = b"Connection: close\r\n"
KEEP_ALIVE = b"Connection: keep-alive\r\n"

# Above this, a copy of the body costs more than a second buffer in the same write.
_JOIN_BELOW = 64 * 2**10


def bodiless(method: str, status: int) -> bool:
    return method == "HEAD" or status in (204, 304)


def date_line(now: float) -> bytes:
    return b"Date: %b\r\n" % formatdate(now, usegmt=True).encode()


def encode(
    response: Response, body: bytes, head_only: bool, date: bytes, request_id: str, connection: bytes
) -> tuple[bytes, bytes]:
    """The head with a small body behind it, and what is too large to be copied there (or nothing)."""
    status, size = response.status, len(body)
    extra = _lines(response.headers) if response.headers else b""
    if status in (204, 304):
        start, length = _start(status, b""), b""
        head_only = True
    else:
        start = _start(status, response.content_type if size else b"")
        length = b"Content-Length: %d\r\n" % size
    inline, apart = body, b""
    if head_only:
        inline = b""
    elif size > _JOIN_BELOW:
        inline, apart = b"", body
    identity = request_id.encode()
    parts = (start, length, date, b"X-Request-Id: ", identity, b"\r\n", connection, extra, b"\r\n", inline)
    return b"".join(parts), apart


def encode_head(response: Response, chunked: bool, date: bytes, request_id: str, connection: bytes) -> bytes:
    """The head of a body that follows in pieces: so many bytes, chunks, or all until the connection ends."""
    start = _start(response.status, response.content_type)
    framing = b"Transfer-Encoding: chunked\r\n" if chunked else b""
    if response.length is not None:
        framing = b"Content-Length: %d\r\n" % response.length
    identity = b"X-Request-Id: %b\r\n" % request_id.encode()
    return b"".join((start, framing, date, identity, connection, _lines(response.headers), b"\r\n"))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@lru_cache(maxsize=256)
def _start(status: int, content_type: bytes) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    line = b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode())
    return line + _lines(((b"Content-Type", content_type),)) if content_type else line


def _lines(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """A line end inside a name or value would let a stored name write headers of its own."""
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or b"\x00" in lines:
        raise ValueError("a response header contains a line end or NUL")
    return lines
