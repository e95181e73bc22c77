"""What is remembered of the newest commits, and how a crowd of losers is answered."""

from __future__ import annotations

import asyncio

import pytest

from inver.domain.ledger import Append, Reason, Receipt, Result, Winner
from inver.errors import Conflict
from inver.stores import recent as module
from inver.stores.recent import CROWD, VERSIONS, Patience, Recent
from tests.fixtures.waiting import PATIENCE_S


def append(version: int, token: str = "mine", table: str = "t") -> Append:
    return Append(table_id=table, version=version, token=token)


def winner(version: int) -> Winner:
    return Winner(version, f"token {version}", 100 + version, 5_000, "someone")


def filled(*versions: int) -> Recent:
    recent = Recent()
    for version in versions:
        recent.note("t", winner(version))
    return recent


def test_nothing_is_said_of_what_is_not_known():
    assert filled().verdict(append(1)) is None
    assert filled(3).verdict(append(4)) is None
    assert filled(3).verdict(append(2)) is None
    assert filled(3).verdict(append(3, table="another")) is None


def test_a_taken_version_is_refused_with_what_stands_and_where_the_table_is():
    refusal = filled(3, 4, 5).verdict(append(4))
    assert isinstance(refusal, Conflict)
    (detail,) = refusal.conflicts
    assert (detail.reason, detail.expected, detail.current) == (Reason.VERSION_TAKEN, 3, 5)
    assert detail.winner == winner(4)


def test_the_same_commit_sent_again_is_a_success():
    again = filled(3, 4).verdict(append(3, "token 3"))
    assert again == Receipt(103, 5_000, (Result("t", 3),), replayed=True)


def test_only_the_newest_versions_are_remembered():
    recent = filled(*range(1, VERSIONS + 3))
    assert recent.verdict(append(2)) is None
    assert recent.verdict(append(3)) is not None


def test_a_gap_makes_what_was_known_too_old_to_say_where_the_table_is():
    recent = filled(3, 9)
    assert recent.verdict(append(3)) is None
    assert recent.verdict(append(9)) is not None


def test_the_number_of_tables_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TABLES", 2)
    recent = Recent()
    for table in "abc":
        recent.note(table, winner(1))
    assert [recent.verdict(append(1, table=table)) is not None for table in "abc"] == [False, False, True]
    recent.forget()
    assert recent.verdict(append(1, table="c")) is None


def test_a_receipt_is_that_of_the_version_before():
    recent = filled(2)
    assert recent.before(append(3)) is None
    receipt = Receipt(103, 5_000, (Result("t", 3),), False, 1, 0)
    recent.note("t", winner(3), receipt)
    assert [recent.before(append(version)) for version in (3, 4, 5)] == [None, receipt, None]
    assert recent.before(append(4, table="another")) is None
    recent.forget()
    assert recent.before(append(4)) is None


async def test_a_crowd_is_told_later_and_everybody_is_told():
    loop = asyncio.get_running_loop()
    patience = Patience(loop, 0.001)
    waiting = [loop.create_future() for _ in range(3 * CROWD)]
    for future in waiting:
        patience.refuse(future, Conflict("taken"))
    assert [future.done() for future in waiting] == [True] * CROWD + [False] * (2 * CROWD)
    assert patience.holding
    answers = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE_S)
    assert all(isinstance(answer, Conflict) for answer in answers)
    assert not patience.holding


async def test_those_who_wait_longest_are_told_first():
    loop = asyncio.get_running_loop()
    patience = Patience(loop, 60)
    waiting = [loop.create_future() for _ in range(CROWD + 5)]
    for future in waiting:
        patience.refuse(future, Conflict("taken"))
    patience.release(2)
    assert [future.done() for future in waiting] == [True] * (CROWD + 2) + [False] * 3
    patience.release(10)
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(answer, Conflict) for answer in answers)
    assert not patience.holding


async def test_few_are_told_at_once_and_one_who_left_is_left_alone():
    loop = asyncio.get_running_loop()
    patience = Patience(loop, 0.001)
    gone = [loop.create_future() for _ in range(CROWD + 1)]
    for future in gone:
        future.cancel()
        patience.refuse(future, Conflict("taken"))
    while patience.holding:
        await asyncio.sleep(0.001)
    assert all(future.cancelled() for future in gone)
