"""What is found, with its reason, and what is left alone; and the order in which it is done."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from inver.domain.care import JOBS_OF, Job, Options, Outcome
from inver.domain.findings import Finding, Subject, findings
from inver.domain.health import DAY_MS, HOUR_MS, UNKNOWN, Cared, Health, Sizes, Totals
from inver.domain.plans import BYTES_S, STARTUP_S, Step, ranked, step_of
from inver.domain.runs import (
    FLOORS,
    InForce,
    Policy,
    SomeOptions,
    in_force,
    layered,
    require_floors,
    require_job,
)
from inver.domain.sizes import bin_of
from inver.domain.tables import Format
from inver.errors import Invalid
from tests.fixtures.care import MIB

NOW = 1_000 * DAY_MS
LONG_AGO = NOW - 100 * DAY_MS
EMPTY = Totals()


def files(count: int, size: int, **more: Any) -> Totals:
    total = {"files": count, "bytes": count * size, "rows": 10 * count}
    return Totals(**{**total, "sizes": {bin_of(size): (count, count * size)}, **more})


def subject(
    totals: Totals = EMPTY, format: Format = Format.DELTA, *, version: int = 50, **health: Any
) -> Subject:
    known: dict[str, Any] = {"version": version, "totals": totals, "written_at": NOW - 2 * HOUR_MS}
    known |= {"checkpoint": version, **health}
    return Subject(format=format, version=version, created_at=NOW - HOUR_MS, health=Health(**known))


def found(about: Subject, now: int = NOW, **options: Any) -> dict[Job, Finding]:
    policy = InForce(True, JOBS_OF[about.format], Options(**options))
    return {each.job: each for each in findings(about, policy, now)}


def test_small_files_are_worth_compacting():
    finding = found(subject(files(200, MIB)))[Job.COMPACT]
    assert finding.reason == "200 of 200 files are smaller than 96 MiB"
    assert (finding.gain, finding.bytes) == (198, 200 * MIB)


@pytest.mark.parametrize(
    ("totals", "options"),
    [
        pytest.param(files(7, MIB), {}, id="too few"),
        pytest.param(files(200, 100 * MIB), {}, id="large enough"),
        pytest.param(files(200, MIB), {"target_file_size": MIB}, id="as large as they are to be"),
        pytest.param(files(200, MIB), {"min_small_files": 201}, id="fewer than the policy says"),
        pytest.param(files(8, 95 * MIB), {"min_small_files": 8, "small_file_ratio": 0.1}, id="not small"),
        pytest.param(UNKNOWN, {}, id="nobody knows"),
        pytest.param(Totals(), {}, id="empty"),
    ],
)
def test_what_is_not_worth_compacting(totals: Totals, options: dict[str, Any]):
    assert Job.COMPACT not in found(subject(totals), **options)


def test_a_few_small_files_may_still_become_more():
    """A little input is left for an hour; much of it is not."""
    young: dict[str, Any] = {"written_at": NOW - HOUR_MS // 2}
    assert Job.COMPACT not in found(subject(files(20, MIB), **young))
    assert Job.COMPACT in found(subject(files(20, 20 * MIB), **young))
    assert Job.COMPACT in found(subject(files(80, MIB), **young))


def test_a_table_that_is_written_to_is_left_alone_until_it_is_overdue():
    young: dict[str, Any] = {"written_at": NOW - 60_000}
    waits = found(subject(files(20, 20 * MIB), **young))[Job.COMPACT]
    assert waits.not_before == NOW - 60_000 + 600_000
    assert found(subject(files(80, 20 * MIB), **young))[Job.COMPACT].not_before == 0
    short = found(subject(files(20, 20 * MIB), **young), quiet_minutes=0.5)[Job.COMPACT]
    assert short.not_before <= NOW


def test_without_a_histogram_the_mean_decides():
    small, large = files(100, MIB, sizes=None), files(100, 100 * MIB, sizes=None)
    assert found(subject(small))[Job.COMPACT].gain == 99
    assert Job.COMPACT not in found(subject(large))


def test_of_iceberg_the_files_since_the_last_rewrite_count():
    totals = replace(files(1000, 128 * MIB), sizes={bin_of(MIB): (50, 50 * MIB)})
    about = subject(totals, Format.ICEBERG, sizes=Sizes.SINCE_REWRITE)
    assert found(about)[Job.COMPACT].gain == 49


@pytest.mark.parametrize(
    ("format", "job"), [(Format.DELTA, Job.PURGE), (Format.ICEBERG, Job.PURGE), (Format.LANCE, Job.COMPACT)]
)
def test_deleted_rows_are_worth_purging(format: Format, job: Job):
    about = subject(files(10, 128 * MIB, deletes=5, deleted_rows=40), format)
    assert "of its rows are deleted, in 5 files" in found(about)[job].reason
    assert found(about)[job].bytes == 5 * 128 * MIB
    few = subject(files(10, 128 * MIB, deletes=5, deleted_rows=4), format)
    assert job not in found(few)
    assert job in found(few, deleted_ratio=0.01)


def test_where_rows_are_not_known_files_decide():
    about = subject(files(10, 128 * MIB, rows=None, deletes=5, deleted_rows=1))
    assert found(about)[Job.PURGE].reason == "50% of its files have deleted rows, in 5 files"


def test_clustering_is_for_who_asked_for_it():
    about = subject(files(10, 128 * MIB, unclustered=600 * MIB))
    assert Job.CLUSTER not in found(about)
    finding = found(about, cluster_columns=("region", "day"))[Job.CLUSTER]
    assert finding.reason.endswith("since it was clustered by region, day")
    itself = replace(about, health=replace(about.health, clustered=True))
    assert found(itself)[Job.CLUSTER].reason == "600 MiB were written since it was clustered"
    less = subject(files(10, 128 * MIB, unclustered=100 * MIB))
    assert Job.CLUSTER not in found(less, cluster_columns=("region",))


def test_dead_files_are_deleted_after_their_retention():
    about = subject(files(10, 128 * MIB), dead={(NOW - 9 * DAY_MS) // DAY_MS: 200 * MIB})
    assert found(about)[Job.VACUUM].reason == "200 MiB were removed more than 168 hours ago"
    assert Job.VACUUM not in found(about, retention_hours=24 * 20)
    assert Job.VACUUM not in found(about, dead_ratio=0.2)
    assert Job.VACUUM not in found(subject(files(10, MIB), dead={NOW // DAY_MS: 200 * MIB}))


def test_what_nobody_knows_is_looked_at_once_a_week():
    about = replace(subject(UNKNOWN, dead=None), created_at=LONG_AGO)
    assert "not known" in found(about)[Job.VACUUM].reason
    cared = Cared(at=NOW - DAY_MS, outcome=Outcome.NOTHING, version=50)
    looked = replace(subject(UNKNOWN, dead=None, cared={Job.VACUUM: cared}), created_at=LONG_AGO)
    assert Job.VACUUM not in found(looked)


@pytest.mark.parametrize(("checkpoint", "reason"), [(0, "150 commits"), (None, "up to 151 commits")])
def test_checkpoints_follow_commits(checkpoint: int | None, reason: str):
    about = subject(files(1, MIB), version=150, checkpoint=checkpoint)
    assert found(about)[Job.CHECKPOINT].reason.startswith(reason)
    assert Job.CHECKPOINT not in found(about, checkpoint_commits=200)


def test_a_log_is_compacted_behind_a_checkpoint():
    about = replace(subject(files(1, MIB), version=150), created_at=LONG_AGO)
    assert Job.LOG in found(about)
    assert Job.LOG not in found(replace(about, health=replace(about.health, checkpoint=None)))
    assert Job.LOG not in found(replace(about, created_at=NOW))


def test_snapshots_manifests_and_what_time_brings():
    about = subject(files(10, MIB), Format.ICEBERG, snapshots=30, manifests=60)
    old = replace(about, created_at=LONG_AGO)
    assert set(found(old)) >= {Job.EXPIRE, Job.MANIFESTS, Job.ORPHANS, Job.STATISTICS}
    assert set(found(about)) & {Job.EXPIRE, Job.ORPHANS, Job.STATISTICS} == set()
    assert Job.EXPIRE not in found(old, min_snapshots=30)
    assert Job.MANIFESTS not in found(old, min_manifests=61)
    unread = replace(old, health=replace(old.health, written_at=0))
    assert Job.ORPHANS not in found(unread)
    lance = replace(subject(files(10, MIB), Format.LANCE, snapshots=3), created_at=LONG_AGO)
    assert set(found(lance)) == {Job.COMPACT, Job.EXPIRE, Job.INDEX}


def test_what_was_seen_to_is_not_found_again_until_somebody_writes():
    cared = {Job.COMPACT: Cared(at=NOW, outcome=Outcome.NOTHING, version=50)}
    about = subject(files(200, MIB), cared=cared)
    assert Job.COMPACT not in found(about)
    assert Job.COMPACT in found(replace(about, version=51))


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.NOTHING])
def test_what_pins_hold_back_is_not_tried_all_day(outcome: Outcome):
    dead = {(NOW - 9 * DAY_MS) // DAY_MS: 200 * MIB}
    cared = {Job.VACUUM: Cared(at=NOW - DAY_MS // 2, outcome=outcome, version=50)}
    about = replace(subject(files(10, 128 * MIB), dead=dead, cared=cared), version=51)
    assert Job.VACUUM not in found(about)
    assert Job.VACUUM in found(about, NOW + DAY_MS)


def test_who_lost_waits():
    cared = {Job.COMPACT: Cared(at=NOW, outcome=Outcome.LOST, streak=1, retry_at=NOW + 600_000)}
    assert found(subject(files(200, MIB), cared=cared))[Job.COMPACT].not_before == NOW + 600_000


def test_who_is_not_to_be_cared_for_is_not():
    about = subject(files(200, MIB))
    assert findings(about, InForce(False, JOBS_OF[Format.DELTA], Options()), NOW) == []
    assert findings(about, InForce(True, (Job.VACUUM,), Options()), NOW) == []
    assert findings(replace(about, managed=False), InForce(True, (Job.COMPACT,), Options()), NOW) == []


# --- policies ---


def test_layers_say_what_they_differ_in():
    catalog = Policy(jobs=(Job.COMPACT, Job.VACUUM), options=SomeOptions(retention_hours=400, full=True))
    table = Policy(options=SomeOptions(retention_hours=500))
    force = in_force(Format.DELTA, catalog, table)
    assert (force.enabled, force.jobs) == (True, (Job.COMPACT, Job.VACUUM))
    assert (force.options.retention_hours, force.options.full) == (500, True)
    assert in_force(Format.DELTA, None, Policy(jobs=(Job.VACUUM, Job.EXPIRE))).jobs == (Job.VACUUM,)
    assert not in_force(Format.DELTA, Policy(enabled=False), Policy(enabled=True)).enabled
    assert in_force(Format.LANCE).jobs == JOBS_OF[Format.LANCE]


@pytest.mark.parametrize("name", FLOORS)
def test_floors(name: str):
    least = FLOORS[name]
    require_floors(replace(Options(), **{name: least}))
    below = replace(Options(), **{name: least / 2})
    with pytest.raises(Invalid) as refused:
        require_floors(below)
    assert refused.value.field == f"options.{name}"
    assert "allow_short_retention" in (refused.value.fix or "")
    require_floors(replace(below, allow_short_retention=True))


def test_every_option_can_be_set():
    assert set(SomeOptions.__struct_fields__) == set(Options.__struct_fields__)
    assert layered() == Options()


def test_a_format_has_its_own_jobs():
    require_job(Format.LANCE, Job.INDEX)
    with pytest.raises(Invalid, match="no job index for DELTA"):
        require_job(Format.DELTA, Job.INDEX)


# --- plans ---


def step(score: float, cost: float = 1, table: str = "t", not_before: int = 0) -> Step:
    return Step(
        table_id=table,
        job=Job.COMPACT,
        reason="",
        gain=score * cost,
        bytes=0,
        cost_seconds=cost,
        score=score,
        not_before=not_before,
    )


FOUND = Finding(job=Job.COMPACT, reason="r", gain=100, bytes=40 * MIB)


def test_a_cost_comes_from_what_was_measured():
    about = subject()
    assert step_of("t", about, FOUND, {}).cost_seconds == STARTUP_S + 40 * MIB / BYTES_S
    rates = {(Format.DELTA, Job.COMPACT): 4.0 * MIB}
    assert step_of("t", about, FOUND, rates).cost_seconds == STARTUP_S + 10
    cared = {Job.COMPACT: Cared(at=0, outcome=Outcome.DONE, bytes_s=8.0 * MIB)}
    assert step_of("t", subject(cared=cared), FOUND, rates).cost_seconds == STARTUP_S + 5


def test_tables_that_are_read_come_first_and_those_that_care_loses_last():
    plain = step_of("t", subject(), FOUND, {}).score
    assert step_of("t", replace(subject(), scans=10.0), FOUND, {}).score > plain
    assert step_of("t", replace(subject(), scans=0.0), FOUND, {}).score == plain
    lost = {Job.COMPACT: Cared(at=0, outcome=Outcome.LOST, streak=2)}
    assert step_of("t", subject(cared=lost), FOUND, {}).score == plain / 2


def test_the_best_that_a_budget_pays_for():
    steps = [step(1, 5, "a"), step(9, 7, "b"), step(5, 4, "c"), step(20, 1, "late", NOW + 1)]
    assert [each.table_id for each in ranked(steps, NOW)] == ["b", "c", "a"]
    assert [each.table_id for each in ranked(steps, NOW, 12)] == ["b", "c"]
    assert [each.table_id for each in ranked(steps, NOW, 5)] == ["c"]
    assert ranked(steps, NOW, 0) == []


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 50), st.integers(0, 3)), max_size=20),
    st.floats(0, 200),
)
def test_a_plan_keeps_to_its_budget_and_order(made, budget):
    steps = [step(score, cost, str(at), at_least) for at, (score, cost, at_least) in enumerate(made)]
    chosen = ranked(steps, 1, budget)
    assert sum(each.cost_seconds for each in chosen) <= budget + 1e-6
    assert [each.score for each in chosen] == sorted((each.score for each in chosen), reverse=True)
    left = budget - sum(each.cost_seconds for each in chosen)
    assert all(
        each.cost_seconds > left - 1e-6 for each in steps if each not in chosen and each.not_before <= 1
    )
