"""Commits that meet, while storage is slow and fails, the database loses answers, and clients give up.

What was answered with success is in the table for ever, and what was refused never is.
"""

from __future__ import annotations

import asyncio
import gc
import random
from pathlib import Path
from typing import Any

import pytest

from inver.domain.delta import CommitInfo
from inver.domain.ledger import Reason, Receipt
from inver.domain.locations import Location
from inver.errors import Conflict, OutcomeUnknown, Refused, Unavailable
from inver.ports import ObjectStore
from inver.server.services import Services
from inver.storage.local import LocalStore
from inver.stores.sqlite import SqliteStore
from tests.fixtures.lake import Lake, new_lake
from tests.fixtures.ledger import Book, build_services, cut, outcome
from tests.fixtures.waiting import PATIENCE_S

CLIENTS, ROUNDS = 8, 20


class Weather:
    """What the storage of a table does at the moment."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.calm = True

    def objects(self, folder: Path) -> Any:
        root = Location.parse((folder / "warehouse").as_uri())

        def opened(location: Location) -> ObjectStore:
            return Stormy(location, root, self)

        return opened


class Stormy(LocalStore):
    """Some files are found at once, others after a while, and some of those not at all."""

    def __init__(self, location: Location, root: Location, weather: Weather) -> None:
        super().__init__(location, trusted=root)
        self._weather = weather

    def get_at_once(self, path: str) -> bytes | None:
        if not self._weather.calm and self._weather.chance.random() < 0.6:
            return None
        return super().get_at_once(path)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        weather = self._weather
        if not weather.calm:
            for _ in range(weather.chance.randrange(6)):
                await asyncio.sleep(0)
            if weather.chance.random() < 0.1:
                raise Unavailable("the storage fails")
        return await super().get_range(path, start, length)


def lose_answers(store: SqliteStore, weather: Weather) -> None:
    """Now and then the database does not say whether it has committed, having done so or not."""
    commit = store._commit

    def lossy(batch: Any) -> tuple[Any, ...]:
        fate = 1.0 if weather.calm else weather.chance.random()
        if fate >= 0.025:
            done = commit(batch)
            if fate >= 0.05:
                return done
        return store._fail, batch, OutcomeUnknown("the database did not confirm the commit")

    store._commit = lossy  # type: ignore[method-assign]


class Ledgerman:
    """Keeps what clients were told, and finds fault with it."""

    def __init__(self) -> None:
        self.won: dict[int, str] = {}
        self.refused: set[tuple[int, str]] = set()

    def note(self, info: CommitInfo, answer: object) -> None:
        attempt = (info.version, info.file_name)
        if isinstance(answer, Receipt):
            assert self.won.setdefault(*attempt) == info.file_name
            assert attempt not in self.refused
        elif isinstance(answer, Refused):
            self.refused.add(attempt)
            assert self.won.get(info.version) != info.file_name, answer
        else:
            assert isinstance(answer, Unavailable | OutcomeUnknown | asyncio.CancelledError), answer


async def client(lakes: list[Lake], weather: Weather, told: Ledgerman) -> None:
    """Commits to whichever server, some of it twice at once, and gives up on some of it."""
    chance, book = weather.chance, lakes[0].book
    for _ in range(ROUNDS):
        newest = await outcome(book.version(lakes[0].id))
        if not isinstance(newest, int):
            continue  # The database is away.
        version = max(1, newest + chance.choice((0, 1, 1, 1, 1)))
        info = lakes[0].stage(version) if chance.random() < 0.9 else lakes[0].info(version)
        for _ in range(chance.choice((1, 2, 3))):
            lake, published = chance.choice(lakes), chance.choice((None, version - 1))
            sent = [
                asyncio.ensure_future(lake.propose(info, published)) for _ in range(chance.choice((1, 1, 2)))
            ]
            if chance.random() < 0.2:
                for _ in range(chance.randrange(5)):
                    await asyncio.sleep(0)
                chance.choice(sent).cancel()
            answers = await asyncio.gather(*sent, return_exceptions=True)
            for answer in answers:
                told.note(info, answer)
            if any(isinstance(answer, Refused) for answer in answers):
                break


@pytest.mark.parametrize("seed", range(4))
async def test_what_was_told_stays_true(book: Book, tmp_path: Path, seed: int):
    weather, told = Weather(seed), Ledgerman()
    services: list[Services] = [
        build_services(book.store, book.clock, tmp_path, open_objects=weather.objects(tmp_path))
        for _ in range(2)
    ]
    lake = await new_lake(book, tmp_path, services[0])
    if isinstance(book.store, SqliteStore):
        lose_answers(book.store, weather)
    lakes = [lake, lake.at(services[1])]
    await storm(lakes, weather, told)
    await verify(lakes, told)


@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(2))
async def test_what_many_servers_told_stays_true(
    servers: tuple[Book, Book, Book], emptied_url: str, tmp_path: Path, seed: int
):
    """While their connections to the database are cut all the time."""
    weather, told = Weather(seed), Ledgerman()
    services = [
        build_services(book.store, book.clock, tmp_path, open_objects=weather.objects(tmp_path))
        for book in servers
    ]
    first = await new_lake(servers[0], tmp_path, services[0])
    lakes = [Lake(each, book, first.id, first.location) for each, book in zip(services, servers, strict=True)]

    async def cutting() -> None:
        while True:
            await asyncio.sleep(weather.chance.uniform(0.005, 0.05))
            await cut(emptied_url)

    cutter = asyncio.ensure_future(cutting())
    try:
        await storm(lakes, weather, told)
    finally:
        cutter.cancel()
        await asyncio.wait([cutter])
    await verify(lakes, told)


async def storm(lakes: list[Lake], weather: Weather, told: Ledgerman) -> None:
    weather.calm = False
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(client(lakes, weather, told) for _ in range(CLIENTS)))
    weather.calm = True


async def verify(lakes: list[Lake], told: Ledgerman) -> None:
    lake = lakes[0]
    while isinstance(tokens := await outcome(lake.book.tokens(lake.id)), Unavailable):
        continue  # A connection that was cut is met once.
    assert not isinstance(tokens, Exception)
    assert len(told.won) > ROUNDS / 2
    assert [tokens[version] for version in told.won] == list(told.won.values())
    assert not told.refused & set(enumerate(tokens))
    # Nobody is waited for any more.
    assert all(each.services.delta._commits._attempts == {} for each in lakes)
    while isinstance(await outcome(lake.services.publishing.publish(lake.id)), Unavailable):
        continue
    for version, token in enumerate(tokens[1:], start=1):
        staged = (lake.log / "_staged_commits" / token).read_bytes()
        assert (lake.log / f"{version:020d}.json").read_bytes() == staged


class Gate(LocalStore):
    """Staged files are read when the gate lets them through."""

    def __init__(self, location: Location, root: Location, waiting: list[asyncio.Future[None]]) -> None:
        super().__init__(location, trusted=root)
        self._waiting = waiting

    def get_at_once(self, path: str) -> bytes | None:
        return None

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        if "_staged_commits" in path:
            gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(gate)
            await gate
        return await super().get_range(path, start, length)


class Gated:
    def __init__(self, book: Book, folder: Path) -> None:
        root = Location.parse((folder / "warehouse").as_uri())
        self.waiting: list[asyncio.Future[None]] = []
        self.services = build_services(
            book.store, book.clock, folder, open_objects=lambda place: Gate(place, root, self.waiting)
        )

    async def read(self, number: int) -> None:
        """Wait until so many files are asked for, then let all of them be read."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.waiting) < number:
                await asyncio.sleep(0)
        for gate in self.waiting:
            if not gate.done():
                gate.set_result(None)
        self.waiting.clear()


