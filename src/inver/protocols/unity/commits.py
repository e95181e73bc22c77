"""Commits and metrics of Delta tables, on the routes of both versions of Unity's own dialect."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec

from inver.errors import Invalid
from inver.protocols.http import Request, Response, Route, then
from inver.protocols.http import decode as decode_body
from inver.protocols.unity import commit_wire as wire
from inver.protocols.unity.coding import EMPTY, caller, decode, whole_number
from inver.services.delta.tables import LAST_VERSION, DeltaTables
from inver.services.delta.types import Proposal

_commit = msgspec.json.Decoder(wire.Commit).decode
_commits = msgspec.json.Decoder(wire.GetCommits).decode
_metrics = msgspec.json.Decoder(wire.Metrics).decode

_VERSIONS = ("start_version", "end_version")
_ASKED = ("table_id", "table_uri", *_VERSIONS)


class CommitRoutes:
    def __init__(self, delta: DeltaTables) -> None:
        self._delta = delta

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/delta/commits", self.commits),
            Route("POST", "/delta/commit", self.commit),
            Route("POST", "/delta/metrics", self.metrics),
            Route("GET", "/delta/preview/commits", self.commits),
            Route("POST", "/delta/preview/commits", self.preview_commit),
        ]

    async def commits(self, request: Request) -> Response:
        body = _asked(request)
        tail = await self._delta.tail(
            caller(request), body.table_id, body.table_uri, body.start_version or 0, body.end_version
        )
        return Response(200, b'{"commits":%b,"latest_table_version":%d}' % (tail.commits, tail.latest))

    def commit(self, request: Request) -> Awaitable[Response]:
        body = decode(request, _commit)
        if body.metadata is not None and not body.metadata.id:
            raise Invalid("metadata.id is required", field="metadata.id")
        return then(self._delta.propose(caller(request), body.proposal()), _done)

    def preview_commit(self, request: Request) -> Awaitable[Response]:
        body = decode(request, _commit)
        return then(self._delta.propose(caller(request), body.proposal()), _done)

    async def metrics(self, request: Request) -> Response:
        body = decode(request, _metrics)
        asks = caller(request)
        if body.report is None or body.report.commit_report is None:
            # Nothing to keep; what can still be told is whether the table is there.
            await self._delta.tail(asks, body.table_id, body.table_uri, LAST_VERSION, None)
        else:
            report = body.report.commit_report.report()
            await self._delta.report(asks, body.table_id, body.table_uri, report)
        return EMPTY


def decode_commit(body: bytes) -> Proposal:
    """A commit that is part of a greater transaction."""
    return decode_body(body, _commit).proposal()


def _done(_: Any) -> Response:
    return EMPTY


def _asked(request: Request) -> wire.GetCommits:
    """A JSON body, as the dialect has it, or query parameters for clients that send no body with a GET."""
    if request.body:
        return decode(request, _commits)
    given: dict[str, str | int] = {}
    for name in _ASKED:
        text = request.param(name)
        if text:
            given[name] = whole_number(text, name) if name in _VERSIONS else text
    try:
        return msgspec.convert(given, wire.GetCommits)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise Invalid(message, field=place.rstrip("`").lstrip(".") or "query") from None
