"""Versions of Iceberg tables by the ledger: which snapshot each had, and what it added to the one before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from inver.domain.iceberg import State
from inver.domain.iceberg.scans import APPEND
from inver.domain.iceberg.snapshots import Snapshot, read_snapshot
from inver.domain.iceberg.state import NO_SNAPSHOT, SNAPSHOT
from inver.domain.iceberg.yielding import REPLACE
from inver.domain.ledger import MAIN
from inver.errors import Broken, Invalid, Unsupported
from inver.ports import Commit, Store
from inver.services.iceberg.definition import read_payload

_PAGE = 1_000
_FEW = 20
_LOOK_BACK = 1_000
"""A rewrite before more versions than these is not taken back."""

Rows = frozenset[int]
"""Snapshots that have the same rows."""


class Version(msgspec.Struct, frozen=True):
    """`last_schema_id` is the newest schema that there was."""

    version: int
    at: int
    snapshot_id: int
    schema_id: int
    last_schema_id: int
    replaces: bool
    """Whether it is known to have changed files and no rows."""


class Step(msgspec.Struct, frozen=True):
    """What a version did: `appended` are the snapshots that appended rows after the snapshot `since`, newest
    first. With `first`, there was nothing before, and all that there is was appended."""

    version: Version
    appended: Sequence[Snapshot] = ()
    since: int | None = None
    first: bool = False

    @property
    def appends(self) -> bool:
        return self.first or self.since is not None


class History:
    def __init__(self, store: Store, table_id: str) -> None:
        self._store = store
        self._table_id = table_id

    async def version(self, version: int) -> Version:
        (found,) = await self._versions(version, version)
        return found

    async def before(self, start: int) -> Rows:
        """The snapshots with the same rows as the one before a version: a rewrite may be taken back later."""
        if start == 0:
            return frozenset({NO_SNAPSHOT})
        same: set[int] = set()
        last, some = start - 1, 1
        while last >= max(0, start - _LOOK_BACK):
            first = max(0, last + 1 - some)
            for earlier in map(_version, await self._commits(first, last)):
                same.add(earlier.snapshot_id)
                if not earlier.replaces:
                    return frozenset(same)
            last, some = first - 1, _FEW
        return frozenset(same)

    async def steps(self, state: State, start: int, end: int, same: Rows) -> tuple[list[Step], Rows]:
        """Of all versions from `start` to `end`, and which snapshots have the rows of the last one; `same`
        have the rows before. Unsupported for a version that did anything but append rows."""
        steps = []
        for version in await self._versions(start, end):
            step = _step(state, version, same)
            alike = frozenset({version.snapshot_id})
            same = alike if step.appends else same | alike
            steps.append(step)
        return steps, same

    async def _versions(self, first: int, last: int) -> list[Version]:
        return [_version(commit) for commit in reversed(await self._commits(first, last))]

    async def _commits(self, first: int, last: int) -> list[Commit]:
        """Newest first."""
        found: list[Commit] = []
        while last >= first:
            some = await self._store.commits(self._table_id, MAIN, first, last, _PAGE)
            if not some or some[0].version != last:
                raise Broken(f"the ledger has no version {last} of table {self._table_id}")
            found += some
            last = some[-1].version - 1
        return found


def _version(commit: Commit) -> Version:
    payload = read_payload(commit.payload)
    if payload.current_schema_id is None or payload.last_schema_id is None:
        raise Unsupported(
            f"version {commit.version} was committed before the catalog noted what it had",
            fix="ask for a later one",
        )
    return Version(
        commit.version,
        commit.at,
        payload.current_snapshot_id,
        payload.current_schema_id,
        payload.last_schema_id,
        payload.operation == REPLACE and payload.snapshot_id == payload.current_snapshot_id,
    )


def _step(state: State, version: Version, same: Rows) -> Step:
    if version.snapshot_id in same:
        return Step(version)
    if same == {NO_SNAPSHOT}:
        if str(version.snapshot_id) not in state.parts(SNAPSHOT):
            raise expired(version.version, "startingVersion")
        return Step(version, first=True)
    snapshots = state.parts(SNAPSHOT)
    appended = []
    at: int | None = version.snapshot_id
    while at not in same:
        body = None if at is None else snapshots.get(str(at))
        if at is None or at == NO_SNAPSHOT:
            raise _not_appended(version, "it went back to an earlier state, or became another table")
        if body is None:
            if at == version.snapshot_id and version.replaces:
                return Step(version)
            raise expired(version.version, "startingVersion")
        snapshot = read_snapshot(body)
        operation = (snapshot.summary or {}).get("operation")
        if operation not in (APPEND, REPLACE):
            raise _not_appended(version, f"its operation is {operation}")
        if operation == APPEND:
            appended.append(snapshot)
        at = snapshot.parent
    return Step(version, appended, at) if appended else Step(version)


def _not_appended(version: Version, why: str) -> Unsupported:
    return Unsupported(
        f"version {version.version} of the table did more than append rows ({why}), and of Iceberg tables "
        "changes are told only where rows were appended",
        fix=f"read version {version.version} as a whole, and changes from the next one on",
    )


def expired(version: int, field: str) -> Invalid:
    return Invalid(
        f"The snapshot of version {version} has been expired, and its files are no longer known.", field=field
    )
