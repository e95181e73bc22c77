"""What is known of a table, folded commit by commit, is what its files say."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.care import Job, Outcome
from inver.domain.health import (
    DAY_MS,
    DEAD_DAYS,
    HOUR_MS,
    UNKNOWN,
    Committed,
    Health,
    Sizes,
    Totals,
    created,
    folded,
    versions_listed,
)
from inver.domain.learning import back_off_ms, cared_for, clustered_at, reported, told
from inver.domain.ledger import Counts, Whole
from inver.domain.sizes import below, bin_of, floor_of, merged
from inver.domain.tables import Format, TableKind
from tests.fixtures.care import MIB, counts

DELTA = created(-1, Format.DELTA, TableKind.MANAGED)


def commits(
    *told: Counts | None, at: int = 0, step: int = HOUR_MS, operation: str = "WRITE"
) -> list[Committed]:
    return [Committed(version, at + version * step, operation, each) for version, each in enumerate(told)]


# --- bins ---


@given(st.integers(0, 2**62))
def test_a_size_is_in_its_bin(size: int):
    place = bin_of(size)
    assert floor_of(place) <= size < floor_of(place + 1)
    assert bin_of(floor_of(place)) == place


@given(st.integers(0, 2**60), st.integers(0, 2**60))
def test_bins_are_in_the_order_of_sizes(one: int, other: int):
    assert (bin_of(one) <= bin_of(other)) or one > other


@pytest.mark.parametrize("target", [MIB, 128 * MIB, 512 * MIB])
def test_three_quarters_of_a_target_is_a_boundary(target: int):
    limit = target * 3 // 4
    bins = {bin_of(limit - 1): (1, limit - 1), bin_of(limit): (1, limit)}
    assert below(bins, limit) == (1, limit - 1)


def test_bins_never_hold_less_than_nothing():
    assert merged({}, [(9, -1, -5)]) is None
    assert merged({9: (1, 5)}, [(9, -1, -4)]) is None
    assert merged({9: (1, 5)}, [(9, -1, -5), (12, 1, 4)]) == {12: (1, 4)}


# --- folding ---

FILES = st.lists(st.integers(0, 2**40), max_size=5)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Counts, list[int]]]:
    """Commits that add and remove files of a table, each with the files after it."""
    files: list[int] = []
    history = []
    for _ in range(draw(st.integers(1, 8))):
        added = draw(FILES)
        gone = draw(st.lists(st.sampled_from(files), max_size=len(files))) if files else []
        left = list(files)
        removed = []
        for size in gone:
            if size in left:
                left.remove(size)
                removed.append(size)
        files = left + added
        history.append((counts(*added, removed=tuple(removed), rows=len(added)), list(files)))
    return history


@given(histories(), st.data())
def test_folding_commit_by_commit_is_computing_from_scratch(history, data):
    """Whatever the batches are, and however often a commit is told again."""
    all_commits = commits(*(each for each, _ in history))
    health = DELTA
    start = 0
    while start < len(all_commits):
        end = data.draw(st.integers(start + 1, len(all_commits)))
        again = data.draw(st.integers(0, start))
        health = folded(health, Format.DELTA, all_commits[again:end])
        start = end
    files = history[-1][1]
    bins: dict[int, tuple[int, int]] = {}
    for size in files:
        known = bins.get(bin_of(size), (0, 0))
        bins[bin_of(size)] = known[0] + 1, known[1] + size
    totals = health.totals
    assert (totals.files, totals.bytes, totals.sizes) == (len(files), sum(files), bins)
    assert health == folded(DELTA, Format.DELTA, all_commits)
    added = sum(each.bytes_added or 0 for each, _ in history)
    assert sum((health.dead or {}).values()) == added - sum(files)
    assert totals.unclustered is not None
    assert totals.unclustered <= sum(files)
    assert msgspec.json.decode(msgspec.json.encode(health), type=Health) == health


@given(histories(), st.integers(0, 7))
def test_a_commit_that_says_nothing_is_never_papered_over(history, gap):
    all_commits = commits(*(each for each, _ in history))
    at = min(gap, len(all_commits) - 1)
    all_commits[at] = msgspec.structs.replace(all_commits[at], counts=None)
    assert folded(DELTA, Format.DELTA, all_commits).totals == UNKNOWN
    told_at = msgspec.structs.replace(folded(DELTA, Format.DELTA, all_commits))
    files = history[at][1]
    seen = {"files": float(len(files)), "bytes": float(sum(files))}
    health = told(told_at, Format.DELTA, seen, all_commits[at + 1 :])
    assert (health.totals.files, health.totals.bytes) == (len(history[-1][1]), sum(history[-1][1]))


def test_sums_that_cannot_be_are_not_known():
    health = folded(DELTA, Format.DELTA, commits(counts(5), counts(removed=(7,))))
    assert (health.totals.files, health.totals.bytes, health.totals.sizes) == (0, None, None)


def test_sums_that_no_table_has_are_not_known():
    """Whoever makes such numbers up harms nobody else: what is known can always be written down."""
    most = 2**63 - 1
    made_up = Counts(most, most, most, 0, most, most, ((bin_of(most), most, most),))
    health = folded(DELTA, Format.DELTA, commits(made_up, made_up, made_up))
    assert health.totals.bytes is not None
    assert (health.totals.files, health.totals.sizes) == (None, None)
    assert msgspec.json.decode(msgspec.json.encode(health), type=Health) == health


def test_a_remove_without_a_size_makes_sizes_unknown_and_not_the_number_of_files():
    gone = Counts(0, 0, 0, 1, 0, None)
    health = folded(DELTA, Format.DELTA, commits(counts(5, 6), gone))
    assert (health.totals.files, health.totals.bytes, health.totals.sizes, health.dead) == (
        1,
        None,
        None,
        None,
    )


def test_a_rewrite_leaves_what_is_unclustered():
    written = commits(counts(50, 50), Counts(0, 0, 1, 2, 100, 100, ((bin_of(100), 1, 100),)))
    written[1] = msgspec.structs.replace(written[1], operation="OPTIMIZE")
    assert folded(DELTA, Format.DELTA, written).totals.unclustered == 100


def test_a_table_is_fresh_only_where_the_catalog_saw_its_beginning():
    assert created(-1, Format.DELTA, TableKind.MANAGED).totals == Totals()
    assert created(0, Format.DELTA, TableKind.EXTERNAL).totals == UNKNOWN
    assert created(4, Format.DELTA, TableKind.MANAGED).totals == UNKNOWN
    assert created(3, Format.LANCE, TableKind.EXTERNAL).totals == UNKNOWN
    assert created(0, Format.LANCE, TableKind.EXTERNAL).totals == Totals()


def test_writes_fade():
    health = folded(DELTA, Format.DELTA, commits(*[counts(1)] * 24, at=10 * DAY_MS))
    last = health.written_at
    assert 0.6 < health.writes_per_hour(last) < 0.75
    assert health.writes_per_hour(last + 3 * DAY_MS) < 0.05


def test_who_writes_the_same_rows_again_is_no_writer():
    written = commits(counts(5, 5), counts(10, removed=(5, 5)))
    written[1] = msgspec.structs.replace(written[1], operation="OPTIMIZE")
    health = folded(DELTA, Format.DELTA, written)
    assert (health.commits, health.writes, health.written_at) == (2, 1.0, written[0].at)


def test_dead_bytes_are_told_apart_by_day():
    all_commits = commits(counts(*[9] * 60), *[counts(removed=(9,))] * 60, step=DAY_MS)
    health = folded(DELTA, Format.DELTA, all_commits)
    assert health.dead is not None
    assert len(health.dead) == DEAD_DAYS
    assert sum(health.dead.values()) == health.dead_before(62 * DAY_MS) == 540
    # Never too early: nobody is told that something was dead for longer than it is.
    for day in range(62):
        really = sum(9 for commit in all_commits[1:] if commit.at < day * DAY_MS)
        assert (health.dead_before(day * DAY_MS) or 0) <= really
    assert health.dead_before(40 * DAY_MS) == 9 * 39


# --- formats ---


def iceberg(*steps: tuple[str, Counts]) -> Health:
    start = created(-1, Format.ICEBERG, TableKind.MANAGED)
    all_commits = [Committed(version, 0, operation, told) for version, (operation, told) in enumerate(steps)]
    return folded(start, Format.ICEBERG, all_commits)


def test_iceberg_says_what_the_whole_table_is():
    health = iceberg(
        ("create", Counts(whole=Whole(0, 0, 0, 0, 0, 0, 0))),
        ("append", Counts(10, None, 2, None, 4 * MIB, None, whole=Whole(2, 4 * MIB, 10, 0, 0, 1, 1))),
        ("delete", Counts(whole=Whole(2, 5 * MIB, 10, 1, 3, 2, 2))),
        ("set-properties", Counts(whole=Whole(2, 5 * MIB, 10, 1, 3, 2, 2))),
    )
    totals = health.totals
    assert (totals.files, totals.bytes, totals.rows, totals.deletes, totals.deleted_rows) == (
        2,
        5 * MIB,
        10,
        1,
        3,
    )
    assert (health.snapshots, health.manifests, health.sizes) == (2, 2, Sizes.SINCE_REWRITE)
    assert health.small(3 * MIB) == (2, 4 * MIB)
    assert health.small(MIB) == (0, 0)


def test_a_rewrite_of_iceberg_starts_the_sizes_anew():
    appended = Counts(10, None, 8, None, 8 * MIB, None, whole=Whole(8, 8 * MIB, 10, 0, 0, 1, 1))
    rewritten = Counts(0, 0, 1, 8, 8 * MIB, 8 * MIB, whole=Whole(1, 8 * MIB, 10, 0, 0, 2, 1))
    assert iceberg(("append", appended)).small(2 * MIB) == (8, 8 * MIB)
    health = iceberg(("append", appended), ("replace", rewritten))
    assert health.small(2 * MIB) == (0, 0)
    assert sum((health.dead or {}).values()) == 8 * MIB


def test_what_an_iceberg_version_does_not_say_is_unknown_until_one_does():
    silent = iceberg(("append", Counts(whole=Whole(snapshots=1))))
    assert (silent.totals.files, silent.snapshots) == (None, 1)
    health = iceberg(
        ("append", Counts(whole=Whole(snapshots=1))),
        ("append", Counts(whole=Whole(3, 30, 3, 0, 0, 2, 2))),
    )
    assert health.totals.files == 3


def test_versions_of_lance_come_and_go():
    start = created(0, Format.LANCE, TableKind.MANAGED)
    health = folded(
        start, Format.LANCE, [Committed(version, 0, "Append", counts(1)) for version in (1, 2, 3)]
    )
    assert health.snapshots == 3
    assert versions_listed(health, -2).snapshots == 1
    assert versions_listed(DELTA, -2) == DELTA
    assert versions_listed(DELTA, 7).snapshots == 7


# --- what others say ---


def test_a_report_counts_as_of_its_version():
    all_commits = commits(None, counts(MIB), counts(5, removed=(MIB,)))
    health = folded(DELTA, Format.DELTA, all_commits)
    found = reported(health, Format.DELTA, (0, 100), (3, 0), (30, 0), all_commits[1:])
    assert (found.totals.files, found.totals.bytes) == (4, 35)
    assert found.small(100) == (4, 35)


def test_a_report_of_what_cannot_be_teaches_nothing():
    health = folded(DELTA, Format.DELTA, commits(None))
    assert reported(health, Format.DELTA, (0, 9), (1, 1), (2**63 - 1, 2**63 - 1), ()) == health


def test_small_and_large_files_as_a_run_counts_them():
    health = folded(DELTA, Format.DELTA, commits(None))
    seen = {"files": 10.0, "bytes": 1000.0, "small_files": 9.0, "small_bytes": 90.0}
    assert told(health, Format.DELTA, seen, ()).small(12) == (9, 90)
    impossible = {**seen, "small_files": 11.0}
    assert told(health, Format.DELTA, impossible, ()).totals.sizes is None


@given(histories(), st.data())
def test_what_was_not_told_stays_as_it_was(history, data):
    """Also when it was told of an earlier version than what is known is of."""
    all_commits = commits(*(each for each, _ in history))
    health = folded(DELTA, Format.DELTA, all_commits)
    at = data.draw(st.integers(0, len(history) - 1))
    files = history[at][1]
    seen = {"files": float(len(files)), "bytes": float(sum(files))}
    names = data.draw(st.sets(st.sampled_from(sorted(seen))))
    some = {name: seen[name] for name in names}
    assert told(health, Format.DELTA, some, all_commits[at + 1 :]) == health


def test_what_is_written_while_a_table_is_clustered_is_not_clustered():
    all_commits = commits(counts(70), counts(30))
    health = folded(DELTA, Format.DELTA, all_commits)
    assert health.totals.unclustered == 100
    assert clustered_at(health, all_commits[1:]).totals.unclustered == 30
    assert clustered_at(health, ()).totals.unclustered == 0


def test_a_checkpoint_is_never_forgotten():
    newer = told(DELTA, Format.DELTA, {"checkpoint_version": 9.0}, ())
    assert newer.checkpoint == 9
    assert told(newer, Format.DELTA, {"checkpoint_version": 4.0}, ()).checkpoint == 9


@pytest.mark.parametrize(
    ("outcome", "streak", "wait"),
    [
        (Outcome.DONE, 0, 0),
        (Outcome.NOTHING, 0, HOUR_MS),
        (Outcome.STOPPED, 2, 0),
        (Outcome.LOST, 3, 40 * 60_000),
        (Outcome.FAILED, 3, 40 * 60_000),
        (Outcome.REFUSED, 0, DAY_MS),
    ],
)
def test_what_comes_of_a_run(outcome: Outcome, streak: int, wait: int):
    health = DELTA
    for _ in range(2):
        health = cared_for(health, Job.COMPACT, Outcome.LOST, 1, 7, None, 0)
    cared = cared_for(health, Job.COMPACT, outcome, 1_000, 7, 50.0, 0).cared[Job.COMPACT]
    assert (cared.streak, cared.retry_at) == (streak, 1_000 + wait if wait else 0)
    assert cared.version == (7 if outcome in (Outcome.DONE, Outcome.NOTHING) else -1)
    assert cared.bytes_s == 50.0


def test_nobody_waits_for_ever():
    assert [back_off_ms(streak) // 60_000 for streak in (1, 2, 3)] == [10, 20, 40]
    assert back_off_ms(10_000) == 7 * DAY_MS
