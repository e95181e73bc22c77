"""What the handlers of the Iceberg face share: who asks, names, pages, answers."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from inver.errors import Invalid
from inver.protocols.http import Pieces, Request, Response
from inver.protocols.http import decode as decode_body
from inver.services.context import Caller
from inver.services.iceberg.naming import Identifier

SEPARATOR = "\x1f"
PAGE = 1_000
EVERYTHING = 2**63
LARGE = 1024 * 1024
"""More than this takes a while to send, in which its pieces are looked at one by one."""
WHOLE = 16 * 1024
"""Smaller pieces are put together; for larger ones that costs more than sending each."""

NAMESPACES = "/v1/{prefix}/namespaces"
NAMESPACE = NAMESPACES + "/{namespace}"
TABLES = NAMESPACE + "/tables"
TABLE = TABLES + "/{table}"
VIEWS = NAMESPACE + "/views"
VIEW = VIEWS + "/{view}"

CARE = b"inver-care"
"""A header with the run of care that a commit belongs to: such a commit gives way to writers."""

DONE = Response(204)

T = TypeVar("T")
encode = msgspec.json.encode


def caller(request: Request) -> Caller:
    assert request.principal is not None
    keys = [value for name, value in request.headers if name == b"idempotency-key"]
    if not keys:
        return Caller(request.principal, request.request_id)
    if len(keys) > 1:
        raise Invalid("Idempotency-Key is given more than once", field="Idempotency-Key")
    return Caller(request.principal, request.request_id, keys[0].decode("latin-1"))


def care_of(request: Request) -> str | None:
    given = request.header(CARE)
    if given is None:
        return None
    run = given.decode("latin-1")
    if not (run.isascii() and run.isprintable() and 0 < len(run) <= 200):
        raise Invalid("the header names a run of care", field="Inver-Care")
    return run


def decode(request: Request, decoder: Callable[[bytes], T]) -> T:
    return decode_body(request.body, decoder)


def namespace(request: Request) -> tuple[str, tuple[str, ...]]:
    """The catalog that the prefix names, and the namespace in it."""
    return request.args[0], path_of(request.args[1])


def path_of(text: str) -> tuple[str, ...]:
    """No name contains the separator, so a decoded segment can be split."""
    return tuple(text.split(SEPARATOR))


def identifier(request: Request) -> Identifier:
    catalog, path = namespace(request)
    return Identifier(catalog, path, request.args[2])


def flag(request: Request, name: str) -> bool:
    value = (request.param(name) or "false").lower()
    if value not in ("true", "false"):
        raise Invalid(f"{name} must be true or false", field=name)
    return value == "true"


async def page(
    fetch: Callable[[str, int], Awaitable[tuple[list[T], str | None]]], request: Request
) -> tuple[list[T], str | None]:
    """A page and the token of the next one; everything for who does not ask for pages."""
    token, size = request.param("pageToken"), request.param("pageSize")
    limit = EVERYTHING
    if size is not None:
        if not (size.isascii() and size.isdigit() and len(size) < 20 and int(size)):
            raise Invalid("pageSize must be a positive whole number", field="pageSize")
        limit = min(int(size), EVERYTHING)
    elif token is not None:
        limit = PAGE
    found, after = await fetch(_name_of(token) if token else "", limit)
    return found, None if after is None else urlsafe_b64encode(after.encode()).decode().rstrip("=")


def _name_of(token: str) -> str:
    """A token is the last name of the page before; names may come and go between two pages."""
    try:
        name = b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True).decode()
    except ValueError:
        name = ""
    if not name or "\x00" in name:
        raise Invalid("pageToken is not one that this server gave", field="pageToken")
    return name


def ok(body: Any, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    return Response(200, encode(body), headers=headers)


def pieces(parts: Sequence[bytes], headers: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    """A body that comes in pieces, which only a small one is copied together from.

    For a larger copy memory would have to be fetched from the system with each answer.
    """
    size = sum(map(len, parts))
    if size < WHOLE:
        return Response(200, b"".join(parts), headers=headers)
    return Response(200, Pieces(parts if size <= LARGE else _joined(parts)), headers=headers, length=size)


def _joined(parts: Sequence[bytes]) -> list[bytes]:
    """Small pieces put together, and the others as they are."""
    out: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        if len(part) >= WHOLE and waiting:
            out.append(b"".join(waiting))
            waiting, size = [], 0
        waiting.append(part)
        size += len(part)
        if size >= WHOLE:
            out.append(part if len(waiting) == 1 else b"".join(waiting))
            waiting, size = [], 0
    out.append(b"".join(waiting))
    return out
