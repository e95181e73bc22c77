"""What services promise on each backend: a keyed request takes effect once, and follow-up work is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from inver.clock import ManualClock
from inver.domain.events import Event
from inver.domain.idempotency import GRACE_MS, LIFETIME_MS, KeyedRequest
from inver.domain.ledger import MAX_OPERATIONS, Receipt, Work
from inver.domain.locations import Location
from inver.domain.principals import ADMIN, SYSTEM
from inver.domain.tables import Format, State, Table, TableKind
from inver.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KeyReused,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    RateLimited,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from inver.ports import ObjectInfo, ObjectStore, WorkItem
from inver.server.services import Services
from inver.services import followup
from inver.services.context import Caller
from inver.services.followup import FollowUp
from inver.services.intents import (
    AlterTable,
    Commit,
    CreateTable,
    DropTable,
    Intent,
    RenameTable,
    UndropTable,
)
from inver.services.names import TableRef
from inver.services.once import Once
from inver.services.planning import PURGE
from inver.storage.open import open_store
from inver.storage.options import StorageOptions
from tests.fixtures.ledger import (
    HOLD_MS,
    AnyStore,
    Backend,
    Book,
    all_events,
    append,
    as_admin,
    build_services,
    change,
    create_table,
    opened,
    outcome,
    outcomes,
)
from tests.fixtures.waiting import PATIENCE_S


class Desk:
    """A server without its HTTP: services on a store, asked by the administrator."""

    def __init__(self, book: Book, folder: Path, **options: Any) -> None:
        self.book = book
        self.folder = folder
        self.store: AnyStore = book.store
        self.clock: ManualClock = book.clock
        self.services: Services = build_services(book.store, book.clock, folder, **options)

    def ask(self, *intents: Intent, key: str | None = None) -> Awaitable[Receipt]:
        return change(self.services, self.store, *intents, key=key)

    async def create(self, name: str, **fields: Any) -> Table:
        receipt = await self.ask(new(name, **fields))
        return await self.book.table(receipt.results[0].subject)

    async def drop(self, table: Table) -> None:
        await self.ask(DropTable(table=TableRef(id=table.id)))

    def files(self, table: Table) -> Path:
        """The table's folder, with two files in it."""
        folder = Path(Location.parse(table.location).local_path)
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "data/part-0").write_bytes(b"rows")
        (folder / "log").write_bytes(b"log")
        return folder


def new(name: str, **fields: Any) -> CreateTable:
    return CreateTable(name=("main", "sales", name), format=Format.DELTA, **fields)


def commit(name: str, version: int, token: str) -> Commit:
    return Commit(table=TableRef(name=("main", "sales", name)), version=version, token=token)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def desk(book: Book, tmp_path: Path) -> Desk:
    return Desk(book, tmp_path)


@pytest.fixture
def desks(servers: tuple[Book, Book, Book], tmp_path: Path) -> list[Desk]:
    """Three servers on one database."""
    return [Desk(book, tmp_path, server=f"server-{index}") for index, book in enumerate(servers)]


# --- idempotency keys ---


def receipts(answers: list[Any]) -> list[Receipt]:
    assert all(isinstance(answer, Receipt) for answer in answers), answers
    return answers


async def test_requests_in_flight_under_one_key_happen_once(desk: Desk):
    key = str(uuid4())
    answers = receipts(
        await outcomes(*(desk.ask(new("orders"), key=key if i % 2 else key.upper()) for i in range(10)))
    )
    assert sum(not receipt.replayed for receipt in answers) == 1
    assert len({(receipt.transaction, receipt.at, receipt.results) for receipt in answers}) == 1
    assert len(await desk.store.tables(desk.book.schema, "", 10)) == 1
    desk.clock.advance(1_000)
    later = await desk.ask(new("orders"), key=key)
    assert later == msgspec.structs.replace(answers[0], replayed=True)


