"""What the handlers of Unity's faces share: who asks, full names, pages, plain answers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from inver.domain.names import check_name
from inver.errors import Invalid
from inver.protocols.http import Request, Response
from inver.protocols.http import decode as decode_body
from inver.services.context import Caller

PAGE = 1_000
MOST = 10_000

T = TypeVar("T")
encode = msgspec.json.encode

NamesOf: TypeAlias = Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]
"""The names of principals by their ids."""

# Clients parse the answer of a change even when there is nothing to say.
EMPTY = Response(200, b"{}")
_is_path = re.compile(r"(?:[A-Za-z][A-Za-z0-9+-]*:)?/").match
NO_STORE = ((b"Cache-Control", b"no-store"), (b"Pragma", b"no-cache"))


def caller(request: Request) -> Caller:
    assert request.principal is not None
    return Caller(request.principal, request.request_id)


def decode(request: Request, decoder: Callable[[bytes], T]) -> T:
    return decode_body(request.body, decoder)


def ok(body: Any) -> Response:
    return Response(200, encode(body))


def secret(body: Any) -> Response:
    """An answer that holds keys, and so is kept by nobody on the way."""
    return Response(200, encode(body), headers=NO_STORE)


def full_name(text: str, parts: int, field: str = "full_name") -> tuple[str, ...]:
    """`catalog.schema.table`: this dialect has no way to write a name with a dot.

    Except for a path, which Spark asks for like a table first: no table has that name, dots or none.
    """
    names = tuple(text.split("."))
    if parts == 3 and len(names) > 3 and _is_path(text.split(".", 2)[2]):
        names = tuple(text.split(".", 2))
    if len(names) != parts or not all(names):
        shape = ".".join(("catalog", "schema", "table")[:parts])
        raise Invalid(f"{text[:300]!r} is not a full name of the form {shape}", field=field)
    return names


def new_name(text: str, field: str = "name") -> str:
    """A name that is to be given: with a dot in it, nobody could call it by its full name."""
    if "." in text:
        raise Invalid(
            f"{field} {text[:300]!r} contains '.', which separates the parts of full names",
            field=field,
            fix="choose a name without it",
        )
    return check_name(text, field)


def required(request: Request, name: str) -> str:
    value = request.param(name)
    if not value:
        raise Invalid(f"the query parameter {name} is required", field=name)
    return value


def flag(request: Request, name: str) -> bool:
    value = (request.param(name) or "false").lower()
    if value not in ("true", "false"):
        raise Invalid(f"{name} must be true or false", field=name)
    return value == "true"


def whole_number(text: str, name: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise Invalid(f"{name} must be a whole number", field=name)
    return int(text)


def page_size(request: Request) -> int:
    """Clients that do not page get all there is, within reason; 0 leaves the size to the server."""
    text = request.param("max_results")
    if text is None:
        return MOST if not request.param("page_token") else PAGE
    size = whole_number(text, "max_results")
    if size < 0:
        raise Invalid("max_results must not be negative", field="max_results")
    return min(size, MOST) or PAGE


async def page(
    fetch: Callable[[str, int], Awaitable[list[T]]], request: Request, name: Callable[[T], str]
) -> tuple[list[T], str | None]:
    """A page and where the next one starts. `fetch` gives at most some after a name, in order."""
    limit = page_size(request)
    after = request.param("page_token") or ""
    found: list[T] = []
    while True:
        wanted = min(limit - len(found), PAGE) + 1
        part = await fetch(after, wanted)
        found += part[: wanted - 1]
        if len(part) < wanted:
            return found, None
        after = name(found[-1])
        if len(found) >= limit:
            return found, after
