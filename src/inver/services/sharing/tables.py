"""A shared table as one recipient may see it, and its versions."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from inver.domain import delta
from inver.domain.delta import CommitInfo
from inver.domain.delta_actions import Metadata
from inver.domain.grants import Action
from inver.domain.ledger import MAIN
from inver.domain.locations import Location
from inver.domain.predicate_text import partition_filter
from inver.domain.predicates import Filter
from inver.domain.shares import Share
from inver.domain.sharing import Moment, as_of, query_version, starting_at
from inver.domain.tables import Format, Table, is_managed_delta
from inver.errors import Broken, Forbidden, Invalid, NotFound, Unsupported
from inver.ports import Commit, ObjectInfo, ObjectStore, SharedTable, Store
from inver.services.access import missing
from inver.services.audit import Audit
from inver.services.names import Names
from inver.services.placement import Placement
from inver.services.sharing.door import Guest
from inver.services.sharing.iceberg import IcebergLogs
from inver.services.sharing.logs import Log, Logs, Times

_infos = msgspec.json.Decoder(list[CommitInfo]).decode
_info = msgspec.json.Decoder(CommitInfo).decode
_LAST = 2**63 - 1


class Looked:
    """A table of a share, found for a recipient, with its log."""

    def __init__(
        self,
        guest: Guest,
        share: Share,
        shared: SharedTable,
        partitions: str | None,
        objects: ObjectStore,
        log: Log,
        times: Times,
    ) -> None:
        self.guest = guest
        self.share = share
        self.shared = shared
        self.objects = objects
        self.log = log
        self.partitions = partitions
        """The recipient's partition filter, if there is one."""
        self._times = times

    @property
    def id(self) -> str:
        return self.shared.table.id

    @property
    def terms(self) -> str:
        return terms(self.shared.item_id, self.partitions)

    @property
    def shown(self) -> str:
        return f"{self.share.name}.{self.shared.schema_name}.{self.shared.name}"

    def admitted(self, metadata: Metadata) -> Filter | None:
        """Which partitions the recipient gets. One that cannot be decided lets nothing through."""
        if self.partitions is None:
            return None
        try:
            return partition_filter(self.partitions, metadata)
        except Invalid:
            raise Forbidden(
                f"table {self.shown!r} has changed, and what you may see of it cannot be told apart any more"
            ) from None

    async def latest(self) -> int:
        latest = await self.log.latest()
        if latest < self.shared.start_version:
            raise Invalid(
                f"You can only query table data since version {self.shared.start_version}.", field="version"
            )
        return latest

    async def version(self, version: int | None, timestamp: int | None) -> int:
        """The version that a request for one, for a moment or for the latest means."""
        latest = await self.latest()
        if version is None and timestamp is None:
            return latest
        if timestamp is not None:
            found = await self._times.last_at_or_before(timestamp)
            earliest = await self._times.moment(None) if found is None else Moment(0, 0)
            version = as_of(timestamp, found, earliest, "timestamp")
        assert version is not None
        if not self.shared.history and version != latest:
            raise Invalid(
                f"table {self.shown} is shared without its history: only its latest version can be read",
                field="version" if timestamp is None else "timestamp",
            )
        return query_version(version, latest=latest, shared_since=self.shared.start_version)

    async def starting_version(self, timestamp: int) -> int:
        """The first version at or after a moment, not before what is shared."""
        latest = await self.latest()
        found = await self._times.first_at_or_after(timestamp)
        moment = await self._times.moment(latest) if found is None else Moment(0, 0)
        return max(starting_at(timestamp, found, moment), self.shared.start_version)

    async def ending_version(self, timestamp: int) -> int:
        found = await self._times.last_at_or_before(timestamp)
        earliest = await self._times.moment(None) if found is None else Moment(0, 0)
        return as_of(timestamp, found, earliest, "endingTimestamp")


def terms(item_id: str, partitions: str | None) -> str:
    """What of a table a recipient gets: whatever was put into the share anew is another item of it."""
    return f"{item_id} {partitions or ''}"