@pytest.mark.postgres
async def test_requests_in_flight_on_several_servers_happen_once(desks: list[Desk]):
    """A duplicate on another server is never told that it lost against itself."""
    for attempt in range(6):
        key, name = str(uuid4()), f"t{attempt}"
        made = receipts(
            await outcomes(*(desk.ask(new(name), commit(name, 1, "x"), key=key) for desk in desks * 2))
        )
        assert len({(receipt.transaction, receipt.results) for receipt in made}) == 1
        key = str(uuid4())
        dropped = receipts(
            await outcomes(
                *(
                    desk.ask(DropTable(table=TableRef(id=made[0].results[0].subject)), key=key)
                    for desk in desks * 2
                )
            )
        )
        assert len({receipt.transaction for receipt in dropped}) == 1
    assert await desks[0].store.tables(desks[0].book.schema, "", 10) == []


async def test_a_key_belongs_to_one_request(desk: Desk):
    key = str(uuid4())
    answers = await outcomes(desk.ask(new("one"), key=key), desk.ask(new("two"), key=key))
    assert sorted(type(answer).__name__ for answer in answers) == ["KeyReused", "Receipt"]
    assert len(await desk.store.tables(desk.book.schema, "", 10)) == 1
    for other in (new("three"), new("one", comment="c"), new("ONE")):
        assert isinstance(await outcome(desk.ask(other, key=key)), KeyReused)
    again = [answer for answer in answers if isinstance(answer, Receipt)]
    name = "one" if isinstance(answers[0], Receipt) else "two"
    assert (await desk.ask(new(name), key=key)).transaction == again[0].transaction


async def test_a_key_belongs_to_one_principal(desk: Desk):
    once, caller = desk.services.once, Caller(ADMIN, key=str(uuid4()))
    other = Caller(msgspec.structs.replace(ADMIN, id=str(uuid4())), key=caller.key)
    table = await desk.book.create_table("orders")

    async def use_case(keyed: KeyedRequest | None) -> Receipt:
        return await desk.book.decide(append(table, 1), keyed=keyed)

    await once.run(caller, "scope", b"request", use_case)
    assert isinstance(await outcome(once.run(other, "scope", b"request", use_case)), KeyReused)
    # Another scope is another key.
    assert isinstance(await outcome(once.run(caller, "elsewhere", b"request", use_case)), Conflict)


