"""Versions of shared tables: which files they have, in pages if they are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from inver.domain.predicate_text import hint
from inver.domain.sharing import ResponseFormat, check_query, response_format
from inver.services.sharing.answers import Answers, Told, Wanted, one, whole
from inver.services.sharing.changes import Changes
from inver.services.sharing.logs import Lines, Snapshot
from inver.services.sharing.paging import Page, PageAsked, Paging, QueryAsked, digest
from inver.services.sharing.tables import Looked

ASYNC_WAIT_S = 5.0
MAX_QUERY_ID = 8_000
"""A query whose id would be longer is answered at once."""


class Queries:
    def __init__(self, paging: Paging, answers: Answers, changes: Changes) -> None:
        self._paging = paging
        self._answers = answers
        self._changes = changes
        self._warming: dict[tuple[str, int], asyncio.Future[Any]] = {}

    async def metadata(
        self, looked: Looked, wanted: Wanted, version: int | None, timestamp: int | None
    ) -> Told:
        snapshot = await looked.log.snapshot(await looked.version(version, timestamp))
        form, lines = await self._lines(looked, wanted, snapshot)
        head = await self._head(looked, lines, snapshot)
        return Told(version=snapshot.version, form=form, lines=one(head))

    async def query(self, looked: Looked, wanted: Wanted, query: QueryAsked, page: PageAsked) -> Told:
        check_query(query.version, query.timestamp, query.starting_version)
        if query.starting_version is not None:
            return await self._changes.since(looked, wanted, query, page)
        return await self._told(looked, wanted, query, page)

    async def _told(
        self, looked: Looked, wanted: Wanted, query: QueryAsked, page: PageAsked, decided: int | None = None
    ) -> Told:
        """`decided` is the version, if it is known to be one that was shared when it was asked for."""
        asked = digest(query, sorted(wanted.asked.formats), wanted.id_hash)
        begin = await self._paging.page(looked, page, asked)
        pinned = begin or await self._paging.refreshed(looked, page)
        if pinned is not None:
            snapshot = await looked.log.snapshot(pinned.version, pinned.base)
        else:
            if decided is None:
                decided = await looked.version(query.version, query.timestamp)
            snapshot = await looked.log.snapshot(decided)
        form, lines = await self._lines(looked, wanted, snapshot)
        ends = wanted.asked.end_stream_action or page.max_files is not None or page.include_refresh_token
        pieces = self._pieces(looked, lines, snapshot, query, page, begin, asked if ends else None)
        return Told(version=snapshot.version, form=form, lines=whole(pieces, lines, wanted), ends=ends)

    async def _pieces(
        self,
        looked: Looked,
        lines: Lines,
        snapshot: Snapshot,
        query: QueryAsked,
        page: PageAsked,
        begin: Page | None,
        asked: str | None,
    ) -> AsyncIterator[bytes]:
        admitted = looked.admitted(snapshot.metadata)
        leaving = hint(query.json_predicate_hints, query.predicate_hints, snapshot.metadata)
        before = await self._head(looked, lines, snapshot)
        following: int | None = None
        files = lines.snapshot(
            snapshot,
            leaving,
            admitted,
            # With predicates, rows of the first files may not be what is wanted.
            limit=query.limit_hint if leaving is None else None,
            skip=0 if begin is None else begin.place,
            most=page.max_files,
        )
        async for piece in files:
            data, following = piece
            yield before + data
            before = b""
        if before:
            yield before
        if asked is None:
            return
        refresh = token = None
        if following is not None:
            token = await self._paging.next_page(
                looked, asked, version=snapshot.version, base=snapshot.base_version, place=following
            )
        if page.include_refresh_token and (query.version, query.timestamp, begin) == (None, None, None):
            refresh = await self._paging.refresh(looked, snapshot.version, snapshot.base_version)
        yield lines.end(
            refreshToken=refresh, nextPageToken=token, minUrlExpirationTimestamp=self._answers.expires()
        )

    async def later(self, looked: Looked, query: QueryAsked) -> Told | None:
        """The id of a query that is answered later; None if it must be answered now."""
        check_query(query.version, query.timestamp, query.starting_version)
        if query.starting_version is not None:
            return None
        version = await looked.version(query.version, query.timestamp)
        query_id = await self._paging.query_id(looked, version, query)
        if len(query_id) > MAX_QUERY_ID:
            return None
        self._warm(looked, version)
        return _pending(version, query_id)

    async def resumed(self, looked: Looked, wanted: Wanted, query_id: str, page: PageAsked) -> Told:
        pending = await self._paging.pending(looked, query_id)
        warming = self._warm(looked, pending.version)
        done, _ = await asyncio.wait([warming], timeout=ASYNC_WAIT_S)
        if not done:
            return _pending(pending.version, query_id)
        warming.result()
        query = msgspec.structs.replace(pending.query, version=pending.version, timestamp=None)
        return await self._told(looked, wanted, query, page, pending.version)

    def _warm(self, looked: Looked, version: int) -> asyncio.Future[Any]:
        key = looked.id, version
        found = self._warming.get(key)
        if found is None:
            found = self._warming[key] = asyncio.ensure_future(looked.log.snapshot(version))
            found.add_done_callback(lambda done: self._warmed(key, done))
        return found

    def _warmed(self, key: tuple[str, int], done: asyncio.Future[Any]) -> None:
        self._warming.pop(key, None)
        if not done.cancelled():
            # Whoever polls is told; nobody may.
            done.exception()

    async def _lines(
        self, looked: Looked, wanted: Wanted, snapshot: Snapshot
    ) -> tuple[ResponseFormat, Lines]:
        vectors = bool(snapshot.vectors)
        form = response_format(wanted.asked, snapshot.protocol, snapshot.metadata, vectors=vectors)
        return form, await self._answers.lines(looked, wanted, form, vectors=vectors)

    async def _head(self, looked: Looked, lines: Lines, snapshot: Snapshot) -> bytes:
        files, size = await looked.log.totals(snapshot, looked.admitted(snapshot.metadata))
        return lines.protocol(snapshot.protocol, snapshot.metadata) + lines.metadata(
            snapshot.metadata, version=snapshot.version, size=size, files=files
        )


def _pending(version: int, query_id: str) -> Told:
    line = msgspec.json.encode({"queryStatus": {"queryId": query_id, "status": "pending"}}) + b"\n"
    return Told(version=version, form=None, lines=one(line))
