"""Ranges of versions: row-level changes, and for streams what was added and removed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from inver.domain.sharing import (
    ChangesRequest,
    ResponseFormat,
    changes_bounds,
    check_recorded,
    not_shared,
    query_bounds,
    response_format,
)
from inver.errors import Invalid
from inver.services.sharing.answers import Answers, Told, Wanted, whole
from inver.services.sharing.logs import Lines, Place, Plan
from inver.services.sharing.paging import PageAsked, Paging, QueryAsked, digest
from inver.services.sharing.tables import Looked


class _Range(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of which versions, and from which place on."""

    start: int
    end: int
    plan: Plan
    asked: str
    place: Place
    change_data: bool
    metadata: bool
    protocol: bool
    repeated: bool = False
    """Whether every version says its metadata, as if it changed it."""


class Changes:
    def __init__(self, paging: Paging, answers: Answers) -> None:
        self._paging = paging
        self._answers = answers

    async def changes(self, looked: Looked, wanted: Wanted, request: ChangesRequest, page: PageAsked) -> Told:
        if not looked.shared.history:
            raise not_shared(looked.shown)
        latest = await looked.latest()
        asked = digest(request, sorted(wanted.asked.formats), wanted.id_hash)
        begin = await self._paging.page(looked, page, asked)
        given = await self._bounds(looked, request) if begin is None else (begin.version, begin.end)
        start, end = changes_bounds(
            *given,
            latest=latest,
            earliest=await looked.log.earliest_commit(),
            shared_since=looked.shared.start_version,
        )
        plan = await looked.log.changes(start, end, noted="" if begin is None else begin.noted)
        check_recorded(start, end, plan.at_start.metadata, plan.later_metadata)
        told = _Range(
            start=start,
            end=end,
            plan=plan,
            asked=asked,
            place=(0, 0) if begin is None else (begin.place, begin.file),
            change_data=True,
            metadata=request.historical_metadata,
            protocol=request.historical_protocol,
            repeated=wanted.streaming,
        )
        return await self._told(looked, wanted, told, page)

    async def since(self, looked: Looked, wanted: Wanted, query: QueryAsked, page: PageAsked) -> Told:
        """What was added and removed from a version on, which streams read; change data does not matter."""
        assert query.starting_version is not None
        if not looked.shared.history:
            raise Invalid(
                f"table {looked.shown} is shared without its history: only its latest version can be read",
                field="startingVersion",
            )
        asked = digest(query, sorted(wanted.asked.formats), wanted.id_hash)
        begin = await self._paging.page(looked, page, asked)
        start, end = query_bounds(
            query.starting_version,
            query.ending_version if begin is None else begin.end,
            latest=await looked.latest(),
            earliest=await looked.log.earliest_commit(),
            shared_since=looked.shared.start_version,
        )
        told = _Range(
            start=start,
            end=end,
            plan=await looked.log.changes(start, end, noted="" if begin is None else begin.noted),
            asked=asked,
            place=(0, 0) if begin is None else (begin.place, begin.file),
            change_data=False,
            # A stream compares the schema of what comes with the one that it began with.
            metadata=True,
            protocol=query.historical_protocol,
        )
        return await self._told(looked, wanted, told, page)

    async def _bounds(self, looked: Looked, request: ChangesRequest) -> tuple[int, int | None]:
        start, end = request.starting_version, request.ending_version
        if request.starting_timestamp is not None:
            start = await looked.starting_version(request.starting_timestamp)
        if request.ending_timestamp is not None:
            end = await looked.ending_version(request.ending_timestamp)
        assert start is not None
        return start, end

    async def _told(self, looked: Looked, wanted: Wanted, told: _Range, page: PageAsked) -> Told:
        plan = told.plan
        vectors = plan.vectors(change_data=told.change_data)
        head = plan.at_start if told.metadata else plan.at_end
        form = response_format(wanted.asked, head.protocol, head.metadata, vectors=vectors)
        if told.metadata and form is ResponseFormat.PARQUET:
            # Every schema in between must be one that this format can express.
            for _, later in plan.later_metadata:
                response_format(wanted.asked, head.protocol, later, vectors=vectors)
        lines = await self._answers.lines(looked, wanted, form, vectors=vectors)
        ends = wanted.asked.end_stream_action or page.max_files is not None
        pieces = self._pieces(looked, lines, form, told, page, ends)
        return Told(version=told.start, form=form, lines=whole(pieces, lines, wanted), ends=ends)

    async def _pieces(
        self, looked: Looked, lines: Lines, form: ResponseFormat, told: _Range, page: PageAsked, ends: bool
    ) -> AsyncIterator[bytes]:
        plan = told.plan
        head, version = (plan.at_start, told.start) if told.metadata else (plan.at_end, told.end)
        before = lines.protocol(head.protocol, head.metadata)
        before += lines.metadata(head.metadata, version=version)
        following: Place | None = None
        changed = looked.log.changed(
            plan,
            lines,
            looked.admitted(plan.at_end.metadata),
            change_data=told.change_data,
            metadata=told.metadata,
            protocol=told.protocol and form is ResponseFormat.DELTA,
            repeated=told.repeated and form is ResponseFormat.DELTA,
            skip=told.place,
            most=page.max_files,
        )
        async for piece in changed:
            data, following = piece
            yield before + data
            before = b""
        if before:
            yield before
        if ends:
            token = None
            if following is not None:
                token = await self._paging.next_page(
                    looked,
                    told.asked,
                    version=told.start,
                    end=told.end,
                    place=following[0],
                    file=following[1],
                    noted=plan.noted(following[0]),
                )
            yield lines.end(nextPageToken=token, minUrlExpirationTimestamp=self._answers.expires())