async def test_a_refusal_is_repeated_even_when_it_would_not_be_given_now(desk: Desk):
    """The client may have deleted its files on it."""
    taken = await desk.create("orders")
    await desk.ask(commit("orders", 1, "winner"))
    for intent, kind in (
        (new("ORDERS"), AlreadyExists),
        (commit("orders", 1, "loser"), Conflict),
        (commit("nowhere", 1, "x"), NotFound),
        (new("x", location="/somewhere"), Invalid),
    ):
        key = str(uuid4())
        first = await outcome(desk.ask(intent, key=key))
        assert type(first) is kind
        if intent.__class__ is CreateTable:
            await desk.drop(taken)
            taken = await desk.create("orders")
            await desk.ask(commit("orders", 1, "winner"))
        desk.clock.advance(LIFETIME_MS // 10)
        again = await outcome(desk.ask(intent, key=key))
        assert type(again) is kind
        assert vars(again) == vars(first)
    key = str(uuid4())
    refused = await outcome(desk.ask(new("orders"), key=key))
    await desk.drop(taken)
    assert vars(await outcome(desk.ask(new("orders"), key=key))) == vars(refused)
    await desk.ask(new("orders"), key=str(uuid4()))


MOMENTARY = [
    Unavailable("later"),
    Overloaded("later"),
    OutcomeUnknown("perhaps"),
    Unauthenticated("who"),
    Forbidden("no"),
    RateLimited("slow"),
    TooLarge("much"),
    RuntimeError("bug"),
]


async def test_what_depends_on_the_moment_is_not_kept(desk: Desk):
    table = await desk.book.create_table("orders")
    for version, error in enumerate(MOMENTARY, start=1):
        caller = Caller(ADMIN, key=str(uuid4()))
        troubles = [error]

        async def use_case(keyed: KeyedRequest | None, troubles=troubles, version=version) -> Receipt:
            if troubles:
                raise troubles.pop()
            return await desk.book.decide(append(table, version), keyed=keyed)

        assert await outcome(desk.services.once.run(caller, "scope", b"request", use_case)) is error
        assert await desk.store.key_record("scope", str(caller.key)) is None
        receipt = await desk.services.once.run(caller, "scope", b"request", use_case)
        assert (receipt.replayed, await desk.book.version(table)) == (False, version)


async def test_a_key_is_fresh_again_when_its_time_is_over(desk: Desk):
    done, refused = str(uuid4()), str(uuid4())
    await desk.ask(new("orders"), key=done)
    assert isinstance(await outcome(desk.ask(new("orders"), key=refused)), AlreadyExists)
    desk.clock.advance(LIFETIME_MS + GRACE_MS)
    assert (await desk.ask(new("orders"), key=done)).replayed
    desk.clock.advance(1)
    assert isinstance(await outcome(desk.ask(new("orders"), key=done)), AlreadyExists)
    assert not (await desk.ask(new("sold"), key=refused)).replayed
    desk.clock.advance(LIFETIME_MS + GRACE_MS + 1)
    assert await desk.services.once.forget() == 2
    assert await desk.services.once.forget() == 0


async def test_whoever_stops_waiting_for_a_key_disturbs_nobody(desk: Desk):
    once, caller = desk.services.once, Caller(ADMIN, key=str(uuid4()))
    table = await desk.book.create_table("orders")
    may_go, runs = asyncio.Event(), 0

    async def use_case(keyed: KeyedRequest | None) -> Receipt:
        nonlocal runs
        runs += 1
        await may_go.wait()
        return await desk.book.decide(append(table, 1), keyed=keyed)

    waiting = [asyncio.ensure_future(once.run(caller, "s", b"request", use_case)) for _ in range(4)]
    await asyncio.sleep(0.01)
    waiting[1].cancel()
    waiting[3].cancel()
    await asyncio.sleep(0)
    may_go.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers[::2]] == [Receipt, Receipt]
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[1::2])
    assert (runs, await desk.book.version(table)) == (1, 1)


async def test_when_the_first_gives_up_the_next_takes_its_turn(desk: Desk):
    once, caller = desk.services.once, Caller(ADMIN, key=str(uuid4()))
    table = await desk.book.create_table("orders")
    stuck = [asyncio.Event()]

    async def use_case(keyed: KeyedRequest | None) -> Receipt:
        if stuck:
            await stuck.pop().wait()
        return await desk.book.decide(append(table, 1), keyed=keyed)

    first, second = [asyncio.ensure_future(once.run(caller, "s", b"r", use_case)) for _ in range(2)]
    while stuck:
        await asyncio.sleep(0.001)
    first.cancel()
    assert not (await second).replayed
    assert (await once.run(caller, "s", b"r", use_case)).replayed


async def test_a_key_is_a_uuid(desk: Desk):
    assert isinstance(await outcome(desk.ask(new("orders"), key="order-7")), Invalid)
    assert await desk.store.tables(desk.book.schema, "", 10) == []


async def test_without_a_key_nothing_is_recorded(desk: Desk):
    once = Once(desk.store, desk.clock)
    table = await desk.book.create_table("orders")
    receipt = await once.run(Caller(ADMIN), "s", b"r", lambda keyed: desk.book.decide(append(table, 1)))
    assert not receipt.replayed
    assert await desk.store.forget_keys(2**62) == 0


# --- transactions by name ---


async def test_a_name_that_the_transaction_makes_is_found_by_what_follows(desk: Desk):
    old = await desk.create("old")
    await desk.drop(old)
    receipt = await desk.ask(
        new("orders"),
        commit("Orders", 1, "t1"),
        AlterTable(table=TableRef(name=("main", "sales", "orders")), comment="c"),
        RenameTable(table=TableRef(name=("main", "sales", "orders")), to=("main", "sales", "sold")),
        commit("sold", 2, "t2"),
        UndropTable(table_id=old.id),
        commit("old", 1, "o1"),
        commit("OLD", 2, "o2"),
    )
    orders = receipt.results[0].subject
    assert await desk.book.tokens(orders) == ["t1", "t2"]
    assert await desk.book.tokens(old.id) == ["o1", "o2"]
    assert await desk.store.full_name(orders) == ("main", "sales", "sold")
    details = await desk.store.details(orders)
    assert details is not None
    assert details.comment == "c"


