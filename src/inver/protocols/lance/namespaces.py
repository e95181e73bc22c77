"""Namespaces."""

from __future__ import annotations

from inver.protocols.http import Request, Response, Route
from inver.protocols.lance import wire
from inver.protocols.lance.coding import EMPTY, caller, flag, mode, page_of, table_body, table_id, told
from inver.services.lance.spaces import Spaces
from inver.services.lance.tables import LanceTables


class NamespaceRoutes:
    def __init__(self, spaces: Spaces, tables: LanceTables) -> None:
        self._spaces = spaces
        self._tables = tables
        # Some HTTP clients take `/./` out of a path, which with the delimiter `.` is the root.
        self.routes = [
            Route(method, template, handler)
            for place in ("/v1/namespace/{id}", "/v1/namespace")
            for method, template, handler in (
                ("POST", f"{place}/create", self.create),
                ("GET", f"{place}/list", self.list),
                ("POST", f"{place}/describe", self.describe),
                ("POST", f"{place}/drop", self.drop),
                ("POST", f"{place}/exists", self.exists),
                ("GET", f"{place}/table/list", self.tables),
            )
        ]

    async def create(self, request: Request) -> Response:
        path, body = table_body(request, wire.create_namespace)
        how = mode(body.mode, "Create", "ExistOk", "Overwrite")
        made = await self._spaces.create(
            caller(request), path, body.properties or {}, how == "ExistOk", how == "Overwrite"
        )
        return told(properties=made)

    async def list(self, request: Request) -> Response:
        after, limit = page_of(request)
        names, rest = await self._spaces.page(caller(request), table_id(request), after, limit)
        return told(namespaces=names, page_token=rest)

    async def describe(self, request: Request) -> Response:
        path, _ = table_body(request, wire.body)
        return told(properties=await self._spaces.describe(caller(request), path))

    async def drop(self, request: Request) -> Response:
        path, body = table_body(request, wire.drop_namespace)
        skip = mode(body.mode, "Fail", "Skip") == "Skip"
        cascade = mode(body.behavior, "Restrict", "Cascade", field="behavior") == "Cascade"
        return told(properties=await self._spaces.drop(caller(request), path, skip, cascade))

    async def exists(self, request: Request) -> Response:
        path, _ = table_body(request, wire.body)
        await self._spaces.describe(caller(request), path)
        return EMPTY

    async def tables(self, request: Request) -> Response:
        after, limit = page_of(request)
        declared = flag(request, "include_declared", True) is True
        names, rest = await self._tables.page(caller(request), table_id(request), after, limit, declared)
        return told(tables=names, page_token=rest)
