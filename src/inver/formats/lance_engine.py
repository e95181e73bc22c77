"""Work on the data of Lance tables, done by pylance in a bounded pool of threads.

pylance is an optional package, imported with the first operation. What it wants to know of versions
and what it commits goes back to the event loop, where the ledger decides.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, TypeVar

from inver.domain.lance import SchemaInvalid, WrongState, check_branch
from inver.errors import (
    AlreadyExists,
    Broken,
    Conflict,
    Invalid,
    InverError,
    NotFound,
    Overloaded,
    Unsupported,
)
from inver.ports import LancePlace, LedgeredTable, LedgeredVersion

T = TypeVar("T")
_PLACE = re.compile(r",? \S+\.rs:\d+(?::\d+)?")
"""Where in its own code pylance gave up, which is of no use to who asked."""
REMEMBERED = 64
WAITING = 256
"""Operations that may wait for a thread."""


class PylanceEngine:
    """`options` are how pylance reaches the storage; they never leave the server."""

    def __init__(self, threads: int, options: Mapping[str, str]) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lance")
        self._options = dict(options)
        self._open: dict[tuple[str, str, int, str], Any] = {}
        self._busy = 0

    async def run(self, operation: str, place: LancePlace, arguments: Mapping[str, Any]) -> Any:
        if self._busy >= WAITING:
            raise Overloaded("too many operations on data are waiting; send the request again")
        loop = asyncio.get_running_loop()
        self._busy += 1
        try:
            return await loop.run_in_executor(self._pool, self._work, loop, operation, place, arguments)
        finally:
            self._busy -= 1

    def _work(
        self,
        loop: asyncio.AbstractEventLoop,
        operation: str,
        place: LancePlace,
        arguments: Mapping[str, Any],
    ) -> Any:
        try:
            import_module("lance")
        except ImportError:
            raise Unsupported(
                "this server has no library to work on the data of Lance tables",
                fix="install the extra inver[lance]",
            ) from None
        from inver.formats import lance_operations

        bridge: Bridge | None = None
        try:
            if place.table is None:
                return lance_operations.READS[operation](self._reading(place), **arguments)
            bridge = Bridge(loop, place.table)
            options = self._options or None
            return lance_operations.CHANGES[operation](bridge, place, options, **arguments)
        except InverError:
            raise
        except BaseException as error:
            if bridge is not None and bridge.failure is not None:
                # What the ledger said is the reason; what pylance makes of it is not.
                raise bridge.failure from None
            raise explained(error) from error

    def _reading(self, place: LancePlace) -> Any:
        assert place.version is not None
        key = (place.location, place.branch, place.version, place.made)
        found = self._open.get(key)
        if found is None:
            uri = place.location + (f"/tree/{place.branch}" if place.branch else "")
            found = import_module("lance").dataset(
                uri, version=place.version, storage_options=self._options or None
            )
            while len(self._open) >= REMEMBERED:
                self._open.pop(next(iter(self._open)), None)
            self._open[key] = found
        return found


class Bridge:
    """From a thread of pylance to the event loop and back."""

    def __init__(self, loop: asyncio.AbstractEventLoop, table: LedgeredTable) -> None:
        self._loop = loop
        self._table = table
        self.failure: InverError | None = None

    def newest(self, branch: str | None) -> LedgeredVersion | None:
        return self._wait(self._table.newest(check_branch(branch)))

    def version(self, branch: str | None, version: int) -> LedgeredVersion:
        return self._wait(self._table.version(check_branch(branch), version))

    def create(
        self, branch: str | None, version: int, path: str, size: int | None, v2: bool | None
    ) -> LedgeredVersion:
        return self._wait(self._table.create(check_branch(branch), version, path, size, v2))

    def _wait(self, work: Awaitable[T]) -> T:
        async def done() -> T:
            return await work

        try:
            return asyncio.run_coroutine_threadsafe(done(), self._loop).result()
        except InverError as error:
            # Losing a race and asking for what is not there yet are part of how pylance works.
            if isinstance(error, Conflict):
                self.failure = None
            elif not isinstance(error, NotFound):
                self.failure = error
            raise


def explained(error: BaseException) -> InverError:
    """What pylance complains about, as far as it is the caller's doing."""
    text = _PLACE.sub("", " ".join(str(error).split()))[:500]
    lower = text.lower()
    if "internal error" in lower or "panic" in lower:
        return Broken(f"the library of Lance failed: {type(error).__name__}")
    if "does not exist in the dataset schema" in lower:
        return NotFound(text, kind="column")
    if "index" in lower and ("not found" in lower or "does not exist" in lower):
        return NotFound(text, kind="index")
    if "index" in lower and "already exists" in lower:
        return AlreadyExists(text, kind="index")
    if "branch" in lower and "already exists" in lower:
        return AlreadyExists(text, kind="branch")
    if "no field named" in lower or ("column" in lower and ("not found" in lower or "not exist" in lower)):
        return NotFound(text, kind="column")
    if "conflict" in lower or "incompatible transaction" in lower or "concurrent" in lower:
        return Conflict(text)
    if "schema" in lower:
        return SchemaInvalid(text, field="body")
    if isinstance(error, ValueError | KeyError | TypeError) or "invalid user input" in lower:
        return Invalid(text, field="body")
    if "not supported" in lower or "unsupported" in lower or isinstance(error, NotImplementedError):
        return WrongState(text)
    return Broken(f"the library of Lance failed: {type(error).__name__}")
