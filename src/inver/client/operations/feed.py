"""What happened and what there is: events, cursors, search, the server itself."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from inver.client.core import Call, Page, Response, json_answer, query_of
from inver.client.naming import segment
from inver.client.operations.listing import listing
from inver.client.types import Cursor, Diagnosis, Event, SearchResult, ServerInfo

WAIT_S = 30


def events(after: int | str = 0, *, follow: bool = False, page_size: int | None = None) -> Call[Page[Event]]:
    """Events past `after`; with `follow`, the ones to come as well, without an end."""

    def read(response: Response) -> Page[Event]:
        found = json_answer(_Events)(response)
        if not found.events and not follow:
            return Page([], None)
        query = {**first.query, "after": found.next}
        # Only whoever has seen everything waits; until then pages come as fast as they can.
        if follow and not found.events:
            query["wait"] = str(WAIT_S)
        return Page(found.events, replace(first, query=query))

    first: Call[Page[Event]] = Call(
        method="GET",
        path="/events",
        query=query_of(after=after, limit=page_size),
        read=read,
        timeout=WAIT_S + 30.0,
    )
    return first


def cursor(name: str) -> Call[Cursor]:
    return Call(method="GET", path=f"/cursors/{segment(name)}", read=json_answer(Cursor))


def search(text: str, *, kind: str | None = None, page_size: int | None = None) -> Call[Page[SearchResult]]:
    """Names and columns that contain `text`."""
    return listing("/search", "results", SearchResult, query_of(q=text, kind=kind, max_results=page_size))


def info() -> Call[ServerInfo]:
    return Call(method="GET", path="/info", read=json_answer(ServerInfo))


def doctor() -> Call[Diagnosis]:
    """The server examines its database, its storage and its clock."""
    return Call(method="GET", path="/doctor", read=json_answer(Diagnosis), timeout=180.0)


def retry_work() -> Call[int]:
    """Follow-up work that was given up is tried again; returns how much of it there was."""

    def read(response: Response) -> int:
        return json_answer(_Retried)(response).count

    return Call(method="POST", path="/doctor/retry", read=read)


class _Retried(msgspec.Struct):
    count: int


class _Events(msgspec.Struct):
    events: list[Event]
    next: str
