"""Views: created, loaded, replaced, renamed, dropped."""

from __future__ import annotations

import msgspec

from inver.domain import iceberg
from inver.domain.grants import Action
from inver.protocols.http import Request, Response, Route
from inver.protocols.iceberg import wire
from inver.protocols.iceberg.answers import listing, view_answer
from inver.protocols.iceberg.coding import (
    DONE,
    NAMESPACE,
    VIEW,
    VIEWS,
    caller,
    decode,
    identifier,
    namespace,
)
from inver.services.iceberg.naming import Identifier
from inver.services.iceberg.relations import Relations
from inver.services.iceberg.views import IcebergViews

_rename = msgspec.json.Decoder(wire.Rename).decode
_register = msgspec.json.Decoder(wire.RegisterView).decode


class ViewRoutes:
    def __init__(self, views: IcebergViews, relations: Relations) -> None:
        self._views = views
        self._relations = relations

    def routes(self) -> list[Route]:
        return [
            Route("GET", VIEWS, self.list),
            Route("POST", VIEWS, self.create),
            Route("POST", NAMESPACE + "/register-view", self.register),
            Route("GET", VIEW, self.load),
            Route("HEAD", VIEW, self.exists),
            Route("POST", VIEW, self.replace),
            Route("DELETE", VIEW, self.drop),
            Route("POST", "/v1/{prefix}/views/rename", self.rename),
        ]

    async def list(self, request: Request) -> Response:
        return await listing(request, self._relations)

    async def create(self, request: Request) -> Response:
        catalog, path = namespace(request)
        body = decode(request, iceberg.decode_create_view)
        name = Identifier(catalog, path, body.name)
        return view_answer(await self._views.create(caller(request), name, body, request.body))

    async def register(self, request: Request) -> Response:
        catalog, path = namespace(request)
        body = decode(request, _register)
        name = Identifier(catalog, path, body.name)
        return view_answer(await self._views.register(caller(request), name, body.metadata_location))

    async def load(self, request: Request) -> Response:
        view = await self._relations.find(caller(request), identifier(request), Action.LOAD)
        return view_answer(await self._relations.load(view))

    async def exists(self, request: Request) -> Response:
        await self._relations.exists(caller(request), identifier(request))
        return DONE

    async def replace(self, request: Request) -> Response:
        body = decode(request, iceberg.decode_commit)
        return view_answer(
            await self._views.replace(caller(request), identifier(request), body, request.body)
        )

    async def drop(self, request: Request) -> Response:
        await self._relations.drop(caller(request), identifier(request))
        return DONE

    async def rename(self, request: Request) -> Response:
        body, catalog = decode(request, _rename), request.args[0]
        asks = caller(request)
        await self._relations.rename(asks, body.source.within(catalog), body.destination.within(catalog))
        return DONE
