"""Who acts: people, services, the groups they are in, and Inver itself."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class PrincipalKind(StrEnum):
    USER = "user"
    SERVICE = "service"
    GROUP = "group"


class Scope(StrEnum):
    """How far a credential reaches: everything its principal may do, or only reading."""

    ALL = "all"
    READ = "read"


class Principal(msgspec.Struct, frozen=True):
    """A principal as it was authenticated: the scope of the credential that it showed, and the
    state of grants and credentials in which that was found to be good."""

    id: str
    name: str
    kind: PrincipalKind
    scope: Scope = Scope.ALL
    epoch: int = 0


class PrincipalInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A principal as it is kept."""

    id: str
    name: str
    kind: PrincipalKind
    disabled: bool
    comment: str | None
    etag: int
    created_at: int
    created_by: str


SYSTEM = Principal("00000000-0000-7000-8000-000000000000", "inver", PrincipalKind.SERVICE)
"""Inver's own hand: follow-up work, maintenance, first-start set-up."""

ADMIN = Principal("00000000-0000-7000-8000-000000000002", "admin", PrincipalKind.USER)
"""The first user."""

ADMINS = Principal("00000000-0000-7000-8000-000000000003", "admins", PrincipalKind.GROUP)
"""Owns the metastore, so its members may do everything."""

EVERYONE = Principal("00000000-0000-7000-8000-000000000004", "everyone", PrincipalKind.GROUP)
"""Every principal is in it without being a member."""

BUILT_IN = (SYSTEM, ADMIN, ADMINS, EVERYONE)
