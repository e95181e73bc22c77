"""What the handlers of Lance share: who asks, ids in any delimiter, bodies that may be missing, pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from inver.domain.lance import check_branch
from inver.errors import Invalid
from inver.protocols.http import Request, Response
from inver.protocols.http import decode as decode_body
from inver.services.context import Caller
from inver.services.lance.types import TableId

DELIMITER = "$"
PAGE = 1_000
MAX_DELIMITER = 16

encode = msgspec.json.encode
EMPTY = Response(200, b"{}")
DATABASE = b"x-lancedb-database"
DEFAULT_NAMESPACE = "default"
# By this LanceDB's own client knows what it may ask for: several vectors, and queries for words as trees.
CAPABLE = ((b"phalanx-version", b"0.3.0"),)


class HasId(Protocol):
    @property
    def id(self) -> tuple[str, ...] | None: ...


T = TypeVar("T")
B = TypeVar("B", bound=HasId)


def caller(request: Request) -> Caller:
    assert request.principal is not None
    return Caller(request.principal, request.request_id)


def ok(body: Any) -> Response:
    return Response(200, encode(body))


def opened(request: Request, answer: Response) -> Response:
    """The answer by which a client comes to know a table."""
    if not request.header(DATABASE):
        return answer
    return msgspec.structs.replace(answer, headers=(*answer.headers, *CAPABLE))


def told(**fields: Any) -> Response:
    """An answer without what is not known."""
    return ok({name: value for name, value in fields.items() if value is not None})


def delimiter(request: Request) -> str:
    given = request.param("delimiter")
    if given is None:
        return DELIMITER
    if not given or len(given) > MAX_DELIMITER:
        raise Invalid("delimiter must be a short text", field="delimiter")
    return given


def split_id(request: Request, text: str) -> tuple[str, ...]:
    """The names in an id; the delimiter alone is the root."""
    between = delimiter(request)
    if text == between:
        return ()
    parts = tuple(text.split(between))
    if not all(parts):
        raise Invalid(f"{text[:200]!r} has an empty name between {between!r}", field="id")
    return parts


def path_id(request: Request) -> tuple[str, ...]:
    return split_id(request, request.args[0]) if request.args else ()


def absolute(request: Request, given: tuple[str, ...]) -> TableId:
    """LanceDB's own client names a database in a header, and all its ids are relative to that."""
    database = request.header(DATABASE)
    if not database:
        return given
    parts = tuple(part for part in database.decode("latin-1").replace("/", ".").split(".") if part)
    return (*parts, DEFAULT_NAMESPACE, *given) if len(parts) == 1 else (*parts, *given)


def decode(request: Request, decoder: Callable[[bytes], T]) -> T:
    """The body; none at all and `null` are as good as an empty one."""
    body = request.body.strip()
    return decode_body(b"{}" if body in (b"", b"null") else body, decoder)


def table_body(request: Request, decoder: Callable[[bytes], B]) -> tuple[TableId, B]:
    """The id and the body, which may repeat the id and must not contradict it."""
    body = decode(request, decoder)
    given = path_id(request)
    if body.id is not None and tuple(body.id) != given:
        raise Invalid("the id in the body is not the id in the path", field="id")
    return absolute(request, given), body


def table_id(request: Request) -> TableId:
    return absolute(request, path_id(request))


def flag(request: Request, name: str, default: bool | None = None) -> bool | None:
    value = request.param(name)
    if value is None or value == "":
        return default
    if value.lower() not in ("true", "false"):
        raise Invalid(f"{name} must be true or false", field=name)
    return value.lower() == "true"


def number(request: Request, name: str) -> int | None:
    text = request.param(name)
    if text is None or text == "":
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise Invalid(f"{name} must be a whole number", field=name)
    return int(text)


def limit_of(given: int | None) -> int:
    if given is None:
        return PAGE
    if given < 1:
        raise Invalid("limit must be at least 1", field="limit")
    return min(given, PAGE)


def page_of(request: Request) -> tuple[str, int]:
    return request.param("page_token") or "", limit_of(number(request, "limit"))


def branch_of(request: Request, given: str | None = None) -> str:
    return check_branch(given if given is not None else request.param("branch"))


def mode(given: str | None, default: str, *others: str, field: str = "mode") -> str:
    """A mode in any case, with or without underscores, as the word that stands here."""
    if given is None:
        return default
    plain = given.replace("_", "").lower()
    for word in (default, *others):
        if plain == word.lower():
            return word
    raise Invalid(f"{given[:50]!r} is none of {', '.join((default, *others))}", field=field)
