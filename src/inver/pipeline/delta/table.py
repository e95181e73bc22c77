"""A Delta table as a rewrite needs it: its live files, what its next commit builds on, and the commit.

Of a table that the catalog manages, the catalog says which version is the last and ratifies the next;
of any other the log does, where the first to write a version has it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from inver.client.core import Call, Policy, json_body, no_answer
from inver.clock import SystemClock
from inver.domain.delta import published_name, staged_name
from inver.domain.delta_actions import Add, DeletionVector, decoded
from inver.domain.delta_rebase import CATALOG_MANAGED, Standing, Winner, check_writer
from inver.domain.delta_rewrites import Commit
from inver.domain.tables import TableKind
from inver.errors import (
    Conflict,
    InverError,
    NotFound,
    OutcomeUnknown,
    Refused,
    Unavailable,
    Unsupported,
)
from inver.formats.delta_log.actions import actions
from inver.formats.delta_log.facts import in_commit_timestamp
from inver.formats.delta_log.listing import Listing
from inver.formats.delta_log.reader import LogReader
from inver.formats.delta_log.snapshot import Snapshot
from inver.formats.delta_log.source import Log
from inver.pipeline.delta.ratified import UNITY, ratified

if TYPE_CHECKING:
    from inver.pipeline.work import Work
    from inver.ports import ObjectStore

T = TypeVar("T")
_TRIES = 5
_PAUSES = Policy()


@dataclass(frozen=True)
class State:
    """One version of the table."""

    snapshot: Snapshot
    standing: Standing

    def files(self, below: int | None = None) -> Iterator[Add]:
        """Live files, with paths as storage knows them; or only those that are smaller than so many bytes
        or have deleted rows, since a large table has few of these."""
        import pyarrow.compute as pc

        for batch in self.snapshot.batches():
            rows = batch.rows
            if below is not None:
                vectors = pc.is_valid(rows.column("deletionVector"))
                rows = rows.filter(pc.or_(pc.less(rows.column("size"), below), vectors))
            for row in rows.to_pylist():
                yield _file(row, batch.partitions[row["partition"]])

    @property
    def raw_paths(self) -> dict[str, str]:
        """How the log spells the paths of files, as far as it is remembered and not what we would write."""
        return {
            decoded(add.path): add.path for add in self.snapshot.overlay.added.values() if "%" in add.path
        }


class TableLog:
    """The log of one table. `folder` is for files that can be made again."""

    def __init__(self, work: Work, folder: Path) -> None:
        self._work = work
        self._reader = LogReader(folder)
        self._managed = work.ticket.kind is TableKind.MANAGED

    def state(self) -> State:
        """The last version. Unsupported where we must not write to the table."""

        async def read(objects: ObjectStore) -> State:
            log = self._log(objects)
            listed = await self._reader.listing(log)
            snapshot = await self._reader.snapshot(log, listed=listed)
            timestamp = await self._timestamp(log, listed)
            standing = Standing(
                snapshot.version, timestamp, snapshot.protocol, snapshot.metadata, dict(snapshot.domains)
            )
            return State(snapshot, standing)

        state = self._run(read)
        check_writer(state.standing.protocol)
        features = set(state.standing.protocol.writer_features or ())
        if bool(features & CATALOG_MANAGED) != self._managed:
            raise Unsupported(
                "the table's commits belong to another catalog"
                if features & CATALOG_MANAGED
                else "the catalog manages the table, and its log does not say so"
            )
        return state

    def winners(self, after: int) -> list[Winner]:
        """Every commit after a version."""

        async def read(objects: ObjectStore) -> list[Winner]:
            log = self._log(objects)
            listed = await self._reader.listing(log)
            return [
                await self._winner(objects, listed, version)
                for version in range(after + 1, listed.latest + 1)
            ]

        return self._run(read)

    def commit(self, commit: Commit, before_again: Callable[[], None]) -> None:
        """Make it the table's next version, or Conflict if somebody else has that version.

        `before_again` may end the attempts: who has waited too long may not be alone any more.
        """
        if self._managed:
            self._ratify(commit, before_again)
            return
        name = published_name(commit.version)

        async def put(objects: ObjectStore) -> bool:
            if await objects.put_if_absent(name, commit.data, whole=True):
                return True
            # A storage that was asked twice because its first answer got lost has it from us.
            return await objects.get(name) == commit.data

        if not self._run(put):
            raise Conflict(f"version {commit.version} is taken")

    def delete(self, paths: list[str]) -> None:
        """Files that no commit names, nor ever will."""

        async def delete(objects: ObjectStore) -> None:
            for path in paths:
                await objects.delete(path, durable=False)

        if paths:
            self._run(delete)

    def _ratify(self, commit: Commit, before_again: Callable[[], None]) -> None:
        name = f"{commit.version:020d}.{uuid.uuid4()}.json"
        self._run(lambda objects: objects.put_if_absent(staged_name(name), commit.data))
        info = {
            "version": commit.version,
            "timestamp": commit.timestamp,
            "file_name": name,
            "file_size": len(commit.data),
            "file_modification_timestamp": SystemClock().now_ms(),
        }
        ticket = self._work.ticket
        body = {"table_id": ticket.table_id, "table_uri": ticket.location, "commit_info": info}
        call = Call(method="POST", path="/delta/commit", read=no_answer, body=json_body(body), mount=UNITY)
        try:
            _until_known(lambda: self._work.client.run(call), before_again)
        except Conflict:
            self.delete([staged_name(name)])
            raise

    def _log(self, objects: ObjectStore) -> Log:
        ticket = self._work.ticket
        if not self._managed:
            return Log(objects, ticket.table_id)
        return ratified(self._work.client, ticket).log(objects, ticket.table_id)

    async def _timestamp(self, log: Log, listed: Listing) -> int:
        info = listed.commits.get(listed.latest)
        if info is None:
            # Nothing but a checkpoint is left of it; whenever that was written, the commit was before.
            return max(each.modified_ms for each in listed.checkpoints[listed.latest][0].files)
        data = await _commit_file(log.store, info.path, listed.latest)
        found = in_commit_timestamp(data)
        return info.modified_ms if found is None else found

    async def _winner(self, objects: ObjectStore, listed: Listing, version: int) -> Winner:
        info = listed.commits[version]
        data = await _commit_file(objects, info.path, version)
        touched: set[str] = set()
        protocol = metadata = None
        domains: dict[str, str | None] = {}
        for action in actions(data, info.path):
            file = action.add or action.remove
            if file is not None:
                touched.add(decoded(file.path))
            protocol = action.protocol or protocol
            metadata = action.meta_data or metadata
            domain = action.domain_metadata
            if domain is not None:
                domains[domain.domain] = None if domain.removed else domain.configuration
        found = in_commit_timestamp(data)
        return Winner(
            version=version,
            timestamp=info.modified_ms if found is None else found,
            touched=frozenset(touched),
            protocol=protocol,
            metadata=metadata,
            domains=domains,
        )

    def _run(self, use: Callable[[ObjectStore], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            return await use(self._work.place.objects())

        return asyncio.run(run())


def _until_known(propose: Callable[[], None], before_again: Callable[[], None]) -> None:
    """The same file for the same version is the same commit, so an answer that was lost is asked for again.

    After one that was lost, only a conflict says that the commit is not there: any other refusal may
    be of the second question alone.
    """
    in_doubt = False
    for attempt in range(1, _TRIES + 1):
        try:
            propose()
            return
        except (OutcomeUnknown, Unavailable) as error:
            in_doubt = in_doubt or isinstance(error, OutcomeUnknown)
            if attempt == _TRIES:
                if in_doubt:
                    raise _unknown(error) from error
                raise
        except Conflict:
            raise
        except Refused as error:
            if in_doubt:
                raise _unknown(error) from error
            raise
        time.sleep(_PAUSES.pause(attempt))
        before_again()


def _unknown(error: InverError) -> OutcomeUnknown:
    return OutcomeUnknown(f"the commit may be ratified; asked again, the catalog said: {error.message}")


async def _commit_file(objects: ObjectStore, path: str, version: int) -> bytes:
    try:
        return await objects.get(path)
    except NotFound:
        # A staged commit that was published, and cleaned away, since the catalog was asked for it.
        return await objects.get(published_name(version))


def _file(row: dict[str, Any], partition_values: dict[str, str | None]) -> Add:
    vector = row["deletionVector"]
    return Add(
        path=row["path"],
        partition_values=partition_values,
        size=row["size"],
        modification_time=row["modificationTime"] or 0,
        stats=row["stats"],
        tags=None if row["tags"] is None else dict(row["tags"]),
        deletion_vector=None
        if vector is None
        else DeletionVector(
            vector["storageType"],
            vector["pathOrInlineDv"],
            vector["sizeInBytes"],
            vector["cardinality"],
            vector["offset"],
        ),
        base_row_id=row["baseRowId"],
        default_row_commit_version=row["defaultRowCommitVersion"],
        clustering_provider=row["clusteringProvider"],
    )
