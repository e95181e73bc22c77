"""Catalogs and schemas in Unity's own dialect."""

from __future__ import annotations

import msgspec

from inver.domain.securables import Catalog, Schema
from inver.protocols.http import Request, Response, Route
from inver.protocols.unity import wire
from inver.protocols.unity.coding import (
    EMPTY,
    NamesOf,
    caller,
    decode,
    flag,
    full_name,
    new_name,
    ok,
    page,
    required,
)
from inver.services.cascade import Cascade
from inver.services.catalogs import Catalogs, Changes

_create_catalog = msgspec.json.Decoder(wire.CreateCatalog).decode
_create_schema = msgspec.json.Decoder(wire.CreateSchema).decode
_update = msgspec.json.Decoder(wire.Update).decode

CATALOG = "/catalogs/{name}"
SCHEMA = "/schemas/{full_name}"


class CatalogRoutes:
    def __init__(self, catalogs: Catalogs, cascade: Cascade, names_of: NamesOf) -> None:
        self._catalogs = catalogs
        self._cascade = cascade
        self._names_of = names_of

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/catalogs", self.create_catalog),
            Route("GET", "/catalogs", self.list_catalogs),
            Route("GET", CATALOG, self.get_catalog),
            Route("PATCH", CATALOG, self.update_catalog),
            Route("DELETE", CATALOG, self.drop_catalog),
            Route("POST", "/schemas", self.create_schema),
            Route("GET", "/schemas", self.list_schemas),
            Route("GET", SCHEMA, self.get_schema),
            Route("PATCH", SCHEMA, self.update_schema),
            Route("DELETE", SCHEMA, self.drop_schema),
        ]

    async def create_catalog(self, request: Request) -> Response:
        body = decode(request, _create_catalog)
        made = await self._catalogs.create(
            caller(request), new_name(body.name), body.comment, body.properties, body.storage_root
        )
        return await self._catalog(made)

    async def list_catalogs(self, request: Request) -> Response:
        asks = caller(request)

        async def fetch(after: str, limit: int) -> list[Catalog]:
            return await self._catalogs.page(asks, after, limit)

        found, token = await page(fetch, request, lambda catalog: catalog.name)
        names = await self._names_of(_people(*found))
        return ok(wire.CatalogList([wire.CatalogInfo.of(each, names) for each in found], token))

    async def get_catalog(self, request: Request) -> Response:
        return await self._catalog(await self._catalogs.get(caller(request), request.args[0]))

    async def update_catalog(self, request: Request) -> Response:
        body = decode(request, _update)
        return await self._catalog(
            await self._catalogs.alter(caller(request), request.args[0], _changes(body), None)
        )

    async def drop_catalog(self, request: Request) -> Response:
        if flag(request, "force"):
            await self._cascade.drop_catalog(caller(request), request.args[0])
        else:
            await self._catalogs.drop(caller(request), request.args[0], None)
        return EMPTY

    async def create_schema(self, request: Request) -> Response:
        body = decode(request, _create_schema)
        asks = caller(request)
        name = new_name(body.name)
        catalog = await self._catalogs.get(asks, body.catalog_name)
        made = await self._catalogs.create_schema(
            asks,
            body.catalog_name,
            (name,),
            body.comment,
            body.properties,
            body.storage_root,
        )
        return await self._schema(made, catalog)

    async def list_schemas(self, request: Request) -> Response:
        asks = caller(request)
        catalog = await self._catalogs.get(asks, required(request, "catalog_name"))

        async def fetch(after: str, limit: int) -> list[Schema]:
            return await self._catalogs.schemas(asks, catalog.name, (), after, limit)

        found, token = await page(fetch, request, lambda schema: schema.name)
        names = await self._names_of(_people(*found))
        return ok(wire.SchemaList([wire.SchemaInfo.of(each, catalog.name, names) for each in found], token))

    async def get_schema(self, request: Request) -> Response:
        asks = caller(request)
        above, name = full_name(request.args[0], 2)
        catalog = await self._catalogs.get(asks, above)
        return await self._schema(await self._catalogs.schema(asks, above, (name,)), catalog)

    async def update_schema(self, request: Request) -> Response:
        body = decode(request, _update)
        asks = caller(request)
        above, name = full_name(request.args[0], 2)
        # Asked before: who gives a schema away may not see what is above it any more.
        catalog = await self._catalogs.get(asks, above)
        changed = await self._catalogs.alter_schema(asks, above, (name,), _changes(body), None)
        return await self._schema(changed, catalog)

    async def drop_schema(self, request: Request) -> Response:
        asks = caller(request)
        catalog, name = full_name(request.args[0], 2)
        if flag(request, "force"):
            # What is missing is told in the same words with and without force.
            await self._catalogs.schema(asks, catalog, (name,))
            await self._cascade.drop_schema(asks, catalog, (name,))
        else:
            await self._catalogs.drop_schema(asks, catalog, (name,), None)
        return EMPTY

    async def _catalog(self, catalog: Catalog) -> Response:
        return ok(wire.CatalogInfo.of(catalog, await self._names_of(_people(catalog))))

    async def _schema(self, schema: Schema, catalog: Catalog) -> Response:
        return ok(wire.SchemaInfo.of(schema, catalog.name, await self._names_of(_people(schema))))


def _people(*found: Catalog | Schema) -> list[str]:
    return sorted({person for each in found for person in (each.owner, each.created_by, each.updated_by)})


def _changes(body: wire.Update) -> Changes:
    unset = msgspec.UNSET
    return Changes(
        unset if body.comment is None else body.comment,
        unset if body.properties is None else body.properties,
        unset if body.owner is None else body.owner,
        unset if body.new_name is None else new_name(body.new_name, "new_name"),
    )
