"""Types of the management API for principals, credentials and grants."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from inver.domain.principals import PrincipalInfo, PrincipalKind, Scope
from inver.domain.securables import SecurableKind
from inver.ports import StoredSecret, StoredToken
from inver.protocols.management.wire import Name, Strict, Text

Lifetime = Annotated[int, Meta(ge=1, le=10 * 365 * 24 * 3600)]
Label = Annotated[str, Meta(max_length=255)]


class CreatePrincipal(Strict):
    name: Name
    kind: PrincipalKind = PrincipalKind.USER
    comment: Text | None = None


class AlterPrincipal(Strict):
    disabled: bool | UnsetType = UNSET
    comment: Text | None | UnsetType = UNSET


class PrincipalShown(msgspec.Struct, kw_only=True):
    id: str
    name: str
    kind: PrincipalKind
    disabled: bool
    comment: str | None
    created_at: int
    created_by: str
    groups: list[str] | UnsetType = UNSET
    members: list[str] | UnsetType = UNSET

    @classmethod
    def of(cls, info: PrincipalInfo) -> PrincipalShown:
        return msgspec.convert(info, cls, from_attributes=True)


class PrincipalList(msgspec.Struct):
    principals: list[PrincipalShown]
    next_page_token: str | None


class MemberList(msgspec.Struct):
    members: list[PrincipalShown]


class Whoami(msgspec.Struct):
    id: str
    name: str
    kind: PrincipalKind
    groups: list[str]


class CreateToken(Strict):
    principal: Name | None = None
    label: Label = ""
    scope: Scope = Scope.ALL
    expires_in_s: Lifetime | None = None


class NewToken(msgspec.Struct):
    """`token` is shown here and never again."""

    token: str
    id: str
    principal: str
    label: str
    scope: Scope
    expires_at: int | None


class TokenShown(msgspec.Struct):
    id: str
    principal: str
    label: str
    scope: Scope
    created_at: int
    expires_at: int | None
    last_used_at: int | None
    revoked_at: int | None

    @classmethod
    def of(cls, token: StoredToken) -> TokenShown:
        return cls(
            token.id,
            token.principal.name,
            token.label,
            token.scope,
            token.created_at,
            token.expires_at,
            token.last_used_at,
            token.revoked_at,
        )


class TokenList(msgspec.Struct):
    tokens: list[TokenShown]


class CreateSecret(Strict):
    label: Label = ""
    expires_in_s: Lifetime | None = None


class NewSecret(msgspec.Struct):
    """`client_secret` is shown here and never again."""

    id: str
    client_id: str
    client_secret: str
    expires_at: int | None


class SecretShown(msgspec.Struct):
    id: str
    label: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None

    @classmethod
    def of(cls, secret: StoredSecret) -> SecretShown:
        return msgspec.convert(secret, cls, from_attributes=True)


class SecretList(msgspec.Struct):
    secrets: list[SecretShown]


class AccessToken(msgspec.Struct):
    access_token: str
    token_type: str
    expires_in: int
    issued_token_type: str
    scope: Scope


# --- grants ---


class SecurableName(Strict):
    """`name` is empty for the metastore, else the names from the catalog down."""

    kind: SecurableKind
    name: Annotated[tuple[Name, ...], Meta(max_length=18)] = ()


class ChangeGrants(Strict):
    principal: Name
    privileges: Annotated[list[Label], Meta(min_length=1, max_length=64)]
    securable: SecurableName


class AskExplanation(Strict):
    principal: Name
    action: Label
    securable: SecurableName


class SecurableShown(msgspec.Struct):
    kind: SecurableKind
    name: list[str]
    id: str


class GrantShown(msgspec.Struct):
    principal: str
    privilege: str
    securable: SecurableShown
    granted_at: int
    granted_by: str


class GrantList(msgspec.Struct):
    grants: list[GrantShown]


class Explanation(msgspec.Struct):
    allowed: bool
    principal: str
    action: str
    securable: SecurableShown
    because: list[str]
    missing: list[str]


class SearchHit(msgspec.Struct, omit_defaults=True):
    kind: SecurableKind
    id: str
    name: list[str]
    matched: str
    column: str | None = None


class SearchResults(msgspec.Struct):
    results: list[SearchHit]
    next_page_token: str | None