class LedgerTimes:
    """By the ledger, for tables whose commits it decides. `at` tells when one was made."""

    def __init__(self, store: Store, table: Table, at: Callable[[Commit], int]) -> None:
        self._store = store
        self._table = table
        self._time_of = at

    async def first_at_or_after(self, timestamp: int) -> int | None:
        low = await self._bisected(timestamp)
        return low if low <= self._table.version else None

    async def last_at_or_before(self, timestamp: int) -> int | None:
        low = await self._bisected(timestamp + 1)
        return low - 1 if low > 0 else None

    async def moment(self, version: int | None) -> Moment:
        return Moment(version or 0, await self._at(version or 0))

    async def _bisected(self, timestamp: int) -> int:
        """The first version that is not earlier."""
        low, high = 0, self._table.version + 1
        while low < high:
            middle = (low + high) // 2
            if await self._at(middle) < timestamp:
                low = middle + 1
            else:
                high = middle
        return low

    async def _at(self, version: int) -> int:
        found = await self._store.commits(self._table.id, MAIN, version, version, 1)
        if not found:
            raise Broken(f"the ledger has no version {version} of table {self._table.id}")
        return self._time_of(found[0])


class Tables:
    def __init__(
        self,
        store: Store,
        audit: Audit,
        logs: Logs,
        iceberg: IcebergLogs,
        names: Names,
        placement: Placement,
        open_objects: Callable[[Location], ObjectStore],
    ) -> None:
        self._store = store
        self._audit = audit
        self._logs = logs
        self._iceberg = iceberg
        self._names = names
        self._placement = placement
        self._open = open_objects

    async def open(self, table: Table) -> ObjectStore:
        """Its folder. Where that is, recipients are not told."""
        try:
            location = await self._placement.current(table, self._names.home)
        except (Invalid, NotFound):
            raise Forbidden("the table lies where this server may not read any more") from None
        return self._open(location)

    async def share(self, guest: Guest, name: str) -> tuple[Share, dict[str, str]]:
        found = await self._store.share_for(guest.recipient.id, name)
        if found is None:
            self._audit.denied(guest.recipient.id, Action.READ, guest.recipient.id)
            raise missing("share", name)
        return found

    async def find(
        self, guest: Guest, share: str, schema: str, name: str
    ) -> tuple[Share, SharedTable, str | None]:
        """The same words for everything that the recipient does not get."""
        try:
            granted, filters = await self.share(guest, share)
        except NotFound:
            raise missing("table", f"{share}.{schema}.{name}") from None
        shared = await self._store.shared_table(granted.id, schema, name)
        if shared is None:
            self._audit.denied(guest.recipient.id, Action.READ, granted.id)
            raise missing("table", f"{share}.{schema}.{name}")
        return granted, shared, filters.get(shared.table.id)

    async def look(self, guest: Guest, share: str, schema: str, name: str) -> Looked:
        granted, shared, partitions = await self.find(guest, share, schema, name)
        table = shared.table
        objects = await self.open(table)
        log, times = await self._log(table, objects)
        return Looked(guest, granted, shared, partitions, objects, log, times)

    async def check_filter(self, table: Table, text: str) -> None:
        """Whether a partition filter means something to the table as it is now."""
        log, _ = await self._log(table, await self.open(table))
        head = await log.head(await log.latest())
        partition_filter(text, head.metadata)

    async def _log(self, table: Table, objects: ObjectStore) -> tuple[Log, Times]:
        if table.format is Format.ICEBERG:
            looked = await self._iceberg.open(table)
            return looked, LedgerTimes(self._store, looked.table, lambda commit: commit.at)
        if table.format is not Format.DELTA:
            raise Unsupported(
                f"{table.format.title()} tables cannot be read through Delta Sharing here",
                fix="share a Delta or Iceberg table, or read this one through its own protocol",
            )
        if not is_managed_delta(table):
            log = self._logs.open(objects, table.id)
            return log, log
        tail = await self._store.tail(table.id, 0, _LAST)
        if tail is None:
            raise missing("table", table.id)
        staged = {
            info.version: ObjectInfo(
                delta.staged_name(info.file_name), info.file_size, info.file_modification_timestamp
            )
            for info in _infos(tail.commits)
            if info.version > 0
        }
        log = self._logs.open(objects, table.id, tail.table.version, staged)
        return log, LedgerTimes(self._store, tail.table, lambda commit: _info(commit.payload).timestamp)
