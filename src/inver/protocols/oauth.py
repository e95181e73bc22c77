"""OAuth 2.0 client credentials (RFC 6749), as every token route of every protocol answers it."""

from __future__ import annotations

import base64
import binascii
from typing import Protocol
from urllib.parse import parse_qs, unquote_plus

import msgspec

from inver.domain.principals import Scope
from inver.errors import Invalid, Unauthenticated
from inver.protocols.http import Request, Response
from inver.services.tokens import ACCESS_TOKEN_MS, Issued

_NO_STORE = ((b"Cache-Control", b"no-store"), (b"Pragma", b"no-cache"))
ISSUED_TYPE = "urn:ietf:params:oauth:token-type:access_token"


class Exchange(Protocol):
    async def exchange(self, client_id: str, client_secret: str, scope: Scope, source: str) -> Issued:
        """A token for a client that proves who it is, or Unauthenticated."""
        ...


async def answer_token_request(request: Request, tokens: Exchange) -> Response:
    """Every outcome has OAuth's own shape, whatever the envelope of the protocol around it."""
    try:
        form = _form(request)
        if form.get("grant_type") != "client_credentials":
            return _refuse(400, "unsupported_grant_type", "only client_credentials is supported")
        client_id, client_secret = _credentials(request, form)
        scope = Scope.READ if form.get("scope") == Scope.READ else Scope.ALL
        issued = await tokens.exchange(client_id, client_secret, scope, request.client)
    except Unauthenticated as error:
        return _refuse(401, "invalid_client", error.message)
    except Invalid as error:
        return _refuse(400, "invalid_request", error.message)
    body = {
        "access_token": issued.secret.reveal(),
        "token_type": "bearer",
        "expires_in": ACCESS_TOKEN_MS // 1000,
        "issued_token_type": ISSUED_TYPE,
        "scope": str(scope),
    }
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
    if basic is not None and basic[:6].lower() == b"basic ":
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


def _refuse(status: int, error: str, description: str) -> Response:
    body = {"error": error, "error_description": description}
    return Response(status, msgspec.json.encode(body), headers=_NO_STORE)
