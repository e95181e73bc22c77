"""The checker of histories accepts what can have happened, and refuses each way for a catalog to lie."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.history import (
    START,
    Committed,
    Inconsistent,
    Op,
    Outcome,
    Read,
    Step,
    Tokens,
    Write,
    check,
    linearization,
    require_feed,
    require_linearizable,
    require_order,
    require_whole,
)

OK, REPLAYED, CONFLICT, UNKNOWN = Outcome.OK, Outcome.REPLAYED, Outcome.CONFLICT, Outcome.UNKNOWN


def commit(
    invoked: int, completed: int | None, *writes: tuple[str, int, str], outcome=OK, transaction=None, lost=()
) -> Op:
    action = tuple(Write(*write) for write in writes)
    return Op(0, invoked, completed, action, outcome, transaction, frozenset(lost))


def read(invoked: int, completed: int, table: str, version: int, token: str | None = None) -> Op:
    return Op(1, invoked, completed, Read(table, version, token))


def feed(*commits: tuple[int, int, str, int]) -> list[Committed]:
    return [Committed(*each) for each in commits]


# --- one table ---


def test_one_after_another_is_accepted():
    require_linearizable(
        [
            read(0, 1, "a", 0),
            commit(2, 3, ("a", 1, "x")),
            read(4, 5, "a", 1, "x"),
            commit(6, 7, ("a", 1, "y"), outcome=CONFLICT, lost="a"),
            commit(8, 9, ("a", 2, "y")),
            commit(10, 11, ("a", 1, "x"), outcome=REPLAYED),
        ]
    )


def test_the_order_of_what_overlaps_is_free():
    require_linearizable(
        [
            commit(0, 10, ("a", 2, "y")),
            commit(1, 9, ("a", 1, "x")),
            read(2, 8, "a", 2),
            read(3, 9, "a", 0),
            commit(0, 10, ("a", 1, "z"), outcome=CONFLICT, lost="a"),
        ]
    )


def test_a_lost_update_is_refused():
    """Both were told that they made version 1."""
    with pytest.raises(Inconsistent):
        require_linearizable([commit(0, 5, ("a", 1, "x")), commit(1, 6, ("a", 1, "y"))])


def test_an_acknowledged_commit_that_vanished_is_refused():
    with pytest.raises(Inconsistent):
        require_linearizable([commit(0, 1, ("a", 1, "x")), Op(1, 2, 3, Read("a", 1, tokens=("y",)))])


def test_a_double_application_is_refused():
    """The retry was told that it was the first, and so was the original."""
    with pytest.raises(Inconsistent):
        require_linearizable([commit(0, 1, ("a", 1, "x")), commit(2, 3, ("a", 1, "x"))])


def test_the_same_commit_in_two_versions_is_refused():
    """A lost answer, a retry that is told "replayed", and the commit twice in the history."""
    ops = [
        commit(0, None, ("a", 1, "x"), outcome=UNKNOWN),
        commit(5, 6, ("a", 1, "x"), outcome=REPLAYED),
        Op(1, 7, 8, Read("a", 2, tokens=("x", "x"))),
    ]
    with pytest.raises(Inconsistent):
        require_linearizable(ops)


def test_a_stale_read_is_refused():
    with pytest.raises(Inconsistent):
        require_linearizable([commit(0, 1, ("a", 1, "x")), read(2, 3, "a", 0)])


def test_a_read_that_goes_back_is_refused():
    """Neither read is stale by itself: the commit is still in flight."""
    ops = [commit(0, 10, ("a", 1, "x")), read(1, 2, "a", 1), read(3, 4, "a", 0)]
    with pytest.raises(Inconsistent):
        require_linearizable(ops)


def test_a_read_from_the_future_is_refused():
    with pytest.raises(Inconsistent):
        require_linearizable([read(0, 1, "a", 1), commit(2, 3, ("a", 1, "x"))])


def test_a_conflict_that_nobody_caused_is_refused():
    with pytest.raises(Inconsistent):
        require_linearizable([commit(0, 1, ("a", 1, "x"), outcome=CONFLICT, lost="a")])


def test_a_refused_commit_that_took_effect_is_refused():
    ops = [
        commit(0, 1, ("a", 1, "x"), outcome=CONFLICT, lost="a"),
        Op(1, 2, 3, Read("a", 1, tokens=("x",))),
    ]
    with pytest.raises(Inconsistent):
        require_linearizable(ops)


def test_a_replay_of_what_never_happened_is_refused():
    with pytest.raises(Inconsistent):
        require_linearizable([commit(0, 1, ("a", 1, "x"), outcome=REPLAYED)])


@pytest.mark.parametrize("seen", [("x",), ()])
def test_an_unknown_outcome_may_be_either(seen: Tokens):
    ops = [commit(0, None, ("a", 1, "x"), outcome=UNKNOWN), Op(1, 5, 6, Read("a", len(seen), tokens=seen))]
    require_linearizable(ops)


def test_an_unknown_outcome_may_take_effect_late():
    ops = [commit(0, None, ("a", 1, "x"), outcome=UNKNOWN), read(5, 6, "a", 0), read(7, 8, "a", 1, "x")]
    require_linearizable(ops)


def test_an_unknown_outcome_does_not_take_effect_twice():
    ops = [
        commit(0, None, ("a", 1, "x"), outcome=UNKNOWN),
        read(5, 6, "a", 1, "x"),
        Op(1, 7, 8, Read("a", 2, tokens=("x", "x"))),
    ]
    with pytest.raises(Inconsistent):
        require_linearizable(ops)


def test_an_unknown_outcome_does_not_take_effect_before_it_was_sent():
    ops = [read(0, 1, "a", 1), commit(2, None, ("a", 1, "x"), outcome=UNKNOWN)]
    with pytest.raises(Inconsistent):
        require_linearizable(ops)


def test_a_refused_transaction_speaks_only_of_the_table_it_lost():
    require_linearizable(
        [
            commit(0, 1, ("a", 1, "x")),
            commit(2, 3, ("a", 1, "y"), ("b", 1, "y"), outcome=CONFLICT, lost="a"),
            commit(4, 5, ("b", 1, "z")),
        ]
    )


tokens = st.sampled_from("xyz")
writes = st.builds(Write, st.just("a"), st.integers(1, 3), tokens)
looks = st.builds(Read, st.just("a"), st.integers(0, 3), st.none() | tokens)


@st.composite
def small_histories(draw: st.DrawFn) -> list[Step]:
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        begin = draw(st.integers(0, 8))
        end = begin + draw(st.integers(0, 6))
        action = draw(writes | looks)
        outcome = draw(st.sampled_from(Outcome)) if isinstance(action, Write) else OK
        steps.append(Step(begin, None if outcome is UNKNOWN else end, action, outcome))
    return steps


@settings(max_examples=500)
@given(small_histories())
def test_it_agrees_with_trying_every_order(steps: list[Step]):
    found = linearization(steps)
    assert (found is not None) == any(explains(order) for order in orders(steps))
    if found is not None:
        assert explains(found)
        assert {id(step) for step in found} >= {id(step) for step in steps if step.completed is not None}


def orders(steps: list[Step]):
    """Every order of all steps with an answer and of any of those without."""
    known = [step for step in steps if step.completed is not None]
    unknown = [step for step in steps if step.completed is None]
    for chosen in range(2 ** len(unknown)):
        some = [step for place, step in enumerate(unknown) if chosen >> place & 1]
        yield from permutations(known + some)


def explains(order) -> bool:
    state: Tokens | None = START
    for place, step in enumerate(order):
        if any(later.completed is not None and later.completed < step.invoked for later in order[place:]):
            return False
        assert state is not None
        state = step.after(state)
        if state is None:
            return False
    return True


# --- all tables together ---


def test_half_of_a_transaction_is_refused():
    op = commit(0, 1, ("a", 1, "x"), ("b", 1, "x"), outcome=UNKNOWN)
    with pytest.raises(Inconsistent, match="half"):
        require_whole([op], {"a": ("x",), "b": ()}, feed((1, 1, "a", 1)))


def test_half_of_a_transaction_is_seen_also_where_somebody_else_took_the_version():
    op = commit(0, 1, ("a", 1, "x"), ("b", 1, "x"), transaction=1)
    with pytest.raises(Inconsistent, match="half"):
        require_whole([op], {"a": ("x",), "b": ("y",)}, feed((1, 1, "a", 1), (2, 2, "b", 1)))


def test_a_transaction_in_two_pieces_is_refused():
    """Everything is there, and not at once."""
    op = commit(0, 1, ("a", 1, "x"), ("b", 1, "x"), outcome=UNKNOWN)
    with pytest.raises(Inconsistent, match="other transactions"):
        require_whole([op], {"a": ("x",), "b": ("x",)}, feed((1, 1, "a", 1), (2, 2, "b", 1)))


def test_another_number_than_the_answer_said_is_refused():
    op = commit(0, 1, ("a", 1, "x"), transaction=7)
    with pytest.raises(Inconsistent, match="other transactions"):
        require_whole([op], {"a": ("x",)}, feed((1, 1, "a", 1)))


def test_an_acknowledged_transaction_must_be_there():
    with pytest.raises(Inconsistent, match="lost"):
        require_whole([commit(0, 1, ("a", 1, "x"), transaction=1)], {"a": ("y",)}, feed((1, 1, "a", 1)))


def test_a_refused_transaction_must_not_be_there():
    op = commit(0, 1, ("a", 1, "x"), outcome=CONFLICT, lost="a")
    with pytest.raises(Inconsistent, match="refused"):
        require_whole([op], {"a": ("x",)}, feed((1, 1, "a", 1)))


@pytest.mark.parametrize(
    "told",
    [
        feed((1, 1, "a", 1)),  # a version is missing
        feed((1, 1, "a", 1), (2, 2, "a", 1), (3, 3, "a", 2)),  # one is told twice
        feed((1, 1, "a", 2), (2, 2, "a", 1)),  # out of order
        feed((2, 2, "a", 1), (1, 1, "a", 2)),  # numbers out of order
        feed((1, 1, "a", 1), (2, 1, "a", 2), (3, 1, "a", 3)),  # one that the table does not have
        feed((1, 1, "a", 1), (3, 1, "a", 2)),  # a transaction with a hole
        feed((1, 1, "a", 1), (2, 3, "a", 2)),  # a transaction that does not begin with its number
    ],
)
def test_a_feed_that_differs_from_the_tables_is_refused(told: list[Committed]):
    require_feed({"a": ("x", "y")}, feed((1, 1, "a", 1), (2, 2, "a", 2)))
    with pytest.raises(Inconsistent):
        require_feed({"a": ("x", "y")}, told)


def test_an_interrupted_transaction_in_the_feed_is_refused():
    told = feed((1, 1, "a", 1), (2, 2, "b", 1), (3, 1, "b", 2))
    with pytest.raises(Inconsistent, match="begins"):
        require_feed({"a": ("x",), "b": ("y", "x")}, told)


def test_tables_that_are_right_alone_and_wrong_together_are_refused():
    """b was committed after a was acknowledged, and stands before it in the feed."""
    ops = [commit(0, 1, ("a", 1, "x"), transaction=2), commit(2, 3, ("b", 1, "y"), transaction=1)]
    tables: dict[str, Tokens] = {"a": ("x",), "b": ("y",)}
    told = feed((1, 1, "b", 1), (2, 2, "a", 1))
    require_linearizable(ops)
    with pytest.raises(Inconsistent, match="answered before"):
        require_order(ops, tables, told)
    require_order([ops[0], commit(0, 3, ("b", 1, "y"), transaction=1)], tables, told)


def test_reads_that_see_one_transaction_and_then_not_its_other_half_are_refused():
    both = commit(0, 9, ("a", 1, "x"), ("b", 1, "x"), transaction=1)
    told = feed((1, 1, "a", 1), (2, 1, "b", 1))
    tables: dict[str, Tokens] = {"a": ("x",), "b": ("x",)}
    require_order([both, read(1, 2, "a", 0), read(3, 4, "b", 1)], tables, told)
    ops = [both, read(1, 2, "a", 1), read(3, 4, "b", 0)]
    require_linearizable(ops)
    with pytest.raises(Inconsistent, match="answered before"):
        require_order(ops, tables, told)


def test_a_commit_whose_answer_was_lost_has_its_place_too():
    tables: dict[str, Tokens] = {"a": ("x",), "b": ("y",)}
    told = feed((1, 1, "b", 1), (2, 2, "a", 1))
    late = commit(5, None, ("b", 1, "y"), outcome=UNKNOWN)
    with pytest.raises(Inconsistent, match="answered before"):
        require_order([late, commit(0, 1, ("a", 1, "x"), transaction=2)], tables, told)


def test_a_refusal_stands_behind_what_it_lost_to():
    tables: dict[str, Tokens] = {"a": ("x",), "b": ("y",)}
    told = feed((1, 1, "b", 1), (2, 2, "a", 1))
    refused = commit(0, 1, ("a", 1, "z"), outcome=CONFLICT, lost="a")
    with pytest.raises(Inconsistent, match="answered before"):
        require_order([refused, commit(5, 6, ("b", 1, "y"), transaction=1)], tables, told)


def test_a_whole_run_is_accepted():
    ops = [
        commit(0, 3, ("a", 1, "x"), ("b", 1, "x"), transaction=1),
        read(1, 2, "a", 0),
        commit(4, None, ("a", 2, "y"), outcome=UNKNOWN),
        commit(5, 6, ("a", 2, "z"), outcome=CONFLICT, lost="a"),
        commit(7, 8, ("a", 2, "y"), outcome=REPLAYED, transaction=3),
        read(9, 9, "b", 1, "x"),
    ]
    told = feed((1, 1, "a", 1), (2, 1, "b", 1), (3, 3, "a", 2))
    check(ops, {"a": ("x", "y"), "b": ("x",)}, told, now=10)
