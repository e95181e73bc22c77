"""What the routes of Delta Sharing share: headers, bodies, pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from inver.domain.sharing import ResponseFormat, capabilities, timestamp_parameter
from inver.errors import Invalid
from inver.protocols.http import Request, Response, decode
from inver.protocols.sharing.errors import JSON
from inver.services.sharing.answers import Told, Wanted
from inver.services.sharing.paging import PageAsked, QueryAsked
from inver.services.sharing.profiles import endpoint

NDJSON = b"application/x-ndjson; charset=utf-8"
MAX_RESULTS = 500
MAX_HINTS = 1_000
_STREAM = b"Delta-Sharing-SparkStructuredStreaming/"
T = TypeVar("T")

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class QueryBody(msgspec.Struct, rename="camel"):
    """Clients spell numbers as text, and one key in two ways."""

    predicate_hints: Annotated[list[str], msgspec.Meta(max_length=MAX_HINTS)] | None = None
    json_predicate_hints: str | None = None
    limit_hint: Whole | None = None
    version: Whole | None = None
    timestamp: str | None = None
    starting_version: Whole | None = None
    ending_version: Whole | None = None
    include_historical_metadata: bool = False
    include_historical_protocol: bool = False
    max_files: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    page_token: str | None = None
    include_refresh_token: bool = False
    refresh_token: str | None = None

    def asked(self) -> QueryAsked:
        timestamp = None
        if self.timestamp is not None:
            timestamp = timestamp_parameter({"timestamp": self.timestamp}, "timestamp")
        return QueryAsked(
            predicate_hints=tuple(self.predicate_hints or ()),
            json_predicate_hints=self.json_predicate_hints,
            limit_hint=self.limit_hint,
            version=self.version,
            timestamp=timestamp,
            starting_version=self.starting_version,
            ending_version=self.ending_version,
            historical_protocol=self.include_historical_protocol,
        )

    def page(self) -> PageAsked:
        return PageAsked(
            max_files=self.max_files,
            page_token=self.page_token or None,
            include_refresh_token=self.include_refresh_token,
            refresh_token=self.refresh_token or None,
        )


class CredentialsBody(msgspec.Struct):
    location: str | None = None


_query = msgspec.json.Decoder(QueryBody, strict=False).decode
_credentials = msgspec.json.Decoder(CredentialsBody).decode


def query_body(request: Request) -> QueryBody:
    return _decoded(request, _query)


def credentials_body(request: Request) -> CredentialsBody:
    return _decoded(request, _credentials)


def _decoded(request: Request, decoder: Callable[[bytes], T]) -> T:
    """A body may be left out. The envelope has no place for a field, so the message names it."""
    try:
        return decode(request.body or b"{}", decoder)
    except Invalid as error:
        if error.field in (None, "body"):
            raise
        raise Invalid(f"{error.field}: {error.message}", field=error.field) from None


def params(request: Request, *names: str) -> dict[str, str]:
    """Those query parameters that are given."""
    found = {name: request.param(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def changes_page(request: Request) -> PageAsked:
    text = request.param("maxFiles")
    if text is None:
        return PageAsked(page_token=request.param("pageToken") or None)
    if not (text.isascii() and text.isdigit() and 0 < int(text[:12]) < 2**31):
        raise Invalid("maxFiles must be a number greater than 0", field="maxFiles")
    return PageAsked(max_files=int(text), page_token=request.param("pageToken") or None)


def wanted(request: Request, public_url: str | None) -> Wanted:
    header = request.header(b"delta-sharing-capabilities")
    asked = capabilities(None if header is None else header.decode("latin-1"))
    reached = endpoint(request.header(b"host"), public_url)
    agent = request.header(b"user-agent") or b""
    return Wanted(
        asked=asked, base_url=reached, id_hash=_id_hash(request), streaming=agent.startswith(_STREAM)
    )


def _id_hash(request: Request) -> ResponseFormat | None:
    value = request.header(b"fileidhash")
    if value is None:
        return None
    try:
        return ResponseFormat(value.decode("latin-1").strip().lower())
    except ValueError:
        raise Invalid("fileidhash must be parquet or delta", field="fileidhash") from None


def told(answer: Told, how: Wanted) -> Response:
    """The lines of an answer, under the headers that say how they are to be read."""
    said = "asyncquery=true" if answer.form is None else f"responseformat={answer.form}"
    if answer.form is not None and how.asked.end_stream_action:
        said += ";includeendstreamaction=true"
    headers = [
        (b"Delta-Table-Version", b"%d" % answer.version),
        (b"delta-sharing-capabilities", said.encode()),
    ]
    if how.id_hash is not None:
        headers.append((b"fileidhash", how.id_hash.encode()))
    return Response(200, answer.lines, NDJSON, tuple(headers))


def ok(body: Any) -> Response:
    return Response(200, msgspec.json.encode(body), JSON)


def page_size(request: Request) -> int:
    text = request.param("maxResults")
    if text is None:
        return MAX_RESULTS
    if not (text.isascii() and text.isdigit() and int(text[:12]) <= MAX_RESULTS):
        raise Invalid(f"maxResults must be a number from 0 to {MAX_RESULTS}", field="maxResults")
    return int(text)


def page_start(request: Request, kind: type[T], none: T) -> T:
    token = request.param("pageToken")
    if not token:
        return none
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise Invalid("Error decoding the page token", field="pageToken") from None


def listed(items: Sequence[Any], limit: int, places: Sequence[Any], start: Any) -> Response:
    """A page. One more than asked for was fetched, to know whether there is another.

    There is no token on the last page: clients go on as long as there is one, even an empty one.
    """
    body: dict[str, Any] = {"items": list(items[:limit])}
    if len(items) > limit:
        last = places[limit - 1] if limit else start
        body["nextPageToken"] = base64.urlsafe_b64encode(msgspec.json.encode(last)).decode().rstrip("=")
    return ok(body)
