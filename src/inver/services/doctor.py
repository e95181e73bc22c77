"""An examination of everything that a server stands on, with what to do about what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum

import msgspec

from inver.clock import Clock
from inver.domain.grants import Action
from inver.domain.locations import Location
from inver.errors import InverError
from inver.ids import new_id
from inver.ports import Finding, ObjectStore, Store
from inver.services.access import METASTORE_CHAIN, Access
from inver.services.context import Caller

CLOCK_LIMIT_MS = 5_000
STORAGE_LIMIT_S = 15.0
_RESTORE = "stop writing, and restore the database from a backup: the rows contradict each other"


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Check(msgspec.Struct, frozen=True):
    name: str
    status: Status
    detail: str
    fix: str | None = None


class _Rule(msgspec.Struct, frozen=True):
    """What a finding means: good when nothing was found, else `bad` with `fix`."""

    good: str
    bad: str
    fix: str
    status: Status = Status.FAILED


_RULES = {
    "versions": _Rule(
        "every table stands at its newest commit, without a gap in the newest versions",
        "tables do not stand where their commits say",
        _RESTORE,
    ),
    "commits": _Rule("every commit belongs to a table", "tables have commits and no row", _RESTORE),
    "events": _Rule("the feed has no gap", "the feed contradicts its head", _RESTORE),
    "names": _Rule("names are unique", "names are taken twice", _RESTORE),
    "parents": _Rule("everything has a parent", "schemas or tables have no parent", _RESTORE),
    "grants": _Rule("grants belong to principals", "grants belong to nobody", _RESTORE, Status.WARNING),
    "idempotency": _Rule(
        "old idempotency records are gone",
        "idempotency records outlived their time",
        "a running server removes them within minutes; look into its log if they stay",
        Status.WARNING,
    ),
    "work-failed": _Rule(
        "no follow-up work has failed",
        "follow-up work was given up",
        "remove the cause, which the server's log names, then `inver doctor --retry`; "
        "the tables themselves are consistent",
        Status.WARNING,
    ),
    "work-stalled": _Rule(
        "follow-up work moves",
        "follow-up work has been due for long",
        "see that a server runs on this database and that its log names no failures",
        Status.WARNING,
    ),
    "unpublished": _Rule(
        "ratified Delta commits are published",
        "tables have Delta commits that could not be published for long",
        "the server's log names the reason; a file of the log that is not the commit that was ratified was "
        "written past the catalog: move it away, and the server publishes the right one",
        Status.WARNING,
    ),
    "event-times": _Rule(
        "no event is from the future",
        "events are from the future",
        "synchronise the clocks of all servers, with NTP for example",
        Status.WARNING,
    ),
}


class Doctor:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        access: Access,
        open_objects: Callable[[Location], ObjectStore],
        warehouse: Location,
    ) -> None:
        self._store = store
        self._clock = clock
        self._access = access
        self._open = open_objects
        self._warehouse = warehouse

    async def examine(self, caller: Caller) -> list[Check]:
        await self._access.require(caller, Action.DIAGNOSE, METASTORE_CHAIN)
        findings = await self._store.invariants(self._clock.now_ms())
        return [*map(_check, findings), await self._check_clock(), await self._check_storage()]

    async def retry(self, caller: Caller) -> int:
        """Let follow-up work that was given up be tried again; how much of it there is."""
        await self._access.require(caller, Action.MAINTAIN, METASTORE_CHAIN)
        return await self._store.retry_work(self._clock.now_ms())

    async def _check_clock(self) -> Check:
        before = self._clock.now_ms()
        database = await self._store.database_time()
        # The database was asked between two looks at our clock, and may be anywhere between them.
        apart = max(0, before - database, database - self._clock.now_ms())
        if apart <= CLOCK_LIMIT_MS:
            return Check("clock", Status.OK, "server and database agree on the time")
        return Check(
            "clock",
            Status.WARNING,
            f"server and database are {apart / 1000:.1f} s apart",
            "synchronise both clocks, with NTP for example",
        )

    async def _check_storage(self) -> Check:
        """Whether an object of our own comes back from the warehouse as it was written."""
        path = f"_inver_probe_{new_id()}"
        try:
            async with asyncio.timeout(STORAGE_LIMIT_S):
                objects = self._open(self._warehouse)
                await objects.put(path, path.encode())
                same = await objects.get(path) == path.encode()
                await objects.delete(path)
        except (InverError, OSError) as error:
            reason = error.message if isinstance(error, InverError) else "it took too long"
            return Check(
                "storage",
                Status.FAILED,
                f"{self._warehouse} cannot be used: {reason}",
                "check the settings of storage, its credentials, and the way there from this server",
            )
        if same:
            return Check("storage", Status.OK, f"{self._warehouse} takes, returns and deletes objects")
        return Check(
            "storage",
            Status.FAILED,
            f"{self._warehouse} does not return what was written",
            "use a store whose reads see the last write",
        )


def _check(finding: Finding) -> Check:
    rule = _RULES[finding.name]
    if not finding.count:
        return Check(finding.name, Status.OK, rule.good)
    samples = ", ".join(finding.samples)
    more = ", ..." if finding.count > len(finding.samples) else ""
    return Check(finding.name, rule.status, f"{rule.bad}: {finding.count} ({samples}{more})", rule.fix)
