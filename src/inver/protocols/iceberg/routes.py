"""The face of the Iceberg REST protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from inver.protocols.http import Request, Response, Route
from inver.protocols.iceberg.errors import render
from inver.protocols.iceberg.namespaces import ConfigRoutes
from inver.protocols.oauth import Authenticate, answer_renewing
from inver.services.iceberg.namespaces import Namespaces
from inver.services.tokens import Tokens


class Room(Protocol):
    def routes(self) -> Iterable[Route]: ...


class Iceberg:
    mounts = ("/iceberg", "/api/2.1/unity-catalog/iceberg", "/api/catalog")

    def __init__(
        self,
        tokens: Tokens,
        authenticate: Authenticate,
        namespaces: Namespaces,
        rooms: Sequence[Room],
        expired_as_419: bool = False,
    ) -> None:
        self._tokens = tokens
        self._authenticate = authenticate
        self._expired = 419 if expired_as_419 else 401
        offered = [route for room in rooms for route in room.routes()]
        config = ConfigRoutes(namespaces, [f"{route.method} {route.template}" for route in offered])
        token = Route("POST", "/v1/oauth/tokens", self.token, public=True)
        self.routes = [token, *config.routes(), *offered]

    def render(self, error: Exception, request: Request | None) -> Response:
        return render(error, request, self._expired)

    async def token(self, request: Request) -> Response:
        return await answer_renewing(request, self._tokens, self._authenticate)
