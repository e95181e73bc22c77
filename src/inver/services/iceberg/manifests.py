"""Manifests, read from where the table keeps them: a few at a time, and decoded beside the event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from itertools import islice
from typing import Any, Protocol, TypeVar

import msgspec

from inver.domain.iceberg.content import Content, ContentFile, Manifest
from inver.domain.iceberg.deletes import DeleteIndex, slim
from inver.domain.iceberg.scans import Scan, ScanTask
from inver.domain.locations import Location
from inver.domain.tables import Table
from inver.errors import Invalid, NotFound, Unsupported
from inver.ports import ObjectStore, Store
from inver.services.placement import Placement

AT_ONCE = 4
MAX_FILE = 256 * 2**20
"""Largest manifest that is read; writers start another at some megabytes."""
STORES = 100
MAX_DELETES = 100_000
"""Most delete files that one scan may have to look at; a client with its own memory may plan more."""

T = TypeVar("T")
R = TypeVar("R")


class ManifestReader(Protocol):
    """Reads the bytes of manifests; `inver.formats.iceberg_manifests` does."""

    def read_manifest_list(self, data: bytes) -> list[Manifest]: ...

    def read_manifest(
        self,
        data: bytes,
        manifest: Manifest,
        partition_fields: Mapping[int, tuple[int, ...]],
        metrics: bool,
        first: int = 0,
    ) -> Iterator[ContentFile | None]: ...


class Part(msgspec.Struct, frozen=True):
    """Entries of one manifest; with `last` None, up to its end."""

    manifest: Manifest
    first: int = 0
    last: int | None = None


class Manifests:
    def __init__(
        self,
        store: Store,
        placement: Placement,
        open_objects: Callable[[Location], ObjectStore],
        reader: ManifestReader,
    ) -> None:
        self._store = store
        self._placement = placement
        self._open = open_objects
        self._reader = reader
        self._stores: OrderedDict[str, ObjectStore] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="inver-manifest")

    async def of(self, table: Table, scan: Scan) -> list[Manifest]:
        """Those that may list what the scan wants, in the order of the table's lists."""
        lists = []
        named: dict[str, Manifest] = {}
        for snapshot in scan.snapshots:
            if isinstance(snapshot.manifest_list, str):
                lists.append(snapshot.manifest_list)
            else:
                # Of the first format version, which may name manifests in the metadata itself.
                paths = snapshot.manifests or ()
                own = (Manifest(path=path, added_snapshot_id=snapshot.snapshot_id) for path in paths)
                named |= {manifest.path: manifest for manifest in own}

        async with aclosing(self.lists(table, lists, scan.wants_manifest)) as results:
            async for found in results:
                named |= {manifest.path: manifest for manifest in found if manifest.path not in named}
        return list(named.values())

    async def lists(
        self, table: Table, paths: Sequence[str], wanted: Callable[[Manifest], bool]
    ) -> AsyncGenerator[list[Manifest]]:
        """The manifests of each list that are wanted."""

        async def read(path: str) -> list[Manifest]:
            data = await self._bytes(table, path)
            return await self._beside(
                lambda: list(filter(wanted, self._reader.read_manifest_list(data))), path
            )

        async with aclosing(self._ordered(paths, read)) as results:
            async for found in results:
                yield found

    async def tasks(
        self, table: Table, scan: Scan, parts: Sequence[Part], deletes: DeleteIndex | None
    ) -> AsyncIterator[list[ScanTask]]:
        """The files of each part that the scan wants."""

        async def read(part: Part) -> list[ScanTask]:
            data = await self._bytes(table, part.manifest.path, part.manifest.length)
            return await self._beside(lambda: self._chosen(data, scan, part, deletes), part.manifest.path)

        async with aclosing(self._ordered(parts, read)) as found:
            async for tasks in found:
                yield tasks

    async def deletes(self, table: Table, scan: Scan, manifests: Iterable[Manifest]) -> DeleteIndex | None:
        """None if there are none."""

        async def read(manifest: Manifest) -> list[ContentFile]:
            data = await self._bytes(table, manifest.path, manifest.length)

            def decode() -> list[ContentFile]:
                entries = self._reader.read_manifest(data, manifest, scan.partition_fields, True)
                return [slim(entry) for entry in entries if entry is not None and scan.wants(entry)]

            return await self._beside(decode, manifest.path)

        files: list[ContentFile] = []
        listing = [manifest for manifest in manifests if manifest.content is not Content.DATA]
        async with aclosing(self._ordered(listing, read)) as results:
            async for found in results:
                files += found
                if len(files) > MAX_DELETES:
                    raise Unsupported(
                        f"the scan has more than {MAX_DELETES} delete files",
                        fix="compact the table's deletes, or plan the scan in the client",
                    )
        if not files:
            return None
        whole = frozenset(id_ for id_, each in scan.partitionings.items() if each.is_unpartitioned)
        return DeleteIndex(files, whole, scan.columns)

    async def content(self, table: Table, delete: ContentFile) -> bytes:
        """A file of deletes, or the one vector in it that is meant."""
        if not delete.is_vector:
            return await self._bytes(table, delete.path, delete.size)
        start, size = delete.content_offset, delete.content_size
        if start is None or size is None or start < 0 or size < 0:
            raise Invalid(f"{delete.path}: it is not told where its vector lies", field="manifest")
        return await self._bytes(table, delete.path, size, start)

    def _chosen(self, data: bytes, scan: Scan, part: Part, deletes: DeleteIndex | None) -> list[ScanTask]:
        metrics = scan.needs_metrics or deletes is not None
        fields, first = scan.partition_fields, part.first
        entries = self._reader.read_manifest(data, part.manifest, fields, metrics, first)
        return [
            ScanTask(entry, () if deletes is None else deletes.of(entry), scan.residual(entry))
            for entry in islice(entries, None if part.last is None else part.last - first)
            if entry is not None and entry.content is Content.DATA and scan.wants(entry)
        ]

    async def _ordered(
        self, items: Sequence[T], read: Callable[[T], Coroutine[Any, Any, R]]
    ) -> AsyncGenerator[R]:
        """What `read` makes of each, in order, while the next ones are being read already."""

        async def in_turn(item: T) -> R:
            async with self._turns:
                return await read(item)

        waiting: deque[asyncio.Task[R]] = deque()
        rest = iter(items)
        try:
            while True:
                for item in islice(rest, AT_ONCE - len(waiting)):
                    waiting.append(asyncio.ensure_future(in_turn(item)))
                if not waiting:
                    return
                yield await waiting.popleft()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _bytes(self, table: Table, path: str, length: int = 0, start: int | None = None) -> bytes:
        """All of a file, or with `start` so many bytes of it."""
        if length > MAX_FILE:
            raise Unsupported(f"{path} has {length} bytes; at most {MAX_FILE} are read here")
        objects, name = await self._place(table, path)
        try:
            if start is not None:
                return await objects.get_range(name, start, length)
            data = await objects.get_range(name, 0, MAX_FILE + 1)
        except NotFound:
            raise NotFound(f"Failed to open input stream for file: {path}", kind="file") from None
        if len(data) > MAX_FILE:
            raise Unsupported(f"{path} is larger than {MAX_FILE} bytes, the most that is read here")
        return data

    async def _place(self, table: Table, path: str) -> tuple[ObjectStore, str]:
        folder = table.location.rstrip("/") + "/"
        if path.startswith(folder):
            # Folders of partitions have encoded characters, which no location of a table may have.
            return self._objects(Location.parse(table.location)), path[len(folder) :]
        file = Location.parse(path, field="manifest")
        root = await self._root(table, file)
        return self._objects(root), root.relative(file)

    async def _root(self, table: Table, file: Location) -> Location:
        """Where to open the file from. What a table's metadata names is the word of a client."""
        own = Location.parse(table.location)
        if own.contains(file):
            return own
        for place in file.ancestors():
            if await self._store.table_at(place.prefix) is not None:
                raise Unsupported(f"{file.text} belongs to another table, so the scan is not planned here")
        try:
            self._placement.external(file.canonical)
        except Invalid:
            raise Unsupported(
                f"{file.text} lies outside of the table's location, so the scan is not planned here",
                fix="plan the scan in the client",
            ) from None
        return file.ancestors()[-1]

    def _objects(self, root: Location) -> ObjectStore:
        """A store keeps its connections, so the last ones are kept."""
        store = self._stores.pop(root.prefix, None) or self._open(root)
        self._stores[root.prefix] = store
        if len(self._stores) > STORES:
            self._stores.popitem(last=False)
        return store

    async def _beside(self, work: Callable[[], T], path: str) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except Invalid as error:
            raise Invalid(f"{path}: {error.message}", field="manifest") from None
