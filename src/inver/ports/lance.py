"""What is kept of Lance tables, and who works on their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from inver.domain.ledger import Record


class BranchState(msgspec.Struct, frozen=True):
    name: str
    version: int


class LanceRecords(Protocol):
    """What is kept of Lance tables besides their commits."""

    async def records(
        self, table_id: str, branch: str, first: int, last: int, limit: int, newest_first: bool = True
    ) -> list[Record]:
        """Versions as clients list them, `first` and `last` included."""
        ...

    async def record_by_key(self, table_id: str, branch: str, key: str) -> Record | None: ...
    async def branches(self, table_id: str) -> list[BranchState]: ...
    async def branch(self, table_id: str, name: str) -> BranchState | None: ...
    async def waiting_records(
        self, limit: int, after: tuple[str, str, int] = ("", "", -1)
    ) -> list[tuple[str, str, int]]:
        """Table, branch and version of what is not where readers look for it, in order, behind `after`."""
        ...

    async def record_data(self, table_id: str, branch: str, version: int) -> bytes | None: ...
    async def let_go(self, versions: Sequence[tuple[str, str, int]]) -> None:
        """The data of these versions is where readers look for it, so that it need not wait any longer."""
        ...

    async def lance_tables(self, after: Sequence[str], limit: int) -> list[tuple[str, tuple[str, ...], bool]]:
        """Id, full name and whether there is a version, of all Lance tables in the order of their names."""
        ...

    async def transaction_properties(self, number: int) -> dict[str, str]: ...
    async def set_transaction_properties(self, number: int, changes: Mapping[str, str | None]) -> None: ...


class LedgeredVersion(msgspec.Struct, frozen=True):
    """A version of a table whose versions the ledger decides; `path` is from the root of its store."""

    version: int
    path: str
    size: int
    at: int


class LedgeredTable(Protocol):
    """One table towards a library that commits to it, on behalf of one caller."""

    async def newest(self, branch: str) -> LedgeredVersion | None: ...
    async def version(self, branch: str, version: int) -> LedgeredVersion: ...
    async def create(
        self, branch: str, version: int, path: str, size: int | None, v2: bool | None
    ) -> LedgeredVersion: ...


class LancePlace(msgspec.Struct, frozen=True):
    """What to work on: a version to read, or with `table` the newest one to change.

    `made` tells a version from another one that had its number before: a branch can be made anew.
    """

    location: str
    branch: str
    version: int | None = None
    table: LedgeredTable | None = None
    made: str = ""


class LanceEngine(Protocol):
    async def run(self, operation: str, place: LancePlace, arguments: Mapping[str, Any]) -> Any:
        """Work on the data itself, beside the event loop."""
        ...