async def test_an_undropped_table_is_found_under_its_new_name(desk: Desk):
    old = await desk.create("old")
    await desk.drop(old)
    await desk.ask(UndropTable(table_id=old.id, to=("main", "sales", "back")), commit("BACK", 1, "t"))
    assert await desk.book.tokens(old.id) == ["t"]


async def numbered(desk: Desk, intents: Sequence[Intent]) -> Receipt:
    return await as_admin(
        desk.store, lambda caller: desk.services.transactions.decide(caller, intents, numbered=True)
    )


async def test_a_wrong_operation_is_named_by_its_place(desk: Desk):
    before = await all_events(desk.store)
    for intents, field in (
        ([new("a"), new("b", location="s3://b/x")], "operations[1].location"),
        ([new("a"), CreateTable(name=("main", "x"), format=Format.LANCE)], "operations[1].name"),
        ([new("a"), new("b", state=State.PURGED)], "operations[1].state"),
        ([Commit(table=TableRef(id="7"), version=1, token="t")], "operations[0].table.id"),
        ([], "operations"),
        ([new("a")] * (MAX_OPERATIONS + 1), "operations"),
    ):
        refused = await outcome(numbered(desk, intents))
        assert isinstance(refused, Invalid)
        assert refused.field == field
    assert await all_events(desk.store) == before


# --- the end of dropped tables ---


async def work(desk: Desk) -> list[WorkItem]:
    return await desk.store.work(100)


async def test_files_of_a_dropped_table_stay_for_the_hold_time_and_then_go(desk: Desk):
    table, kept = await desk.create("orders"), await desk.create("kept")
    folder, other = desk.files(table), desk.files(kept)
    await desk.drop(table)
    desk.clock.advance(HOLD_MS - 1)
    assert await desk.services.followup.step() == 0
    assert files_in(folder) == ["log", "part-0"]
    desk.clock.advance(1)
    assert await desk.services.followup.step() == 1
    assert files_in(folder) == []
    assert files_in(other) == ["log", "part-0"]
    assert (await desk.book.table(table.id)).state is State.PURGED
    event: Event = (await all_events(desk.store))[-1]
    assert (event.kind, event.subject, event.by) == ("table.purged", table.id, SYSTEM.id)
    assert await work(desk) == []
    assert await desk.services.followup.step() == 0
    assert isinstance(await outcome(desk.ask(UndropTable(table_id=table.id))), NotFound)


async def test_files_of_an_external_table_are_not_ours_to_delete(desk: Desk):
    location = str(desk.folder / "external/orders")
    table = await desk.create("orders", kind=TableKind.EXTERNAL, location=location)
    folder = desk.files(table)
    await desk.drop(table)
    desk.clock.advance(HOLD_MS)
    assert await desk.services.followup.step() == 1
    assert (await desk.book.table(table.id)).state is State.PURGED
    assert files_in(folder) == ["log", "part-0"]
    # Its place is free again.
    await desk.create("again", kind=TableKind.EXTERNAL, location=location)


async def test_an_undropped_table_keeps_its_files(desk: Desk):
    table = await desk.create("orders")
    folder = desk.files(table)
    await desk.drop(table)
    desk.clock.advance(HOLD_MS - 1)
    await desk.ask(UndropTable(table_id=table.id))
    desk.clock.advance(HOLD_MS)
    assert await desk.services.followup.step() == 1
    assert files_in(folder) == ["log", "part-0"]
    assert (await desk.book.table(table.id)).state is State.LIVE
    assert await work(desk) == []


