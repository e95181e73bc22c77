"""Which requests go into one batch, and what becomes of those that did not win: no database is asked."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.ledger import Append, Reason, Receipt, Result, Transaction, Winner
from inver.errors import Conflict, NotFound
from inver.stores import batch as batches
from inver.stores.batch import BATCH_LIMIT, Waiting, rival_verdict, statement, verdict
from inver.stores.recent import Recent
from inver.stores.versions import is_plain

tables = st.sampled_from("abcdef")
singles = st.tuples(tables, st.integers(1, 3)).map(lambda one: [one])
several = st.lists(st.tuples(tables, st.integers(1, 3)), min_size=2, max_size=4, unique_by=lambda one: one[0])
queues = st.lists(singles | several, max_size=40)


def waiting(*appends: tuple[str, int], token: str = "mine") -> Waiting:
    operations = tuple(Append(table_id=table, version=version, token=token) for table, version in appends)
    return Waiting(Transaction("me", 5, operations), asyncio.get_running_loop().create_future())


def take(queue: deque[Waiting]) -> list[Waiting]:
    """The next batch, when nothing is known of any table."""
    batch, late = batches.take(queue, Recent())
    assert not late
    return batch


def tables_of(item: Waiting) -> list[str]:
    return [append.table_id for append in item.appends]


def winner(version: int, token: str = "mine", transaction: int = 9) -> Winner:
    return Winner(version, token, transaction, 1_000, "me")


def row(current: int | None, standing: Winner | None = None) -> tuple[Any, ...]:
    """What the second look finds for one append."""
    if standing is None:
        return (current, None, None, None, None, None)
    return (current, standing.version, standing.token, standing.transaction, standing.at, standing.by)


@given(queues)
async def test_a_batch_has_one_request_per_table_and_loses_none(asked):
    items = [waiting(*appends) for appends in asked]
    queue = deque(items)
    batch = take(queue)
    rivals = [rival for item in batch for rival in item.rivals]
    assert sorted(map(id, [*batch, *rivals, *queue])) == sorted(map(id, items))
    touched = [table for item in batch for table in tables_of(item)]
    assert len(touched) == len(set(touched))
    for item in batch:
        for rival in item.rivals:
            assert len(item.appends) == len(rival.appends) == 1
            mine, other = item.appends[0], rival.appends[0]
            assert (mine.table_id, mine.version) == (other.table_id, other.version)


@given(queues)
async def test_requests_keep_their_order(asked):
    items = [waiting(*appends) for appends in asked]
    place = {id(item): index for index, item in enumerate(items)}
    queue = deque(items)
    batch = take(queue)
    assert batch[:1] == items[:1]
    for part in (batch, list(queue), *(item.rivals for item in batch)):
        places = [place[id(item)] for item in part]
        assert places == sorted(places)
    for item in batch:
        assert all(place[id(item)] < place[id(rival)] for rival in item.rivals)


@given(queues)
async def test_a_request_waits_only_for_one_of_its_own_tables(asked):
    queue = deque([waiting(*appends) for appends in asked])
    touched = {table for item in take(queue) for table in tables_of(item)}
    assert all(touched & set(tables_of(item)) for item in queue)


@given(queues)
async def test_a_queue_drains(asked):
    queue = deque([waiting(*appends) for appends in asked])
    rounds = 0
    while queue:
        assert take(queue)
        rounds += 1
    assert rounds <= len(asked)


async def test_a_batch_is_bounded_and_the_rest_stays():
    items = [waiting((f"t{index}", 1)) for index in range(BATCH_LIMIT + 10)]
    queue = deque(items)
    assert take(queue) == items[:BATCH_LIMIT]
    assert list(queue) == items[BATCH_LIMIT:]


async def test_rivals_do_not_fill_a_batch():
    items = [waiting(("t", 1), token=f"{index}") for index in range(2 * BATCH_LIMIT)]
    queue = deque(items)
    assert take(queue) == items[:1]
    assert items[0].rivals == items[1:]
    assert not queue


async def test_who_comes_late_is_not_in_the_batch():
    recent = Recent()
    recent.note("a", winner(4, "theirs"))
    late, again, due, other = (
        waiting(("a", 4)),
        waiting(("a", 4), token="theirs"),
        waiting(("a", 5)),
        waiting(("b", 4)),
    )
    batch, answered = batches.take(deque([late, due, again, other]), recent)
    assert batch == [due, other]
    assert [item for item, _ in answered] == [late, again]
    refusal, receipt = (answer for _, answer in answered)
    assert isinstance(refusal, Conflict)
    assert refusal.conflicts[0].winner == winner(4, "theirs")
    assert receipt == Receipt(9, 1_000, (Result("a", 4),), replayed=True)


async def test_several_tables_are_nobodys_rival():
    both, one, same = waiting(("a", 1), ("b", 1)), waiting(("a", 1)), waiting(("b", 1), ("a", 1))
    queue = deque([both, one, same])
    assert take(queue) == [both]
    assert not both.rivals
    assert list(queue) == [one, same]


async def test_columns_of_a_batch_line_up():
    first, second = waiting(("a", 3), ("b", 1)), waiting(("c", 7), token="other")
    sql, columns = statement([first, second])
    assert sql == batches.DECIDE
    assert columns[:4] == [[0, 0, 1], ["a", "b", "c"], [3, 1, 7], ["mine", "mine", "other"]]
    assert {len(column) for column in columns} == {3}


async def test_transactions_of_one_table_each_go_as_texts():
    first, second = waiting(("a", 3)), waiting(("b", 7), token='other, "quoted"')
    sql, texts = statement([first, second])
    assert sql == batches.DECIDE_EACH
    split = [text.split(batches.SEPARATOR) for text in texts]
    assert split[:3] == [["a", "b"], ["3", "7"], ["mine", 'other, "quoted"']]
    assert {len(column) for column in split} == {2}
    # Without counts, without an epoch, and without a word of what is published.
    assert [split[place] for place in (5, 9, 10)] == [["", ""]] * 3


@pytest.mark.parametrize(
    "odd",
    [
        {"token": "a\x1fb"},
        {"operation": "\x1f"},
        {"payload": b'{"a":"\x1f"}'},
        {"payload": b"\xff"},
        {"counts": b""},
        {"counts": b"\x1f"},
    ],
    ids=str,
)
async def test_what_cannot_go_as_text_goes_as_it_is(odd: dict[str, Any]):
    strange = Append(**{"table_id": "b", "version": 1, "token": "t", **odd})
    loop = asyncio.get_running_loop()
    batch = [waiting(("a", 3)), Waiting(Transaction("me", 5, (strange,)), loop.create_future())]
    sql, columns = statement(batch)
    assert sql == batches.DECIDE
    assert [column[1] for column in columns[1:7]] == [
        "b",
        1,
        strange.token,
        strange.operation,
        strange.payload,
        strange.counts,
    ]


async def test_a_batch_of_one_has_no_columns():
    sql, values = statement([waiting(("a", 3))])
    assert sql == batches.DECIDE_ONE
    assert values[:3] == ["a", 3, "mine"]
    _, two = statement([waiting(("a", 3), ("b", 1))])
    assert values == [column[0] for column in two[1:]]


# --- a second look at those that did not win ---


async def test_what_could_win_now_is_tried_again():
    assert verdict(waiting(("a", 4)), [row(3)]) is None
    assert verdict(waiting(("a", 4), ("b", 1)), [row(3), row(0)]) is None


@pytest.mark.parametrize("current", [3, 4, 100])
async def test_the_same_attempt_is_answered_as_it_was(current: int):
    assert verdict(waiting(("a", 3)), [row(current, winner(3))]) == Receipt(
        9, 1_000, (Result("a", 3),), replayed=True
    )


async def test_a_taken_version_names_its_winner():
    refused = verdict(waiting(("a", 3)), [row(5, winner(3, "theirs"))])
    assert isinstance(refused, Conflict)
    (detail,) = refused.conflicts
    assert (detail.operation, detail.subject, detail.reason) == (0, "a", Reason.VERSION_TAKEN)
    assert (detail.expected, detail.current, detail.winner) == (2, 5, winner(3, "theirs"))
    assert refused.message == "version 3 is taken; the table is at version 5"


async def test_a_gap_has_no_winner():
    refused = verdict(waiting(("a", 7)), [row(5)])
    assert isinstance(refused, Conflict)
    assert (refused.conflicts[0].reason, refused.conflicts[0].winner) == (Reason.VERSION_GAP, None)
    assert refused.message == "version 7 does not follow version 5"


async def test_every_table_in_the_way_is_named():
    item = waiting(("a", 3), ("b", 1), ("c", 9))
    refused = verdict(item, [row(5, winner(3, "theirs")), row(0), row(2)])
    assert isinstance(refused, Conflict)
    assert [(detail.operation, detail.reason) for detail in refused.conflicts] == [
        (0, Reason.VERSION_TAKEN),
        (2, Reason.VERSION_GAP),
    ]


async def test_commits_of_one_transaction_are_its_replay():
    item = waiting(("a", 3), ("b", 1))
    assert verdict(item, [row(3, winner(3)), row(8, winner(1))]) == Receipt(
        9, 1_000, (Result("a", 3), Result("b", 1)), replayed=True
    )


@pytest.mark.parametrize(
    "rows",
    [
        [row(3, winner(3, transaction=9)), row(1, winner(1, transaction=10))],
        [row(3, winner(3)), row(0)],
        [row(3, winner(3)), row(1, winner(1, "theirs"))],
    ],
    ids=["two transactions", "half of it", "half of it is somebody else's"],
)
async def test_half_a_replay_is_a_conflict(rows):
    refused = verdict(waiting(("a", 3), ("b", 1)), rows)
    assert isinstance(refused, Conflict)
    assert refused.conflicts[0].subject == "a"


async def test_a_missing_table_is_not_found():
    refused = verdict(waiting(("a", 3), ("b", 1)), [row(2), row(None)])
    assert isinstance(refused, NotFound)
    assert refused.kind == "table"


async def test_a_commit_that_happened_is_answered_so_after_its_table_was_dropped():
    assert verdict(waiting(("a", 3)), [row(None, winner(3))]) == Receipt(
        9, 1_000, (Result("a", 3),), replayed=True
    )
    refused = verdict(waiting(("a", 3)), [row(None, winner(3, "theirs"))])
    assert isinstance(refused, NotFound)


# --- rivals ---


async def test_a_rival_with_the_same_token_is_the_same_commit():
    assert rival_verdict(waiting(("a", 3)), winner(3)) == Receipt(9, 1_000, (Result("a", 3),), replayed=True)


async def test_another_rival_learns_who_won():
    refused = rival_verdict(waiting(("a", 3), token="other"), winner(3))
    assert isinstance(refused, Conflict)
    (detail,) = refused.conflicts
    assert (detail.reason, detail.winner, detail.current) == (Reason.VERSION_TAKEN, winner(3), 3)


# --- who may be in a batch at all ---


def transaction(*operations: Append) -> Transaction:
    return Transaction("me", 5, operations)


def test_only_bare_appends_are_plain():
    plain = Append(table_id="a", version=1, token="x")
    assert is_plain(transaction(plain))
    assert is_plain(transaction(plain, plain))
    assert not is_plain(transaction())
    for special in (
        Append(table_id="a", version=1, token="x", branch="dev"),
        Append(table_id="a", version=1, token="x", head=b""),
        Append(table_id="a", version=1, token="x", expect_etag=1),
    ):
        assert not is_plain(transaction(plain, special))