@pytest.fixture
def gated(book: Book, tmp_path: Path) -> Gated:
    return Gated(book, tmp_path)


@pytest.fixture
async def slow(gated: Gated, book: Book, tmp_path: Path) -> Lake:
    """A table whose staged files are read at a gate."""
    making = asyncio.ensure_future(new_lake(book, tmp_path, gated.services))
    await gated.read(1)
    return await making


async def test_a_request_that_is_sent_twice_is_not_refused_and_accepted(slow: Lake, gated: Gated):
    """A version is missing before it. When the first one is refused for that, the second one waits for it."""
    early, missing = slow.stage(3), slow.stage(2)
    twice = [asyncio.ensure_future(outcome(slow.propose(early))) for _ in range(2)]
    await gated.read(1)
    for refused in await asyncio.wait_for(asyncio.gather(*twice), PATIENCE_S):
        assert isinstance(refused, Conflict)
        assert refused.conflicts[0].reason is Reason.VERSION_GAP
    filling = asyncio.ensure_future(slow.propose(missing))
    await gated.read(1)
    assert (await filling).results[0].version == 2
    assert gated.waiting == []
    assert await slow.book.version(slow.id) == 2


async def test_who_gives_up_waiting_leaves_nothing_behind(slow: Lake, gated: Gated):
    """Neither a commit that is waited for, nor an error that nobody looks at."""
    ahead = asyncio.ensure_future(slow.propose(slow.info(2)))
    good = slow.stage(2)
    waiting = [asyncio.ensure_future(slow.propose(each)) for each in (slow.info(2), good, slow.info(2))]
    for _ in range(2):  # A file that is not there is looked for again.
        await gated.read(1)
    assert isinstance(await outcome(ahead), Refused)
    # The next one has gone ahead, and the others wait for it.
    for each in (waiting[0], waiting[2]):
        each.cancel()
    await asyncio.wait(waiting[::2])
    for _ in range(3):
        await gated.read(1)
    assert (await waiting[1]).results[0].version == 2
    await asyncio.sleep(0.01)
    gc.collect()
    assert gated.services.delta._commits._attempts == {}


async def test_who_waits_for_one_that_is_given_up_may_win(slow: Lake, gated: Gated):
    ahead = asyncio.ensure_future(slow.propose(slow.stage(2)))
    while not gated.waiting:
        await asyncio.sleep(0)
    good = slow.stage(2)
    second = asyncio.ensure_future(slow.propose(good))
    await asyncio.sleep(0.01)
    ahead.cancel()
    gated.waiting.clear()
    await gated.read(1)
    assert (await second).results[0].version == 2
    assert (await slow.book.tokens(slow.id))[-1] == good.file_name
    assert gated.services.delta._commits._attempts == {}
