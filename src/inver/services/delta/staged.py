"""Staged commits: read once, held to what the request says of them, and not before what they follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from inver.domain import delta, ledger
from inver.domain.delta import CommitInfo, CommitSummary
from inver.errors import Invalid
from inver.ports import ObjectStore, Store

MAX_COMMIT = 256 * 2**20
"""A commit file is held in memory while it is read; this is about a million files added."""
TABLES = 20_000
_LARGE = 256 * 1024
"""From here on, reading takes longer than a thread takes to come to it, and others would wait."""

_info = msgspec.json.Decoder(CommitInfo).decode


class StagedCommits:
    def __init__(self, store: Store, summarize: Callable[[bytes], CommitSummary]) -> None:
        self._store = store
        self._summarize = summarize
        # The newest commit of a table that was decided here.
        self._last: dict[str, CommitInfo] = {}

    async def read(self, objects: ObjectStore, info: CommitInfo) -> tuple[bytes, CommitSummary]:
        """No more of the file than the request says that there is."""
        if info.file_size > MAX_COMMIT:
            raise _too_large("commit_info.file_size")
        name = delta.staged_name(info.file_name)
        data = objects.get_at_once(name)
        if data is None:
            data = await objects.get_range(name, 0, info.file_size + 1)
        if len(data) <= _LARGE:
            return data, self.examined(data, info)
        return data, await asyncio.to_thread(self.examined, data, info)

    async def read_first(self, objects: ObjectStore) -> tuple[bytes, CommitSummary]:
        """Version 0, which its writer publishes itself."""
        data = await objects.get_range(delta.published_name(0), 0, MAX_COMMIT + 1)
        if len(data) > MAX_COMMIT:
            raise _too_large("storage_location")
        return data, await asyncio.to_thread(self._summarize, data)

    def examined(self, data: bytes, info: CommitInfo) -> CommitSummary:
        """What the staged file says, if that is what the request says of it."""
        if len(data) != info.file_size:
            how = "fewer" if len(data) < info.file_size else "more"
            raise Invalid(
                f"the staged commit has {how} bytes than the {info.file_size} of the request",
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

    def decided(self, table_id: str, info: CommitInfo) -> None:
        """A commit has become a version."""
        if len(self._last) >= TABLES:
            self._last.clear()
        self._last[table_id] = info

    def follows(self, table_id: str, info: CommitInfo) -> bool:
        """Whether a commit is known at once not to be before what it follows; False says nothing."""
        last = self._last.get(table_id)
        return last is not None and last.version == info.version - 1 and last.timestamp <= info.timestamp

    async def require_order(self, table_id: str, info: CommitInfo) -> None:
        """Time never goes back from version to version: readers find a version by its time.

        Writers let it rise by a millisecond at least; without that, a time still leads to one version.
        """
        if self.follows(table_id, info):
            return
        before = info.version - 1
        found = await self._store.commits(table_id, ledger.MAIN, before, before, 1)
        if not found:
            # A gap, or a table that is gone: the decision tells.
            return
        require_later(info, _info(found[0].payload))


def require_later(info: CommitInfo, before: CommitInfo) -> None:
    if info.timestamp < before.timestamp:
        raise Invalid(
            f"the in-commit timestamp {info.timestamp} is before the {before.timestamp} of version "
            f"{before.version}",
            field="commit_info.timestamp",
            fix="take the later one of the time of the commit and 1 ms after the version before it",
        )


def _too_large(field: str) -> Invalid:
    return Invalid(
        f"a commit file has at most {MAX_COMMIT} bytes to be read here",
        field=field,
        fix="commit in parts",
    )
