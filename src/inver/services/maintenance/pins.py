"""Who still needs a table as it was: shares with history, cursors, mirrors, tags and branches.

Clients cannot know of them, so only the catalog can keep what they need.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec

from inver.domain import delta
from inver.domain.care import Pin
from inver.domain.iceberg.snapshots import Snapshot, read_ref
from inver.domain.iceberg.state import SNAPSHOT, Head, ViewHead
from inver.domain.locations import Location
from inver.domain.tables import Format, Table
from inver.ports import ObjectStore, Store

LANCE_TAGS = "_refs/tags"
ICEBERG_MAIN = "main"


_iceberg_head = msgspec.json.Decoder(Head | ViewHead).decode


class _Tag(msgspec.Struct, frozen=True):
    version: int
    branch: str | None = None


class Pins:
    def __init__(self, store: Store, open_objects: Callable[[Location], ObjectStore]) -> None:
        self._store = store
        self._open = open_objects

    async def of(self, table: Table) -> tuple[Pin, ...]:
        found = [*await self._shares(table), *await self._cursors(table)]
        if table.format is Format.DELTA:
            found += _mirror(table)
        elif table.format is Format.ICEBERG:
            found += await self._iceberg_refs(table)
        elif table.format is Format.LANCE:
            found += [pin async for pin in self._lance_refs(table)]
        return tuple(found)

    async def _shares(self, table: Table) -> list[Pin]:
        """Recipients of a history may ask for any version of it."""
        return [
            Pin(reason=f"share {share.name}", version=item.start_version)
            for share, item in await self._store.shares_with(table.id)
            if item.history
        ]

    async def _cursors(self, table: Table) -> list[Pin]:
        """A cursor that has a table's id in its name says up to which version of it somebody has come."""
        found = []
        for name, value in await self._store.cursors_naming(table.id):
            known = value.isascii() and value.isdigit()
            # One that says something else may need any version.
            reason = f"cursor {name}" if known else f"cursor {name}, whose value is no version"
            found.append(Pin(reason=reason, version=int(value) if known else 0))
        return found

    async def _iceberg_refs(self, table: Table) -> list[Pin]:
        head = None if table.head is None else _iceberg_head(table.head)
        refs = {name: read_ref(raw) for name, raw in head.refs.items()} if isinstance(head, Head) else {}
        refs.pop(ICEBERG_MAIN, None)
        pieces = await self._store.pieces(table.id) if refs else None
        if pieces is None:
            return []
        wanted = {str(ref.snapshot_id) for ref in refs.values()}
        sequence = {
            part.key: msgspec.json.decode(part.body, type=Snapshot).sequence
            for part in pieces.parts
            if part.kind == SNAPSHOT and part.key in wanted and part.body is not None
        }
        return [
            Pin(
                reason=f"{ref.type} {name} at snapshot {ref.snapshot_id}",
                version=sequence.get(str(ref.snapshot_id), 0),
                alone=True,
            )
            for name, ref in refs.items()
        ]

    async def _lance_refs(self, table: Table) -> AsyncIterator[Pin]:
        for branch in await self._store.branches(table.id):
            if branch.name:
                yield Pin(reason=f"branch {branch.name}", version=branch.version, alone=True)
        objects = self._open(Location.parse(table.location))
        async for info in objects.list(LANCE_TAGS):
            if not info.path.endswith(".json"):
                continue
            name = info.path[len(LANCE_TAGS) + 1 :].removesuffix(".json")
            try:
                tag = msgspec.json.decode(await objects.get(info.path), type=_Tag)
            except msgspec.DecodeError:
                # It points somewhere, and nobody can say where.
                yield Pin(reason=f"tag {name}, which cannot be read", version=0)
                continue
            yield Pin(reason=f"tag {name}", version=tag.version, alone=True)


def _mirror(table: Table) -> list[Pin]:
    """Readers of its Iceberg metadata read the files of that version; the next conversion starts there."""
    uniform = delta.head_of(table.head).uniform
    if uniform is None:
        return []
    base = uniform.converted_version if uniform.base_version is None else uniform.base_version
    return [Pin(reason="Iceberg metadata", version=min(base, uniform.converted_version))]
