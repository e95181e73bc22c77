"""One operation of the management API: its route, and what its documentation is made of."""

from __future__ import annotations

from typing import Any

import msgspec

from inver.protocols.http import Handler, Route


class Param(msgspec.Struct, frozen=True):
    """A query parameter. `least` and `most` bound a number, `choices` are the words it may be."""

    name: str
    about: str
    kind: str = "string"
    required: bool = False
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()


PAGE = (
    Param("page_token", "Where to go on: next_page_token of the page before."),
    Param("max_results", "How many at most; 100 by default.", "integer", least=1, most=1_000),
)


class Endpoint(msgspec.Struct, frozen=True):
    """`body` and `returns` are the very types that the handler decodes and encodes."""

    method: str
    path: str
    handler: Handler
    tag: str
    summary: str
    body: Any = None
    returns: Any = None
    status: int = 200
    params: tuple[Param, ...] = ()
    etag: bool = False
    keyed: bool = False
    public: bool = False
    timeout: float | None = None

    def route(self) -> Route:
        return Route(self.method, self.path, self.handler, self.public, self.timeout)
