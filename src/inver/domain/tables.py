"""Tables of any format, and the life they lead.

    staged ----> live <----> dropped ----> purged
       |          ^             ^
       |          |             |
       |       declared --------+
       +------------------------------------> purged

A staged table has an id and a location and no name yet; a declared one holds its name and waits
for its first version; a dropped one keeps its data until its hold time ends.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from inver.errors import Refused


class Format(StrEnum):
    DELTA = "DELTA"
    ICEBERG = "ICEBERG"
    LANCE = "LANCE"


class TableKind(StrEnum):
    MANAGED = "MANAGED"
    EXTERNAL = "EXTERNAL"
    VIEW = "VIEW"
    """Shares the names of tables and is found only by who asks for views."""


class State(StrEnum):
    STAGED = "staged"
    DECLARED = "declared"
    LIVE = "live"
    DROPPED = "dropped"
    PURGED = "purged"


_NEXT: dict[State, frozenset[State]] = {
    State.STAGED: frozenset({State.LIVE, State.PURGED}),
    State.DECLARED: frozenset({State.LIVE, State.DROPPED}),
    State.LIVE: frozenset({State.DROPPED}),
    State.DROPPED: frozenset({State.LIVE, State.DECLARED, State.PURGED}),
    State.PURGED: frozenset(),
}

NAMED = frozenset({State.DECLARED, State.LIVE})
"""States in which a table holds its name against others."""

INITIAL = frozenset({State.STAGED, State.DECLARED, State.LIVE})


def may_become(state: State, target: State) -> bool:
    return target in _NEXT[state]


def require_transition(state: State, target: State) -> None:
    if not may_become(state, target):
        raise Refused(f"a {state} table cannot become {target}")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit or a load needs to know; `head` is the format's own small state."""

    id: str
    catalog_id: str
    schema_id: str
    name: str
    format: Format
    kind: TableKind
    state: State
    location: str
    version: int
    etag: int
    head: bytes | None
    owner: str
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str
    dropped_at: int | None = None
    published: int = 0
    """Up to here, every version is where readers look without asking the catalog."""


def is_managed_delta(table: Table) -> bool:
    """Whether the catalog decides this table's Delta commits: it does from version 0 on, or never."""
    return table.format is Format.DELTA and table.kind is TableKind.MANAGED and table.head is not None


def is_of_its_format(table: Table) -> bool:
    """Whether a version of this table is more than a row of the ledger: its format keeps a state with it."""
    return is_managed_delta(table) or (table.format is not Format.DELTA and table.head is not None)


def stays_bare(table: Table) -> bool:
    """Whether no format will ever keep a state of this table, so that its versions are the ledger's alone."""
    return table.format is Format.DELTA and not is_managed_delta(table)


class TableDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What only a reader of the definition needs; kept apart so that commits stay narrow."""

    comment: str | None
    properties: dict[str, str]
    columns: bytes
