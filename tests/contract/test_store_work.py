"""What every store promises about idempotency keys and follow-up work."""

from __future__ import annotations

import asyncio

import pytest

from inver.domain import ledger
from inver.domain.idempotency import KeyRecord
from inver.domain.ledger import Receipt, Work
from inver.errors import Conflict
from inver.ids import new_id
from inver.ports import KeyTaken, WorkItem
from inver.stores.queue import FIRST_DELAY_MS, LONGEST_DELAY_MS, MAX_ATTEMPTS
from tests.fixtures.ledger import (
    Backend,
    Book,
    all_events,
    append,
    assert_gap_free,
    contents,
    create_table,
    keyed,
    outcome,
    outcomes,
)

# --- idempotency keys ---


async def test_a_key_is_recorded_with_the_change_it_belongs_to(book: Book):
    request = keyed()
    table = create_table(book, "orders")
    assert await book.store.key_record(request.scope, request.key) is None
    receipt = await book.decide(table, append(table.id, 1), keyed=request)
    record = await book.store.key_record(request.scope, request.key)
    outcome = f'[["{table.id}",0,null],["{table.id}",1,null]]'.encode()
    assert record == KeyRecord(request, receipt.transaction, book.clock.now_ms(), outcome)
    assert await book.store.key_record("other", request.key) is None


async def test_a_taken_key_undoes_the_change(book: Book):
    request = keyed()
    one, two = await book.create_table("one"), await book.create_table("two")
    await book.decide(append(one, 1), keyed=request)
    before = await contents(book.store)
    work = [Work(kind="k", subject="s")]
    assert isinstance(await outcome(book.decide(append(two, 1), keyed=request, work=work)), KeyTaken)
    assert isinstance(await outcome(book.decide(append(two, 1), keyed=keyed(request.key, "other"))), KeyTaken)
    assert await contents(book.store) == before
    # Another scope is another key.
    await book.decide(append(two, 1), keyed=keyed(request.key, scope="elsewhere"))


async def test_one_of_many_requests_takes_a_key(book: Book):
    request = keyed()
    tables = [await book.create_table(f"t{index}") for index in range(8)]
    last = await book.store.last_event()
    answers = await outcomes(*(book.decide(append(table, 1), keyed=request) for table in tables))
    (won,) = [answer for answer in answers if isinstance(answer, Receipt)]
    assert sum(isinstance(answer, KeyTaken) for answer in answers) == 7
    assert sum([await book.version(table) for table in tables]) == 1
    record = await book.store.key_record(request.scope, request.key)
    assert record is not None
    assert record.transaction == won.transaction == last + 1 == await book.store.last_event()


@pytest.mark.postgres
async def test_one_of_many_servers_takes_a_key(servers: tuple[Book, Book, Book]):
    for _ in range(5):
        request = keyed()
        tables = [await servers[0].create_table(new_id()) for _ in servers]
        answers = await outcomes(
            *(
                book.decide(append(table, 1), keyed=request)
                for book, table in zip(servers, tables, strict=True)
            )
        )
        assert sorted(type(answer).__name__ for answer in answers) == ["KeyTaken", "KeyTaken", "Receipt"]
        assert sum([await servers[0].version(table) for table in tables]) == 1
    assert_gap_free(await all_events(servers[2].store))


async def test_a_refusal_is_recorded_and_the_first_record_counts(book: Book):
    refused, done = keyed(), keyed()
    await book.store.record_refusal(refused, 5, b"first")
    await book.store.record_refusal(refused, 6, b"second")
    assert await book.store.key_record(refused.scope, refused.key) == KeyRecord(refused, None, 5, b"first")
    table = await book.create_table()
    assert isinstance(await outcome(book.decide(append(table, 1), keyed=refused)), KeyTaken)
    receipt = await book.decide(append(table, 1), keyed=done)
    await book.store.record_refusal(done, 7, b"too late")
    record = await book.store.key_record(done.scope, done.key)
    assert record is not None
    assert record.transaction == receipt.transaction


async def test_a_refused_transaction_takes_no_key(book: Book):
    request = keyed()
    table = await book.create_table()
    assert isinstance(await outcome(book.decide(append(table, 5), keyed=request)), Conflict)
    assert await book.store.key_record(request.scope, request.key) is None
    await book.decide(append(table, 1), keyed=request)


