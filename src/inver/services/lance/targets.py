"""A table that operations work on, and the append that makes a version of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from inver.domain import lance, ledger
from inver.domain.grants import Action
from inver.domain.lance import LanceHead, Manifest
from inver.domain.ledger import MAIN, Counts, Record
from inver.domain.tables import Table
from inver.services.access import Access
from inver.services.context import Caller
from inver.services.lance.types import CreateVersion, Item, Placed, TableId

_encode = msgspec.json.encode


Stands: TypeAlias = tuple[int, str]
"""The version of main, and the digest of its schema."""
KNOWN_LIMIT = 1_024


class Target:
    """A table as the operations so far leave it.

    `properties` are None until they are needed. `known` is the newest manifest of a branch, if it
    was read. A `new` table is not in the database yet, and so belongs to who makes it.
    """

    def __init__(
        self,
        table: Table,
        name: TableId,
        properties: dict[str, str] | None,
        new: bool = False,
        stands: Stands | None = None,
    ) -> None:
        self.table = table
        self.name = name
        self.properties = properties
        version, self.schema = stands or (table.version, lance.head_of(table.head).schema)
        self.versions: dict[str, int] = {MAIN: version}
        self.known: dict[str, Manifest | None] = {}
        self.fresh = version == 0
        self.new = new

    @property
    def placed(self) -> Placed:
        return Placed(self.table, self.name, self.properties or {})


class KnownTables:
    """Tables as commits of this server left them, so that the next version of one needs no look at it.

    They are guesses, and the decision is what counts: it is made under the epoch of the caller, in which no
    table changes its name, and for the version that follows.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._tables: dict[TableId, tuple[int, Table, Stands]] = {}

    def guess(self, caller: Caller, items: Sequence[Item]) -> Target | None:
        """The table whose next version is asked for, and nothing else, by somebody who may commit to it."""
        item = items[0]
        if len(items) > 1 or not isinstance(item, CreateVersion) or item.branch != MAIN:
            return None
        known = self._tables.get(item.id)
        if known is None:
            return None
        epoch, table, stands = known
        if epoch != caller.principal.epoch or item.version != stands[0] + 1:
            return None
        if self._access.permitted(caller, Action.COMMIT, table.id) is None:
            return None
        return Target(table, item.id, None, stands=stands)

    def remember(self, caller: Caller, target: Target) -> None:
        if len(self._tables) >= KNOWN_LIMIT:
            self._tables.clear()
        stands = target.versions[MAIN], target.schema
        self._tables[target.name] = caller.principal.epoch, target.table, stands

    def forget(self, name: TableId) -> None:
        self._tables.pop(name, None)


def append_of(
    target: Target, branch: str, record: Record, manifest: Manifest, data: bytes, counts: Counts | None
) -> ledger.Append:
    """Branches have commits of their own; what is shown of a table is its main branch."""
    extra: dict[str, Any] = {}
    if branch == MAIN:
        head = head_of(manifest)
        extra["head"] = _encode(head)
        if head.schema != target.schema:
            target.schema = head.schema
            extra["definition"] = definition_of(manifest)
    return ledger.Append(
        table_id=target.table.id,
        version=record.version,
        token=token_of(manifest, data),
        branch=branch,
        operation=manifest.operation or "commit",
        payload=record.body,
        counts=None if counts is None else _encode(counts),
        record=record,
        **extra,
    )


def definition_of(manifest: Manifest) -> ledger.Definition:
    fields = manifest.schema.get("fields", [])
    return ledger.Definition(
        columns=_encode(fields), column_names=tuple(str(field["name"]) for field in fields)
    )


def head_of(manifest: Manifest) -> LanceHead:
    return LanceHead(lance.totals_of(manifest), manifest.digest, manifest.metadata, manifest.reader_flags)


def token_of(manifest: Manifest, data: bytes) -> str:
    """What made the version; the same when the same commit is sent again."""
    return manifest.uuid or hashlib.sha256(data).hexdigest()
