"""The faces of Unity Catalog: three mounts, each with its own envelope for errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from inver.protocols.http import Request, Response, Route
from inver.protocols.unity.errors import MOUNT, render, render_scim, render_v1

CONTROL = "/api/1.0/unity-control"


class Room(Protocol):
    def routes(self) -> Iterable[Route]: ...


class Unity:
    mounts = (MOUNT,)

    def __init__(self, rooms: Sequence[Room]) -> None:
        self.routes = [route for room in rooms for route in room.routes()]

    def render(self, error: Exception, request: Request | None) -> Response:
        return render(error, request)


class DeltaV1:
    mounts = (MOUNT + "/delta/v1",)

    def __init__(self, room: Room) -> None:
        self.routes = list(room.routes())

    def render(self, error: Exception, request: Request | None) -> Response:
        return render_v1(error, request)


class UnityControl:
    mounts = (CONTROL,)

    def __init__(self, room: Room) -> None:
        self.routes = list(room.routes())

    def render(self, error: Exception, request: Request | None) -> Response:
        if request is not None and request.raw_path.startswith(f"{CONTROL}/scim2".encode()):
            return render_scim(error, request)
        return render(error, request)
