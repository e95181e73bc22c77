"""Which files of a log make up a version.

`_last_checkpoint` is never read: it may be stale or broken, and a listing tells more.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inver.errors import Invalid
from inver.formats.delta_log.actions import damaged
from inver.ports import ObjectInfo

LOG = "_delta_log"
SIDECARS = f"{LOG}/_sidecars"

_COMMIT = re.compile(r"(\d{20})\.json")
_CLASSIC = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_V2 = re.compile(r"(\d{20})\.checkpoint\.[0-9A-Za-z-]{36}\.(?:json|parquet)")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    version: int
    files: tuple[ObjectInfo, ...]


@dataclass(frozen=True, slots=True)
class LogFile:
    """A commit, or a compaction of the commits `first .. last`."""

    first: int
    last: int
    info: ObjectInfo


@dataclass(frozen=True, slots=True)
class Segment:
    """What must be read to know one version: a checkpoint, or none, and what came after it."""

    version: int
    checkpoint: Checkpoint | None
    files: tuple[LogFile, ...]

    @property
    def base_version(self) -> int:
        return -1 if self.checkpoint is None else self.checkpoint.version


@dataclass(slots=True)
class Listing:
    commits: dict[int, ObjectInfo] = field(default_factory=dict)
    checkpoints: dict[int, list[Checkpoint]] = field(default_factory=dict)
    compactions: dict[int, list[LogFile]] = field(default_factory=dict)
    """By their first version, the longest first."""
    noted: dict[tuple[int, int], Any] = field(default_factory=dict)
    """What was found out about a range of versions, for the next one who asks for it."""

    @property
    def latest(self) -> int:
        return max(max(self.commits, default=-1), max(self.checkpoints, default=-1))

    @property
    def earliest(self) -> int:
        """The oldest version that can still be read."""
        return next((version for version in self._starts() if self._complete_from(version)), self.latest)

    @property
    def earliest_commit(self) -> int | None:
        """The oldest version whose own commit, and every later one, is still there."""
        version = self.latest
        while version in self.commits:
            version -= 1
        return version + 1 if version < self.latest else None

    def segments(self, version: int | None = None, base: int | None = None) -> Iterator[Segment]:
        """Ways to read a version, the best first; `base` asks for one on that checkpoint alone."""
        if version is None:
            version = self.latest
        found = False
        for start in sorted((at for at in self.checkpoints if at <= version), reverse=True):
            if base in (None, start) and self._contiguous(start, version):
                for checkpoint in self.checkpoints[start]:
                    found = True
                    yield Segment(version, checkpoint, self._files(start + 1, version))
        if base in (None, -1) and self._contiguous(-1, version):
            found = True
            yield Segment(version, None, self._files(0, version))
        if not found:
            raise self._why_not(version)

    def _starts(self) -> list[int]:
        return sorted({*self.checkpoints, *({0} & self.commits.keys())})

    def _complete_from(self, start: int) -> bool:
        return self._contiguous(start, self.latest) or any(
            self._contiguous(start, later) for later in self.checkpoints if later > start
        )

    def _contiguous(self, base: int, version: int) -> bool:
        return all(at in self.commits for at in range(base + 1, version + 1))

    def _files(self, first: int, last: int) -> tuple[LogFile, ...]:
        files = []
        while first <= last:
            compacted = next((file for file in self.compactions.get(first, ()) if file.last <= last), None)
            file = compacted or LogFile(first, first, self.commits[first])
            files.append(file)
            first = file.last + 1
        return tuple(files)

    def _why_not(self, version: int) -> Invalid:
        if version > self.latest:
            return Invalid(
                f"version {version} of the table does not exist; the latest is {self.latest}", field="version"
            )
        start = max((at for at in self.checkpoints if at <= version), default=-1)
        missing = next(at for at in range(start + 1, version + 2) if at not in self.commits)
        later = [at for at in self._starts() if at > missing]
        if later and min(later) > version and not any(at in self.commits for at in range(missing)):
            return Invalid(
                f"version {version} of the table is no longer in its log; the earliest available version is "
                f"{self.earliest}",
                field="version",
            )
        return damaged(f"version {missing} is missing, and version {version} cannot be read without it")


def listing(
    objects: Iterable[ObjectInfo],
    tail: Mapping[int, ObjectInfo] | None = None,
    latest: int | None = None,
) -> Listing:
    """Sort out what lies in a log.

    `tail` are commits that the catalog has ratified, wherever they lie; they count instead of
    published files of the same version. `latest` is the catalog's version: what lies beyond it is
    not ratified and does not count.
    """
    found = Listing()
    parts: dict[tuple[int, int], dict[int, ObjectInfo]] = {}
    for info in objects:
        name = info.path.removeprefix(f"{LOG}/")
        if match := _COMMIT.fullmatch(name):
            found.commits[int(match[1])] = info
        elif match := _CLASSIC.fullmatch(name) or _V2.fullmatch(name):
            _add(found, Checkpoint(int(match[1]), (info,)))
        elif match := _PART.fullmatch(name):
            parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = info
        elif match := _COMPACTED.fullmatch(name):
            file = LogFile(int(match[1]), int(match[2]), info)
            if file.first < file.last:
                found.compactions.setdefault(file.first, []).append(file)
    for (version, count), files in parts.items():
        # Without all of its parts it is none.
        if set(files) == set(range(1, count + 1)):
            _add(found, Checkpoint(version, tuple(files[number] for number in range(1, count + 1))))
    found.commits.update(tail or {})
    if latest is not None:
        _cap(found, latest)
    for same_first in found.compactions.values():
        same_first.sort(key=lambda file: file.last, reverse=True)
    return found


class ListingsKept:
    """The last listing of each log, for as long as nothing in it changes; the least recently used ones are
    forgotten when they have more than `limit` files together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, tuple[list[ObjectInfo], dict[int, ObjectInfo], int | None, Listing]] = (
            OrderedDict()
        )
        self._count = 0

    def sorted_out(
        self, table: str, objects: list[ObjectInfo], tail: Mapping[int, ObjectInfo], latest: int | None
    ) -> Listing:
        kept = self._kept.pop(table, None)
        if kept is not None:
            self._count -= len(kept[0])
        if kept is None or kept[:3] != (objects, tail, latest):
            kept = objects, dict(tail), latest, listing(objects, tail, latest)
        self._kept[table] = kept
        self._count += len(objects)
        while self._count > self._limit:
            _, (forgotten, *_) = self._kept.popitem(last=False)
            self._count -= len(forgotten)
        return kept[3]


def _add(found: Listing, checkpoint: Checkpoint) -> None:
    found.checkpoints.setdefault(checkpoint.version, []).append(checkpoint)


def _cap(found: Listing, latest: int) -> None:
    found.commits = {version: info for version, info in found.commits.items() if version <= latest}
    found.checkpoints = {version: each for version, each in found.checkpoints.items() if version <= latest}
    if found.latest != latest:
        raise damaged(f"the catalog is at version {latest}, and the log ends at {found.latest}")


def identity(infos: Sequence[ObjectInfo]) -> list[list[object]]:
    """What tells these files from others that take their names later."""
    return [[info.path, info.size, info.modified_ms, info.etag] for info in infos]
