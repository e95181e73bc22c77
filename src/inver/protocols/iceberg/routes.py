"""The face of the Iceberg REST protocol: where its clients get their tokens."""

from __future__ import annotations

from inver.protocols.http import Request, Response, Route
from inver.protocols.iceberg.errors import render
from inver.protocols.oauth import answer_token_request
from inver.services.tokens import Tokens


class Iceberg:
    mounts = ("/iceberg", "/api/2.1/unity-catalog/iceberg", "/api/catalog")

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self.routes = [Route("POST", "/v1/oauth/tokens", self.token, public=True)]

    def render(self, error: Exception, request: Request | None) -> Response:
        return render(error, request)

    async def token(self, request: Request) -> Response:
        return await answer_token_request(request, self._tokens)
