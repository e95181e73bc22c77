"""A range of versions of an Iceberg table, looked through."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from inver.domain.delta_actions import Metadata, TableHead
from inver.domain.iceberg.content import Manifest
from inver.domain.iceberg.delta_files import DeltaFiles
from inver.services.sharing.iceberg_history import Step

LONGEST = 2_000
"""What is noted is part of a URL. A range of so many schemas that it does not fit is planned again."""


class PlannedVersion(msgspec.Struct, frozen=True):
    """`metadata` is `standing`, that of the version, if the one before had another."""

    step: Step
    standing: Metadata
    metadata: Metadata | None
    files: DeltaFiles
    manifests: Sequence[Manifest]


class Noted(msgspec.Struct, frozen=True, array_like=True):
    """What holds for the whole of a range, and is found out once: one protocol and one partitioning."""

    partitions: dict[int, tuple[int, ...]]
    """By schema, the ids of the columns."""
    features: tuple[str, ...]
    mapped: bool
    vectors: bool
    appended: int | None = None
    """The last version of the range that appended rows before the page begins."""


class IcebergPlan:
    def __init__(
        self,
        start: int,
        heads: tuple[TableHead, TableHead],
        later_metadata: list[tuple[int, Metadata]],
        noted: Noted,
        versions: Callable[[int], AsyncIterator[PlannedVersion]],
    ) -> None:
        self.start = start
        self.at_start, self.at_end = heads
        self.later_metadata = later_metadata
        self._noted = noted
        self._versions = versions
        self._appended = [] if noted.appended is None else [noted.appended]

    async def versions(self, skip: int) -> AsyncIterator[PlannedVersion]:
        """From one of the range on."""
        async for planned in self._versions(skip):
            if planned.step.appends:
                self._appended.append(planned.step.version.version)
            yield planned

    def vectors(self, *, change_data: bool = True) -> bool:
        return self._noted.vectors

    def noted(self, place: int) -> str:
        before = [version for version in self._appended if version < self.start + place]
        noted = msgspec.structs.replace(self._noted, appended=max(before, default=None))
        text = msgspec.json.encode(noted).decode()
        return text if len(text) <= LONGEST else ""