async def test_old_keys_are_forgotten(book: Book):
    requests = [keyed() for _ in range(3)]
    for at, request in enumerate(requests, start=10):
        await book.store.record_refusal(request, at, b"x")
    assert await book.store.forget_keys(10) == 0
    assert await book.store.forget_keys(12) == 2
    left = [await book.store.key_record(request.scope, request.key) for request in requests]
    assert [record is None for record in left] == [True, True, False]
    # A forgotten key is a fresh one.
    await book.decide(append(await book.create_table(), 1), keyed=requests[0])


async def test_cancelled_plans_are_known_until_they_are_forgotten(book: Book):
    for plan, at in (("a", 10), ("b", 11), ("a", 12)):
        await book.store.cancel_plan(plan, at)
    assert [await book.store.is_cancelled(plan) for plan in "abc"] == [True, True, False]
    assert await book.store.forget_plans(10) == 0
    assert await book.store.forget_plans(11) == 1
    assert [await book.store.is_cancelled(plan) for plan in "ab"] == [False, True]


async def test_what_is_remembered_never_changes(book: Book):
    answers = await asyncio.gather(*(book.store.remember("id", f"v{index}") for index in range(8)))
    assert len(set(answers)) == 1
    assert await book.store.remember("id", "later") == answers[0]
    assert await book.store.remember("other", "x") == "x"


# --- follow-up work ---


async def add(book: Book, *kinds: str, not_before: int = 0) -> None:
    work = [Work(kind=kind, subject=f"s{i}", not_before=not_before) for i, kind in enumerate(kinds)]
    await book.decide(ledger.CreateCatalog(id=new_id(), name=new_id()), work=work)


async def only(book: Book) -> WorkItem:
    (item,) = await book.store.work(10)
    return item


async def test_work_is_recorded_with_the_change_that_calls_for_it(book: Book):
    work = Work(kind="k", subject="s", payload=b"\x00\xff", not_before=7)
    await book.decide(ledger.CreateCatalog(id=new_id(), name="c"), work=[work])
    item = await only(book)
    assert item == WorkItem(
        id=item.id,
        kind="k",
        subject="s",
        payload=b"\x00\xff",
        state="waiting",
        not_before=7,
        lease_until=0,
        leased_by=None,
        attempts=0,
        last_error=None,
        created_at=book.clock.now_ms(),
    )


async def test_work_is_claimed_when_it_is_due_and_of_the_right_kind(book: Book):
    await add(book, "a", "b", not_before=100)
    await add(book, "a", not_before=50)
    store = book.store
    assert await store.claim_work(["a", "b"], "w", 49, 10, 10) == []
    assert await store.claim_work(["c"], "w", 1_000, 10, 10) == []
    assert await store.claim_work([], "w", 1_000, 10, 10) == []
    (first,) = await store.claim_work(["b", "a"], "w", 50, 10, 10)
    assert (first.kind, first.not_before, first.leased_by) == ("a", 50, "w")
    assert (first.lease_until, first.attempts, first.state) == (60, 1, "waiting")
    claimed = await store.claim_work(["b"], "w", 100, 10, 10)
    assert [item.kind for item in claimed] == ["b"]


async def test_work_is_claimed_in_order_and_no_more_than_asked_for(book: Book):
    for not_before in (30, 10, 20, 10):
        await add(book, *["k"] * 5, not_before=not_before)
    claimed: list[WorkItem] = []
    for limit in (1, 3, 8, 100):
        items = await book.store.claim_work(["k"], "w", 1_000, 10, limit)
        assert len(items) == min(limit, 20 - len(claimed))
        claimed += items
    assert [item.not_before for item in claimed] == [10] * 10 + [20] * 5 + [30] * 5
    assert len({item.id for item in claimed}) == 20


async def test_a_lease_keeps_others_away_until_it_ends(book: Book):
    await add(book, "k")
    store = book.store
    (item,) = await store.claim_work(["k"], "one", 100, 50, 10)
    assert await store.claim_work(["k"], "two", 149, 50, 10) == []
    assert await store.extend_work(item.id, "one", 200)
    assert not await store.extend_work(item.id, "two", 900)
    assert await store.claim_work(["k"], "two", 199, 50, 10) == []
    (again,) = await store.claim_work(["k"], "two", 200, 50, 10)
    assert (again.id, again.attempts, again.leased_by) == (item.id, 2, "two")


