"""How a proposed Delta commit becomes a version.

Everything that needs the file system happens before the decision: the staged file is read once,
compared with what the request says of it, and counted. The decision itself is the ledger's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from inver.clock import Clock
from inver.domain import delta, ledger
from inver.domain.delta import CommitInfo, CommitSummary, DeltaHead, Uniform
from inver.domain.grants import Action
from inver.domain.ledger import Receipt, Transaction
from inver.domain.locations import Location
from inver.domain.tables import Table, is_managed_delta
from inver.domain.uuids import is_uuid
from inver.errors import Invalid, NotFound
from inver.ports import FullTable, ObjectStore, Store
from inver.services.access import Access, missing
from inver.services.context import Caller
from inver.services.delta.agreement import compare, completed
from inver.services.delta.publishing import Publishing
from inver.services.delta.types import Changes, Proposal

_encode = msgspec.json.encode
_UNIFORM = "delta.universalFormat.enabledFormats"
PLACES_LIMIT = 100_000


class Commits:
    """`verify` switches the comparison of the staged file with the request; its counts go with it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        access: Access,
        publishing: Publishing,
        open_objects: Callable[[Location], ObjectStore],
        summarize: Callable[[bytes], CommitSummary],
        verify: bool = True,
    ) -> None:
        self._store = store
        self._clock = clock
        self._access = access
        self._publishing = publishing
        self._open = open_objects
        self._summarize = summarize
        self._verify = verify
        # Location and format never change for an id, so they may be remembered for ever.
        self._places: dict[str, Location] = {}

    def propose(self, caller: Caller, proposal: Proposal) -> Awaitable[Receipt | None]:
        """A commit, a notice of published versions, or both."""
        info = proposal.info
        if info is None and proposal.published is None and proposal.changes is None:
            raise Invalid("neither a commit nor a published version is given", field="commit_info")
        if not is_uuid(proposal.table_id):
            raise Invalid("table_id is not a UUID", field="table_id")
        if info is not None:
            delta.check_commit_info(info)
        if proposal.published is not None and proposal.published < 0:
            raise Invalid("the published version must not be negative", field="latest_published_version")
        if info is None and proposal.changes is None:
            return self._notice(caller, proposal)
        if info is None:
            return self._alter(caller, proposal)
        if self._is_direct(caller, proposal):
            return self._direct(caller, proposal, info)
        return self._commit(caller, proposal, info)

    # --- the short way: nothing to read but what is remembered ---

    def _is_direct(self, caller: Caller, proposal: Proposal) -> bool:
        if self._verify or proposal.changes is not None or proposal.uniform is not None:
            return False
        if proposal.published is not None and proposal.info and proposal.published >= proposal.info.version:
            return False
        if proposal.expect_etag is not None or not self._access.permitted(
            caller, Action.COMMIT, proposal.table_id
        ):
            return False
        place = self._places.get(proposal.table_id)
        return place is not None and _is_at(place, proposal.location)

    def _direct(self, caller: Caller, proposal: Proposal, info: CommitInfo) -> Awaitable[Receipt]:
        self._publishing.soon(proposal.table_id)
        return self._decide(caller, _append(proposal.table_id, info, None))

    # --- the whole way ---

    async def _commit(self, caller: Caller, proposal: Proposal, info: CommitInfo) -> Receipt:
        full = await self._table(caller, proposal)
        table = full.table
        if info.version <= table.version:
            # Made for a state that is past: whatever else is wrong with it, it is late or a repetition.
            return await self._decide(caller, _append(table.id, info, None))
        if proposal.published is not None and proposal.published > table.version:
            raise Invalid("the published version is above the last version", field="latest_published_version")
        summary = await self._staged(table, info) if self._verify else None
        append = _append(table.id, info, summary)
        changes = proposal.changes
        if summary is not None:
            changes = completed(changes, summary, full.details.columns)
        if changes is not None or proposal.uniform is not None:
            append = _with_changes(append, full, info, changes or Changes(), proposal.uniform)
        if proposal.expect_etag is not None:
            append = msgspec.structs.replace(append, expect_etag=proposal.expect_etag)
        if summary is not None:
            compare(table, append, summary)
        receipt = await self._decide(caller, append)
        self._publishing.soon(table.id)
        return receipt

    def _decide(self, caller: Caller, append: ledger.Append) -> Awaitable[Receipt]:
        principal = caller.principal
        return self._store.decide(
            Transaction(principal.id, self._clock.now_ms(), (append,), epoch=principal.epoch)
        )

    async def _staged(self, table: Table, info: CommitInfo) -> CommitSummary | None:
        """What the staged file says. One that is gone may have been ratified before: the ledger knows."""
        objects = self._open(Location.parse(table.location))
        try:
            data = await objects.get(delta.staged_name(info.file_name))
        except NotFound:
            standing = await self._store.commits(table.id, ledger.MAIN, info.version, info.version, 1)
            if standing and standing[0].token == info.file_name:
                return None
            raise Invalid(
                f"the staged commit {info.file_name} does not exist",
                field="commit_info.file_name",
                fix=f"write it to {delta.STAGED_FOLDER} of the table before committing it",
            ) from None
        if len(data) != info.file_size:
            raise Invalid(
                f"the staged commit has {len(data)} bytes, the request says {info.file_size}",
                field="commit_info.file_size",
            )
        summary = self._summarize(data)
        if summary.timestamp != info.timestamp:
            raise Invalid(
                f"the staged commit has the in-commit timestamp {summary.timestamp}, the request says "
                f"{info.timestamp}",
                field="commit_info.timestamp",
            )
        return summary

    async def _notice(self, caller: Caller, proposal: Proposal) -> None:
        """A client says that it has published; we look before we believe."""
        table = (await self._table(caller, proposal)).table
        assert proposal.published is not None
        if proposal.published > table.version:
            raise Invalid("the published version is above the last version", field="latest_published_version")
        await self._publishing.publish(table.id)

    async def _alter(self, caller: Caller, proposal: Proposal) -> Receipt:
        """A change of metadata without a commit."""
        full = await self._table(caller, proposal)
        assert proposal.changes is not None
        head, definition = _changed(full, None, proposal.changes, proposal.uniform)
        principal = caller.principal
        operation = ledger.AlterTable(
            table_id=full.table.id,
            expect_etag=full.table.etag if proposal.expect_etag is None else proposal.expect_etag,
            comment=definition.comment,
            properties=definition.properties,
            columns=definition.columns,
            column_names=definition.column_names,
            head=_encode(head),
        )
        return await self._store.decide(
            Transaction(principal.id, self._clock.now_ms(), (operation,), epoch=principal.epoch)
        )

    async def _table(self, caller: Caller, proposal: Proposal) -> FullTable:
        full = await self._store.full_table(proposal.table_id.lower())
        if full is None:
            raise missing("table", proposal.table_id)
        table = full.table
        chain = await self._access.table_chain(caller, table)
        await self._access.require(caller, Action.COMMIT, chain, proposal.table_id)
        place = Location.parse(table.location)
        if not _is_at(place, proposal.location):
            raise Invalid("table_uri is not the location of this table", field="table_uri")
        managed = is_managed_delta(table)
        if not managed and (proposal.info is not None or proposal.published is not None):
            raise Invalid("the catalog does not manage the commits of this table", field="table_id")
        if managed:
            if len(self._places) >= PLACES_LIMIT:
                self._places.clear()
            self._places[table.id] = place
        return full


