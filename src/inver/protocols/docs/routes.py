"""The face of `/api/docs`: what the API offers, for people and for programs. Open to everybody.

Both forms are made when the first of them is asked for, and kept.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import cached_property
from hashlib import sha256

import msgspec

from inver.errors import Invalid, InverError, MethodNotAllowed, NotFound, TooLarge
from inver.protocols.http import JSON, Request, Response, Route

MOUNT = "/api/docs"
DOCUMENT = "/openapi.json"

_STATUSES: tuple[tuple[type[InverError], int], ...] = (
    (NotFound, 404),
    (MethodNotAllowed, 405),
    (TooLarge, 413),
    (Invalid, 400),
)
_SAFE = ((b"X-Content-Type-Options", b"nosniff"), (b"Referrer-Policy", b"no-referrer"))


class Docs:
    mounts = (MOUNT,)

    def __init__(self, document: Callable[[], bytes]) -> None:
        """`document` gives the OpenAPI document as JSON; it is called once, when it is first needed."""
        self._document = document
        self.routes = (
            Route("GET", "", self._page, public=True),
            Route("GET", DOCUMENT, self._raw, public=True),
        )

    def render(self, error: Exception, request: Request | None) -> Response:
        status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
        text = error.message if isinstance(error, InverError) and status != 500 else "internal error"
        return Response(status, f"{text}\n".encode(), b"text/plain; charset=utf-8", _SAFE)

    def _page(self, request: Request) -> Response:
        return _unless_known(request, self._html)

    def _raw(self, request: Request) -> Response:
        return _unless_known(request, self._json)

    @cached_property
    def _json(self) -> Response:
        body = self._document()
        return Response(200, body, JSON, (*_SAFE, *_kept(body)))

    @cached_property
    def _html(self) -> Response:
        from inver.protocols.docs.page import STYLE, render

        assert isinstance(self._json.body, bytes)
        body = render(msgspec.json.decode(self._json.body), MOUNT + DOCUMENT)
        # The page's own style sheet is named by its hash, so nothing else can style or script the page.
        style = b64encode(sha256(STYLE.encode()).digest())
        policy = (
            b"default-src 'none'; style-src 'sha256-%b'; base-uri 'none'; form-action 'none'; "
            b"frame-ancestors 'none'" % style
        )
        headers = ((b"Content-Security-Policy", policy), *_SAFE, *_kept(body))
        return Response(200, body, b"text/html; charset=utf-8", headers)


def _kept(body: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """A browser may keep it, and asks each time whether it is still the same."""
    return ((b"Cache-Control", b"no-cache"), (b"ETag", b'"%b"' % sha256(body).hexdigest()[:32].encode()))


def _unless_known(request: Request, response: Response) -> Response:
    if request.header(b"if-none-match") == dict(response.headers)[b"ETag"]:
        return Response(304, headers=response.headers)
    return response