async def test_a_table_dropped_again_is_held_anew(desk: Desk):
    table = await desk.create("orders")
    folder = desk.files(table)
    await desk.drop(table)
    desk.clock.advance(HOLD_MS - 1)
    await desk.ask(UndropTable(table_id=table.id))
    await desk.drop(table)
    desk.clock.advance(HOLD_MS - 1)
    assert await desk.services.followup.step() == 1
    assert files_in(folder) == ["log", "part-0"]
    desk.clock.advance(1)
    assert await desk.services.followup.step() == 1
    assert files_in(folder) == []


async def test_what_is_dropped_takes_nothing_else_along(desk: Desk):
    """The name was used again and the schema is gone; neither has to do with the files."""
    table = await desk.create("orders")
    folder = desk.files(table)
    await desk.drop(table)
    again = await desk.create("orders")
    other = desk.files(again)
    await desk.drop(again)
    await desk.ask(UndropTable(table_id=again.id))
    desk.clock.advance(HOLD_MS)
    await desk.services.followup.step()
    assert (files_in(folder), files_in(other)) == ([], ["log", "part-0"])
    assert (await desk.book.table(again.id)).state is State.LIVE


class Watched:
    """A folder of files that calls out before it tells what is in it."""

    def __init__(self, inner: ObjectStore, before: Callable[[], Awaitable[None]]) -> None:
        self._inner = inner
        self._before = before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        await self._before()
        async for info in self._inner.list(prefix):
            yield info


def opener(folder: Path, before: Callable[[Location], Awaitable[None]]) -> Callable[[Location], ObjectStore]:
    root = Location.parse(str(folder))

    def open_objects(location: Location) -> ObjectStore:
        inner = open_store(location, StorageOptions(), allowed_roots=[root])
        watched: Any = Watched(inner, lambda: before(location))
        return watched  # type: ignore[no-any-return]

    return open_objects


async def test_nobody_brings_a_table_back_while_its_files_go(book: Book, tmp_path: Path):
    answers: list[Any] = []

    async def undrop(location: Location) -> None:
        answers.append(await outcome(desk.ask(UndropTable(table_id=table.id))))

    desk = Desk(book, tmp_path, open_objects=opener(tmp_path, undrop))
    table = await desk.create("orders")
    folder = desk.files(table)
    await desk.drop(table)
    desk.clock.advance(HOLD_MS)
    await desk.services.followup.step()
    state = (await desk.book.table(table.id)).state
    # Either it came back with its files, or it did not come back.
    assert (state, files_in(folder)) in [(State.LIVE, ["log", "part-0"]), (State.PURGED, [])]
    assert len(answers) == 1
    assert isinstance(answers[0], Receipt) == (state is State.LIVE)


async def test_files_that_became_another_table_meanwhile_stay(book: Book, tmp_path: Path):
    """Its place is nobody's once a table is purged, and takes a while to be empty."""
    taken: list[Receipt] = []

    async def register(location: Location) -> None:
        if not taken:
            other = create_table(book, "taken", kind=TableKind.EXTERNAL, location=table.location)
            taken.append(await book.decide(other))

    desk = Desk(book, tmp_path, open_objects=opener(tmp_path, register))
    table = await desk.create("orders")
    folder = desk.files(table)
    for number in range(40):
        (folder / f"more-{number}").write_bytes(b"rows")
    before = files_in(folder)
    await desk.drop(table)
    desk.clock.advance(HOLD_MS)
    assert await desk.services.followup.step() == 1
    assert files_in(folder) == before


# --- follow-up work ---


