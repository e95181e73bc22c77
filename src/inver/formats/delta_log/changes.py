"""What commits changed, version by version, as files that readers compute the changed rows from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace

from inver.domain.delta_actions import (
    Add,
    CommitChanges,
    CommitInfo,
    DataFile,
    FileKey,
    Metadata,
    Remove,
    TableHead,
    Words,
    decoded,
    file_key,
)
from inver.errors import Invalid, NotFound
from inver.formats.delta_log.actions import Action, actions, damaged
from inver.formats.delta_log.facts import CommitFacts, change
from inver.formats.delta_log.listing import Listing, LogFile
from inver.formats.delta_log.reader import LogReader
from inver.formats.delta_log.snapshot import check_readable
from inver.formats.delta_log.source import Log, read_all, windows
from inver.formats.delta_log.threads import in_thread

_MERGE_METRICS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True, slots=True)
class PlannedCommit:
    version: int
    timestamp: int
    file: LogFile
    facts: CommitFacts


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """Everything that must be known before the first change is told."""

    log: Log
    commits: Sequence[PlannedCommit]
    at_start: TableHead
    at_end: TableHead

    @property
    def start(self) -> int:
        return self.commits[0].version

    @property
    def end(self) -> int:
        return self.commits[-1].version

    def vectors(self, *, change_data: bool = True) -> bool:
        """Whether one of the files that are told has a deletion vector."""
        return any(
            commit.facts.vectors and not (change_data and commit.facts.recorded) for commit in self.commits
        )

    def noted(self, place: int) -> str:
        """Nothing: every page looks through the commits."""
        return ""

    def metadata_before(self, place: int) -> Metadata:
        """Of the commit before one of the range; of the first commit for the first."""
        earlier = (commit.facts.metadata for commit in reversed(self.commits[1:place]))
        return next((each for each in earlier if each is not None), self.at_start.metadata)

    @property
    def later_metadata(self) -> list[tuple[int, Metadata]]:
        return [
            (commit.version, commit.facts.metadata)
            for commit in self.commits[1:]
            if commit.facts.metadata is not None
        ]


def changed_files(commit: Iterable[Action], *, change_data: bool = True) -> list[DataFile]:
    """The files that tell what a commit changed, in its own order.

    Change data files, if the commit has any, tell all of it, unless they are not wanted. Otherwise
    it is what the commit adds and removes, rewrites without data change left out; a file that is
    removed and added with another deletion vector is there twice, and the difference between the
    vectors is what changed.
    """
    info: CommitInfo | None = None
    files: list[Add | Remove] = []
    recorded: list[DataFile] = []
    for action in commit:
        if action.cdc is not None:
            recorded.append(action.cdc)
        elif action.commit_info is not None:
            info = info or action.commit_info
        else:
            file = action.add or action.remove
            if file is not None and file.data_change:
                files.append(file)
    if recorded and change_data:
        return recorded
    if info is not None and _changed_nothing(info):
        return []
    again = _keys(files, Add) & _keys(files, Remove)
    return [file for file in files if file_key(file) not in again] if again else list(files)


def vector_pairs(files: Iterable[DataFile]) -> dict[str, tuple[Remove, Add]]:
    """By path, files of one commit that only got another deletion vector."""
    files = list(files)
    removed = {decoded(file.path): file for file in files if isinstance(file, Remove)}
    return {
        decoded(file.path): (removed[decoded(file.path)], file)
        for file in files
        if isinstance(file, Add) and decoded(file.path) in removed
    }


def _keys(files: Iterable[Add | Remove], kind: type[Add | Remove]) -> set[FileKey]:
    return {file_key(file) for file in files if isinstance(file, kind)}


def _changed_nothing(info: CommitInfo) -> bool:
    """A merge that found nothing to do may still have rewritten files."""
    if info.operation != "MERGE":
        return False
    metrics = info.operation_metrics or {}
    return all(str(metrics.get(name)) == "0" for name in _MERGE_METRICS)


async def plan_changes(reader: LogReader, log: Log, listed: Listing, start: int, end: int) -> ChangePlan:
    """Look through the commits of a range, whose bounds have been checked."""
    known: ChangePlan | None = listed.noted.get((start, end))
    if known is None:
        known = await _planned(reader, log, listed, start, end)
        # Pages and streams ask for the same range again; the last one is enough for them.
        listed.noted.clear()
        listed.noted[start, end] = known
    return replace(known, log=log)


async def _planned(reader: LogReader, log: Log, listed: Listing, start: int, end: int) -> ChangePlan:
    files = []
    for version in range(start, end + 1):
        info = listed.commits.get(version)
        if info is None:
            raise damaged(f"version {version} is missing")
        files.append(LogFile(version, version, info))
    found = await reader.facts(log, files)
    for each in found:
        if each.protocol is not None:
            check_readable(each.protocol)
    before = await reader.head(log, listed, start)
    after = before
    for each in found[1:]:
        after = change(after, each)
    history = await reader.history(log, listed, after.metadata if end == listed.latest else None)
    commits = [
        PlannedCommit(file.last, await history.timestamp(file.last), file, each)
        for file, each in zip(files, found, strict=True)
    ]
    return ChangePlan(log, commits, before, after)


async def changes(
    reader: LogReader, plan: ChangePlan, *, change_data: bool = True, skip: int = 0
) -> AsyncIterator[CommitChanges]:
    """The commits of a plan from place `skip` on, read as they are taken."""
    lost = _Lost(reader, plan) if any(commit.facts.bare_removes for commit in plan.commits) else None
    # What was added before must be known, to complete what is removed later.
    first = 0 if lost else skip
    standing = plan.metadata_before(first)
    commits = iter(plan.commits[first:])
    for window in windows([commit.file for commit in plan.commits[first:]]):
        contents = await read_all(plan.log.store, window)
        for files, added in await in_thread(_decoded, window, contents, change_data, lost is not None):
            if lost is not None:
                await lost.complete(files, added)
            commit = next(commits)
            facts = commit.facts
            standing = facts.metadata or standing
            if commit.version >= plan.start + skip:
                yield CommitChanges(
                    commit.version, commit.timestamp, files, standing, facts.protocol, facts.metadata
                )


def _decoded(
    window: Sequence[LogFile], contents: Sequence[bytes], change_data: bool, adds: bool
) -> list[tuple[list[DataFile], list[Add]]]:
    """The files that are told of each commit, and if they are wanted all that it adds."""
    found = []
    for file, data in zip(window, contents, strict=True):
        commit: Iterable[Action] = actions(data, file.info.path)
        if adds:
            commit = list(commit)
        told = changed_files(commit, change_data=change_data)
        found.append((told, [each.add for each in commit if each.add is not None] if adds else []))
    return found


class _Lost:
    """Sizes and partition values that old writers leave out of removes, found where the files were
    added: within the range, or in the version before it."""

    def __init__(self, reader: LogReader, plan: ChangePlan) -> None:
        self._reader = reader
        self._plan = plan
        self._known: dict[str, tuple[int, Words]] = {}

    async def complete(self, files: Sequence[DataFile], added: Sequence[Add]) -> None:
        """`added` are all files that the commit adds: of change data and of rewrites, nobody is told."""
        bare = [file for file in files if isinstance(file, Remove) and _is_bare(file)]
        for add in added:
            self._known[decoded(add.path)] = add.size, add.partition_values
        for file in bare:
            path = decoded(file.path)
            if path not in self._known:
                await self._look_back([decoded(each.path) for each in bare])
            size, values = self._known.get(path) or (await self._size_of(path), {})
            file.size = size if file.size is None else file.size
            file.partition_values = values if file.partition_values is None else file.partition_values

    async def _look_back(self, paths: Sequence[str]) -> None:
        if self._plan.start == 0:
            return
        try:
            before = await self._reader.snapshot(self._plan.log, self._plan.start - 1)
        except (Invalid, NotFound):
            # The range may begin where the log begins.
            return
        self._known.update(await in_thread(before.find, paths))

    async def _size_of(self, path: str) -> int:
        try:
            info = await self._plan.log.store.head(path)
        except Invalid:
            return 0
        return 0 if info is None else info.size


def _is_bare(file: Remove) -> bool:
    return file.size is None or file.partition_values is None
