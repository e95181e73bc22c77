"""A table that operations work on, and the append that makes a version of it."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from inver.domain import lance, ledger
from inver.domain.lance import LanceHead, Manifest
from inver.domain.ledger import MAIN, Counts, Record
from inver.domain.tables import Table
from inver.services.lance.types import Placed

_encode = msgspec.json.encode


class Target:
    """A table as the operations so far leave it.

    `properties` are None until they are needed. `known` is the newest manifest of a branch, if it
    was read. A `new` table is not in the database yet, and so belongs to who makes it.
    """

    def __init__(
        self, table: Table, name: tuple[str, ...], properties: dict[str, str] | None, new: bool = False
    ) -> None:
        self.table = table
        self.name = name
        self.properties = properties
        self.schema = lance.head_of(table.head).schema
        self.versions: dict[str, int] = {MAIN: table.version}
        self.known: dict[str, Manifest | None] = {}
        self.fresh = table.version == 0
        self.new = new

    @property
    def placed(self) -> Placed:
        return Placed(self.table, self.name, self.properties or {})


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
