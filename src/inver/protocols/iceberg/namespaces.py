"""Configuration and namespaces."""

from __future__ import annotations

from urllib.parse import quote, unquote

import msgspec

from inver.domain.idempotency import LIFETIME_MS
from inver.domain.securables import Schema
from inver.errors import Invalid, NotFound
from inver.protocols.http import Request, Response, Route
from inver.protocols.iceberg import wire
from inver.protocols.iceberg.answers import planning_mode
from inver.protocols.iceberg.coding import (
    DONE,
    NAMESPACE,
    NAMESPACES,
    caller,
    decode,
    namespace,
    ok,
    page,
    path_of,
)
from inver.protocols.iceberg.errors import Unprocessable
from inver.services.iceberg.namespaces import Namespaces, properties_of

_create = msgspec.json.Decoder(wire.CreateNamespace).decode
_update = msgspec.json.Decoder(wire.UpdateProperties).decode

KEY_LIFETIME = f"PT{LIFETIME_MS // 60_000}M"


class NamespaceRoutes:
    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces

    def routes(self) -> list[Route]:
        return [
            Route("GET", NAMESPACES, self.list),
            Route("POST", NAMESPACES, self.create),
            Route("GET", NAMESPACE, self.load),
            Route("HEAD", NAMESPACE, self.exists),
            Route("DELETE", NAMESPACE, self.drop),
            Route("POST", NAMESPACE + "/properties", self.update),
            Route("GET", NAMESPACE + "/functions", self.functions),
            Route("GET", NAMESPACE + "/functions/{function}", self.function),
        ]

    async def list(self, request: Request) -> Response:
        asks, catalog = caller(request), request.args[0]
        parent = request.param("parent")
        above = path_of(parent) if parent else ()

        async def fetch(after: str, limit: int) -> tuple[list[Schema], str | None]:
            found: list[Schema] = []
            while True:
                wanted = min(limit - len(found), 1_000) + 1
                part = await self._namespaces.page(asks, catalog, above, after, wanted)
                found += part[: wanted - 1]
                if len(part) < wanted:
                    return found, None
                after = found[-1].name
                if len(found) >= limit:
                    return found, after

        try:
            schemas, token = await page(fetch, request)
        except NotFound:
            # Some clients encode the parts before the query is encoded.
            decoded = tuple(unquote(part) for part in above)
            if decoded == above:
                raise
            above = decoded
            schemas, token = await page(fetch, request)
        return ok(wire.NamespaceListing([schema.path for schema in schemas], token))

    async def create(self, request: Request) -> Response:
        body = decode(request, _create)
        properties = body.properties or {}
        schema = await self._namespaces.create(caller(request), request.args[0], body.namespace, properties)
        return _shown(schema)

    async def load(self, request: Request) -> Response:
        return _shown(await self._namespaces.get(caller(request), *namespace(request)))

    async def exists(self, request: Request) -> Response:
        await self._namespaces.get(caller(request), *namespace(request))
        return DONE

    async def drop(self, request: Request) -> Response:
        await self._namespaces.drop(caller(request), *namespace(request))
        return DONE

    async def update(self, request: Request) -> Response:
        body = decode(request, _update)
        removals, updates = body.removals or [], body.updates or {}
        both = sorted(set(removals) & set(updates))
        if both:
            raise Unprocessable(f"Invalid namespace update: cannot set and remove the same keys: {both}")
        asks = caller(request)
        return ok(await self._namespaces.update(asks, *namespace(request), removals, updates))

    async def functions(self, request: Request) -> Response:
        """There are none; whether there is such a namespace is a question all the same."""
        await self._namespaces.get(caller(request), *namespace(request))

        async def none(after: str, limit: int) -> tuple[list[wire.TableIdentifier], str | None]:
            return [], None

        return ok(wire.Listing(*await page(none, request)))

    async def function(self, request: Request) -> Response:
        catalog, path = namespace(request)
        await self._namespaces.get(caller(request), catalog, path)
        raise NotFound(f"Function does not exist: {'.'.join((*path, request.args[2]))}", kind="function")


class ConfigRoutes:
    """`endpoints` are the routes that clients may count on."""

    def __init__(self, namespaces: Namespaces, endpoints: list[str]) -> None:
        self._namespaces = namespaces
        self._endpoints = endpoints

    def routes(self) -> list[Route]:
        return [Route("GET", "/v1/config", self.config)]

    async def config(self, request: Request) -> Response:
        asks, name = caller(request), request.param("warehouse")
        if name:
            catalog = await self._namespaces.warehouse(asks, name)
        else:
            only = await self._namespaces.only_warehouse(asks)
            if only is None:
                raise Invalid("there is not exactly one catalog: name one as warehouse", field="warehouse")
            catalog = only
        # Clients put the prefix into paths as it is.
        overrides = {"prefix": quote(catalog.name, safe=""), "namespace-separator": "%1F"}
        return ok(
            {
                "defaults": planning_mode(catalog.properties),
                "overrides": overrides,
                "endpoints": self._endpoints,
                "idempotency-key-lifetime": KEY_LIFETIME,
            }
        )


def _shown(schema: Schema) -> Response:
    return ok(wire.Namespace(schema.path, properties_of(schema)))
