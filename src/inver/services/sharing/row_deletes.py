"""Row deletes of Iceberg tables, put together for each data file."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from inver.domain.delta_actions import DeletionVector
from inver.domain.iceberg.content import ContentFile
from inver.domain.iceberg.delta_files import check_delete
from inver.domain.iceberg.scans import ScanTask
from inver.domain.tables import Table
from inver.errors import Invalid, NotFound, Unsupported
from inver.services.iceberg.planning import Planning

_AT_ONCE = 8
_MAX_FILES = 64
"""Delete files that are held, since each may be about many data files."""

Rows = Any
"""A set of row numbers, as the reader keeps it."""


class DeleteReader(Protocol):
    """Reads the bytes of row deletes; `inver.formats.iceberg_deletes` does."""

    def read_positions(self, data: bytes) -> Mapping[str, Rows]: ...
    def read_vector(self, data: bytes, cardinality: int) -> Rows: ...
    def inline(self, sets: Iterable[Rows]) -> DeletionVector | None: ...


class RowDeletes:
    def __init__(self, table: Table, planning: Planning, reader: DeleteReader) -> None:
        self._table = table
        self._planning = planning
        self._reader = reader
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._held: OrderedDict[str, asyncio.Future[Mapping[str, Rows]]] = OrderedDict()

    async def of(self, tasks: Sequence[ScanTask]) -> list[DeletionVector | None]:
        """For each of the files, what of it is deleted."""
        for task in tasks:
            for delete in task.deletes:
                check_delete(delete)
        return await asyncio.gather(*map(self._vector, tasks))

    async def _vector(self, task: ScanTask) -> DeletionVector | None:
        if not task.deletes:
            return None
        sets = [await self._rows(task.file, delete) for delete in task.deletes]
        return await asyncio.to_thread(self._reader.inline, [rows for rows in sets if rows is not None])

    async def _rows(self, file: ContentFile, delete: ContentFile) -> Rows | None:
        if delete.is_vector:
            data = await self._content(delete)
            return await asyncio.to_thread(self._reader.read_vector, data, delete.record_count)
        found = self._held.get(delete.path)
        if found is None:
            found = self._held[delete.path] = asyncio.ensure_future(self._positions(delete))
            while len(self._held) > _MAX_FILES:
                self._held.popitem(last=False)
        return (await found).get(file.path)

    async def _positions(self, delete: ContentFile) -> Mapping[str, Rows]:
        return await asyncio.to_thread(self._reader.read_positions, await self._content(delete))

    async def _content(self, delete: ContentFile) -> bytes:
        async with self._turns:
            with explained():
                return await self._planning.content(self._table, delete)


@contextmanager
def explained() -> Iterator[None]:
    """What is wrong with a table's metadata, without the places where the provider keeps it."""
    try:
        yield
    except NotFound:
        raise NotFound("files of the table's metadata are missing", kind="log") from None
    except Invalid:
        raise Invalid("the table's metadata is damaged", field="table") from None
    except Unsupported as error:
        raise Unsupported("the table's metadata is too large, or lies where it is not read") from error
