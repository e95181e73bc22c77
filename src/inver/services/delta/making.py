"""Managed tables that the server makes itself, for clients that can write a table but not create one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from inver import __version__
from inver.clock import Clock
from inver.domain import delta, delta_new
from inver.domain.delta import CommitSummary, Metadata, Protocol
from inver.domain.ledger import FinishTable
from inver.domain.locations import Location
from inver.ids import new_id
from inver.ports import ObjectStore, Store
from inver.services.access import missing
from inver.services.context import Caller
from inver.services.delta.first_version import finishing
from inver.services.delta.tables import DeltaTables
from inver.services.delta.types import MakeTable, NewTable

ENGINE = f"Inver/{__version__}"
WriteFirst: TypeAlias = Callable[[Metadata, Protocol, int, str], bytes]


class Making:
    """`write` gives the bytes of a version 0."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tables: DeltaTables,
        open_objects: Callable[[Location], ObjectStore],
        write: WriteFirst,
        summarize: Callable[[bytes], CommitSummary],
    ) -> None:
        self._store = store
        self._clock = clock
        self._tables = tables
        self._open = open_objects
        self._write = write
        self._summarize = summarize

    async def prepare(self, caller: Caller, asked: MakeTable) -> FinishTable:
        """Do what a client does: stage the table, and write its version 0 there.

        What is not finished after that is a staged table like any other, and cleaned up as one.
        """
        partition_by = delta_new.check_fields(asked.fields, asked.partition_by)
        delta_new.properties_of("", asked.properties)
        staged = await self._tables.stage(caller, asked.name)
        properties = delta_new.properties_of(staged.id, asked.properties)
        schema = msgspec.json.encode({"type": "struct", "fields": asked.fields})
        metadata = Metadata(new_id(), schema, partition_by, properties, description=asked.comment)
        protocol = delta_new.protocol_for(asked.fields, properties)
        data = self._write(metadata, protocol, self._clock.now_ms(), ENGINE)
        objects = self._open(Location.parse(staged.location))
        await objects.make_folder(delta.STAGED_FOLDER)
        await objects.put_if_absent(delta.published_name(0), data)
        table = await self._store.table_by_id(staged.id)
        if table is None:
            raise missing("table", staged.id)
        new = NewTable(name=asked.name, location=staged.location, comment=asked.comment)
        return finishing(table, table.schema_id, new, len(data), self._summarize(data), metadata.id)
