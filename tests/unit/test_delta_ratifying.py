"""What a rewrite believes of its own commit, and the last look at its rows."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from inver.domain.delta_actions import Add, DeletionVector
from inver.domain.delta_bins import Bin
from inver.domain.delta_rewrites import NewFile
from inver.errors import (
    Conflict,
    Forbidden,
    Invalid,
    InverError,
    OutcomeUnknown,
    Unauthenticated,
    Unavailable,
)
from inver.pipeline.delta.rewriting import _check_rows
from inver.pipeline.delta.table import _until_known
from inver.pipeline.work import LeaseLost


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inver.pipeline.delta.table.time.sleep", lambda seconds: None)


def answers(*given: InverError | None) -> Callable[[], None]:
    waiting = iter(given)

    def propose() -> None:
        error = next(waiting)
        if error is not None:
            raise error

    return propose


def test_a_lost_answer_is_asked_for_again():
    asked: list[None] = []
    _until_known(answers(OutcomeUnknown("?"), Unavailable("busy"), None), lambda: asked.append(None))
    assert len(asked) == 2


@pytest.mark.parametrize(
    "refusal", [Unauthenticated("expired"), Forbidden("revoked"), Invalid("odd", field="x")]
)
def test_a_refusal_after_a_lost_answer_says_nothing_of_the_commit(refusal):
    with pytest.raises(OutcomeUnknown, match="may be ratified"):
        _until_known(answers(OutcomeUnknown("?"), refusal), lambda: None)
    with pytest.raises(type(refusal)):
        _until_known(answers(Unavailable("busy"), refusal), lambda: None)


def test_a_conflict_is_certain_also_after_a_lost_answer():
    with pytest.raises(Conflict):
        _until_known(answers(OutcomeUnknown("?"), Conflict("taken")), lambda: None)


def test_doubt_stays_to_the_end():
    with pytest.raises(OutcomeUnknown):
        _until_known(answers(OutcomeUnknown("?"), *[Unavailable("busy")] * 9), lambda: None)
    with pytest.raises(Unavailable):
        _until_known(answers(*[Unavailable("busy")] * 9), lambda: None)


def test_who_lost_the_lease_does_not_ask_again():
    def lost() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        _until_known(answers(OutcomeUnknown("?")), lost)


def file(rows: int | None, deleted: int = 0) -> Add:
    vector = DeletionVector("u", "x", 1, deleted, 1) if deleted else None
    stats = None if rows is None else json.dumps({"numRecords": rows})
    return Add(path="p", partition_values={}, size=1, stats=stats, deletion_vector=vector)


def new(rows: int) -> NewFile:
    return NewFile(path="n", size=1, rows=rows, modification_time=0, stats="{}")


def test_rows_in_are_rows_out():
    made = Bin(files=(file(10), file(5, deleted=2)))
    _check_rows(made, [new(6), new(7)])
    with pytest.raises(Invalid, match="13 rows were to be rewritten, and 12 were"):
        _check_rows(made, [new(12)])
    _check_rows(Bin(files=(file(None), file(5))), [new(1)])
