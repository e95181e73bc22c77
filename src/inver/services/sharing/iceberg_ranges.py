"""Which manifests the snapshots of a range added, by as few manifest lists as tell it.

A list names all manifests that the table has, each with the snapshot that added it. So the newest list of a
range tells of the whole range, but for snapshots whose manifests were merged into others since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import accumulate

from inver.domain.iceberg.content import Content, Manifest
from inver.domain.iceberg.snapshots import Snapshot
from inver.domain.tables import Table
from inver.errors import Invalid, Refused, Unsupported
from inver.services.iceberg.planning import Planning
from inver.services.sharing.iceberg_history import Step
from inver.services.sharing.row_deletes import explained

VERSIONS = 1_000
"""Most versions of one range."""
LISTS = 200
"""Most manifest lists that are read for one range."""
WINDOW = 50
"""Versions that a later page plans at a time: it may be full before the range ends."""

_FILES = "added-data-files"


def check_length(start: int, end: int) -> None:
    if end - start >= VERSIONS:
        raise Invalid(
            f"The range from version {start} to {end} is too long: of Iceberg tables, changes of at most "
            f"{VERSIONS} versions are told at a time. Give an endingVersion of at most "
            f"{start + VERSIONS - 1}, and ask for the versions after it then.",
            field="endingVersion",
        )


def _too_long(steps: Sequence[Step]) -> Refused:
    """For a range that takes too many lists, with an end up to which it certainly does not."""
    start = steps[0].version.version
    sums = accumulate(max(1, len(step.appended)) for step in steps)
    fitting = sum(1 for total in sums if total <= LISTS)
    if fitting == 0:
        return Unsupported(
            f"version {start} of the table has too many snapshots for its changes to be told",
            fix=f"read version {start} as a whole, and changes from the next one on",
        )
    return Invalid(
        f"More than {LISTS} manifest lists would have to be read for this range. Give an endingVersion of at "
        f"most {start + fitting - 1}, and ask for the versions after it then.",
        field="endingVersion",
    )


async def added(
    planning: Planning, table: Table, steps: Sequence[Step], most: int
) -> Mapping[int, Sequence[Manifest]]:
    """By snapshot, the manifests with the files that it added, always in the same order. Refused if that
    takes more than `most` lists."""
    snapshots = [snapshot for step in reversed(steps) for snapshot in step.appended]
    ranged = _Ranged(planning, table, steps, snapshots, most)
    listed = [snapshot for snapshot in snapshots if isinstance(snapshot.manifest_list, str)]
    # Some will be read in any case, and are read together: the newest, and what no other list can answer.
    await ranged.read([each for at, each in enumerate(listed) if at == 0 or _files(each) is None])
    for snapshot in listed:
        if not ranged.knows(snapshot):
            await ranged.read([snapshot])
    return ranged.found()


class _Ranged:
    def __init__(
        self,
        planning: Planning,
        table: Table,
        steps: Sequence[Step],
        snapshots: Iterable[Snapshot],
        most: int,
    ) -> None:
        self._planning = planning
        self._table = table
        self._steps = steps
        self._most = most
        self._read: set[int] = set()
        self._by: dict[int, dict[str, Manifest]] = {}
        for snapshot in snapshots:
            # Of the first format version, which may name manifests in the metadata itself.
            paths = () if isinstance(snapshot.manifest_list, str) else snapshot.manifests or ()
            by = snapshot.snapshot_id
            self._by[by] = {path: Manifest(path=path, added_snapshot_id=by) for path in paths}

    async def read(self, snapshots: Sequence[Snapshot]) -> None:
        """Their own lists, each of which has all that its snapshot added."""
        if len(self._read) + len(snapshots) > self._most:
            raise _too_long(self._steps)
        paths = [str(snapshot.manifest_list) for snapshot in snapshots]
        async with aclosing(self._planning.lists(self._table, paths, self._wants)) as lists:
            with explained():
                async for manifests in lists:
                    for manifest in manifests:
                        assert manifest.added_snapshot_id is not None
                        self._by[manifest.added_snapshot_id][manifest.path] = manifest
        self._read.update(snapshot.snapshot_id for snapshot in snapshots)

    def knows(self, snapshot: Snapshot) -> bool:
        """Whether all of its manifests are found: those with all the files that it says to have added."""
        if snapshot.snapshot_id in self._read:
            return True
        counts = [manifest.added_files for manifest in self._by[snapshot.snapshot_id].values()]
        return None not in counts and sum(count or 0 for count in counts) == _files(snapshot)

    def found(self) -> Mapping[int, Sequence[Manifest]]:
        # Lists may have them in different orders, and places of pages count files.
        return {by: [found[path] for path in sorted(found)] for by, found in self._by.items()}

    def _wants(self, manifest: Manifest) -> bool:
        return (
            manifest.content is Content.DATA
            and manifest.added_files != 0
            and manifest.added_snapshot_id in self._by
        )


def _files(snapshot: Snapshot) -> int | None:
    told = (snapshot.summary or {}).get(_FILES, "")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 19 else None
