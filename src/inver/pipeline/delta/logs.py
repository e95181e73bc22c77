"""A Delta table whose commits the catalog decides, opened by a job that tidies it up."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from inver.domain.delta import STAGED_FOLDER
from inver.domain.delta_actions import Metadata, Protocol
from inver.domain.delta_vacuum import check_features
from inver.errors import Refused
from inver.formats.delta_log.listing import Listing
from inver.formats.delta_log.reader import LogReader
from inver.formats.delta_log.source import Log
from inver.pipeline.delta.ratified import Ratified, ratified
from inver.pipeline.work import Work
from inver.ports import ObjectStore

BATCH = 1_000
AT_ONCE = 32
SHOWN = 1_000
"""So many files of a dry run are told by name."""


@dataclass(frozen=True)
class Opened:
    """`folder` is for files on their way; it is gone when the job ends."""

    work: Work
    objects: ObjectStore
    ratified: Ratified
    log: Log
    reader: LogReader
    listed: Listing
    protocol: Protocol
    metadata: Metadata
    folder: Path

    @property
    def configuration(self) -> Mapping[str, str | None]:
        return self.metadata.configuration


@asynccontextmanager
async def opened(work: Work) -> AsyncIterator[Opened]:
    """Refused if the catalog does not decide its commits, or if it has features that are not known here."""
    state = ratified(work.client, work.ticket)
    if state.latest < 0:
        raise Refused("the catalog does not decide the commits of this table")
    objects = work.place.objects()
    log = state.log(objects, work.ticket.table_id)
    with tempfile.TemporaryDirectory(prefix="inver-care-") as scratch:
        folder = Path(scratch)
        reader = LogReader(folder / "bases")
        listed = await reader.listing(log)
        head = await reader.head(log, listed, state.latest)
        check_features(head.protocol)
        yield Opened(work, objects, state, log, reader, listed, head.protocol, head.metadata, folder)


async def delete_all(
    work: Work,
    objects: ObjectStore,
    paths: Sequence[str],
    still: Callable[[Sequence[str]], Awaitable[Sequence[str]]] | None = None,
) -> set[str]:
    """Delete in batches, the lease held before each of them; `still` says which of a batch may go now.

    Returns those that were there. What is absent has been deleted before.
    """
    deleted: set[str] = set()
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(path: str, durable: bool) -> None:
        async with turn:
            if await objects.delete(path, durable):
                deleted.add(path)

    for start in range(0, len(paths), BATCH):
        work.tell(start / len(paths), f"deleted {start} of {len(paths)} files")
        batch = paths[start : start + BATCH]
        if still is not None:
            batch = await still(batch)
        last = {path.rpartition("/")[0]: path for path in batch}
        # A durable deletion takes an empty folder along, and Spark's writers expect this one to be there.
        last.pop(STAGED_FOLDER, None)
        final = set(last.values())
        await asyncio.gather(*(one(path, False) for path in batch if path not in final))
        # Whatever comes back after a power cut is deleted by the next run: once for each folder is enough.
        await asyncio.gather(*(one(path, True) for path in final))
    return deleted
