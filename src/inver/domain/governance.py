"""Operations of the ledger on principals, their credentials and their grants."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from inver.domain.grants import Privilege
from inver.domain.principals import PrincipalKind, Scope
from inver.domain.securables import SecurableKind


class CreatePrincipal(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    kind: PrincipalKind
    comment: str | None = None


class AlterPrincipal(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    expect_etag: int | None = None
    disabled: bool | msgspec.UnsetType = msgspec.UNSET
    comment: str | None | msgspec.UnsetType = msgspec.UNSET


class DeletePrincipal(msgspec.Struct, frozen=True, kw_only=True):
    """Its tokens, secrets, memberships and grants go with it; what it owns must have another owner first."""

    id: str


class AddMember(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    member_id: str


class RemoveMember(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    member_id: str


class CreateToken(msgspec.Struct, frozen=True, kw_only=True):
    """Only the hash of the secret is ever kept."""

    id: str
    principal_id: str
    hash: str
    label: str
    scope: Scope
    expires_at: int | None


class RevokeToken(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class CreateSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A client secret; a principal has at most two that live, so that one can replace the other."""

    id: str
    principal_id: str
    hash: str
    label: str
    expires_at: int | None


class RevokeSecret(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    principal_id: str


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    principal_id: str
    kind: SecurableKind
    securable_id: str
    privileges: tuple[Privilege, ...]


class Revoke(msgspec.Struct, frozen=True, kw_only=True):
    principal_id: str
    kind: SecurableKind
    securable_id: str
    privileges: tuple[Privilege, ...]


class RecordDenial(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody was refused: who, what, where, how often since the last record."""

    principal_id: str
    action: str
    subject: str
    times: int


Governance: TypeAlias = (
    CreatePrincipal
    | AlterPrincipal
    | DeletePrincipal
    | AddMember
    | RemoveMember
    | CreateToken
    | RevokeToken
    | CreateSecret
    | RevokeSecret
    | Grant
    | Revoke
    | RecordDenial
)

MAX_LIVE_SECRETS = 2
MAX_GROUP_DEPTH = 10
