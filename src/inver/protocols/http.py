"""What every protocol adapter shares: a request, a response, a route, and a face that owns a path prefix.

A handler is a plain function from a request to a response (or to an awaitable of one). It knows
nothing of ASGI, sockets or event loops, so the same handler answers a socket, an ASGI server and
a test.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qs

import msgspec

from inver.errors import Invalid

if TYPE_CHECKING:
    from inver.domain.principals import Principal

JSON = b"application/json"
T = TypeVar("T")

# The escape for NUL, unless its backslash is itself escaped.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
# Where a value is wrong, or the map in which a key is.
_PLACE = re.compile(r" - at `(?:key` in `)?\$\.?([^`]*)`$")


class BadMessage(Invalid):
    """The HTTP message itself is refused, before any handler sees it.

    HTTP has one status for each such reason (408, 414, 415, 431, ...), so it travels with the
    error: a face draws its own envelope, and the server sends it under this status.
    """

    def __init__(self, message: str, *, status: int = 400, field: str | None = None) -> None:
        super().__init__(message, field=field)
        self.status = status


class Request:
    """One decoded request. `args` are the path parameters in template order, each decoded once."""

    __slots__ = (
        "_query",
        "args",
        "body",
        "client",
        "headers",
        "method",
        "principal",
        "query_string",
        "raw_path",
        "request_id",
    )

    def __init__(
        self,
        method: str,
        raw_path: bytes,
        query_string: bytes = b"",
        headers: list[tuple[bytes, bytes]] | None = None,
        body: bytes = b"",
        client: str = "",
        request_id: str = "",
    ) -> None:
        self.method = method
        self.raw_path = raw_path
        self.query_string = query_string
        self.headers = headers if headers is not None else []
        self.body = body
        self.client = client
        self.request_id = request_id
        self.args: tuple[str, ...] = ()
        self.principal: Principal | None = None
        self._query: dict[str, list[str]] | None = None

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header; `name` in lower case."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    @property
    def query(self) -> dict[str, list[str]]:
        if self._query is None:
            try:
                text = self.query_string.decode("ascii")
                self._query = parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=256)
            except (UnicodeDecodeError, ValueError) as error:
                raise Invalid("the query string is not valid", field="query") from error
        return self._query

    def param(self, name: str) -> str | None:
        """One query parameter; given twice is an error, since picking one would be a guess."""
        values = self.query.get(name)
        if values is None:
            return None
        if len(values) > 1:
            raise Invalid(f"query parameter {name!r} is given {len(values)} times", field=name)
        if "\x00" in values[0]:
            raise Invalid(f"query parameter {name!r} contains NUL", field=name)
        return values[0]


class Pieces:
    """A streamed body that is there already: who can, sends its pieces at once and without joining them."""

    __slots__ = ("_rest", "all")

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.all = pieces
        self._rest = iter(pieces)

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._rest:
            return piece
        raise StopAsyncIteration

    def take(self, size: int) -> list[bytes]:
        """The next ones, until they come to so many bytes."""
        taken: list[bytes] = []
        for piece in self._rest if size > 0 else ():
            taken.append(piece)
            size -= len(piece)
            if size <= 0:
                break
        return taken


class Response(msgspec.Struct):
    """`body` is bytes, or an async iterator of bytes that is streamed with back-pressure.

    `length` is what a streamed body comes to, where that is known before.
    """

    status: int
    body: bytes | AsyncIterator[bytes] = b""
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    length: int | None = None


# An awaitable belongs to its one request: the server cancels it when the request's time is over.
# So a future that several requests wait for must be given to each of them behind its own, or as `Later`.
Handler = Callable[[Request], "Response | Awaitable[Response]"]


class Route(msgspec.Struct, frozen=True):
    """`template` is relative to the face's mount, with `{name}` for one segment.

    `public` routes are served without authentication. `timeout` overrides the server's limit on
    request time in seconds, for routes that wait on purpose.
    """

    method: str
    template: str
    handler: Handler
    public: bool = False
    timeout: float | None = None


class Face(Protocol):
    """A protocol's side towards the network: it owns path prefixes and renders every error below them."""

    @property
    def mounts(self) -> Iterable[str]: ...

    @property
    def routes(self) -> Iterable[Route]: ...

    def render(self, error: Exception, request: Request | None) -> Response:
        """The protocol's own envelope for any error, unexpected ones included."""
        ...


def decode(body: bytes, decoder: Callable[[bytes], T]) -> T:
    """A JSON body as its type; what is wrong with it is told with the place where it is."""
    if b"\\u0000" in body and _NUL.search(body) is not None:
        raise Invalid("the body contains NUL, which no text here may contain", field="body")
    try:
        if not body.isascii():
            # What is kept as raw JSON is not looked at by the decoder.
            body.decode()
        return decoder(body)
    except msgspec.ValidationError as error:
        text = str(error)
        place = _PLACE.search(text)
        message = text if place is None else text[: place.start()]
        raise Invalid(message, field=(place and place[1]) or "body") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"the body is not valid JSON: {error}", field="body") from None
    except RecursionError:
        raise Invalid("the JSON body is nested too deeply", field="body") from None


Finish: TypeAlias = Callable[[T], "Response | Awaitable[Response]"]


class Later(Generic[T]):
    """A future and what makes the response of its result: an answer that needs no task of its own.

    The future may belong to others too, so nobody cancels it for one request. Where more must be
    waited for, `finish` gives an awaitable.
    """

    __slots__ = ("finish", "work")

    def __init__(self, work: asyncio.Future[T], finish: Finish[T]) -> None:
        self.work = work
        self.finish = finish

    def __await__(self) -> Generator[Any, None, Response]:
        found = self.finish((yield from self.work))
        return found if isinstance(found, Response) else (yield from found.__await__())


def then(work: Awaitable[T], finish: Finish[T]) -> Awaitable[Response]:
    """`finish` applied to the outcome of `work`."""
    return Later(work, finish) if isinstance(work, asyncio.Future) else _then(work, finish)


async def _then(work: Awaitable[T], finish: Finish[T]) -> Response:
    found = finish(await work)
    return found if isinstance(found, Response) else await found
