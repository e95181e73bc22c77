"""When versions were committed.

With in-commit timestamps a commit says it itself, from the version on at which they were turned on.
Before that it is the time at which its file was written, moved where need be, so that a later
version always has a later time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable

from inver.domain.delta_actions import ICT_VERSION, IN_COMMIT_TIMESTAMPS, Metadata
from inver.domain.sharing import Moment
from inver.formats.delta_log.actions import damaged
from inver.formats.delta_log.listing import Listing

TimestampOf = Callable[[int], Awaitable[int | None]]


class History:
    """The versions of a log whose commits are still there. `metadata` is that of the latest."""

    def __init__(self, listed: Listing, metadata: Metadata, in_commit: TimestampOf) -> None:
        self._in_commit = in_commit
        first = listed.earliest_commit
        self.latest = listed.latest
        self.earliest = self.latest if first is None else first
        self._first_in_commit = self._enabled_from(metadata)
        self._written: list[int] = []
        """Times of files, of the versions from `earliest` on that have no time in them."""
        if first is None:
            # A checkpoint alone: its file is all that tells of a time.
            file = listed.checkpoints[self.latest][0].files[0]
            self._written = [file.modified_ms]
            self._first_in_commit = self.latest + 1
        else:
            for version in range(first, min(self.latest + 1, self._first_in_commit)):
                before = self._written[-1] if self._written else -1
                self._written.append(max(listed.commits[version].modified_ms, before + 1))

    def _enabled_from(self, metadata: Metadata) -> int:
        if not metadata.enabled(IN_COMMIT_TIMESTAMPS):
            return self.latest + 1
        text = metadata.configuration.get(ICT_VERSION)
        if text is None:
            return 0
        if not (text.isascii() and text.isdigit()):
            raise damaged(f"{ICT_VERSION} is {text!a}")
        return int(text)

    async def timestamp(self, version: int) -> int:
        if version < self._first_in_commit:
            return self._written[version - self.earliest]
        found = await self._in_commit(version)
        if found is None:
            raise damaged(f"version {version} has no in-commit timestamp, though the table has them enabled")
        return found

    async def moment(self, version: int) -> Moment:
        return Moment(version, await self.timestamp(version))

    async def first_at_or_after(self, timestamp: int) -> int | None:
        """None if every version is earlier."""
        split = max(self.earliest, self._first_in_commit)
        if self._written and self._written[-1] >= timestamp:
            return self.earliest + bisect_left(self._written, timestamp)
        low, high = split, self.latest + 1
        while low < high:
            middle = (low + high) // 2
            if await self.timestamp(middle) < timestamp:
                low = middle + 1
            else:
                high = middle
        return low if low <= self.latest else None

    async def last_at_or_before(self, timestamp: int) -> int | None:
        """None if every version is later."""
        low, high = max(self.earliest, self._first_in_commit), self.latest + 1
        start = low
        while low < high:
            middle = (low + high) // 2
            if await self.timestamp(middle) <= timestamp:
                low = middle + 1
            else:
                high = middle
        if low > start:
            return low - 1
        before = bisect_right(self._written, timestamp)
        return self.earliest + before - 1 if before else None