def _is_at(place: Location, location: str | None) -> bool:
    if location is None or location == place.text or location == place.canonical:
        return True
    return Location.parse(location, field="table_uri").prefix == place.prefix


def _append(table_id: str, info: CommitInfo, summary: CommitSummary | None) -> ledger.Append:
    """The staged file's name is the token: the same file for the same version is the same commit."""
    return ledger.Append(
        table_id=table_id.lower(),
        version=info.version,
        token=info.file_name,
        operation=(summary.operation if summary else None) or "WRITE",
        payload=_encode(info),
        counts=_encode(summary.counts) if summary else None,
    )


def _with_changes(
    append: ledger.Append, full: FullTable, info: CommitInfo, changes: Changes, uniform: Uniform | None
) -> ledger.Append:
    head, definition = _changed(full, info, changes, uniform)
    if changes.only_row_tracking() and uniform is None:
        return msgspec.structs.replace(append, head=_encode(head))
    # What was merged here was read at this etag.
    return msgspec.structs.replace(
        append, head=_encode(head), definition=definition, expect_etag=full.table.etag
    )


def _changed(
    full: FullTable, info: CommitInfo | None, changes: Changes, uniform: Uniform | None
) -> tuple[DeltaHead, ledger.Definition]:
    """The state and definition of a table after the changes."""
    head = delta.head_of(full.table.head)
    properties = _merged(full.details.properties, changes)
    replacing: dict[str, Any] = {}
    if not isinstance(changes.protocol, msgspec.UnsetType):
        replacing["protocol"] = changes.protocol
    elif isinstance(changes.properties, dict) and any(
        k.startswith("delta.feature.") for k in changes.properties
    ):
        replacing["protocol"] = delta.protocol_of(changes.properties)
    if not isinstance(changes.partition_columns, msgspec.UnsetType):
        replacing["partition_columns"] = changes.partition_columns
    domains = {
        name: value
        for name, value in {**head.domains, **changes.set_domains}.items()
        if name not in changes.remove_domains
    }
    replacing["domains"] = domains
    if info is not None and not changes.only_row_tracking():
        replacing["updated_version"] = info.version
        replacing["updated_timestamp"] = info.timestamp
    if not isinstance(changes.snapshot_version, msgspec.UnsetType):
        replacing["updated_version"] = changes.snapshot_version
    if not isinstance(changes.snapshot_timestamp, msgspec.UnsetType):
        replacing["updated_timestamp"] = changes.snapshot_timestamp
    if uniform is not None:
        replacing["uniform"] = _checked_uniform(full.table, info, properties, uniform)
    changed = msgspec.structs.replace(head, **replacing)
    if head.managed:
        delta.require_managed(full.table.id, changed.protocol, properties)
    columns = changes.columns
    names: tuple[str, ...] = ()
    if not isinstance(columns, msgspec.UnsetType):
        names = tuple(str(each["name"]) for each in msgspec.json.decode(columns) if "name" in each)
    return changed, ledger.Definition(
        comment=changes.comment, properties=properties, columns=columns, column_names=names
    )


def _merged(current: dict[str, str], changes: Changes) -> dict[str, str]:
    if isinstance(changes.properties, dict):
        return delta.stored_properties(changes.properties)
    both = set(changes.set_properties) & set(changes.remove_properties)
    if both:
        raise Invalid(f"{min(both)} is both set and removed", field="remove-properties")
    merged = {**current, **delta.stored_properties(changes.set_properties)}
    return {key: value for key, value in merged.items() if key not in changes.remove_properties}


def _checked_uniform(
    table: Table, info: CommitInfo | None, properties: dict[str, str], uniform: Uniform
) -> Uniform:
    if "iceberg" not in properties.get(_UNIFORM, "").split(","):
        raise Invalid(f"uniform needs the property {_UNIFORM} with iceberg", field="uniform")
    root, place = Location.parse(table.location), Location.parse(uniform.metadata_location, field="uniform")
    if not root.contains(place) or root == place:
        raise Invalid(
            "metadata_location must lie below the table's location", field="uniform.iceberg.metadata_location"
        )
    if info is not None and uniform.converted_version != info.version:
        raise Invalid(
            "converted_delta_version must be the version of this commit",
            field="uniform.iceberg.converted_delta_version",
        )
    return uniform
