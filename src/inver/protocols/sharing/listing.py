"""Shares, schemas and tables that a recipient was given."""

from __future__ import annotations

from typing import Any

from inver.domain.shares import Share
from inver.ports import SharedTable
from inver.protocols.http import Request, Response, Route
from inver.protocols.sharing.coding import listed, ok, page_size, page_start
from inver.services.sharing.services import SharingServices

SHARE = "/shares/{share}"
_FIRST = ("", "")


class ListingRoutes:
    def __init__(self, services: SharingServices) -> None:
        self._door = services.door
        self._contents = services.contents
        self._visits = services.visits
        self.routes = [
            Route("GET", "/shares", self.shares, public=True),
            Route("GET", SHARE, self.share, public=True),
            Route("GET", SHARE + "/schemas", self.schemas, public=True),
            Route("GET", SHARE + "/schemas/{schema}/tables", self.tables, public=True),
            Route("GET", SHARE + "/all-tables", self.all_tables, public=True),
        ]

    async def shares(self, request: Request) -> Response:
        guest = await self._door.enter(request.header(b"authorization"), request.client)
        limit, start = page_size(request), page_start(request, str, "")
        found = await self._contents.shares(guest, start, limit + 1)
        await self._visits.record(guest, "list-shares")
        return listed([_share(each) for each in found], limit, [each.name for each in found], start)

    async def share(self, request: Request) -> Response:
        guest = await self._door.enter(request.header(b"authorization"), request.client)
        found = await self._contents.share(guest, request.args[0])
        await self._visits.record(guest, "get-share", share_id=found.id)
        return ok({"share": _share(found)})

    async def schemas(self, request: Request) -> Response:
        guest = await self._door.enter(request.header(b"authorization"), request.client)
        limit, start = page_size(request), page_start(request, str, "")
        share, found = await self._contents.schemas(guest, request.args[0], start, limit + 1)
        await self._visits.record(guest, "list-schemas", share_id=share.id)
        return listed([{"name": name, "share": share.name} for name in found], limit, found, start)

    async def tables(self, request: Request) -> Response:
        return await self._tables(request, request.args[1])

    async def all_tables(self, request: Request) -> Response:
        return await self._tables(request, None)

    async def _tables(self, request: Request, schema: str | None) -> Response:
        guest = await self._door.enter(request.header(b"authorization"), request.client)
        limit, start = page_size(request), page_start(request, tuple[str, str], _FIRST)
        share, found = await self._contents.tables(guest, request.args[0], schema, start, limit + 1)
        await self._visits.record(guest, "list-tables", share_id=share.id)
        items = [table_told(share, each) for each in found]
        return listed(items, limit, [(each.schema_name, each.name) for each in found], start)


def _share(share: Share) -> dict[str, Any]:
    told: dict[str, Any] = {"name": share.name, "id": share.id}
    if share.comment:
        told["comment"] = share.comment
    return told


def table_told(share: Share, table: SharedTable) -> dict[str, Any]:
    return {
        "name": table.name,
        "schema": table.schema_name,
        "share": share.name,
        "shareId": share.id,
        "id": table.table.id,
    }
