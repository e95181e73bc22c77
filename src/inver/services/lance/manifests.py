"""Manifests on storage, read and remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

from inver.domain.lance import Manifest, body_of
from inver.domain.ledger import MAIN, Record
from inver.domain.locations import Location
from inver.domain.tables import Table
from inver.errors import NotFound
from inver.ports import ObjectStore

REMEMBERED = 512
LARGE = 1 << 20
"""Manifests above this size are read again rather than remembered."""


@lru_cache(4096)
def key_of(location: str) -> str:
    """Where a table lies below the root of its store, which is what clients write paths from."""
    return Location.parse(location).key


class Manifests:
    def __init__(
        self,
        open_objects: Callable[[Location], ObjectStore],
        read_manifest: Callable[[bytes], Manifest],
    ) -> None:
        self._open = open_objects
        self.parse = read_manifest
        self._stores: dict[str, ObjectStore] = {}
        self._known: OrderedDict[tuple[str, str, int, str | None], Manifest] = OrderedDict()
        self._newest: OrderedDict[str, tuple[int, Manifest]] = OrderedDict()

    def objects(self, table: Table) -> ObjectStore:
        return self.objects_at(table.location)

    def objects_at(self, location: str) -> ObjectStore:
        """An open store is kept: it knows which of its folders are on disk."""
        objects = self._stores.get(location)
        if objects is None:
            if len(self._stores) >= REMEMBERED:
                self._stores.clear()
            objects = self._stores[location] = self._open(Location.parse(location))
        return objects

    async def staged(self, table: Table, path: str) -> tuple[bytes, Manifest]:
        objects = self.objects(table)
        data = objects.get_at_once(path)
        if data is None:
            data = await objects.get(path)
        return data, self.parse(data)

    async def at(self, table: Table, branch: str, record: Record) -> Manifest:
        """The manifest of a recorded version, wherever it lies now; NotFound if it lies nowhere."""
        manifest = self.newest(table.id, record.version) if branch == MAIN else None
        manifest = manifest or self._known.get((table.id, branch, record.version, record.key))
        if manifest is not None:
            return manifest
        body = body_of(record.body)
        objects = self.objects(table)
        try:
            data = await objects.get(body.final(branch, record.version))
        except NotFound:
            data = await objects.get(body.staged)
        manifest = self.parse(data)
        self.remember(table.id, branch, record, manifest, len(data))
        return manifest

    def remember(self, table_id: str, branch: str, record: Record, manifest: Manifest, size: int) -> None:
        if size > LARGE or record.key is None:
            return
        if len(self._known) >= REMEMBERED:
            self._known.popitem(last=False)
        self._known[(table_id, branch, record.version, record.key)] = manifest

    def decided(self, table_id: str, version: int, manifest: Manifest, size: int) -> None:
        """A version of main, of which there is no second one of that number."""
        if size > LARGE:
            return
        if table_id not in self._newest and len(self._newest) >= REMEMBERED:
            self._newest.popitem(last=False)
        self._newest[table_id] = version, manifest

    def newest(self, table_id: str, version: int) -> Manifest | None:
        """The manifest of a version of main, if it is the last that was decided here."""
        known = self._newest.get(table_id)
        return known[1] if known is not None and known[0] == version else None
