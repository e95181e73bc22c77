"""What one client may ask of the server, and the checks that hold it to that."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import msgspec

from inver.errors import Invalid, TooLarge
from inver.protocols.http import BadMessage

_JSON_START = re.compile(rb"[ \t\n\r]*[\[{]")
# The closing quote is optional and every repeat possessive: an unterminated string is consumed in
# one match, so that no input makes the search start over at each quote.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SMALL = 4_096
_WINDOW_BITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes are in bytes, times in seconds. `body` counts the bytes after decompression.

    `pipelined` requests wait on one connection before it is no longer read; what one read has
    already brought in is still served.
    """

    body: int = 32 * 2**20
    head: int = 64 * 2**10
    headers: int = 100
    url: int = 16 * 2**10
    depth: int = 64
    request_time: float = 30.0
    head_time: float = 10.0
    idle_time: float = 30.0
    keep_alive: float = 75.0
    pipelined: int = 16
    connections: int = 10_000


DEFAULTS = Limits()


def check_head(url_size: int, headers: Sequence[tuple[bytes, bytes]], limits: Limits) -> None:
    if url_size > limits.url:
        raise BadMessage(f"the URL is longer than {limits.url} bytes", status=414, field="url")
    if len(headers) > limits.headers:
        raise BadMessage(f"the request has more than {limits.headers} headers", status=431)
    # Four bytes a line are the colon, the space and the line end.
    if url_size + sum(len(name) + len(value) + 4 for name, value in headers) > limits.head:
        raise BadMessage(f"the request's headers are larger than {limits.head} bytes", status=431)


def too_large(limits: Limits) -> TooLarge:
    return TooLarge(f"the request body is larger than {limits.body} bytes", field="body")


class Inflater:
    """A compressed request body on its way in; it never holds more than the limit."""

    __slots__ = ("_engine", "_left", "_limits", "_parts")

    def __init__(self, window_bits: int, limits: Limits) -> None:
        self._engine = zlib.decompressobj(window_bits)
        self._limits = limits
        self._left = limits.body
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> None:
        # A second gzip member is refused: many tiny members would cost far more than their size.
        if self._engine.eof:
            raise Invalid("the compressed body goes on after its end", field="body")
        try:
            part = self._engine.decompress(data, self._left + 1)
        except zlib.error as error:
            raise Invalid("the compressed body is damaged", field="body") from error
        if len(part) > self._left:
            raise too_large(self._limits)
        if self._engine.unused_data:
            raise Invalid("the compressed body goes on after its end", field="body")
        self._left -= len(part)
        self._parts.append(part)

    def finish(self) -> bytes:
        if self._parts and not self._engine.eof:
            raise Invalid("the compressed body ends too early", field="body")
        return b"".join(self._parts)


def inflater(encoding: bytes, limits: Limits) -> Inflater | None:
    """For the value of `Content-Encoding`; None where the body comes as it is."""
    name = encoding.strip().lower()
    if name in (b"", b"identity"):
        return None
    window_bits = _WINDOW_BITS.get(name)
    if window_bits is None:
        shown = encoding[:64].decode("latin-1")
        raise BadMessage(
            f"content encoding {shown!r} is not understood; gzip and deflate are",
            status=415,
            field="content-encoding",
        )
    return Inflater(window_bits, limits)


def check_depth(body: bytes, limit: int) -> None:
    """Refuse JSON that is nested deeper than `limit`; a body that is no JSON array or object passes.

    No recursion and no Python loop over the bytes. The common body has fewer brackets than the
    limit and is done after counting them.
    """
    if len(body) <= _SMALL:
        # Faster than to count them, and of more than matter it makes no pieces.
        opening = len(body.split(b"{", limit + 1)) + len(body.split(b"[", limit + 1)) - 2
    else:
        opening = body.count(b"{") + body.count(b"[")
    if opening <= limit or _JSON_START.match(body) is None:
        return
    rest = _STRING.sub(b"", body).translate(_BRACKETS, _NO_BRACKETS)
    layers = 0
    while rest and layers < limit:
        peeled = rest.replace(b"[]", b"")
        if len(peeled) == len(rest):
            break
        rest = peeled
        layers += 1
    # What cannot be peeled is unbalanced: not JSON, and at most this deep before a parser sees that.
    if layers + rest.count(b"[") > limit:
        raise Invalid(f"the JSON body is nested deeper than {limit} levels", field="body")
