"""What every store promises about versions: who wins, what a replay is told, what a transaction leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from inver.domain import ledger
from inver.domain.ledger import Append, Reason, Receipt, Result, Transaction
from inver.domain.tables import State
from inver.errors import Conflict, NotFound, OutcomeUnknown, Overloaded, Refused, Stale
from inver.ids import new_id
from inver.ports import Commit
from inver.stores import batch, postgres, sqlite
from inver.stores.postgres import PostgresStore
from tests.fixtures.ledger import (
    BY,
    Book,
    all_events,
    append,
    assert_gap_free,
    contents,
    create_schema,
    create_table,
    keyed,
    outcome,
    outcomes,
)
from tests.fixtures.waiting import PATIENCE_S

# An append takes the short way only if it is bare; with any of these it takes the long one.
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with a head": {"head": b"h"},
    "with an etag": {"expect_etag": 1},
}


async def new_tables(book: Book, count: int) -> list[str]:
    tables = [create_table(book, f"t{index}") for index in range(count)]
    await book.decide(*tables)
    return [table.id for table in tables]


def conflicts(answer: object) -> tuple[ledger.ConflictDetail, ...]:
    assert isinstance(answer, Conflict), answer
    assert answer.conflicts
    return answer.conflicts


# --- one table ---


@pytest.mark.parametrize("way", WAYS)
async def test_a_commit_is_kept_as_it_was_sent(book: Book, way: str):
    table = await book.create_table()
    last = await book.store.last_event()
    receipt = await book.decide(
        append(
            table,
            1,
            "té🐟",
            operation="MERGE",
            payload=b'{"file": "\\u0000"}',
            counts=b'{"rows_added":0}',
            **WAYS[way],
        ),
        by="someone",
    )
    now = book.clock.now_ms()
    assert (receipt.transaction, receipt.at, receipt.results) == (last + 1, now, (Result(table, 1),))
    # Told by the quick way alone.
    assert (receipt.etag, receipt.published) in [(None, None), (1, 0)]
    assert await book.store.commits(table, "", 0, 9, 9) == [
        Commit(
            version=1,
            at=now,
            by="someone",
            operation="MERGE",
            token="té🐟",
            transaction=last + 1,
            payload=b'{"file": "\\u0000"}',
            counts=b'{"rows_added":0}',
        )
    ]
    (event,) = await all_events(book.store, last)
    assert (event.kind, event.subject, event.version) == ("table.committed", table, 1)
    assert (event.at, event.by, event.transaction) == (now, "someone", last + 1)
    assert event.data == b'{"operation":"MERGE","counts":{"rows_added":0}}'


ODD: dict[str, dict[str, Any]] = {
    "plain": {},
    "all of it": {"operation": 'a "b" \\ {c}, NULL', "counts": b'{"rows_added":1}', "published": 0},
    "not a word": {"token": "", "operation": ""},
    "other scripts": {"token": "té🐟", "operation": "ß", "payload": '{"é": "🐟"}'.encode()},
    "lines": {"token": "a\nb\tc", "payload": b'{\n"a": 1}'},
}


@pytest.mark.parametrize("separator", ["", "\x1f"], ids=["usual", "with what separates texts"])
async def test_commits_that_are_decided_together_are_kept_as_they_were_sent(book: Book, separator: str):
    fields = [
        {"token": name, "payload": b'{"n": "%d"}' % number, **odd}
        for number, (name, odd) in enumerate(ODD.items())
    ]
    fields.append({"token": f"last{separator}", "operation": separator or "WRITE"})
    tables = await new_tables(book, len(fields))
    appends = [Append(table_id=table, version=1, **each) for table, each in zip(tables, fields, strict=True)]
    last = await book.store.last_event()
    epoch, now = await book.store.epoch(), book.clock.now_ms()
    sent = [
        book.store.decide(
            Transaction(f"by {number}", now + number, (each,), epoch=epoch if number % 2 else None)
        )
        for number, each in enumerate(appends)
    ]
    receipts = await asyncio.gather(*sent)
    assert [each.transaction for each in receipts] == list(range(last + 1, last + 1 + len(fields)))
    for number, (op, receipt) in enumerate(zip(appends, receipts, strict=True)):
        assert receipt.results == (Result(op.table_id, 1),)
        [kept] = await book.store.commits(op.table_id, "", 0, 9, 9)
        assert (kept.version, kept.by, kept.at) == (1, f"by {number}", now + number)
        assert (kept.token, kept.operation) == (op.token, op.operation)
        assert (bytes(kept.payload), kept.counts) == (op.payload, op.counts)
    events = await all_events(book.store, last)
    assert [event.subject for event in events] == tables
    told = [json.loads(event.data) for event in events]
    assert [data["operation"] for data in told] == [op.operation for op in appends]
    assert ["counts" in data for data in told] == [op.counts is not None for op in appends]


async def test_history_is_newest_first_and_bounded(book: Book):
    table = await book.create_table(version=10)
    for version in range(11, 17):
        await book.decide(append(table, version))
    store = book.store

    async def versions(*bounds: int) -> list[int]:
        return [commit.version for commit in await store.commits(table, "", *bounds)]

    assert await versions(0, 100, 100) == [16, 15, 14, 13, 12, 11]
    assert await versions(12, 14, 100) == [14, 13, 12]
    assert await versions(0, 2**63 - 1, 2) == [16, 15]
    assert await versions(17, 100, 100) == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_declared_table_comes_to_life_with_its_first_commit(book: Book, way: str):
    table = await book.create_table(state=State.DECLARED)
    await book.decide(append(table, 1, **WAYS[way]))
    after = await book.table(table)
    assert (after.state, after.version) == (State.LIVE, 1)


async def test_a_head_stays_until_another_is_given(book: Book):
    table = await book.create_table(head=b"first")
    for version, head, expected in (
        (1, None, b"first"),
        (2, b"\x00second", b"\x00second"),
        (3, None, b"\x00second"),
    ):
        await book.decide(append(table, version, head=head))
        found = await book.table(table)
        assert (found.version, found.head) == (version, expected)


@pytest.mark.parametrize("way", WAYS)
async def test_a_loser_learns_who_won(book: Book, way: str):
    table = await book.create_table()
    won = await book.decide(append(table, 1, "first"), by="winner")
    await book.decide(append(table, 2))
    (detail,) = conflicts(await outcome(book.decide(append(table, 1, "second", **WAYS[way]))))
    assert (detail.operation, detail.subject, detail.reason) == (0, table, Reason.VERSION_TAKEN)
    assert (detail.expected, detail.current) == (0, 2)
    assert detail.winner == ledger.Winner(1, "first", won.transaction, won.at, "winner")
    (detail,) = conflicts(await outcome(book.decide(append(table, 4, **WAYS[way]))))
    assert (detail.reason, detail.expected, detail.current) == (Reason.VERSION_GAP, 3, 2)
    assert detail.winner is None


@pytest.mark.parametrize("way", WAYS)
async def test_one_of_many_wins_a_version(book: Book, way: str):
    table = await book.create_table()
    answers = await outcomes(
        *(book.decide(append(table, 1, f"t{index}", **WAYS[way])) for index in range(12))
    )
    (won,) = [answer for answer in answers if isinstance(answer, Receipt)]
    (token,) = await book.tokens(table)
    assert answers[int(token[1:])] == won
    for answer in answers:
        if answer is not won:
            (detail,) = conflicts(answer)
            assert detail.winner is not None
            assert (detail.winner.token, detail.winner.transaction) == (token, won.transaction)


async def test_waves_of_writers_each_have_one_winner(book: Book):
    """Every version is wanted by five, and each wave is sent before the one before it is answered."""
    tables = await new_tables(book, 3)
    wanted = [(table, version) for version in range(1, 6) for table in tables]
    answers = await outcomes(
        *(book.decide(append(table, version)) for table, version in wanted for _ in range(5))
    )
    for index, (table, version) in enumerate(wanted):
        won = [a for a in answers[5 * index : 5 * index + 5] if isinstance(a, Receipt)]
        assert [receipt.results for receipt in won] == [(Result(table, version),)]
    assert [await book.version(table) for table in tables] == [5, 5, 5]


async def test_the_times_of_a_table_never_go_back(book: Book):
    """Whichever way a commit took, and whatever the clock does."""
    table, other = await new_tables(book, 2)
    start = book.clock.now_ms()
    times = [start + offset for offset in (500, 100, 400, 900, 200, 300, 100, 950, 10)]
    for index, at in enumerate(times):
        way = ("plain", "with a head", "with an etag")[index % 3]
        await book.decide(append(table, index + 1, **WAYS[way]), at=at)
    found = [commit.at for commit in reversed(await book.store.commits(table, "", 0, 99, 99))]
    assert found == [start + offset for offset in (500, 500, 500, 900, 900, 900, 900, 950, 950)]
    assert (await book.table(table)).updated_at == start + 950
    await book.decide(append(other, 1), at=start + 1)
    assert (await book.table(other)).updated_at == start + 1


# --- under which grants it was allowed ---


@pytest.mark.parametrize("way", WAYS)
async def test_what_was_allowed_under_other_grants_is_stale_and_leaves_nothing(book: Book, way: str):
    table, other = await new_tables(book, 2)
    old = await book.store.epoch()
    await book.decide(append(table, 1, **WAYS[way]), epoch=old)
    await book.decide(ledger.AlterSchema(id=book.schema, owner="somebody"))
    new = await book.store.epoch()
    assert new > old
    before = await contents(book.store)
    stale = [append(table, 2, **WAYS[way])], [append(table, 2), append(other, 1)], [append(table, 9)]
    for operations in stale:
        answers = await outcomes(*(book.decide(*operations, epoch=epoch) for epoch in (old, old, new + 1)))
        assert [type(answer) for answer in answers] == [Stale] * 3
        assert await contents(book.store) == before
    # One that is not stale is not held up by its neighbours, whichever comes first.
    answers = await outcomes(
        book.decide(append(table, 2, "old"), epoch=old),
        book.decide(append(table, 2, "new", **WAYS[way]), epoch=new),
        book.decide(append(table, 2, "old"), epoch=old),
    )
    assert [type(answer) for answer in answers] == [Stale, Receipt, Stale]


@pytest.mark.postgres
async def test_a_change_of_grants_on_one_server_makes_requests_on_others_stale(
    servers: tuple[Book, Book, Book],
):
    first, second, _ = servers
    table, other = await new_tables(first, 2)
    away = await first.create_schema("away")
    for version in range(1, 6):
        epoch = await second.store.epoch()
        place = away if version % 2 else first.schema
        await first.decide(ledger.RenameTable(table_id=other, schema_id=place, name="moved"))
        answers = await outcomes(
            second.decide(append(table, version), epoch=epoch),
            second.decide(append(table, version, head=b"h"), epoch=epoch),
        )
        assert [type(answer) for answer in answers] == [Stale, Stale]
        await second.decide(append(table, version), epoch=await second.store.epoch())


# --- replays ---


@pytest.mark.parametrize("way", WAYS)
async def test_a_commit_sent_again_is_answered_as_it_was(book: Book, way: str):
    table = await book.create_table()
    first = await book.decide(append(table, 1, "mine", **WAYS[way]))
    before = await contents(book.store)
    book.clock.advance(1_000)
    again = await book.decide(append(table, 1, "mine", **WAYS[way]))
    assert again == Receipt(first.transaction, first.at, first.results, replayed=True)
    assert await contents(book.store) == before
    await book.decide(append(table, 2))
    assert (await book.decide(append(table, 1, "mine"))).replayed
    await book.decide(ledger.AlterTable(table_id=table, comment="x"))
    assert (await book.decide(append(table, 1, "mine", **WAYS[way]))).replayed


@pytest.mark.parametrize("way", WAYS)
async def test_a_commit_that_happened_is_never_denied(book: Book, way: str):
    """Whoever is told that it did not happen may delete files that the table, undropped, still needs."""
    table = await book.create_table()
    first = await book.decide(append(table, 1, "mine", **WAYS[way]))
    await book.decide(ledger.DropTable(table_id=table, purge_at=0))
    for _ in range(2):
        again = await book.decide(append(table, 1, "mine", **WAYS[way]))
        assert again == Receipt(first.transaction, first.at, first.results, replayed=True)
        assert isinstance(await outcome(book.decide(append(table, 1, "other", head=b"x"))), NotFound)
        assert isinstance(await outcome(book.decide(append(table, 2, "mine"))), NotFound)
        await book.decide(ledger.PurgeTable(table_id=table))


async def test_the_same_commit_sent_ten_times_at_once_happens_once(book: Book):
    tables = await new_tables(book, 3)
    last = await book.store.last_event()
    answers = await outcomes(
        *(
            book.decide(append(table, 1, "mine", **fields))
            for fields in WAYS.values()
            for table in tables
            for _ in range(10)
        )
    )
    assert {type(answer) for answer in answers} == {Receipt}
    receipts = [answer for answer in answers if isinstance(answer, Receipt)]
    assert sum(not receipt.replayed for receipt in receipts) == 3
    for table in tables:
        assert len({r.transaction for r in receipts if r.results == (Result(table, 1),)}) == 1
        assert await book.tokens(table) == ["mine"]
    assert await book.store.last_event() == last + 3


async def test_the_same_transaction_sent_ten_times_at_once_happens_once(book: Book):
    tables = await new_tables(book, 3)
    last = await book.store.last_event()
    operations = [append(table, 1, "mine") for table in tables]
    answers = await outcomes(*(book.decide(*operations) for _ in range(10)))
    assert {type(answer) for answer in answers} == {Receipt}
    assert {answer.transaction for answer in answers if isinstance(answer, Receipt)} == {last + 1}
    assert {answer.results for answer in answers if isinstance(answer, Receipt)} == {
        tuple(Result(table, 1) for table in tables)
    }
    assert sum(not answer.replayed for answer in answers if isinstance(answer, Receipt)) == 1
    assert await book.store.last_event() == last + 3


@pytest.mark.postgres
async def test_the_same_commit_sent_to_three_servers_happens_once(servers: tuple[Book, Book, Book]):
    first = servers[0]
    one, two, three = await new_tables(first, 3)
    for version in range(1, 6):
        asked: list[list[Append]] = [
            [append(one, version, "mine")],
            [append(two, version, "mine"), append(three, version, "mine")],
        ]
        answers = await outcomes(*(book.decide(*ops) for ops in asked for book in servers for _ in range(4)))
        assert {type(answer) for answer in answers} == {Receipt}, answers
        assert sum(not answer.replayed for answer in answers if isinstance(answer, Receipt)) == 2
    for table in (one, two, three):
        assert await first.tokens(table) == ["mine"] * 5
    assert_gap_free(await all_events(first.store))


@pytest.mark.parametrize(
    "operations",
    [
        lambda a, b: [append(a, 1, "x"), append(b, 1, "x")],
        lambda a, b: [append(a, 1, "x"), append(a, 2, "y")],
        lambda a, b: [append(a, 1, "x"), append(a, 2, "y"), append(b, 1, "z", head=b"h")],
        lambda a, b: [append(b, 1, "x"), append(a, 1, "y")],
    ],
    ids=["two tables", "one table twice", "a mixture", "in another order"],
)
async def test_a_transaction_sent_again_is_answered_as_it_was(
    book: Book, operations: Callable[[str, str], list[Append]]
):
    one, two = await new_tables(book, 2)
    sent = operations(one, two)
    first = await book.decide(*sent)
    before = await contents(book.store)
    book.clock.advance(50)
    again = await book.decide(*sent)
    assert again == Receipt(first.transaction, first.at, first.results, replayed=True)
    assert await contents(book.store) == before


async def test_half_a_replay_is_a_conflict_and_changes_nothing(book: Book):
    one, two, three = await new_tables(book, 3)
    await book.decide(append(one, 1, "x"), append(two, 1, "x"))
    await book.decide(append(three, 1, "x"))
    before = await contents(book.store)
    for sent in (
        [append(one, 1, "x"), append(two, 2, "x")],
        [append(two, 2, "x"), append(one, 1, "x")],
        [append(one, 1, "x"), append(three, 1, "x")],
        [append(one, 1, "x"), append(two, 1, "y")],
    ):
        conflicts(await outcome(book.decide(*sent)))
        assert await contents(book.store) == before
    # A part of a transaction is the same commit, even if it now comes alone.
    assert (await book.decide(append(one, 1, "x"))).replayed


# --- transactions of several operations ---


async def test_all_or_nothing(book: Book):
    one, two, three = await new_tables(book, 3)
    await book.decide(append(two, 1, "winner"))
    before = await contents(book.store)
    for sent in (
        [append(one, 1), append(two, 1), append(three, 1)],
        [append(one, 1), append(two, 1, head=b"h"), append(three, 1)],
        [append(one, 1), append(three, 1), append(two, 1)],
    ):
        details = conflicts(await outcome(book.decide(*sent)))
        (detail,) = [detail for detail in details if detail.subject == two]
        assert sent[detail.operation].table_id == two
        assert detail.winner is not None
        assert detail.winner.token == "winner"
        assert await contents(book.store) == before
    assert isinstance(await outcome(book.decide(append(one, 1), append(new_id(), 1))), NotFound)
    assert await contents(book.store) == before
    receipt = await book.decide(append(one, 1), append(two, 2), append(three, 1))
    assert receipt.results == (Result(one, 1), Result(two, 2), Result(three, 1))


async def test_rival_transactions_over_several_tables_have_one_winner(book: Book):
    tables = await new_tables(book, 4)
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    for version in range(1, 4):
        answers = await outcomes(
            *(
                book.decide(append(tables[a], version, f"{a}{b}"), append(tables[b], version, f"{a}{b}"))
                for a, b in pairs
            )
        )
        won = [pairs[index] for index, answer in enumerate(answers) if isinstance(answer, Receipt)]
        touched = [index for pair in won for index in pair]
        assert sorted(touched) == [0, 1, 2, 3]
        assert all(isinstance(answer, Receipt | Conflict) for answer in answers)
        for a, b in won:
            assert (await book.tokens(tables[a]))[-1] == (await book.tokens(tables[b]))[-1] == f"{a}{b}"


async def test_an_operation_sees_what_those_before_it_did(book: Book):
    catalog, schema = new_id(), new_id()
    inner = ledger.CreateSchema(id=new_id(), catalog_id=catalog, parent_id=schema, name="inner")
    table = create_table(book, "orders", schema_id=inner.id, version=3)
    again = create_table(book, "orders", schema_id=inner.id)
    last = await book.store.last_event()
    receipt = await book.decide(
        ledger.CreateCatalog(id=catalog, name="other"),
        ledger.AlterCatalog(id=catalog, expect_etag=1, comment="c"),
        ledger.CreateSchema(id=schema, catalog_id=catalog, parent_id=catalog, name="outer"),
        inner,
        table,
        append(table.id, 4, "t4"),
        append(table.id, 5, "t5"),
        ledger.CreateBranch(table_id=table.id, branch="dev", version=5),
        append(table.id, 6, "b6", branch="dev"),
        ledger.RenameTable(table_id=table.id, schema_id=inner.id, name="sold"),
        ledger.AlterTable(table_id=table.id, expect_etag=2, comment="c"),
        append(table.id, 6, "t6", expect_etag=3),
        ledger.DropTable(table_id=table.id, purge_at=0),
        again,
        ledger.UndropTable(table_id=table.id),
        ledger.MoveCursor(name="c", expect=None, value="1"),
        ledger.MoveCursor(name="c", expect="1", value="2"),
    )
    assert [result.version for result in receipt.results] == [
        None, None, None, None, 3, 4, 5, 5, 6, 5, 5, 6, 6, 0, 6, None, None,
    ]  # fmt: skip
    events = await all_events(book.store, last)
    assert [event.version for event in events] == [result.version for result in receipt.results]
    assert {event.transaction for event in events} == {receipt.transaction} == {last + 1}
    assert await book.store.transaction_events(receipt.transaction) == events
    assert await book.tokens(table.id) == ["t4", "t5", "t6"]
    assert await book.tokens(table.id, "dev") == ["b6"]
    assert await book.store.full_name(table.id) == ("other", "outer", "inner", "sold")
    assert await book.store.full_name(again.id) == ("other", "outer", "inner", "orders")
    assert await book.store.cursor("c") == "2"
    assert {c.transaction for c in await book.store.commits(table.id, "", 0, 9, 9)} == {receipt.transaction}


async def test_an_operation_is_refused_for_what_those_before_it_did(book: Book):
    table = await book.create_table("orders")
    before = await contents(book.store)
    for sent in (
        [append(table, 1), append(table, 1)],
        [append(table, 1), append(table, 3)],
        [ledger.DropTable(table_id=table, purge_at=0), append(table, 1)],
        [create_table(book, "new"), create_table(book, "NEW")],
        [
            create_table(book, "a", location="s3://b/x"),
            create_table(book, "b", location="s3://b/x/y"),
        ],
        [create_schema(book, "s"), create_schema(book, "S")],
        [ledger.AlterTable(table_id=table, comment="x"), append(table, 1, expect_etag=1)],
        [
            ledger.MoveCursor(name="c", expect=None, value="1"),
            ledger.MoveCursor(name="c", expect=None, value="1"),
        ],
    ):
        answer = await outcome(book.decide(*sent))
        assert isinstance(answer, Refused), sent
        assert await contents(book.store) == before


async def test_names_can_be_swapped(book: Book):
    one, two = await book.create_table("one"), await book.create_table("two")

    def rename(table: str, name: str) -> ledger.RenameTable:
        return ledger.RenameTable(table_id=table, schema_id=book.schema, name=name)

    await book.decide(rename(one, "tmp"), rename(two, "one"), rename(one, "two"))
    for name, table in (("one", two), ("two", one)):
        found = await book.store.table_by_name("main", ["sales"], name)
        assert found is not None
        assert found.id == table


async def test_a_transaction_without_operations_does_nothing(book: Book):
    before = await contents(book.store)
    table = await book.create_table()
    answers = await outcomes(book.decide(), book.decide(append(table, 1)), book.decide())
    assert [answer.results for answer in answers if isinstance(answer, Receipt)] == [
        (),
        (Result(table, 1),),
        (),
    ]
    assert (await contents(book.store))["work"] == before["work"]


async def test_the_largest_transaction(book: Book):
    tables = await new_tables(book, 3)
    count = ledger.MAX_OPERATIONS
    sent = [append(tables[index % 3], index // 3 + 1) for index in range(count)]
    receipt = await book.decide(*sent)
    assert len(receipt.results) == count
    assert len(await book.store.transaction_events(receipt.transaction)) == count
    assert sum([await book.version(table) for table in tables]) == count


# --- branches and cursors ---


async def test_branches_have_versions_of_their_own(book: Book):
    table, other = await new_tables(book, 2)
    await book.decide(append(table, 1, "m1"), append(other, 1))
    receipt = await book.decide(ledger.CreateBranch(table_id=table, branch="dev", version=1))
    assert receipt.results == (Result(table, 1),)
    await book.decide(ledger.CreateBranch(table_id=other, branch="dev", version=1))
    await book.decide(append(table, 2, "d2", branch="dev"))
    await book.decide(append(table, 3, "d3", branch="dev"))
    await book.decide(append(table, 2, "m2"))
    assert await book.version(table) == 2
    assert await book.tokens(table) == ["m1", "m2"]
    assert await book.tokens(table, "dev") == ["d2", "d3"]
    assert await book.tokens(other, "dev") == []
    event = (await all_events(book.store))[-2]
    assert (event.version, event.data) == (3, b'{"operation":"commit","branch":"dev"}')


async def test_a_branch_knows_winners_and_replays(book: Book):
    table = await book.create_table()
    await book.decide(ledger.CreateBranch(table_id=table, branch="dev", version=0))
    sent = append(table, 1, "mine", branch="dev")
    answers = await outcomes(
        *(book.decide(sent) for _ in range(5)), book.decide(append(table, 1, branch="dev"))
    )
    assert {type(answer) for answer in answers[:5]} == {Receipt}
    (detail,) = conflicts(answers[5])
    assert detail.winner is not None
    assert (detail.winner.token, detail.current) == ("mine", 1)
    # The same token on another branch is another commit.
    assert not (await book.decide(append(table, 1, "mine"))).replayed
    assert [await book.tokens(table), await book.tokens(table, "dev")] == [["mine"], ["mine"]]


async def test_a_cursor_moves_only_from_where_it_stands(book: Book):
    def move(expect: str | None, value: str | None) -> ledger.MoveCursor:
        return ledger.MoveCursor(name="flow/é", expect=expect, value=value)

    for expect, value in ((None, "1"), ("1", "2"), ("2", "2"), ("2", None), (None, "")):
        receipt = await book.decide(move(expect, value))
        assert receipt.results == (Result("flow/é"),)
        assert await book.store.cursor("flow/é") == value
    events = await all_events(book.store)
    assert (events[-1].kind, events[-1].data) == ("cursor.moved", b'{"from":null,"to":""}')
    assert await book.store.cursor("FLOW/é") is None
    (detail,) = conflicts(await outcome(book.decide(move(None, "x"))))
    assert (detail.reason, detail.current) == (Reason.CURSOR_MOVED, "")


@pytest.mark.parametrize("start", [None, "0"])
async def test_one_of_many_moves_a_cursor(book: Book, start: str | None):
    if start is not None:
        await book.decide(ledger.MoveCursor(name="c", expect=None, value=start))
    answers = await outcomes(
        *(book.decide(ledger.MoveCursor(name="c", expect=start, value=f"v{index}")) for index in range(10))
    )
    (won,) = [index for index, answer in enumerate(answers) if isinstance(answer, Receipt)]
    assert await book.store.cursor("c") == f"v{won}"
    assert sum(isinstance(answer, Conflict) for answer in answers) == 9


async def test_a_cursor_and_the_commit_it_stands_for_are_one(book: Book):
    """Exactly once: two workers that both believe to be at 0 apply the change once."""
    table = await book.create_table()
    for step in range(4):
        expect = str(step) if step else None
        answers = await outcomes(
            *(
                book.decide(
                    append(table, step + 1, f"worker-{worker}"),
                    ledger.MoveCursor(name="flow", expect=expect, value=str(step + 1)),
                )
                for worker in range(4)
            )
        )
        assert sum(isinstance(answer, Receipt) for answer in answers) == 1
        assert await book.store.cursor("flow") == str(step + 1)
        assert await book.version(table) == step + 1


# --- one batch, many requests ---

BAD: dict[str, Callable[[str], Append]] = {
    "a lone surrogate in the token": lambda table: append(table, 1, "bad \ud800"),
    "a lone surrogate in the id": lambda table: append("\udfff", 1),
    "a lone surrogate in the operation": lambda table: append(table, 1, operation="\ud800"),
    "a version beyond 64 bits": lambda table: append(table, 2**63),
    "a version far beyond 64 bits": lambda table: append(table, 10**30),
    "a version below 64 bits": lambda table: append(table, -(2**63) - 1),
    "the lowest version": lambda table: append(table, -(2**63)),
}


@pytest.mark.parametrize("bad", BAD)
async def test_a_bad_request_fails_alone(book: Book, bad: str):
    tables = await new_tables(book, 21)
    last = await book.store.last_event()
    sent: list[Transaction] = [book.transaction(append(table, 1, "good")) for table in tables[:20]]
    sent.insert(10, book.transaction(BAD[bad](tables[20])))
    # Neighbours of every kind: a transaction of two, a keyed one, and the store's own bookkeeping.
    sent[3] = book.transaction(append(tables[3], 1, "good"), append(tables[3], 2, "good"))
    sent[15] = book.transaction(append(tables[14], 1, "good"), keyed=keyed())

    async def send() -> list[Receipt | Exception]:
        return await outcomes(*(book.store.decide(transaction) for transaction in sent))

    # All are in the queue before the first of them is looked at.
    refusal, remembered, claimed, answers = await asyncio.gather(
        book.store.record_refusal(request := keyed(), 5, b"{}"),
        book.store.remember("k", "v"),
        book.store.claim_work(["none"], "w", 0, 1, 1),
        send(),
    )
    assert isinstance(answers[10], Exception)
    assert [type(answer) for index, answer in enumerate(answers) if index != 10] == [Receipt] * 20
    for index, table in enumerate(tables):
        assert await book.version(table) == {3: 2, 20: 0}.get(index, 1)
    events = await all_events(book.store, last)
    assert len(events) == 21
    assert_gap_free(events, last)
    assert await book.store.key_record(request.scope, request.key) is not None
    assert (refusal, remembered, claimed) == (None, "v", [])
    assert await book.store.remember("k", "other") == "v"
    # And the next request finds nothing broken.
    await book.decide(append(tables[20], 1))


async def test_the_queue_is_bounded_and_everything_accepted_is_answered(book: Book):
    limit = sqlite.QUEUE_LIMIT
    assert limit == postgres.QUEUE_LIMIT
    tables = await new_tables(book, 40)
    for way in ("plain", "with a head"):
        accepted, refused = [], 0
        at = {table: await book.version(table) for table in tables}
        for index in range(limit + 50):
            table = tables[index % 40]
            try:
                # Nothing has run in between: this fills the queue, however fast the store is.
                accepted.append(book.decide(append(table, at[table] + 1 + index // 40, **WAYS[way])))
            except Overloaded:
                refused += 1
        assert refused >= 50
        assert book.store.queued <= limit
        answers = await outcomes(*accepted)
        assert all(isinstance(answer, Receipt | Conflict) for answer in answers)
        assert book.store.queued == 0
        won = sum(isinstance(answer, Receipt) for answer in answers)
        assert won == sum([await book.version(table) - at[table] for table in tables]) >= 40
        await book.decide(append(tables[0], await book.version(tables[0]) + 1))


async def test_whoever_stops_waiting_disturbs_nobody(book: Book):
    tables = await new_tables(book, 60)
    sent = [
        asyncio.ensure_future(
            outcome(book.decide(append(table, 1, "mine", **({"head": b"h"} if index % 2 else {}))))
        )
        for index, table in enumerate(tables)
    ]
    # At every stage between the queue and the answer.
    for stage, task in enumerate(sent[::3]):
        await asyncio.sleep(0.0005 * (stage % 4))
        task.cancel()
    answers = await asyncio.gather(*sent, return_exceptions=True)
    assert all(isinstance(answer, Receipt) for index, answer in enumerate(answers) if index % 3)
    assert all(isinstance(answer, Receipt | asyncio.CancelledError) for answer in answers)
    # What happened to the others is for a second request to find out: once, or not at all before.
    again = await outcomes(*(book.decide(append(table, 1, "mine")) for table in tables))
    assert {type(answer) for answer in again} == {Receipt}
    for table in tables:
        assert await book.tokens(table) == ["mine"]
    assert_gap_free(await all_events(book.store))


async def test_every_change_names_who_made_it(book: Book):
    table = await book.create_table()
    await book.decide(append(table, 1), by="alice")
    await book.decide(ledger.AlterTable(table_id=table, comment="x"), by="bob")
    found = await book.table(table)
    assert (found.created_by, found.updated_by) == (BY, "bob")
    assert [event.by for event in await all_events(book.store)][-3:] == [BY, "alice", "bob"]


@pytest.mark.postgres
async def test_rivals_are_answered_although_nobody_can_say_why_they_lost(
    servers: tuple[Book, Book, Book], monkeypatch: pytest.MonkeyPatch
):
    """The connection breaks after a batch has lost to another server, before anybody looked who won."""
    here, elsewhere, _ = servers
    store = here.store
    assert isinstance(store, PostgresStore)
    table = await here.create_table()
    won = await elsewhere.decide(append(table, 1, "theirs"))
    fetch = store._fetch

    async def cut_before_the_look(connection: Any, sql: str, arguments: list[Any]) -> list[Any]:
        if sql is batch.LOOK:
            connection.terminate()
        return await fetch(connection, sql, arguments)

    monkeypatch.setattr(store, "_fetch", cut_before_the_look)
    sent = [append(table, 1, token) for token in ("ours", "theirs", "ours too")]
    async with asyncio.timeout(PATIENCE_S):
        answers = await outcomes(*(here.decide(each) for each in sent))
    assert all(isinstance(each, OutcomeUnknown) for each in answers), answers
    monkeypatch.undo()
    ours, theirs, _ = await outcomes(*(here.decide(each) for each in sent))
    assert isinstance(ours, Conflict)
    assert isinstance(theirs, Receipt)
    assert theirs.transaction == won.transaction
