"""A staged table is finished or cleaned up, never both, and a dropped one comes back or goes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from inver.domain.tables import State
from inver.errors import NotFound
from inver.services import intents as ask
from inver.services.delta.types import Loaded
from inver.services.names import TableRef
from tests.fixtures.lake import Lake, new_lake, staged_lake
from tests.fixtures.ledger import HOLD_MS, Book, as_admin, build_services, change, outcome

DAYS = 100 * 24 * 3_600_000


@pytest.mark.parametrize("head_start", [0, 1, 2, 3, 4, 5, 8, 13, 21])
async def test_a_table_that_is_finished_while_it_is_cleaned_up_is_whole_or_gone(
    book: Book, tmp_path: Path, head_start: int
):
    services = build_services(book.store, book.clock, tmp_path)
    lake, new = await staged_lake(book, services)
    first = lake.log / f"{0:020d}.json"
    book.clock.advance(DAYS)

    async def clean() -> None:
        for _ in range(head_start):
            await asyncio.sleep(0)
        await services.followup.step()

    creating = as_admin(book.store, lambda caller: services.delta.create(caller, new))
    created, _ = await asyncio.gather(outcome(creating), clean())
    # Whoever lost tries again.
    book.clock.advance(DAYS)
    await services.followup.step()
    state = (await book.table(lake.id)).state
    if isinstance(created, Loaded):
        assert (state, first.exists()) == (State.LIVE, True)
        assert (await lake.propose(lake.stage(1))).results[0].version == 1
    else:
        assert isinstance(created, NotFound), created
        assert (state, first.exists()) == (State.PURGED, False)
    assert await book.store.work(10) == []


@pytest.mark.parametrize("head_start", [0, 1, 2, 3, 5, 8, 13])
async def test_a_table_that_is_wanted_back_while_it_is_purged_is_whole_or_gone(lake: Lake, head_start: int):
    book, services = lake.book, lake.services
    info = lake.stage(2)
    await lake.propose(info)
    await change(services, book.store, ask.DropTable(table=TableRef(id=lake.id)))
    book.clock.advance(HOLD_MS)

    async def purge() -> None:
        for _ in range(head_start):
            await asyncio.sleep(0)
        await services.followup.step()

    undropping = change(services, book.store, ask.UndropTable(table_id=lake.id))
    undropped, _ = await asyncio.gather(outcome(undropping), purge())
    book.clock.advance(DAYS)
    await services.followup.step()
    state = (await book.table(lake.id)).state
    staged = lake.log / "_staged_commits" / info.file_name
    if isinstance(undropped, NotFound):
        assert (state, staged.exists()) == (State.PURGED, False)
    else:
        assert not isinstance(undropped, Exception), undropped
        assert (state, staged.exists()) == (State.LIVE, True)
        await services.publishing.publish(lake.id)
        assert (lake.log / f"{2:020d}.json").read_bytes() == staged.read_bytes()


async def test_a_purge_follows_no_link_and_keeps_to_its_folder(lake: Lake, tmp_path: Path):
    """Whoever may write to a table could else have the files of others deleted."""
    book, services = lake.book, lake.services
    dropped = await new_lake(book, tmp_path, services, "dropped")
    replaced = await new_lake(book, tmp_path, services, "replaced")
    folder, own = lake.log.parent, dropped.log.parent
    (own / "others").symlink_to(folder)
    (own / "part.parquet").symlink_to(folder / "_delta_log" / f"{0:020d}.json")
    beside = own.with_name(own.name + "-beside")
    beside.mkdir()
    (beside / "part.parquet").write_bytes(b"rows")
    replaced.log.parent.rename(tmp_path / "elsewhere")
    replaced.log.parent.symlink_to(folder)
    before = sorted(folder.rglob("*"))
    for table in (dropped, replaced):
        await change(services, book.store, ask.DropTable(table=TableRef(id=table.id)))
    book.clock.advance(HOLD_MS)
    assert await services.followup.step() == 2
    assert sorted(folder.rglob("*")) == before
    assert not dropped.log.exists()
    assert (beside / "part.parquet").read_bytes() == b"rows"
    assert (tmp_path / "elsewhere" / "_delta_log" / f"{0:020d}.json").exists()
    # What stands in the way is for a person to see.
    assert (services.followup.done, services.followup.failed) == (1, 1)
    [left] = [item for item in await book.store.work(10) if item.subject == replaced.id and item.last_error]
    assert "symbolic link" in str(left.last_error)
