"""What the Lance protocol asks of tables, and what it gets."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from inver.domain.lance import Totals
from inver.domain.ledger import MAIN
from inver.domain.tables import Table

TableId: TypeAlias = tuple[str, ...]
"""Catalog, namespaces and name of a table."""


class Declare(msgspec.Struct, frozen=True):
    """`table_id` is given where the place of the table was chosen, and written to, before."""

    id: TableId
    location: str | None = None
    properties: dict[str, str] = {}
    table_id: str | None = None


class CreateVersion(msgspec.Struct, frozen=True):
    """`v2` is how the final name is to be made; None takes it from the name of the staged manifest."""

    id: TableId
    version: int
    manifest_path: str
    manifest_size: int | None = None
    metadata: dict[str, str] = {}
    v2: bool | None = None
    branch: str = MAIN


class DeleteVersions(msgspec.Struct, frozen=True):
    """An end of None means: up to the last."""

    id: TableId
    ranges: tuple[tuple[int, int | None], ...]
    branch: str = MAIN


class Deregister(msgspec.Struct, frozen=True):
    id: TableId


Item: TypeAlias = Declare | CreateVersion | DeleteVersions | Deregister


class Version(msgspec.Struct, frozen=True):
    """`path` is that of the final manifest, from the root of its store."""

    version: int
    path: str
    size: int
    at: int
    metadata: dict[str, str]


class Placed(msgspec.Struct, frozen=True):
    """A table and what is kept of it under its name."""

    table: Table
    name: TableId
    properties: dict[str, str]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one item of a batch came to: a table for declarations, a version, or a count of deleted ones."""

    placed: Placed | None = None
    version: Version | None = None
    deleted: int | None = None


class Committed(msgspec.Struct, frozen=True):
    transaction: int
    outcomes: list[Outcome]


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A table at one version; 0 where there is none yet."""

    placed: Placed
    version: int
    schema: dict[str, Any]
    totals: Totals
    metadata: dict[str, str]
    declared: bool


class Told(msgspec.Struct, frozen=True):
    """A transaction as it can be described; `number` is the ledger's.

    `facts` is what the catalog says of it itself, `more` what clients have added.
    """

    number: int
    facts: dict[str, str]
    more: dict[str, str]

    @property
    def properties(self) -> dict[str, str]:
        return {**self.more, **self.facts}
