"""Who acts: people, services, and Inver itself."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class PrincipalKind(StrEnum):
    USER = "user"
    SERVICE = "service"
    GROUP = "group"


class Principal(msgspec.Struct, frozen=True):
    id: str
    name: str
    kind: PrincipalKind


SYSTEM = Principal("00000000-0000-7000-8000-000000000000", "inver", PrincipalKind.SERVICE)
"""Inver's own hand: follow-up work, maintenance, first-start set-up."""

ADMIN = Principal("00000000-0000-7000-8000-000000000002", "admin", PrincipalKind.USER)
"""The first user, who owns everything that has no other owner."""