async def test_a_lost_lease_is_lost(book: Book):
    await add(book, "k")
    store = book.store
    (item,) = await store.claim_work(["k"], "one", 100, 50, 10)
    await store.claim_work(["k"], "two", 150, 50, 10)
    before = await only(book)
    assert not await store.finish_work(item.id, "one")
    assert not await store.fail_work(item.id, "one", "late", 150)
    assert not await store.extend_work(item.id, "one", 900)
    assert await only(book) == before
    assert await store.finish_work(item.id, "two")
    assert await store.work(10) == []
    assert not await store.finish_work(item.id, "two")


async def test_failed_work_comes_back_later_and_later_and_at_last_waits_for_a_person(book: Book):
    await add(book, "k")
    store = book.store
    now, delays = 1_000, []
    for attempt in range(1, MAX_ATTEMPTS + 1):
        (item,) = await store.claim_work(["k"], "w", now, 50, 10)
        assert item.attempts == attempt
        assert await store.fail_work(item.id, "w", f"error {attempt}" + "x" * 5_000, now)
        item = await only(book)
        assert (item.lease_until, item.leased_by, item.attempts) == (0, None, attempt)
        assert str(item.last_error).startswith(f"error {attempt}x")
        assert len(str(item.last_error)) == 2_000
        delays.append(item.not_before - now)
        assert await store.claim_work(["k"], "w", item.not_before - 1, 50, 10) == []
        now = item.not_before
    assert (await only(book)).state == "failed"
    assert delays[0] >= FIRST_DELAY_MS
    assert delays == sorted(delays)
    assert delays[-1] == LONGEST_DELAY_MS
    assert delays[2] == 2 * delays[1]
    assert await store.claim_work(["k"], "w", 2**60, 50, 10) == []
    # A person gives it another life.
    assert await store.retry_work(now) == 1
    item = await only(book)
    assert (item.state, item.attempts, item.last_error) == ("waiting", 0, None)
    assert await store.retry_work(now) == 0
    (item,) = await store.claim_work(["k"], "w", now, 50, 10)
    assert await store.finish_work(item.id, "w")


async def test_only_failed_work_can_be_retried(book: Book):
    await add(book, "k")
    (item,) = await book.store.work(10)
    assert await book.store.retry_work(0) == 0
    assert await book.store.work(10) == [item]


async def test_no_item_is_claimed_twice(book: Book):
    await add(book, *["k"] * 60)
    claims = await asyncio.gather(
        *(book.store.claim_work(["k"], f"w{index}", 10, 1_000, 7) for index in range(12))
    )
    claimed = [item.id for items in claims for item in items]
    assert len(claimed) == len(set(claimed)) == 60
    assert all(item.leased_by == f"w{index}" for index, items in enumerate(claims) for item in items)


@pytest.mark.postgres
async def test_claimers_on_several_servers_do_not_wait_for_each_other(servers: tuple[Book, Book, Book]):
    await add(servers[0], *["k"] * 90)
    done: list[str] = []

    async def worker(book: Book, name: str) -> None:
        while items := await book.store.claim_work(["k"], name, 10, 1_000, 4):
            for item in items:
                assert await book.store.finish_work(item.id, name)
                done.append(item.id)

    await asyncio.gather(*(worker(servers[index % 3], f"w{index}") for index in range(6)))
    # A claimer that skipped what another held may have left early; nothing is left behind for good.
    await worker(servers[0], "last")
    assert len(done) == len(set(done)) == 90
    assert await servers[0].store.work(10) == []


async def test_work_survives_a_restart(backend: Backend):
    await backend.prepare()
    store = await backend.open()
    work = (Work(kind="k", subject="s"),)
    catalog = ledger.CreateCatalog(id=new_id(), name="c")
    await store.decide(ledger.Transaction("me", 1, (catalog,), None, work))
    (item,) = await store.claim_work(["k"], "one", 10, 100, 1)
    await backend.close(store)
    store = await backend.open()
    assert await store.claim_work(["k"], "two", 109, 100, 1) == []
    (again,) = await store.claim_work(["k"], "two", 110, 100, 1)
    assert (again.id, again.attempts) == (item.id, 2)
    await backend.close()
