"""What is kept of the health of tables, and of the runs that look after them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from inver.domain.care import Job
from inver.domain.health import Health
from inver.domain.runs import Policy, Run
from inver.domain.tables import Format, TableKind


class KnownTable(msgspec.Struct, frozen=True, kw_only=True):
    """A live table, and what is known of its health. `policies` are its catalog's and its own."""

    id: str
    catalog_id: str
    schema_id: str
    name: tuple[str, ...]
    owner: str
    format: Format
    kind: TableKind
    version: int
    published: int
    created_at: int
    has_head: bool
    """Whether the format's own state is here, so that its commits are decided here."""
    health: Health | None
    policies: tuple[Policy | None, Policy | None] = (None, None)
    scans: int = 0
    """Reads that clients told of since the hour that was asked for."""
    run: Run | None = None
    """The one that has the table now, or had it last."""


class CareBook(Protocol):
    async def fold_events(self, limit: int) -> int:
        """Take the next events into the health of their tables.

        Returns how many there were, or -1 while another server does it.
        """
        ...

    async def unknown_with_reports(self, limit: int) -> list[tuple[str, int]]:
        """Tables of which a client has told more than their commits, and of which version."""
        ...

    async def learn_report(self, table_id: str, version: int, most: int) -> bool:
        """Take it for true, and add the commits since, unless they are more than `most`."""
        ...

    async def unknown_with_heads(self, limit: int) -> list[str]:
        """Tables whose own state tells more than their commits."""
        ...

    async def learn_head(self, table_id: str) -> bool: ...
    async def count_scan(self, table_id: str, at: int) -> None: ...
    async def forget_scans(self, before: int) -> None: ...

    async def known_tables(
        self, after: str, limit: int, since: int, catalog_id: str | None = None
    ) -> list[KnownTable]:
        """Live tables by id, with their scans since a time, and without runs that have ended."""
        ...

    async def known_table(self, table_id: str, since: int) -> KnownTable | None:
        """With the run that has it, or had it last."""
        ...

    async def care_rates(self) -> Mapping[tuple[Format, Job], float]: ...
    async def care_policy(self, securable_id: str) -> Policy | None: ...
    async def care_run(self, run_id: str) -> Run | None: ...
    async def care_runs(self, table_id: str | None, before: str, limit: int) -> list[Run]:
        """Newest first, those older than the run `before`; without the files that their results name."""
        ...

    async def beat_run(self, run_id: str, until: int, progress: int, message: str) -> bool:
        """Hold the lease; False when the run has it no more. `progress` is in thousandths."""
        ...
