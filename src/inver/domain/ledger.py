"""The ledger: every change of anything is a transaction of operations, decided as one.

An operation carries its own precondition. A transaction is applied when every precondition holds
and leaves nothing behind when one does not. A commit of one table is a transaction of one `Append`.

The number of a transaction is the sequence number of its first event, so the event feed is also
the record of transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec

from inver.domain.governance import Governance
from inver.domain.idempotency import KeyedRequest
from inver.domain.runs import Caring
from inver.domain.shares import Sharing
from inver.domain.tables import Format, State, TableKind

MAX_OPERATIONS = 1_000
MAIN = ""
"""The branch that every table has."""


class Whole(msgspec.Struct, frozen=True, array_like=True):
    """A table as one version leaves it, where its format says so. `deletes` are files of deleted rows."""

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    deletes: int | None = None
    deleted_rows: int | None = None
    snapshots: int | None = None
    manifests: int | None = None


class Counts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one version changed. None means not known; zero is a count.

    `sizes` are the files and bytes that came or went (below zero), by the bin of their size; None
    where files came or went and their sizes are not known. `deletes` and `deleted_rows` are by how
    much the files with deleted rows, and those rows, became more or fewer.
    """

    rows_added: int | None = None
    rows_removed: int | None = None
    files_added: int | None = None
    files_removed: int | None = None
    bytes_added: int | None = None
    bytes_removed: int | None = None
    sizes: tuple[tuple[int, int, int], ...] | None = None
    deletes: int = 0
    deleted_rows: int = 0
    whole: Whole | None = None


