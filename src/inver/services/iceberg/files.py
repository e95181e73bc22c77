"""Metadata files: written before a commit is decided, removed when it lost, read to register a table."""

from __future__ import annotations

import asyncio
import gzip
import logging
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache

import msgspec

from inver.domain import iceberg
from inver.domain.iceberg import State
from inver.domain.locations import Location
from inver.errors import Broken, Forbidden, Invalid, InverError, NotFound, OutcomeUnknown, Unavailable
from inver.ports import ObjectStore, WorkItem

log = logging.getLogger("inver.iceberg")

CLEAN = "iceberg.clean"
"""Follow-up work that removes metadata files which fell out of a table's log."""
STORES = 1_000
MAX_METADATA = 256 * 2**20
"""Largest metadata file that is read to register a table, unpacked."""


class Leftovers(msgspec.Struct, frozen=True):
    """Files to remove, all below one location."""

    location: str
    files: tuple[str, ...]


_leftovers = msgspec.json.Decoder(Leftovers).decode


class Files:
    def __init__(self, open_objects: Callable[[Location], ObjectStore]) -> None:
        self._open = open_objects
        # A store remembers which folders it has made; one for each commit would make them all again.
        self._stores: OrderedDict[str, ObjectStore] = OrderedDict()

    async def write(self, state: State) -> list[bytes]:
        """The metadata file that the state names, with the state in it; returns the document in pieces.

        The database has all that is in it, so a commit does not wait until the disk has it too.
        """
        place = state.head.metadata_location
        assert place is not None
        document = iceberg.document(state)
        data: bytes | list[bytes] = document
        if iceberg.is_gzip(place):
            data = await asyncio.to_thread(_packed, b"".join(document))
        store, path = self._find(state.head.location, place)
        try:
            written = await store.put_if_absent(path, data, durable=False)
        except OutcomeUnknown as error:
            raise Unavailable("the metadata file could not be written; send the request again") from error
        if not written:
            raise Broken(f"the metadata file {place} exists already")
        return document

    async def sync(self, states: Sequence[State]) -> list[bool]:
        """Make metadata files durable that this process has written; False for those that are gone.

        Folders of tables lie beside each other, and what lies below one folder is synced at once.
        """
        groups: dict[str, tuple[ObjectStore, dict[str, list[int]]]] = {}
        for index, state in enumerate(states):
            place = _own_file(state)
            if place is not None:
                store, path = self._find_beside(state.head.location, place)
                groups.setdefault(store.root.prefix, (store, {}))[1].setdefault(path, []).append(index)
        there = [True] * len(states)
        for store, paths in groups.values():
            for path in await store.sync_all(list(paths)):
                for index in paths[path]:
                    there[index] = False
        return there

    async def settle(self, state: State) -> None:
        """Make a metadata file durable. One that a power cut has taken is written again."""
        place = _own_file(state)
        if place is None:
            return
        store, path = self._find(state.head.location, place)
        with suppress(NotFound):
            if _is_whole(await store.get(path)):
                await store.sync(path)
                return
        document = b"".join(iceberg.document(state))
        await store.put(path, _packed(document) if iceberg.is_gzip(place) else document)

    async def discard(self, states: Sequence[State]) -> None:
        """The files of commits that certainly lost. One that stays behind harms nobody."""
        for state in states:
            try:
                assert state.head.metadata_location is not None
                store, path = self._find(state.head.location, state.head.metadata_location)
                await store.delete(path)
            except InverError as error:
                log.warning("a metadata file of a lost commit stays: %s", type(error).__name__)

    async def clean(self, item: WorkItem) -> None:
        """What a table no longer names, by its `write.metadata.delete-after-commit.enabled`."""
        leftovers = _leftovers(item.payload)
        root = Location.parse(leftovers.location)
        for file in leftovers.files:
            # A log may name files of an earlier life of the table, elsewhere: those are not ours to remove.
            if root.contains(Location.parse(file)):
                store, path = self._find(leftovers.location, file)
                await store.delete(path)

    async def read(self, location: Location) -> bytes:
        """A metadata file that a client names."""
        folder = location.ancestors()[-1]
        store, path = self._find(folder.canonical, location.canonical)
        try:
            data = await store.get_range(path, 0, MAX_METADATA + 1)
        except NotFound:
            raise NotFound(f"Failed to open input stream for file: {location.text}", kind="file") from None
        if len(data) > MAX_METADATA:
            raise Invalid(
                f"a metadata file has at most {MAX_METADATA} bytes to be read here", field="metadata-location"
            )
        if iceberg.is_gzip(location.canonical) or data[:2] == b"\x1f\x8b":
            data = await asyncio.to_thread(_unpacked, data)
        return data

    def _find_beside(self, root: str, file: str) -> tuple[ObjectStore, str]:
        """From the folder above a table's own, unless the server may use none there."""
        with suppress(Forbidden):
            return self._find(_above(root), file)
        return self._find(root, file)

    def _find(self, root: str, file: str) -> tuple[ObjectStore, str]:
        location = known_place(root)
        # What the server has named itself is spelled as the location is.
        path = file[len(root) + 1 :] if file.startswith(root + "/") else ""
        if not path or root.endswith("/"):
            path = location.relative(Location.parse(file))
        store = self._stores.get(location.prefix)
        if store is None:
            store = self._open(location)
            if len(self._stores) >= STORES:
                self._stores.popitem(last=False)
            self._stores[location.prefix] = store
        else:
            self._stores.move_to_end(location.prefix)
        return store, path


known_place = lru_cache(maxsize=10_000)(Location.parse)
"""Locations of tables, which are asked for with every commit."""


@lru_cache(maxsize=10_000)
def _above(root: str) -> str:
    above = known_place(root).ancestors()
    return above[-1].canonical if above else root


def _own_file(state: State) -> str | None:
    """A metadata file that is ours to look after; None for one that is durable by itself, in an object store,
    and for one that was registered from elsewhere, which is somebody else's."""
    location, place = state.head.location, state.head.metadata_location
    root = known_place(location)
    if place is None or not root.is_local:
        return None
    # What the server has named itself is spelled as the location is.
    usual = place.startswith(location + "/metadata/") and "/" not in place[len(location) + 10 :]
    return place if usual or root.contains(Location.parse(place)) else None


def _packed(document: bytes) -> bytes:
    return gzip.compress(document, compresslevel=6)


def _is_whole(data: bytes) -> bool:
    """A file that was cut off by the end of the machine is short, empty or full of zeros."""
    if data[:2] == b"\x1f\x8b":
        try:
            return bool(gzip.decompress(data))
        except (EOFError, OSError, zlib.error):
            return False
    return data.rstrip()[-1:] == b"}"


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(data, MAX_METADATA)
    except zlib.error:
        raise Invalid("the metadata file is not gzip", field="metadata-location") from None
    if not unpacker.eof:
        raise Invalid("the metadata file is cut off or too large", field="metadata-location")
    return plain
