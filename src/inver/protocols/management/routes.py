"""The face of `/api/management/v1`: all its operations in one place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from inver.protocols.http import Request, Response, Route
from inver.protocols.management.endpoint import Endpoint
from inver.protocols.management.errors import render

MOUNT = "/api/management/v1"


class Room(Protocol):
    def endpoints(self) -> Iterable[Endpoint]: ...


class Management:
    mounts = (MOUNT,)

    def __init__(self, rooms: Sequence[Room]) -> None:
        self.endpoints = tuple(endpoint for room in rooms for endpoint in room.endpoints())
        self.routes: list[Route] = [endpoint.route() for endpoint in self.endpoints]

    def render(self, error: Exception, request: Request | None) -> Response:
        return render(error, request)
