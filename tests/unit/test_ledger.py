"""How an append wins or loses, said once more in other words than the code's."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.ledger import (
    Append,
    ConflictDetail,
    Counts,
    Reason,
    Result,
    Verdict,
    Winner,
    conflict_of,
    judge,
    replayed_transaction,
)

versions = st.integers(-1, 6) | st.integers(2**63 - 3, 2**63 - 1)
tokens = st.sampled_from(["mine", "theirs", "", "MINE"])


def append(version: int, token: str = "mine") -> Append:
    return Append(table_id="t", version=version, token=token)


def winner(version: int, token: str = "mine", transaction: int = 7) -> Winner:
    return Winner(version, token, transaction, 1_000, "somebody")


@pytest.mark.parametrize(
    ("version", "current", "standing", "expected"),
    [
        (1, 0, None, Verdict.ACCEPT),
        (4, 3, None, Verdict.ACCEPT),
        # The very version that stands, by the same attempt and by another.
        (3, 3, winner(3), Verdict.REPLAY),
        (3, 3, winner(3, "theirs"), Verdict.REFUSE),
        # An old one.
        (2, 3, winner(2), Verdict.REPLAY),
        (2, 3, winner(2, "theirs"), Verdict.REFUSE),
        # Below the version at which the table started nothing stands.
        (2, 3, None, Verdict.REFUSE),
        # A gap, and what lies below zero.
        (5, 3, None, Verdict.REFUSE),
        (0, 0, None, Verdict.REFUSE),
        (-1, 0, None, Verdict.REFUSE),
    ],
)
def test_each_relation_of_version_and_current(version, current, standing, expected):
    assert judge(append(version), current, standing) is expected


@given(versions, versions, st.none() | st.tuples(versions, tokens), tokens)
def test_only_the_next_version_wins_and_only_the_same_attempt_is_a_replay(version, current, held, token):
    standing = None if held is None else winner(*held)
    verdict = judge(append(version, token), current, standing)
    follows = version - 1 == current
    same = held == (version, token)
    assert (verdict is Verdict.ACCEPT) == follows
    assert (verdict is Verdict.REPLAY) == (same and not follows)
    assert (verdict is Verdict.REFUSE) == (not same and not follows)


@given(st.integers(0, 50), versions, versions, tokens)
def test_a_conflict_says_what_was_expected_and_what_stands(index, version, current, token):
    standing = winner(version, token)
    detail = conflict_of(index, append(version), current, standing)
    taken = version <= current
    assert detail == ConflictDetail(
        operation=index,
        subject="t",
        reason=Reason.VERSION_TAKEN if taken else Reason.VERSION_GAP,
        expected=version - 1,
        current=current,
        winner=standing if taken else None,
    )


def test_a_version_below_the_start_is_taken_by_nobody():
    detail = conflict_of(0, append(2), 5, None)
    assert (detail.reason, detail.winner) == (Reason.VERSION_TAKEN, None)


@given(st.lists(st.integers(1, 3), max_size=5))
def test_a_transaction_is_replayed_only_if_one_made_all_its_commits(numbers):
    standing = [winner(version, transaction=number) for version, number in enumerate(numbers, start=1)]
    expected = numbers[0] if numbers and numbers.count(numbers[0]) == len(numbers) else None
    assert replayed_transaction(standing) == expected
    assert replayed_transaction(iter(standing)) == expected


def test_zero_is_a_count_and_unknown_is_not_written():
    assert msgspec.json.encode(Counts(rows_added=0, bytes_removed=5)) == b'{"rows_added":0,"bytes_removed":5}'
    assert msgspec.json.decode(b"{}", type=Counts) == Counts()


@given(st.lists(st.tuples(st.text(max_size=5), st.none() | versions), max_size=4))
def test_results_survive_their_stored_form(pairs):
    results = tuple(Result(subject, version) for subject, version in pairs)
    stored = msgspec.json.encode(results)
    assert msgspec.json.decode(stored, type=tuple[Result, ...]) == results
