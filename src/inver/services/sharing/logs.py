"""What sharing needs of tables and of who reads them. `server/app.py` decides what stands behind it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

from inver.domain import delta_actions
from inver.domain.delta_actions import Add, CommitChanges, Metadata, TableHead
from inver.domain.predicates import Filter
from inver.domain.sharing import Capabilities, Moment, ResponseFormat
from inver.ports import ObjectInfo, ObjectStore

Sign = Callable[[Sequence[str]], Sequence[str]]
"""URLs of files, whose paths lie below the table unless they have a scheme or begin with `/`."""
Place = tuple[int, int]
"""A commit of a range, and a file of that commit."""


class Snapshot(Protocol):
    @property
    def version(self) -> int: ...
    @property
    def base_version(self) -> int: ...
    @property
    def protocol(self) -> delta_actions.Protocol: ...
    @property
    def metadata(self) -> Metadata: ...
    @property
    def vectors(self) -> int: ...


class Plan(Protocol):
    """A range of commits, looked through."""

    @property
    def at_start(self) -> TableHead: ...
    @property
    def at_end(self) -> TableHead: ...
    @property
    def later_metadata(self) -> list[tuple[int, Metadata]]: ...
    def vectors(self, *, change_data: bool = True) -> bool:
        """Whether a file that is told of has a deletion vector."""
        ...

    def noted(self, place: int) -> str:
        """What a page that begins at this commit of the range need not find out again; it may be nothing."""
        ...


class Lines(Protocol):
    """Lines of an answer in one response format."""

    @property
    def protocol(self) -> Callable[..., bytes]: ...
    @property
    def metadata(self) -> Callable[..., bytes]: ...
    @property
    def end(self) -> Callable[..., bytes]: ...
    def snapshot(
        self,
        snapshot: Any,
        hint: Filter | None,
        admitted: Filter | None,
        *,
        limit: int | None = None,
        skip: int = 0,
        most: int | None = None,
    ) -> AsyncIterator[tuple[bytes, int | None]]:
        """With the last of a page comes the place where the next one starts."""
        ...


class Times(Protocol):
    """When versions of a table were committed."""

    async def first_at_or_after(self, timestamp: int) -> int | None: ...
    async def last_at_or_before(self, timestamp: int) -> int | None: ...
    async def moment(self, version: int | None) -> Moment:
        """Of a version, or of the first that has a time."""
        ...


class Log(Protocol):
    """One table, looked at once."""

    async def latest(self) -> int: ...
    async def earliest_commit(self) -> int: ...
    async def head(self, version: int) -> TableHead: ...
    async def snapshot(self, version: int | None = None, base: int | None = None) -> Snapshot: ...
    async def totals(self, snapshot: Any, admitted: Filter | None) -> tuple[int, int]:
        """Files and bytes of what somebody is shown."""
        ...

    async def changes(self, start: int, end: int, *, noted: str = "") -> Plan: ...
    def changed(
        self,
        plan: Any,
        lines: Any,
        admitted: Filter | None,
        *,
        change_data: bool,
        metadata: bool,
        protocol: bool,
        repeated: bool = False,
        skip: Place = (0, 0),
        most: int | None = None,
    ) -> AsyncIterator[tuple[bytes, Place | None]]: ...


class DeltaLog(Log, Times, Protocol):
    """A log knows the times of its versions itself."""


class Logs(Protocol):
    def open(
        self,
        store: ObjectStore,
        table: str,
        latest: int | None = None,
        tail: Mapping[int, ObjectInfo] | None = None,
    ) -> DeltaLog:
        """`latest` and `tail` are the ledger's word on a table whose commits the catalog decides."""
        ...

    async def gathered(
        self, name: str, version: int, head: TableHead, adds: Callable[[], AsyncGenerator[list[Add], None]]
    ) -> Snapshot:
        """A version of a table that has no log. Under one name the files are always the same ones."""
        ...

    async def totals(self, snapshot: Any, admitted: Filter | None) -> tuple[int, int]: ...
    def changed(
        self,
        commits: Callable[[int], AsyncIterator[CommitChanges]],
        start: int,
        lines: Any,
        admitted: Filter | None,
        *,
        metadata: bool,
        protocol: bool,
        repeated: bool = False,
        skip: Place = (0, 0),
        most: int | None = None,
    ) -> AsyncIterator[tuple[bytes, Place | None]]:
        """Lines of versions of a table that has no log; `commits` gives them from one of them on."""
        ...

    def lines(
        self,
        form: ResponseFormat,
        asked: Capabilities,
        sign: Sign,
        *,
        expires: int | None,
        vectors: bool,
        history: bool,
        id_hash: ResponseFormat | None = None,
    ) -> Lines: ...
