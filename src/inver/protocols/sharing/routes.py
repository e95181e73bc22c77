"""The face of Delta Sharing. Recipients prove who they are here and nowhere else, and users do not."""

from __future__ import annotations

from inver.protocols.http import Request, Response, Route
from inver.protocols.sharing.entry import EntryRoutes
from inver.protocols.sharing.errors import render
from inver.protocols.sharing.files import FileRoutes
from inver.protocols.sharing.listing import ListingRoutes
from inver.protocols.sharing.tables import TableRoutes
from inver.services.sharing.profiles import MOUNT
from inver.services.sharing.services import SharingServices


class Sharing:
    mounts = (MOUNT,)

    def __init__(self, services: SharingServices, public_url: str | None) -> None:
        self.routes: list[Route] = [
            *ListingRoutes(services).routes,
            *TableRoutes(services, public_url).routes,
            *FileRoutes(services).routes,
            *EntryRoutes(services, public_url).routes,
        ]

    def render(self, error: Exception, request: Request | None) -> Response:
        return render(error, request)
