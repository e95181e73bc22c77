"""What a store keeps, as it gives it back."""

from __future__ import annotations

import msgspec

from inver.domain.grants import Privilege
from inver.domain.ledger import Part
from inver.domain.principals import Principal, Scope
from inver.domain.securables import SecurableKind
from inver.domain.tables import Format, Table, TableDetails


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The permanent row of one version."""

    version: int
    at: int
    by: str
    operation: str
    token: str
    transaction: int
    payload: bytes
    counts: bytes | None


class WorkItem(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    kind: str
    subject: str
    payload: bytes
    state: str
    not_before: int
    lease_until: int
    leased_by: str | None
    attempts: int
    last_error: str | None
    created_at: int


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token as the database knows it: by its hash, never by its secret."""

    id: str
    hash: str
    label: str
    scope: Scope
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None
    principal: Principal
    disabled: bool


class StoredSecret(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    hash: str
    label: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None


class GrantRow(msgspec.Struct, frozen=True, kw_only=True):
    securable_id: str
    kind: SecurableKind
    principal_id: str
    privilege: Privilege
    granted_at: int
    granted_by: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A search hit; `column` is set when a column's name matched and the table's did not."""

    kind: SecurableKind
    id: str
    name: str
    key: str
    owner: str
    parent_id: str
    column: str | None


class Finding(msgspec.Struct, frozen=True):
    """What offends an invariant: how many, and some of them by name. None is what is wanted."""

    name: str
    count: int
    samples: tuple[str, ...] = ()


class FullTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table with its definition and the names that its ids have now."""

    table: Table
    details: TableDetails
    full_name: tuple[str, ...]
    owner: str
    created_by: str
    updated_by: str


class LogTail(msgspec.Struct, frozen=True):
    """A table, its commits that may not be published, and the epoch of this look.

    `commits` is a JSON array of their payloads, newest first: most who ask hand it on as it is.
    """

    table: Table
    commits: bytes
    epoch: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a client measured of one version."""

    version: int
    at: int
    by: str
    body: bytes


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """A format's whole state at one version, its parts ordered by kind and position."""

    version: int
    head: bytes | None
    parts: tuple[Part, ...]


class TableNames(msgspec.Struct, frozen=True):
    """As much of tables as a long listing needs: names in order, and by name what is of another format."""

    names: list[str]
    others: dict[str, tuple[Format, bytes | None]]


class KeyTaken(Exception):
    """Another server recorded this idempotency key first; its record has the answer."""
