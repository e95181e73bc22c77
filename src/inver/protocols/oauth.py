"""OAuth 2.0 client credentials (RFC 6749), as every token route of every protocol answers it.

Where clients renew their tokens by exchange (RFC 8693), a token is also good for a fresh one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeAlias
from urllib.parse import parse_qs, unquote_plus

import msgspec

from inver.domain.principals import Principal, Scope
from inver.errors import Forbidden, Invalid, Stale, Unauthenticated
from inver.protocols.http import Request, Response
from inver.services.context import Caller
from inver.services.tokens import ACCESS_TOKEN_MS, Issued, Tokens

Authenticate: TypeAlias = Callable[[bytes | None, str], "Principal | Awaitable[Principal]"]
"""Who shows an Authorization header, from an address."""

CLIENT_CREDENTIALS = "client_credentials"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_NO_STORE = ((b"Cache-Control", b"no-store"), (b"Pragma", b"no-cache"))
_CHALLENGE = (b"WWW-Authenticate", b'Basic realm="inver"')
ISSUED_TYPE = "urn:ietf:params:oauth:token-type:access_token"


class Exchange(Protocol):
    async def exchange(self, client_id: str, client_secret: str, scope: Scope, source: str) -> Issued:
        """A token for a client that proves who it is, or Unauthenticated."""
        ...


async def answer_token_request(
    request: Request, tokens: Exchange, grants: tuple[str, ...] = (CLIENT_CREDENTIALS,)
) -> Response:
    """Every outcome has OAuth's own shape, whatever the envelope of the protocol around it.

    `grants` are those that the route offers, the ones that it answers itself included.
    """
    try:
        form = _form(request)
        if form.get("grant_type") != CLIENT_CREDENTIALS:
            return _refuse(400, "unsupported_grant_type", f"grant_type must be {' or '.join(grants)}")
        return await _for_client(request, form, tokens)
    except Unauthenticated as error:
        return _refuse(401, "invalid_client", error.message)
    except Invalid as error:
        return _refuse(400, "invalid_request", error.message)


async def answer_renewing(request: Request, tokens: Tokens, authenticate: Authenticate) -> Response:
    """As `answer_token_request`, for clients that also exchange their token for a fresh one.

    One whose token has expired proves with its secret who it is: that is all that counts then.
    """
    try:
        form = _form(request)
        if form.get("grant_type") != TOKEN_EXCHANGE:
            return await answer_token_request(request, tokens, (CLIENT_CREDENTIALS, TOKEN_EXCHANGE))
        if _is_basic(request.header(b"authorization")):
            return await _for_client(request, form, tokens)
        subject = form.get("subject_token", "")
        if not subject or form.get("subject_token_type") != ISSUED_TYPE:
            raise Invalid(f"subject_token and subject_token_type are needed, the latter {ISSUED_TYPE}")
    except Unauthenticated as error:
        return _refuse(401, "invalid_client", error.message)
    except Invalid as error:
        return _refuse(400, "invalid_request", error.message)
    try:
        return _issued(await renew(subject, request, tokens, authenticate))
    except Unauthenticated as error:
        return _refuse(400, "invalid_grant", error.message)
    except Forbidden as error:
        return _refuse(400, "unauthorized_client", error.message)


async def renew(token: str, request: Request, tokens: Tokens, authenticate: Authenticate) -> Issued:
    """One of our own tokens for a fresh one of the same scope; no other issuer is known here."""
    while True:
        try:
            found = authenticate(b"Bearer " + token.encode(), request.client)
            principal = found if isinstance(found, Principal) else await found
        except Unauthenticated:
            raise Unauthenticated("subject_token is not a token of this catalog") from None
        asks = Caller(principal, request.request_id)
        # Grants may change in between; the subject is then authenticated anew, as nobody else is.
        with suppress(Stale):
            return await tokens.create(asks, None, "exchange", principal.scope, ACCESS_TOKEN_MS // 1000)


async def _for_client(request: Request, form: dict[str, str], tokens: Exchange) -> Response:
    client_id, client_secret = _credentials(request, form)
    scope = Scope.READ if form.get("scope") == Scope.READ else Scope.ALL
    return _issued(await tokens.exchange(client_id, client_secret, scope, request.client), scope)


def _issued(issued: Issued, scope: Scope | None = None) -> Response:
    body = {
        "access_token": issued.secret.reveal(),
        "token_type": "bearer",
        "expires_in": ACCESS_TOKEN_MS // 1000,
        "issued_token_type": ISSUED_TYPE,
    }
    if scope is not None:
        body["scope"] = str(scope)
    return Response(200, msgspec.json.encode(body), headers=_NO_STORE)


def _form(request: Request) -> dict[str, str]:
    try:
        fields = parse_qs(request.body.decode(), keep_blank_values=True, max_num_fields=64, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise Invalid("the body is not a form") from None
    for name, values in fields.items():
        if len(values) > 1:
            raise Invalid(f"{name} is given more than once")
        if "\x00" in values[0]:
            raise Invalid(f"{name} contains NUL")
    return {name: values[0] for name, values in fields.items()}


def _credentials(request: Request, form: dict[str, str]) -> tuple[str, str]:
    """HTTP Basic, or client_id and client_secret in the form; Basic wins."""
    basic = request.header(b"authorization")
    if basic is not None and _is_basic(basic):
        try:
            pair = base64.b64decode(basic[6:].strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise Unauthenticated("the Authorization header is not valid") from None
        client_id, _, client_secret = (unquote_plus(part) for part in pair.partition(":"))
        if "\x00" in client_id:
            raise Unauthenticated("the client id or secret is not valid")
        return client_id, client_secret
    if "client_id" not in form or "client_secret" not in form:
        raise Unauthenticated("client_id and client_secret are needed")
    return form["client_id"], form["client_secret"]


def _is_basic(presented: bytes | None) -> bool:
    return presented is not None and presented[:6].lower() == b"basic "


def _refuse(status: int, error: str, description: str) -> Response:
    body = {"error": error, "error_description": description}
    headers = (*_NO_STORE, _CHALLENGE) if status == 401 else _NO_STORE
    return Response(status, msgspec.json.encode(body), headers=headers)
