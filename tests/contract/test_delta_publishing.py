"""Publishing on storage that is slow, that fails, and in which somebody else writes and deletes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from inver.domain.locations import Location
from inver.errors import Broken, Invalid, Unavailable
from inver.server.services import Services
from inver.services import intents as ask
from inver.services.delta.publishing import AT_ONCE, ROUNDS, SLOW
from inver.services.doctor import Status
from inver.services.names import TableRef
from inver.storage.local import LocalStore
from tests.fixtures.lake import Lake, new_lake
from tests.fixtures.ledger import HOLD_MS, Book, as_admin, build_services, change
from tests.fixtures.waiting import PATIENCE_S

MANY = AT_ONCE + 2


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inver.services.delta.publishing.HOLD_UP_S", 0.02)
    monkeypatch.setattr("inver.services.delta.setbacks.FIRST_DELAY_S", 0.02)
    monkeypatch.setattr("inver.services.delta.setbacks.LONGEST_DELAY_S", 0.05)


class Trouble:
    """Tables whose storage does not answer, or fails."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.failing: set[str] = set()
        self.over = asyncio.Event()


class Troubled(LocalStore):
    def __init__(self, location: Location, root: Location, trouble: Trouble) -> None:
        super().__init__(location, trusted=root)
        self._trouble = trouble
        self._id = location.text.rstrip("/").rpartition("/")[2]

    async def copy_if_absent(self, pairs: Sequence[tuple[str | bytes, str]]) -> int:
        trouble = self._trouble
        if self._id in trouble.silent:
            await trouble.over.wait()
        if self._id in trouble.failing and not trouble.over.is_set():
            raise Unavailable("no space left on device")
        return await super().copy_if_absent(pairs)


@pytest.fixture
def trouble() -> Trouble:
    return Trouble()


@pytest.fixture
def services(book: Book, tmp_path: Path, trouble: Trouble) -> Services:
    root = Location.parse((tmp_path / "warehouse").as_uri())
    return build_services(
        book.store, book.clock, tmp_path, open_objects=lambda place: Troubled(place, root, trouble)
    )


@asynccontextmanager
async def publishing(services: Services) -> AsyncIterator[None]:
    services.publishing._delay_s = 0.01
    running = asyncio.ensure_future(services.publishing.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])
        assert services.publishing._slow == {}


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not met():
            await asyncio.sleep(0.005)


async def marked(lake: Lake) -> int:
    return (await lake.book.table(lake.id)).published


