"""What callers ask of a transaction. They name tables; the ledger knows ids."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from inver.domain import ledger
from inver.domain.tables import Format, State, TableKind
from inver.services.names import TableRef
from inver.services.portions import Native


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A new version of a table that is given by name; one that is given by id is an `Append` as it is."""

    table: TableRef
    version: int
    token: str
    branch: str = ledger.MAIN
    operation: str = "commit"
    payload: bytes = b"{}"
    counts: bytes | None = None


class CreateTable(msgspec.Struct, frozen=True, kw_only=True):
    name: tuple[str, ...]
    format: Format
    kind: TableKind = TableKind.MANAGED
    state: State = State.LIVE
    location: str | None = None
    version: int = 0
    comment: str | None = None
    properties: dict[str, str] = {}
    columns: bytes = b"[]"
    head: bytes | None = None


class CreateBranch(msgspec.Struct, frozen=True, kw_only=True):
    table: TableRef
    branch: str
    version: int


class RenameTable(msgspec.Struct, frozen=True, kw_only=True):
    table: TableRef
    to: tuple[str, ...]


class AlterTable(msgspec.Struct, frozen=True, kw_only=True):
    table: TableRef
    expect_etag: int | None = None
    comment: str | None | msgspec.UnsetType = msgspec.UNSET
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    columns: bytes | msgspec.UnsetType = msgspec.UNSET
    owner: str | msgspec.UnsetType = msgspec.UNSET


class DropTable(msgspec.Struct, frozen=True, kw_only=True):
    table: TableRef
    expect_etag: int | None = None


class UndropTable(msgspec.Struct, frozen=True, kw_only=True):
    table_id: str
    to: tuple[str, ...] | None = None


class MoveCursor(msgspec.Struct, frozen=True, kw_only=True):
    cursor: str
    expect: str | None
    value: str | None


Intent: TypeAlias = (
    ledger.Append
    | Commit
    | CreateTable
    | CreateBranch
    | RenameTable
    | AlterTable
    | DropTable
    | UndropTable
    | MoveCursor
    | Native
)
