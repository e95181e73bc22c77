"""Where an answer goes on: page tokens, refresh tokens and ids of queries.

Each belongs to one recipient and one table of a share, names the version that it was made for, and ends.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from inver.clock import Clock
from inver.errors import Invalid
from inver.services.sharing.sealed import Seal
from inver.services.sharing.tables import Looked

PAGE_MS = 3 * 24 * 3600 * 1000
REFRESH_MS = 3600 * 1000


class QueryAsked(msgspec.Struct, frozen=True, kw_only=True):
    """What a query asks for, apart from the page."""

    predicate_hints: tuple[str, ...] = ()
    json_predicate_hints: str | None = None
    limit_hint: int | None = None
    version: int | None = None
    timestamp: int | None = None
    starting_version: int | None = None
    ending_version: int | None = None
    historical_protocol: bool = False


class PageAsked(msgspec.Struct, frozen=True, kw_only=True):
    max_files: int | None = None
    page_token: str | None = None
    include_refresh_token: bool = False
    refresh_token: str | None = None


class Page(msgspec.Struct, frozen=True, array_like=True):
    """Where a page starts. `place` and `file` say where in the version or the range, `asked` by whom it
    may be asked for: all pages of a query ask alike. `noted` is what the plan of a range need not find
    out again."""

    subject: str
    recipient: str
    expires: int
    asked: str
    version: int
    base: int
    end: int
    place: int
    file: int
    noted: str = ""


class Refresh(msgspec.Struct, frozen=True, array_like=True):
    subject: str
    recipient: str
    expires: int
    version: int
    base: int


class Pending(msgspec.Struct, frozen=True, array_like=True):
    subject: str
    recipient: str
    expires: int
    version: int
    query: QueryAsked


class Paging:
    def __init__(self, clock: Clock, seal: Seal) -> None:
        self._clock = clock
        self._seal = seal

    async def page(self, looked: Looked, page: PageAsked, asked: str) -> Page | None:
        if page.page_token is None:
            return None
        if page.max_files is None:
            raise Invalid("maxFiles must be given with pageToken", field="maxFiles")
        message = "Error decoding the page token"
        begin = await self._seal.open("page", page.page_token, Page, message, "pageToken")
        self._require_own(looked, begin, "page token", "pageToken")
        if begin.asked != asked:
            raise Invalid("Query parameter mismatch detected for the next page query", field="pageToken")
        return begin

    async def next_page(
        self,
        looked: Looked,
        asked: str,
        *,
        version: int,
        base: int = 0,
        end: int = 0,
        place: int = 0,
        file: int = 0,
        noted: str = "",
    ) -> str:
        expires = self._clock.now_ms() + PAGE_MS
        recipient = looked.guest.recipient.id
        begin = Page(_subject(looked), recipient, expires, asked, version, base, end, place, file, noted)
        return await self._seal.seal("page", begin)

    async def refreshed(self, looked: Looked, page: PageAsked) -> Refresh | None:
        if page.refresh_token is None:
            return None
        message = "Error decoding the refresh token"
        found = await self._seal.open("refresh", page.refresh_token, Refresh, message, "refreshToken")
        self._require_own(looked, found, "refresh token", "refreshToken")
        return found

    async def refresh(self, looked: Looked, version: int, base: int) -> str:
        expires = self._clock.now_ms() + REFRESH_MS
        return await self._seal.seal(
            "refresh", Refresh(_subject(looked), looked.guest.recipient.id, expires, version, base)
        )

    async def pending(self, looked: Looked, query_id: str) -> Pending:
        message = "Error decoding the query id"
        found = await self._seal.open("query", query_id, Pending, message, "queryId")
        self._require_own(looked, found, "query id", "queryId")
        return found

    async def query_id(self, looked: Looked, version: int, query: QueryAsked) -> str:
        expires = self._clock.now_ms() + REFRESH_MS
        return await self._seal.seal(
            "query", Pending(_subject(looked), looked.guest.recipient.id, expires, version, query)
        )

    def _require_own(self, looked: Looked, token: Page | Refresh | Pending, what: str, field: str) -> None:
        if token.subject != _subject(looked) or token.recipient != looked.guest.recipient.id:
            raise Invalid(
                f"The table specified in the {what} does not match the table of the request", field=field
            )
        if token.expires <= self._clock.now_ms():
            raise Invalid(f"The {what} has expired", field=field)


def _subject(looked: Looked) -> str:
    """The table, and what of it is shared: what was seen on other terms is not shown on these."""
    return digest(looked.id, looked.terms)


def digest(*asked: Any) -> str:
    """What every page of a query must ask alike."""
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:32]
