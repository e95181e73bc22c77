"""Catalogs and schemas on the wire."""

from __future__ import annotations

import msgspec

from inver.protocols.http import Request, Response
from inver.protocols.management import wire
from inver.protocols.management.coding import (
    caller,
    decode,
    if_match,
    ok,
    page_size,
    page_start,
    paged,
    schema_path,
)
from inver.protocols.management.endpoint import PAGE, Endpoint, Param
from inver.services.catalogs import Catalogs, Changes

_create_catalog = msgspec.json.Decoder(wire.CreateCatalog).decode
_create_schema = msgspec.json.Decoder(wire.CreateSchema).decode
_alter = msgspec.json.Decoder(wire.AlterDescription).decode

CATALOG = "/catalogs/{catalog}"
SCHEMA = CATALOG + "/schemas/{schema}"
_PARENT = Param("parent", "List below this schema; nested names joined by U+001F.")


class CatalogRoutes:
    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs

    def endpoints(self) -> list[Endpoint]:
        return [*self._catalog_endpoints(), *self._schema_endpoints()]

    def _catalog_endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/catalogs",
                self.list_catalogs,
                "catalogs",
                "List the catalogs that the caller may see",
                params=PAGE,
                returns=wire.CatalogList,
            ),
            Endpoint(
                "POST",
                "/catalogs",
                self.create_catalog,
                "catalogs",
                "Create a catalog",
                body=wire.CreateCatalog,
                returns=wire.CatalogInfo,
                status=201,
            ),
            Endpoint(
                "GET", CATALOG, self.get_catalog, "catalogs", "Show a catalog", returns=wire.CatalogInfo
            ),
            Endpoint(
                "PATCH",
                CATALOG,
                self.alter_catalog,
                "catalogs",
                "Change a catalog's name, comment, properties or owner",
                body=wire.AlterDescription,
                returns=wire.CatalogInfo,
                etag=True,
            ),
            Endpoint(
                "DELETE",
                CATALOG,
                self.drop_catalog,
                "catalogs",
                "Drop an empty catalog",
                status=204,
                etag=True,
            ),
        ]

    def _schema_endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                CATALOG + "/schemas",
                self.list_schemas,
                "schemas",
                "List the schemas of a catalog, or of a schema",
                params=(_PARENT, *PAGE),
                returns=wire.SchemaList,
            ),
            Endpoint(
                "POST",
                CATALOG + "/schemas",
                self.create_schema,
                "schemas",
                "Create a schema",
                body=wire.CreateSchema,
                returns=wire.SchemaInfo,
                status=201,
            ),
            Endpoint("GET", SCHEMA, self.get_schema, "schemas", "Show a schema", returns=wire.SchemaInfo),
            Endpoint(
                "PATCH",
                SCHEMA,
                self.alter_schema,
                "schemas",
                "Change a schema's name, comment, properties or owner",
                body=wire.AlterDescription,
                returns=wire.SchemaInfo,
                etag=True,
            ),
            Endpoint(
                "DELETE", SCHEMA, self.drop_schema, "schemas", "Drop an empty schema", status=204, etag=True
            ),
        ]

    async def list_catalogs(self, request: Request) -> Response:
        limit = page_size(request)
        found = await self._catalogs.page(caller(request), page_start(request), limit + 1)
        shown, token = paged(found, limit)
        return ok(wire.CatalogList([wire.CatalogInfo.of(item) for item in shown], token))

    async def create_catalog(self, request: Request) -> Response:
        body = decode(request, _create_catalog)
        made = await self._catalogs.create(
            caller(request), body.name, body.comment, body.properties, body.storage_root
        )
        return ok(wire.CatalogInfo.of(made), 201, made.etag)

    async def get_catalog(self, request: Request) -> Response:
        found = await self._catalogs.get(caller(request), request.args[0])
        return ok(wire.CatalogInfo.of(found), etag=found.etag)

    async def alter_catalog(self, request: Request) -> Response:
        body = decode(request, _alter)
        changes = Changes(body.comment, body.properties, body.owner, body.name)
        changed = await self._catalogs.alter(caller(request), request.args[0], changes, if_match(request))
        return ok(wire.CatalogInfo.of(changed), etag=changed.etag)

    async def drop_catalog(self, request: Request) -> Response:
        await self._catalogs.drop(caller(request), request.args[0], if_match(request))
        return Response(204)

    async def list_schemas(self, request: Request) -> Response:
        limit = page_size(request)
        parent = request.param("parent")
        path = schema_path(parent) if parent else ()
        found = await self._catalogs.schemas(
            caller(request), request.args[0], path, page_start(request), limit + 1
        )
        shown, token = paged(found, limit)
        return ok(wire.SchemaList([wire.SchemaInfo.of(item) for item in shown], token))

    async def create_schema(self, request: Request) -> Response:
        body = decode(request, _create_schema)
        made = await self._catalogs.create_schema(
            caller(request), request.args[0], body.path, body.comment, body.properties, body.storage_root
        )
        return ok(wire.SchemaInfo.of(made), 201, made.etag)

    async def get_schema(self, request: Request) -> Response:
        found = await self._catalogs.schema(caller(request), request.args[0], schema_path(request.args[1]))
        return ok(wire.SchemaInfo.of(found), etag=found.etag)

    async def alter_schema(self, request: Request) -> Response:
        body = decode(request, _alter)
        catalog, path = request.args[0], schema_path(request.args[1])
        changes = Changes(body.comment, body.properties, body.owner, body.name)
        changed = await self._catalogs.alter_schema(
            caller(request), catalog, path, changes, if_match(request)
        )
        return ok(wire.SchemaInfo.of(changed), etag=changed.etag)

    async def drop_schema(self, request: Request) -> Response:
        catalog, path = request.args[0], schema_path(request.args[1])
        await self._catalogs.drop_schema(caller(request), catalog, path, if_match(request))
        return Response(204)
