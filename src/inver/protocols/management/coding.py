"""What the handlers of the management API share: decoding, encoding, paging, preconditions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from inver.errors import Invalid
from inver.protocols.http import Request, Response
from inver.protocols.http import decode as decode_body
from inver.protocols.http import then as then
from inver.services.context import Caller
from inver.services.names import TableRef

_ETAG = re.compile(rb'(?:W/)?"([0-9]{1,18})"')
DEFAULT_PAGE = 100
MAX_PAGE = 1_000
SEPARATOR = "\x1f"

T = TypeVar("T")
encode = msgspec.json.encode


def decode(request: Request, decoder: Callable[[bytes], T]) -> T:
    return decode_body(request.body, decoder)


def caller(request: Request) -> Caller:
    assert request.principal is not None
    keys = [value for name, value in request.headers if name == b"idempotency-key"]
    if not keys:
        return Caller(request.principal, request.request_id)
    if len(keys) > 1:
        raise Invalid("Idempotency-Key is given more than once", field="Idempotency-Key")
    return Caller(request.principal, request.request_id, keys[0].decode("latin-1"))


def ok(body: Any, status: int = 200, etag: int | None = None) -> Response:
    headers = () if etag is None else ((b"ETag", b'"%d"' % etag),)
    return Response(status, encode(body), headers=headers)


def table_name(request: Request) -> TableRef:
    catalog, schema, table = request.args
    return TableRef(name=(catalog, *schema_path(schema), table))


def schema_path(text: str) -> tuple[str, ...]:
    """Names of nested schemas are joined with U+001F, which no name contains."""
    return tuple(text.split(SEPARATOR))


def if_match(request: Request) -> int | None:
    value = request.header(b"if-match")
    if value is None or value == b"*":
        return None
    found = _ETAG.fullmatch(value)
    if found is None:
        raise Invalid("If-Match is not an ETag of this server", field="If-Match")
    return int(found[1])


def whole(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 2**63):
        raise Invalid(f"{field} must be a whole number from 0 to 2^63-1", field=field)
    return int(text)


def page_size(request: Request, name: str = "max_results", most: int = MAX_PAGE) -> int:
    text = request.param(name)
    if text is None:
        return min(DEFAULT_PAGE, most)
    size = whole(text, name)
    if not 1 <= size <= most:
        raise Invalid(f"{name} must be from 1 to {most}", field=name)
    return size


def page_start(request: Request) -> str:
    return request.param("page_token") or ""


def paged(found: list[Any], limit: int) -> tuple[list[Any], str | None]:
    """The page and where the next one starts; one more than asked for was fetched to know."""
    if len(found) <= limit:
        return found, None
    return found[:limit], found[limit - 1].name