async def test_work_that_fails_comes_back_and_holds_up_nothing_else(book: Book, tmp_path: Path):
    broken: set[str] = set()

    async def refuse(location: Location) -> None:
        if location.canonical in broken:
            raise OSError("the disk is tired")

    desk = Desk(book, tmp_path, open_objects=opener(tmp_path, refuse))
    tables = [await desk.create(f"t{index}") for index in range(3)]
    folders = [desk.files(table) for table in tables]
    broken.add(Location.parse(tables[0].location).canonical)
    for table in tables:
        await desk.drop(table)
    desk.clock.advance(HOLD_MS)
    assert await desk.services.followup.step() == 3
    assert (desk.services.followup.done, desk.services.followup.failed) == (2, 1)
    assert [files_in(folder) for folder in folders] == [["log", "part-0"], [], []]
    (item,) = await work(desk)
    assert (item.subject, item.attempts, item.state) == (tables[0].id, 1, "waiting")
    assert item.last_error == "OSError: the disk is tired"
    assert item.not_before > desk.clock.now_ms()
    assert await desk.services.followup.step() == 0
    desk.clock.advance(item.not_before - desk.clock.now_ms())
    assert await desk.services.followup.step() == 1
    (item,) = await work(desk)
    assert item.attempts == 2
    # Once the disk has recovered, the rest is done.
    broken.clear()
    desk.clock.advance(item.not_before - desk.clock.now_ms())
    assert await desk.services.followup.step() == 1
    assert files_in(folders[0]) == []
    assert await work(desk) == []


async def test_work_of_a_worker_that_died_is_done_by_another(desk: Desk):
    table = await desk.create("orders")
    folder = desk.files(table)
    await desk.drop(table)
    desk.clock.advance(HOLD_MS)
    # It claimed the item, and was never heard of again.
    claimed = await desk.store.claim_work([PURGE], "dead", desk.clock.now_ms(), followup.LEASE_MS, 10)
    assert len(claimed) == 1
    desk.clock.advance(followup.LEASE_MS - 1)
    assert await desk.services.followup.step() == 0
    assert files_in(folder) == ["log", "part-0"]
    desk.clock.advance(1)
    assert await desk.services.followup.step() == 1
    assert files_in(folder) == []
    assert await work(desk) == []
    assert not await desk.store.finish_work(claimed[0].id, "dead")


async def test_work_cut_short_is_done_to_its_end(book: Book, tmp_path: Path):
    """The process dies between any two steps of the task."""

    class Died(BaseException):
        pass

    async def die(location: Location) -> None:
        if deaths:
            deaths.pop()
            raise Died

    deaths = [1, 2]
    desk = Desk(book, tmp_path, open_objects=opener(tmp_path, die))
    table = await desk.create("orders")
    folder = desk.files(table)
    await desk.drop(table)
    desk.clock.advance(HOLD_MS)
    for _ in range(2):
        with pytest.raises(Died):
            await desk.services.followup.step()
        desk.clock.advance(followup.LEASE_MS)
    assert await desk.services.followup.step() == 1
    assert files_in(folder) == []
    assert (await desk.book.table(table.id)).state is State.PURGED
    assert [event.kind for event in await all_events(desk.store)].count("table.purged") == 1


class Faulty:
    """A store whose leases cannot be extended."""

    def __init__(self, store: AnyStore) -> None:
        self._store = store
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def extend_work(self, item_id: str, worker: str, until: int) -> bool:
        self.asked += 1
        raise Unavailable("the database is away")


async def add_work(desk: Desk, count: int) -> None:
    items = [msgspec.structs.replace(WORK, subject=f"s{index}") for index in range(count)]
    await desk.book.decide(create_table(desk.book, "any"), work=items)


WORK = Work(kind="k", subject="s")


async def test_a_lease_that_cannot_be_extended_stops_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(followup, "LEASE_MS", 6)
    await add_work(desk, 3)
    faulty: Any = Faulty(desk.store)
    done: list[str] = []

    async def task(item: WorkItem) -> None:
        seen = faulty.asked
        while faulty.asked == seen:
            await asyncio.sleep(0.001)
        done.append(item.subject)

    worker = FollowUp(faulty, desk.clock, "w", {"k": task})
    assert await worker.step() == 3
    assert sorted(done) == ["s0", "s1", "s2"]
    assert await work(desk) == []