async def until_marked(lake: Lake, version: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await marked(lake) < version:
            await asyncio.sleep(0.005)


async def lakes(book: Book, folder: Path, services: Services, count: int) -> list[Lake]:
    return [await new_lake(book, folder, services, f"t{number}") for number in range(count)]


async def test_tables_whose_storage_does_not_answer_hold_up_nobody(
    book: Book, tmp_path: Path, services: Services, trouble: Trouble
):
    """More of them than are published side by side."""
    *silent, healthy = await lakes(book, tmp_path, services, MANY + 1)
    trouble.silent = {each.id for each in silent}
    async with publishing(services):
        await until_marked(healthy, 1)
        await healthy.propose(healthy.stage(2))
        await until_marked(healthy, 2)
        assert [await marked(each) for each in silent] == [0] * MANY
        assert len(services.publishing._slow) <= SLOW
        trouble.over.set()
        for each in silent:
            await until_marked(each, 1)


async def test_what_is_committed_while_a_table_is_slow_follows_at_once(
    book: Book, tmp_path: Path, services: Services, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
):
    [lake] = await lakes(book, tmp_path, services, 1)
    trouble.silent = {lake.id}
    async with publishing(services):
        await until(lambda: lake.id in services.publishing._slow)
        # No look at the whole database finds it.
        monkeypatch.setattr(services.publishing, "_scan", nothing)
        await lake.propose(lake.stage(2))
        await until(lambda: lake.id in services.publishing._told)
        trouble.over.set()
        await until_marked(lake, 2)


async def test_what_is_committed_while_a_table_is_slow_is_not_forgotten_for_others(
    book: Book, tmp_path: Path, services: Services, trouble: Trouble
):
    """The table comes round while others are published in the same round."""
    slow, other = await lakes(book, tmp_path, services, 2)
    publishing = services.publishing
    trouble.silent = {slow.id}
    await publishing._publish_all({slow.id: 1}, 0.0)
    assert slow.id in publishing._slow
    trouble.over.set()
    await publishing._publish_all({slow.id: 2, other.id: 1}, 0.0)
    assert publishing._told == {slow.id: 2}
    await until(lambda: slow.id not in publishing._slow)


async def nothing() -> list[str]:
    return []


async def test_storage_that_fails_for_a_while_delays_its_tables_alone(
    book: Book, tmp_path: Path, services: Services, trouble: Trouble, caplog: pytest.LogCaptureFixture
):
    *failing, healthy = await lakes(book, tmp_path, services, 4)
    trouble.failing = {each.id for each in failing}
    with caplog.at_level(logging.WARNING, "inver.publishing"):
        async with publishing(services):
            await until_marked(healthy, 1)
            await until(lambda: services.publishing.failed > 2 * len(failing))
            trouble.over.set()
            for each in failing:
                await until_marked(each, 1)
            await until(lambda: not any(each.id in services.publishing._setbacks for each in failing))
    assert "no space left on device" in caplog.text
    assert failing[0].id in caplog.text


async def test_writers_have_their_time_to_publish(lake: Lake):
    publishing = lake.services.publishing
    await lake.propose(lake.stage(2))
    assert [publishing._ripe(0.0) for _ in range(ROUNDS)] == [{}] * ROUNDS
    assert publishing._ripe(0.0) == {lake.id: 2}
    assert publishing._ripe(0.0) == {}


async def test_what_writers_publish_themselves_is_left_alone(lake: Lake):
    publishing = lake.services.publishing
    await publishing.publish(lake.id)
    infos = [lake.stage(version) for version in (2, 3, 4)]
    await lake.propose(infos[0])
    ripe = [publishing._ripe(0.0)]
    for before, info in pairwise(infos):
        lake.publish(before)
        await lake.propose(info, published=before.version)
        # Sent again, it is older than what waits.
        await lake.propose(before)
        ripe.append(publishing._ripe(0.0))
    assert await marked(lake) == 3
    ripe += [publishing._ripe(0.0) for _ in range(ROUNDS)]
    assert [each for each in ripe if each] == [{lake.id: 4}]


async def test_what_was_published_before_a_failure_is_marked(lake: Lake):
    for version in range(2, 9):
        await lake.propose(lake.stage(version))
    in_the_way = lake.log / f"{6:020d}.json"
    in_the_way.mkdir()
    with pytest.raises(Invalid, match="is a folder"):
        await lake.services.publishing.publish(lake.id)
    assert await marked(lake) == 5
    in_the_way.rmdir()
    await lake.services.publishing.publish(lake.id)
    assert await marked(lake) == 8


@pytest.fixture
def other(lake: Lake, tmp_path: Path) -> Lake:
    """A server that has not seen any commit itself."""
    return lake.at(build_services(lake.book.store, lake.book.clock, tmp_path))


async def test_a_staged_file_that_is_gone_is_missed_only_if_it_is_not_published(lake: Lake, other: Lake):
    infos = {version: lake.stage(version) for version in (2, 3, 4)}
    for info in infos.values():
        await lake.propose(info)
    lake.publish(infos[2])
    for version in (2, 3):
        (lake.log / "_staged_commits" / infos[version].file_name).unlink()
    with pytest.raises(Broken, match="gone"):
        await other.services.publishing.publish(lake.id)
    assert await marked(lake) == 2
    # Who has its bytes brings it back, also if that fails at first.
    in_the_way = lake.log / f"{3:020d}.json"
    in_the_way.mkdir()
    with pytest.raises(Invalid):
        await lake.services.publishing.publish(lake.id)
    in_the_way.rmdir()
    await lake.services.publishing.publish(lake.id)
    assert await marked(lake) == 4
    assert lake.services.publishing._contents == {}


@pytest.mark.parametrize("forged", ["other rows", "the same size", "no commit at all"])
async def test_another_file_under_the_name_of_a_commit_hides_nothing(lake: Lake, other: Lake, forged: str):
    """Also when the staged file is gone, and nothing is left to compare it with."""
    info, rival = lake.stage(2), lake.stage(3)
    await lake.propose(info)
    data = (lake.log / "_staged_commits" / rival.file_name).read_bytes()
    if forged == "other rows":
        data += data
    elif forged == "no commit at all":
        data = b"x" * len(data)
    published = lake.log / f"{2:020d}.json"
    published.write_bytes(data)
    staged = lake.log / "_staged_commits" / info.file_name
    right = staged.read_bytes()
    assert len(right) == len(data) or forged == "other rows"
    for server in (other, other, lake):
        with pytest.raises(Broken, match="is not the commit that was ratified"):
            await server.services.publishing.publish(lake.id)
        assert await marked(lake) == 1
        staged.unlink(missing_ok=True)
    assert await unpublished(lake) is Status.OK
    lake.book.clock.advance(60 * 60_000)
    assert await unpublished(lake) is Status.WARNING
    published.unlink()
    staged.write_bytes(right)
    await other.services.publishing.publish(lake.id)
    assert published.read_bytes() == right
    assert await unpublished(lake) is Status.OK


async def unpublished(lake: Lake) -> Status:
    checks = await as_admin(lake.book.store, lake.services.doctor.examine)
    [found] = [check for check in checks if check.name == "unpublished"]
    assert (lake.id in found.detail) is (found.status is Status.WARNING)
    return found.status


async def test_a_disk_that_is_away_is_not_an_empty_one(lake: Lake, tmp_path: Path):
    """Nothing is refused for it, nothing is written beside it, and nothing is taken for deleted."""
    book, services = lake.book, lake.services
    second, third = lake.stage(2), lake.stage(3)
    await lake.propose(second)
    dropped = await new_lake(book, tmp_path, services, "dropped")
    await change(services, book.store, ask.DropTable(table=TableRef(id=dropped.id)))
    warehouse, away = tmp_path / "warehouse", tmp_path / "away"
    warehouse.rename(away)
    with pytest.raises(Unavailable):
        await lake.propose(third)
    with pytest.raises(Unavailable):
        await services.publishing.publish(lake.id)
    assert not warehouse.exists()
    assert await marked(lake) == 0
    book.clock.advance(HOLD_MS)
    await services.followup.step()
    assert services.followup.failed == 1
    away.rename(warehouse)
    assert dropped.log.exists()
    await services.publishing.publish(lake.id)
    await lake.propose(third)
    assert await marked(lake) == 2
    book.clock.advance(60_000)
    await services.followup.step()
    assert not dropped.log.exists()
