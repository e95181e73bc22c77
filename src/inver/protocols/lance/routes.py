"""The face of the Lance Namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from inver.protocols.http import Request, Response, Route
from inver.protocols.lance.errors import render
from inver.protocols.oauth import answer_token_request
from inver.services.tokens import Tokens


class Room(Protocol):
    @property
    def routes(self) -> Sequence[Route]: ...


class Lance:
    mounts = ("/lance",)

    def __init__(self, rooms: Sequence[Room], tokens: Tokens) -> None:
        self._tokens = tokens
        self.routes = [
            Route("POST", "/oauth/token", self.token, public=True),
            *(route for room in rooms for route in room.routes),
        ]

    def render(self, error: Exception, request: Request | None) -> Response:
        return render(error, request)

    async def token(self, request: Request) -> Response:
        return await answer_token_request(request, self._tokens)