async def test_a_lease_is_held_until_its_turn_comes(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    """The last of a batch waits for the others; meanwhile nobody else may take it."""
    monkeypatch.setattr(followup, "LEASE_MS", 30)
    await add_work(desk, 4)
    done: list[str] = []

    async def extended() -> None:
        while any(item.lease_until < desk.clock.now_ms() + 30 for item in await work(desk)):
            await asyncio.sleep(0.001)

    async def task(item: WorkItem) -> None:
        desk.clock.advance(20)
        await asyncio.wait_for(extended(), PATIENCE_S)
        assert await second.step() == 0
        done.append(item.subject)

    async def never(item: WorkItem) -> None:
        raise AssertionError(f"{item.subject} was taken from the one who has it")

    second = FollowUp(desk.store, desk.clock, "second", {"k": never})
    first = FollowUp(desk.store, desk.clock, "first", {"k": task})
    assert await first.step() == 4
    assert (first.done, first.failed, second.failed) == (4, 0, 0)
    assert sorted(done) == [f"s{index}" for index in range(4)]


async def test_what_takes_long_holds_up_nothing_else(desk: Desk):
    await add_work(desk, 3)
    done: list[str] = []
    ending = asyncio.Event()

    async def task(item: WorkItem) -> None:
        if item.subject == "s0":
            await ending.wait()
        done.append(item.subject)

    worker = FollowUp(desk.store, desk.clock, "w", {"k": task})
    running = asyncio.ensure_future(worker.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len(done) < 2:
                await asyncio.sleep(0.001)
            # Also what comes later, while the first one goes on.
            await desk.book.decide(create_table(desk.book, "more"), work=[WORK])
            while len(done) < 3:
                await asyncio.sleep(0.001)
            assert sorted(done) == ["s", "s1", "s2"]
            ending.set()
            while await work(desk):
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert (worker.done, worker.failed) == (4, 0)


async def test_workers_share_what_there_is_to_do(backend: Backend, tmp_path: Path):
    async with opened(backend) as book:
        desk = Desk(book, tmp_path)
        await add_work(desk, 40)
        stores = [book.store] if backend.url is None else [book.store, await backend.open()]
        done: list[str] = []

        async def task(item: WorkItem) -> None:
            done.append(item.subject)

        workers = [FollowUp(stores[i % len(stores)], desk.clock, f"w{i}", {"k": task}) for i in range(4)]

        async def run(worker: FollowUp) -> None:
            while await worker.step():
                pass

        await asyncio.gather(*(run(worker) for worker in workers))
        await run(workers[0])
        assert sorted(done) == sorted(f"s{index}" for index in range(40))
        assert sum(worker.done for worker in workers) == 40


async def test_a_worker_can_be_stopped_at_any_moment(desk: Desk):
    class Stopping(Faulty):
        async def finish_work(self, item_id: str, worker: str) -> bool:
            finished = await self._store.finish_work(item_id, worker)
            # It arrives while the worker is busy with clearing up.
            asyncio.get_running_loop().call_soon(running.cancel)
            return finished

    async def task(item: WorkItem) -> None:
        pass

    store: Any = Stopping(desk.store)
    await add_work(desk, 1)
    running = asyncio.ensure_future(FollowUp(store, desk.clock, "w", {"k": task}).run())
    _, still_running = await asyncio.wait([running], timeout=PATIENCE_S)
    running.cancel()
    assert not still_running


async def test_a_worker_runs_until_it_is_stopped(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    """Also through errors that have nothing to do with its tasks."""
    monkeypatch.setattr(followup, "IDLE_S", 0.001)
    seen = asyncio.Event()
    trouble = [Unavailable("away"), OutcomeUnknown("perhaps")]

    async def task(item: WorkItem) -> None:
        seen.set()

    class Troubled(Faulty):
        async def claim_work(self, *arguments: Any) -> list[WorkItem]:
            if trouble:
                raise trouble.pop()
            return await self._store.claim_work(*arguments)

    store: Any = Troubled(desk.store)
    running = asyncio.ensure_future(FollowUp(store, desk.clock, "w", {"k": task}).run())
    await add_work(desk, 1)
    await asyncio.wait_for(seen.wait(), PATIENCE_S)
    while await work(desk):
        await asyncio.sleep(0.001)
    running.cancel()
    assert isinstance((await asyncio.gather(running, return_exceptions=True))[0], asyncio.CancelledError)
