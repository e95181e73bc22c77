"""How recipients come by their tokens: activation links, and OAuth client credentials."""

from __future__ import annotations

import msgspec

from inver.protocols.http import Request, Response, Route
from inver.protocols.oauth import answer_token_request
from inver.services.sharing.profiles import endpoint, profile
from inver.services.sharing.services import SharingServices

_PAGE = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Activate access</title></head>
<body><h1>Activate access</h1>
<p>The profile file can be fetched once. Keep it like a password.</p>
<form method="post"><button>Get the profile file</button></form></body></html>
"""
_CAREFUL = (
    (b"Cache-Control", b"no-store"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Content-Security-Policy", b"default-src 'none'; form-action 'self'; frame-ancestors 'none'"),
)


class EntryRoutes:
    def __init__(self, services: SharingServices, public_url: str | None) -> None:
        self._door = services.door
        self._public_url = public_url
        self.routes = [
            Route("GET", "/activation/{code}", self.page, public=True),
            Route("POST", "/activation/{code}", self.activate, public=True),
            Route("POST", "/oauth/token", self.token, public=True),
        ]

    async def page(self, request: Request) -> Response:
        """The same for every code. Programs that look at links must not use one up."""
        return Response(200, _PAGE, b"text/html; charset=utf-8", _CAREFUL)

    async def activate(self, request: Request) -> Response:
        given = await self._door.activate(request.args[0], request.client)
        told = profile(given, endpoint(request.header(b"host"), self._public_url))
        headers = (*_CAREFUL, (b"Content-Disposition", b'attachment; filename="config.share"'))
        return Response(200, msgspec.json.format(msgspec.json.encode(told)), headers=headers)

    async def token(self, request: Request) -> Response:
        return await answer_token_request(request, self._door)