class CreateCatalog(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    comment: str | None = None
    properties: dict[str, str] = {}
    storage_root: str | None = None


class AlterCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that are UNSET stay as they are."""

    id: str
    expect_etag: int | None = None
    name: str | msgspec.UnsetType = msgspec.UNSET
    comment: str | None | msgspec.UnsetType = msgspec.UNSET
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    owner: str | msgspec.UnsetType = msgspec.UNSET


class DropCatalog(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    expect_etag: int | None = None


class CreateSchema(msgspec.Struct, frozen=True, kw_only=True):
    """`parent_id` is the catalog for a top-level schema."""

    id: str
    catalog_id: str
    parent_id: str
    name: str
    comment: str | None = None
    properties: dict[str, str] = {}
    storage_root: str | None = None


class AlterSchema(msgspec.Struct, frozen=True, kw_only=True):
    """With another name, the paths of the schemas inside follow."""

    id: str
    expect_etag: int | None = None
    name: str | msgspec.UnsetType = msgspec.UNSET
    comment: str | None | msgspec.UnsetType = msgspec.UNSET
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    owner: str | msgspec.UnsetType = msgspec.UNSET


class DropSchema(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    expect_etag: int | None = None


class CreateTable(msgspec.Struct, frozen=True, kw_only=True):
    """`version` is where the table starts; its first commit is `version + 1`."""

    id: str
    schema_id: str
    name: str
    format: Format
    kind: TableKind
    location: str
    location_key: str
    state: State = State.LIVE
    version: int = 0
    head: bytes | None = None
    comment: str | None = None
    properties: dict[str, str] = {}
    columns: bytes = b"[]"
    column_names: tuple[str, ...] = ()


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What readers of the definition see; UNSET stays."""

    comment: str | None | msgspec.UnsetType = msgspec.UNSET
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    columns: bytes | msgspec.UnsetType = msgspec.UNSET
    column_names: tuple[str, ...] = ()


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a format's own state, kept apart from the head so that a commit writes only what it changes.

    `key` is unique within the table and kind, `position` orders the parts of a kind. A body of
    None takes the part away.
    """

    kind: str
    key: str
    position: int
    body: bytes | None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a table lies from now on. No other table may lie there, above it or below it."""

    kind: TableKind
    location: str
    location_key: str


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A version as its clients list it. It can be taken away again, which a commit cannot.

    `key` is what made the version; it is there once in a branch, whatever number it is tried under.
    `data` waits here until it is where readers look for it; None when it is. A listing shows that
    something waits, and not what.
    """

    version: int
    at: int
    key: str | None
    body: bytes
    data: bytes | None = None


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """One new version of one branch; it wins only if the branch stands at `version - 1`.

    `token` identifies the attempt: the same version with the same token is the same commit sent
    twice, with another token it is somebody else's. `head` and `parts` change with the version.
    `named` is the key of the name by which the table was found: one that has another by now is not meant.
    `published` is up to where the log was seen to go; a decision that does not note it loses nothing.
    """

    table_id: str
    version: int
    token: str
    branch: str = MAIN
    operation: str = "commit"
    payload: bytes = b"{}"
    counts: bytes | None = None
    head: bytes | None = None
    parts: tuple[Part, ...] = ()
    definition: Definition | None = None
    place: Place | None = None
    named: str | None = None
    record: Record | None = None
    expect_etag: int | None = None
    published: int | None = None


class Expect(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing changes; the table must have reached `version`. For what had been done before it was asked."""

    table_id: str
    version: int


class FinishTable(msgspec.Struct, frozen=True, kw_only=True):
    """A staged table gets its name and its first version."""

    table_id: str
    schema_id: str
    name: str
    first: Append
    definition: Definition


class CreateBranch(msgspec.Struct, frozen=True, kw_only=True):
    """`within` is how far the branch that it leaves has come; None where that is main."""

    table_id: str
    branch: str
    version: int
    within: int | None = None


class DropBranch(msgspec.Struct, frozen=True, kw_only=True):
    table_id: str
    branch: str


class AddRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Versions that were made before the table came to the catalog."""

    table_id: str
    records: tuple[Record, ...]
    branch: str = MAIN


class DeleteRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Versions leave the list: from each start up to before its end, or up to the last where that is None.

    The newest one stays unless all go, or `newest` says that it may go. No number is given twice.
    """

    table_id: str
    ranges: tuple[tuple[int, int | None], ...]
    branch: str = MAIN
    newest: bool = False


class AlterTable(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the definition without a new version; it moves the etag.

    `expect_version` is for who brings a head: commits change it, too, some of them without the etag.
    """

    table_id: str
    expect_etag: int | None = None
    expect_version: int | None = None
    comment: str | None | msgspec.UnsetType = msgspec.UNSET
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    columns: bytes | msgspec.UnsetType = msgspec.UNSET
    column_names: tuple[str, ...] = ()
    owner: str | msgspec.UnsetType = msgspec.UNSET
    head: bytes | msgspec.UnsetType = msgspec.UNSET


class RenameTable(msgspec.Struct, frozen=True, kw_only=True):
    table_id: str
    schema_id: str
    name: str
    expect_etag: int | None = None


class DropTable(msgspec.Struct, frozen=True, kw_only=True):
    """The name is free at once; the data stays until `purge_at`."""

    table_id: str
    purge_at: int
    expect_etag: int | None = None


class UndropTable(msgspec.Struct, frozen=True, kw_only=True):
    """Back under its old name unless another is given."""

    table_id: str
    schema_id: str | None = None
    name: str | None = None


class PurgeTable(msgspec.Struct, frozen=True, kw_only=True):
    table_id: str
    expect_etag: int | None = None


class MoveCursor(msgspec.Struct, frozen=True, kw_only=True):
    """A named position that moves only from where its owner believes it to be; None means absent."""

    name: str
    expect: str | None
    value: str | None


Operation: TypeAlias = (
    CreateCatalog
    | AlterCatalog
    | DropCatalog
    | CreateSchema
    | AlterSchema
    | DropSchema
    | CreateTable
    | Append
    | Expect
    | FinishTable
    | CreateBranch
    | DropBranch
    | AddRecords
    | DeleteRecords
    | AlterTable
    | RenameTable
    | DropTable
    | UndropTable
    | PurgeTable
    | MoveCursor
    | Governance
    | Sharing
    | Caring
)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Follow-up work, recorded with the change that calls for it."""

    kind: str
    subject: str
    payload: bytes = b"{}"
    not_before: int = 0


class Transaction(msgspec.Struct, frozen=True):
    """`epoch` is the state of all grants and credentials under which it was allowed.

    When they have changed by the time of the decision, the transaction is Stale and must be
    allowed anew. None is for Inver itself, whom nobody allows anything. `owners` says, where they
    are not one to one, which request each operation belongs to: the last one is its result.
    """

    by: str
    at: int
    operations: tuple[Operation, ...]
    keyed: KeyedRequest | None = None
    work: tuple[Work, ...] = ()
    epoch: int | None = None
    owners: tuple[int, ...] = ()

    def results(self, results: Sequence[Result]) -> tuple[Result, ...]:
        """One result for each request, from one for each operation."""
        if not self.owners:
            return tuple(results)
        return tuple(dict(zip(self.owners, results, strict=True)).values())


class Result(msgspec.Struct, frozen=True, array_like=True):
    """What one operation did: the id it touched, the version it left a table at, how many things it took."""

    subject: str
    version: int | None = None
    count: int | None = None


class Receipt(msgspec.Struct, frozen=True):
    """Proof of a decided transaction. `replayed` says that it had been decided before.

    One commit that changed nothing but its table's version says which etag it met there, and up to
    which version the log of the table was known to go.
    """

    transaction: int
    at: int
    results: tuple[Result, ...]
    replayed: bool = False
    etag: int | None = None
    published: int | None = None


class Reason(StrEnum):
    VERSION_TAKEN = "version-taken"
    VERSION_GAP = "version-gap"
    BRANCH_EXISTS = "branch-exists"
    COMMITTED_BEFORE = "committed-before"
    NEWEST_VERSION = "newest-version"
    ETAG_CHANGED = "etag-changed"
    CURSOR_MOVED = "cursor-moved"
    TABLE_LEASED = "table-leased"
    LEASE_LOST = "lease-lost"


class Winner(msgspec.Struct, frozen=True):
    """The commit that stands where another wanted to be."""

    version: int
    token: str
    transaction: int
    at: int
    by: str


class ConflictDetail(msgspec.Struct, frozen=True, kw_only=True):
    operation: int
    subject: str
    reason: Reason
    expected: int | str | None
    current: int | str | None
    winner: Winner | None = None


class Verdict(StrEnum):
    ACCEPT = "accept"
    REPLAY = "replay"
    REFUSE = "refuse"


def judge(append: Append, current: int, standing: Winner | None) -> Verdict:
    """What becomes of an append on a branch at `current`, where `standing` holds its version if any does."""
    if append.version == current + 1:
        return Verdict.ACCEPT
    if standing is not None and standing.version == append.version and standing.token == append.token:
        return Verdict.REPLAY
    return Verdict.REFUSE


def conflict_of(index: int, append: Append, current: int, standing: Winner | None) -> ConflictDetail:
    taken = append.version <= current
    return ConflictDetail(
        operation=index,
        subject=append.table_id,
        reason=Reason.VERSION_TAKEN if taken else Reason.VERSION_GAP,
        expected=append.version - 1,
        current=current,
        winner=standing if taken else None,
    )


def replayed_transaction(standing: Iterable[Winner]) -> int | None:
    """The one transaction that made all of these commits, or None when they came from several."""
    numbers = {winner.transaction for winner in standing}
    return numbers.pop() if len(numbers) == 1 else None
