"""Principals, groups, tokens and client secrets."""

from __future__ import annotations

from urllib.parse import urlencode

from msgspec import UNSET, UnsetType

from inver.client.core import FORM, Call, Page, json_answer, json_body, no_answer, query_of
from inver.client.naming import segment
from inver.client.operations.listing import listing
from inver.client.types import (
    AccessToken,
    ClientSecret,
    NewClientSecret,
    NewToken,
    Principal,
    Token,
    Who,
)


def whoami() -> Call[Who]:
    return Call(method="GET", path="/whoami", read=json_answer(Who))


def principals(*, kind: str | None = None, page_size: int | None = None) -> Call[Page[Principal]]:
    """Users, services and groups; `kind` picks one of the three."""
    return listing("/principals", "principals", Principal, query_of(kind=kind, max_results=page_size))


def principal(name: str) -> Call[Principal]:
    return Call(method="GET", path=_principal(name), read=json_answer(Principal))


def create_principal(name: str, kind: str = "user", *, comment: str | None = None) -> Call[Principal]:
    body = json_body({"name": name, "kind": kind, "comment": UNSET if comment is None else comment})
    return Call(method="POST", path="/principals", body=body, read=json_answer(Principal))


def alter_principal(
    name: str, *, disabled: bool | UnsetType = UNSET, comment: str | None | UnsetType = UNSET
) -> Call[Principal]:
    """A disabled principal can do nothing, and none of its tokens is taken."""
    body = json_body({"disabled": disabled, "comment": comment})
    return Call(method="PATCH", path=_principal(name), body=body, read=json_answer(Principal))


def delete_principal(name: str) -> Call[None]:
    """Refused as long as it owns something."""
    return Call(method="DELETE", path=_principal(name), read=no_answer)


def members(group: str) -> Call[Page[Principal]]:
    """The direct members of a group."""
    return listing(f"/groups/{segment(group)}/members", "members", Principal)


def add_member(group: str, principal: str) -> Call[None]:
    return Call(method="PUT", path=_member(group, principal), read=no_answer)


def remove_member(group: str, principal: str) -> Call[None]:
    return Call(method="DELETE", path=_member(group, principal), read=no_answer)


def create_token(
    principal: str | None = None,
    *,
    label: str | None = None,
    scope: str | None = None,
    expires_in_s: int | None = None,
) -> Call[NewToken]:
    """A token for a principal, or for the caller; it is shown this once."""
    body = _given(principal=principal, label=label, scope=scope, expires_in_s=expires_in_s)
    return Call(method="POST", path="/tokens", body=body, read=json_answer(NewToken))


def tokens(principal: str | None = None) -> Call[Page[Token]]:
    return listing("/tokens", "tokens", Token, query_of(principal=principal))


def revoke_token(token_id: str) -> Call[None]:
    return Call(method="DELETE", path=f"/tokens/{segment(token_id)}", read=no_answer)


def create_secret(
    principal: str, *, label: str | None = None, expires_in_s: int | None = None
) -> Call[NewClientSecret]:
    """A client id and secret for OAuth 2.0 client credentials; the secret is shown this once."""
    body = _given(label=label, expires_in_s=expires_in_s)
    path = _principal(principal) + "/secrets"
    return Call(method="POST", path=path, body=body, read=json_answer(NewClientSecret))


def secrets(principal: str) -> Call[Page[ClientSecret]]:
    return listing(_principal(principal) + "/secrets", "secrets", ClientSecret)


def revoke_secret(principal: str, secret_id: str) -> Call[None]:
    path = f"{_principal(principal)}/secrets/{segment(secret_id)}"
    return Call(method="DELETE", path=path, read=no_answer)


def access_token(client_id: str, client_secret: str) -> Call[AccessToken]:
    """RFC 6749, section 4.4: a short-lived token for a client id and secret."""
    form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": client_secret}
    return Call(
        method="POST",
        path="/oauth/token",
        body=urlencode(form).encode(),
        content_type=FORM,
        public=True,
        read=json_answer(AccessToken),
    )


def _given(**fields: str | int | None) -> bytes:
    return json_body({name: value for name, value in fields.items() if value is not None})


def _principal(name: str) -> str:
    return f"/principals/{segment(name)}"


def _member(group: str, principal: str) -> str:
    return f"/groups/{segment(group)}/members/{segment(principal)}"
