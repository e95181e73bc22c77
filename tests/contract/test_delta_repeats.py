"""A commit that has happened is told so whenever it is sent again, whatever became of its table since."""

from __future__ import annotations

from pathlib import Path

import pytest

from inver.domain.ledger import Receipt
from inver.errors import Conflict, NotFound
from inver.services import intents as ask
from inver.services.names import TableRef
from tests.fixtures.lake import Lake
from tests.fixtures.ledger import build_services, change, outcomes


@pytest.fixture
def other(lake: Lake, tmp_path: Path) -> Lake:
    """A server that knows nothing of the table yet."""
    return lake.at(build_services(lake.book.store, lake.book.clock, tmp_path))


async def drop(lake: Lake) -> None:
    await change(lake.services, lake.book.store, ask.DropTable(table=TableRef(id=lake.id)))


async def test_a_commit_to_a_table_that_was_dropped_since_has_happened(lake: Lake, other: Lake):
    """Who is told that it has not deletes its file, and the table may come back."""
    info, rival = lake.stage(2), lake.stage(2)
    won = await lake.propose(info)
    await drop(lake)
    for place in (lake, other):
        again = await place.propose(info)
        assert (again.replayed, again.transaction) == (True, won.transaction)
        for refused in await outcomes(place.propose(rival), place.propose(lake.stage(3))):
            assert isinstance(refused, NotFound | Conflict)
    await change(lake.services, lake.book.store, ask.UndropTable(table_id=lake.id))
    assert await lake.book.version(lake.id) == 2


async def test_a_commit_to_a_table_that_is_purged_has_happened(lake: Lake, other: Lake):
    info = lake.stage(2)
    won = await lake.propose(info)
    await drop(lake)
    lake.book.clock.advance(10 * 60_000)
    assert await lake.services.followup.step() > 0
    assert not lake.log.exists()
    for place in (lake, other):
        again = await place.propose(info)
        assert (again.replayed, again.transaction) == (True, won.transaction)


async def test_a_commit_whose_table_has_another_name_has_happened(lake: Lake, other: Lake):
    info = lake.stage(2)
    won = await lake.propose(info)
    await lake.services.publishing.publish(lake.id)
    (lake.log / "_staged_commits" / info.file_name).unlink()
    to = ("main", "sales", "moved")
    await change(lake.services, lake.book.store, ask.RenameTable(table=TableRef(id=lake.id), to=to))
    assert isinstance(await lake.propose(lake.stage(3)), Receipt)
    for place in (lake, other):
        again = await place.propose(info)
        assert (again.replayed, again.transaction) == (True, won.transaction)
