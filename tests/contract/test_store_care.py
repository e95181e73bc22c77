"""What the store knows of the health of tables, and how runs take turns: on each backend."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inver.domain.care import Job, Outcome, Result
from inver.domain.health import DAY_MS, Health
from inver.domain.ledger import (
    AddRecords,
    CreateBranch,
    Definition,
    DropTable,
    FinishTable,
    PurgeTable,
    Reason,
    Record,
)
from inver.domain.runs import (
    DropCarePolicy,
    FinishRun,
    Policy,
    Predicted,
    RunState,
    SetCarePolicy,
    SomeOptions,
    StartRun,
)
from inver.domain.securables import SecurableKind
from inver.domain.tables import Format, State, TableKind
from inver.errors import Conflict, NotFound
from inver.ids import new_id
from inver.ports import KnownTable
from tests.fixtures.care import MIB, commit, counts, managed
from tests.fixtures.ledger import Backend, Book, append, contents, opened, outcomes


async def known(book: Book, table_id: str) -> KnownTable:
    while await book.store.fold_events(7):
        pass
    found = await book.store.known_table(table_id, 0)
    assert found is not None
    return found


async def health(book: Book, table_id: str) -> Health:
    found = (await known(book, table_id)).health
    assert found is not None
    return found


async def make(book: Book, name: str = "orders", **fields: Any) -> str:
    operation = managed(book, name, **fields)
    await book.decide(operation)
    return operation.id


async def start(book: Book, table: str, job: Job = Job.COMPACT, **fields: Any) -> str:
    run = StartRun(id=new_id(), table_id=table, job=job, worker="w", **fields)
    await book.decide(run)
    return run.id


def ended(run: str, outcome: Outcome = Outcome.DONE, **fields: Any) -> FinishRun:
    return FinishRun(id=run, result=Result(outcome=outcome, **fields))


# --- what is known ---


async def test_commits_are_folded_once_and_in_order(book: Book):
    table = await make(book)
    await book.decide(commit(table, 0, counts(10 * MIB, 20 * MIB, rows=30)))
    await book.decide(commit(table, 1, counts(5, removed=(10 * MIB,), rows=-3, deletes=1, deleted_rows=2)))
    found = await health(book, table)
    assert (found.version, found.commits, found.totals.files, found.totals.rows) == (1, 2, 2, 27)
    assert found.totals.bytes == 20 * MIB + 5
    assert found.totals.sizes is not None
    assert sum(files for files, _ in found.totals.sizes.values()) == 2
    assert (found.totals.deletes, found.totals.deleted_rows) == (1, 2)
    assert sum((found.dead or {}).values()) == 10 * MIB
    assert await book.store.fold_events(100) == 0
    assert await health(book, table) == found


async def test_the_size_of_batches_does_not_matter(book: Book):
    one, other = await make(book, "one"), await make(book, "other")
    for version in range(12):
        for table in (one, other):
            await book.decide(commit(table, version, counts(version + 1, rows=version)))
            book.clock.advance(1_234_567)
        if version == 5:
            await book.store.fold_events(1)
    left, right = await health(book, one), await health(book, other)
    assert left.totals == right.totals
    assert left.commits == right.commits == 12
    # The other was written to a little later each time, and as often.
    assert left.writes == pytest.approx(right.writes, rel=1e-9)


async def test_what_was_folded_outlives_the_process(backend: Backend):
    async with opened(backend) as book:
        table = await make(book)
        for version in range(5):
            await book.decide(commit(table, version, counts(1)))
        await book.store.fold_events(4)
        await backend.close(book.store)
        again = book.on(await backend.open())
        assert (await health(again, table)).totals.files == 5


async def test_a_commit_that_says_nothing_makes_the_table_unknown(book: Book):
    table = await make(book)
    await book.decide(commit(table, 0, counts(7)), commit(table, 1, None), commit(table, 2, counts(9)))
    found = await health(book, table)
    assert (found.version, found.totals.files, found.totals.sizes, found.dead) == (2, None, None, None)


async def test_a_table_that_was_there_before_is_unknown(book: Book):
    table = await make(book, version=40, kind=TableKind.EXTERNAL, location="s3://lake/t")
    await book.decide(commit(table, 41, counts(7)))
    found = await health(book, table)
    assert (found.version, found.totals.files) == (41, None)


async def test_a_staged_table_begins_with_what_it_is_finished_with(book: Book):
    operation = managed(book, "staged", state=State.STAGED, version=0)
    await book.decide(operation)
    await book.decide(
        FinishTable(
            table_id=operation.id,
            schema_id=book.schema,
            name="finished",
            first=commit(operation.id, 0, counts(5, 6)),
            definition=Definition(),
        )
    )
    await book.decide(commit(operation.id, 1, counts(7)))
    found = await health(book, operation.id)
    assert (found.version, found.totals.files, found.totals.bytes) == (1, 3, 18)


async def test_a_clients_report_makes_a_table_known_again(book: Book):
    table = await make(book)
    await book.decide(
        commit(table, 0, counts(7)), commit(table, 1, None), commit(table, 2, counts(3 * MIB, removed=(1,)))
    )
    assert (await health(book, table)).totals.files is None
    report = {"histogram": {"boundaries": [0, MIB], "file_counts": [2, 1], "total_bytes": [2, 2 * MIB]}}
    await book.store.add_report(table, 1, 0, "x", msgspec.json.encode(report))
    assert await book.store.unknown_with_reports(10) == [(table, 1)]
    assert await book.store.learn_report(table, 1, 100)
    found = await health(book, table)
    assert (found.totals.files, found.totals.bytes) == (3, 1 + 5 * MIB)
    assert found.small(MIB) == (1, 1)
    assert await book.store.unknown_with_reports(10) == []


async def test_a_report_that_is_too_old_is_looked_at_once(book: Book):
    table = await make(book)
    await book.decide(*(commit(table, version, None) for version in range(6)))
    report = {"histogram": {"boundaries": [0], "file_counts": [2], "total_bytes": [2]}}
    await health(book, table)
    await book.store.add_report(table, 1, 0, "x", msgspec.json.encode(report))
    assert not await book.store.learn_report(table, 1, 3)
    assert await book.store.unknown_with_reports(10) == []
    assert (await health(book, table)).totals.files is None


async def test_a_lance_table_that_was_there_before_is_known_by_its_head(book: Book):
    totals = {"rows": 90, "deleted": 10, "fragments": 3, "files": 3, "bytes": 3000}
    head = msgspec.json.encode({"totals": totals})
    table = await make(book, format=Format.LANCE, version=5, head=head)
    records = tuple(Record(version, 0, None, b"{}") for version in (3, 4, 5))
    await book.decide(AddRecords(table_id=table, records=records))
    assert (await health(book, table)).totals.files is None
    assert await book.store.unknown_with_heads(10) == [table]
    assert await book.store.learn_head(table)
    assert await book.store.unknown_with_heads(10) == []
    await book.decide(commit(table, 6, counts(500, rows=5)))
    found = await health(book, table)
    assert (found.totals.files, found.totals.bytes, found.totals.rows) == (4, 3500, 95)
    assert (found.totals.deleted_rows, found.totals.sizes, found.snapshots) == (10, None, 4)


async def test_a_table_may_say_that_it_is_to_be_clustered(book: Book):
    plain = await make(book)
    itself = await make(book, "itself", head=b'{"domains":{"delta.clustering":{}}}')
    for table in (plain, itself):
        await book.decide(commit(table, 0, counts(5 * MIB)))
    assert (await health(book, plain)).clustered is False
    assert (await health(book, itself)).clustered is True
    book.clock.advance(1)
    run = await start(book, itself, Job.CLUSTER)
    await book.decide(commit(itself, 1, counts(3 * MIB)))
    await health(book, itself)
    await book.decide(ended(run))
    assert (await health(book, itself)).totals.unclustered == 3 * MIB


async def test_commits_of_branches_are_not_the_tables(book: Book):
    table = await make(book, format=Format.LANCE, version=0)
    await book.decide(commit(table, 1, counts(1)), CreateBranch(table_id=table, branch="try", version=1))
    told = msgspec.json.encode(counts(5, 5, 5))
    await book.decide(append(table, 2, branch="try", counts=told))
    assert (await health(book, table)).totals.files == 1


async def test_a_purged_table_leaves_nothing(book: Book):
    table = await make(book)
    await book.decide(commit(table, 0, counts(1)))
    await book.store.count_scan(table, book.clock.now_ms())
    policy = SetCarePolicy(securable_id=table, kind=SecurableKind.TABLE, policy=Policy(enabled=False))
    await book.decide(policy)
    assert (await known(book, table)).scans == 1
    await book.decide(DropTable(table_id=table, purge_at=0))
    await book.decide(PurgeTable(table_id=table))
    while await book.store.fold_events(100):
        pass
    rows = await contents(book.store)
    assert rows["health"] == rows["scans"] == rows["care_policies"] == []


async def test_scans_are_counted_by_the_hour(book: Book):
    table, other = await make(book), await make(book, "other")
    now = book.clock.now_ms()
    for hours in (0, 0, 1, 30):
        await book.store.count_scan(table, now - hours * 3_600_000)
    listed = await book.store.known_tables("", 10, now - DAY_MS)
    assert {each.id: each.scans for each in listed} == {table: 3, other: 0}
    await book.store.forget_scans(now - DAY_MS)
    assert sum(each.scans for each in await book.store.known_tables("", 10, 0)) == 3


async def test_tables_are_listed_by_id_with_names_and_policies(book: Book):
    tables = sorted([await make(book, f"t{number}") for number in range(5)])
    await make(book, "seen", kind=TableKind.VIEW, format=Format.ICEBERG)
    await make(book, "gone")
    gone = await book.store.table_by_name("main", ["sales"], "gone")
    assert gone is not None
    await book.decide(DropTable(table_id=gone.id, purge_at=0))
    policy = Policy(options=SomeOptions(min_small_files=3))
    await book.decide(
        SetCarePolicy(securable_id=book.catalog, kind=SecurableKind.CATALOG, policy=policy),
        SetCarePolicy(securable_id=tables[1], kind=SecurableKind.TABLE, policy=Policy(enabled=False)),
    )
    first = await book.store.known_tables("", 3, 0)
    rest = await book.store.known_tables(first[-1].id, 3, 0, book.catalog)
    assert [each.id for each in (*first, *rest)] == tables
    assert first[0].name[:2] == ("main", "sales")
    assert first[0].policies == (policy, None)
    assert first[1].policies == (policy, Policy(enabled=False))
    assert await book.store.known_tables("", 3, 0, new_id()) == []


# --- runs ---


async def test_one_live_run_has_a_table(book: Book):
    table, other = await make(book), await make(book, "other")
    run = await start(book, table)
    with pytest.raises(Conflict) as refused:
        await start(book, table, Job.VACUUM)
    (detail,) = refused.value.conflicts
    assert (detail.reason, detail.current) == (Reason.TABLE_LEASED, run)
    await start(book, other)
    assert await book.store.beat_run(run, book.clock.now_ms() + 1000, 250, "a quarter")
    found = await known(book, table)
    assert found.run is not None
    assert (found.run.id, found.run.progress, found.run.message) == (run, 0.25, "a quarter")


async def test_of_many_who_start_at_once_one_does(book: Book):
    table = await make(book)
    answers = await outcomes(*(start(book, table) for _ in range(8)))
    assert sum(isinstance(answer, str) for answer in answers) == 1
    assert sum(isinstance(answer, Conflict) for answer in answers) == 7


async def test_a_lease_that_ran_out_is_taken_over(book: Book):
    table = await make(book)
    first = await start(book, table, lease_ms=1_000)
    book.clock.advance(1_001)
    # As long as nobody else wants the table, who is late may go on.
    assert await book.store.beat_run(first, book.clock.now_ms(), 1, "")
    second = await start(book, table)
    assert not await book.store.beat_run(first, book.clock.now_ms() + 1000, 1, "")
    with pytest.raises(Conflict) as refused:
        await book.decide(ended(first))
    assert refused.value.conflicts[0].reason is Reason.LEASE_LOST
    await book.decide(ended(second))
    runs = await book.store.care_runs(table, "", 10)
    assert [(run.id, run.state, run.attempt) for run in runs] == [
        (second, RunState.FINISHED, 2),
        (first, RunState.ABANDONED, 1),
    ]
    assert [run.id for run in await book.store.care_runs(None, second, 10)] == [first]


async def test_the_same_end_twice_is_one(book: Book):
    table = await make(book)
    run = await start(book, table, predicted=Predicted(reason="r", gain=2, bytes=9, seconds=1.5))
    await book.decide(ended(run, message="m", before={"files": 9}, after={"files": 1}))
    before = await book.store.last_event()
    await book.decide(ended(run, message="m", before={"files": 9}, after={"files": 1}))
    assert await book.store.last_event() == before
    with pytest.raises(Conflict):
        await book.decide(ended(run, Outcome.FAILED))
    found = await book.store.care_run(run)
    assert found is not None
    assert found.result is not None
    assert (found.result.before, found.result.after, found.predicted.seconds) == (
        {"files": 9.0},
        {"files": 1.0},
        1.5,
    )
    with pytest.raises(NotFound):
        await book.decide(ended(new_id()))


async def test_lists_of_runs_leave_out_the_files_that_they_name(book: Book):
    run = await start(book, await make(book), dry_run=True)
    for _ in range(2):
        await book.decide(ended(run, files=("a", "b")))
    with pytest.raises(Conflict):
        await book.decide(ended(run, files=("a",)))
    found = await book.store.care_run(run)
    assert found is not None
    assert found.result is not None
    assert found.result.files == ("a", "b")
    [listed] = await book.store.care_runs(None, "", 10)
    assert listed.result == msgspec.structs.replace(found.result, files=())


async def test_what_a_run_has_seen_becomes_known(book: Book):
    """As of the version that it saw; what was committed since is added to it."""
    table = await make(book)
    await book.decide(*(commit(table, version, None) for version in range(3)))
    run = await start(book, table, Job.VACUUM)
    await book.decide(commit(table, 3, counts(8 * MIB, rows=1)))
    while await book.store.fold_events(100):
        pass
    seen = {"version": 2.0, "files": 4.0, "bytes": 400.0, "rows": 10.0, "files_with_deletes": 1.0}
    seen |= {"deleted_rows": 2.0, "small_files": 3.0, "small_bytes": 30.0, "dead_bytes": 0.0}
    seen |= {"checkpoint_version": 2.0, "unclustered_bytes": 0.0}
    await book.decide(ended(run, after=seen, measured={"seconds": 2, "bytes_read": 4 * MIB}))
    found = await health(book, table)
    totals = found.totals
    assert (totals.files, totals.bytes, totals.rows) == (5, 400 + 8 * MIB, 11)
    assert (totals.deletes, totals.deleted_rows, totals.unclustered) == (1, 2, 8 * MIB)
    assert found.small(100) == (3, 30)
    assert (found.checkpoint, found.dead is not None) == (2, True)
    assert found.cared[Job.VACUUM].outcome is Outcome.DONE
    assert found.cared[Job.VACUUM].version == 2
    assert await book.store.care_rates() == {(Format.DELTA, Job.VACUUM): 2 * MIB}


async def test_a_dry_run_teaches_nothing(book: Book):
    table = await make(book)
    run = await start(book, table, dry_run=True)
    await book.decide(ended(run, after={"version": 0, "files": 3}))
    assert (await known(book, table)).health.cared == {}  # type: ignore[union-attr]


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.FAILED])
async def test_who_does_not_get_to_the_end_waits_longer_each_time(book: Book, outcome: Outcome):
    table = await make(book)
    waits = []
    for _ in range(4):
        run = await start(book, table)
        await book.decide(ended(run, outcome))
        cared = (await health(book, table)).cared[Job.COMPACT]
        waits.append((cared.retry_at - cared.at) // 60_000)
    assert waits == [10, 20, 40, 80]
    await book.decide(ended(await start(book, table), Outcome.STOPPED))
    assert (await health(book, table)).cared[Job.COMPACT].retry_at == 0
    await book.decide(ended(await start(book, table), outcome))
    assert (await health(book, table)).cared[Job.COMPACT].streak == 5
    await book.decide(ended(await start(book, table)))
    assert (await health(book, table)).cared[Job.COMPACT].streak == 0
    runs = await book.store.care_runs(table, "", 1)
    assert runs[0].attempt == 7


async def test_a_vacuum_buries_what_was_dead_long_enough(book: Book):
    table = await make(book)
    await book.decide(commit(table, 0, counts(5, 6)), commit(table, 1, counts(removed=(5,))))
    book.clock.advance(9 * DAY_MS)
    await book.decide(commit(table, 2, counts(removed=(6,))))
    assert sum(((await health(book, table)).dead or {}).values()) == 11
    await book.decide(ended(await start(book, table, Job.VACUUM)))
    assert sum(((await health(book, table)).dead or {}).values()) == 6


# --- policies ---


async def test_policies_are_set_replaced_and_dropped(book: Book):
    def setting(policy: Policy) -> SetCarePolicy:
        return SetCarePolicy(securable_id=book.catalog, kind=SecurableKind.CATALOG, policy=policy)

    one = Policy(jobs=(Job.COMPACT,), options=SomeOptions(target_file_size=MIB))
    await book.decide(setting(one))
    before = await book.store.last_event()
    await book.decide(setting(one))
    assert await book.store.last_event() == before
    await book.decide(setting(Policy()))
    assert await book.store.care_policy(book.catalog) == Policy()
    await book.decide(DropCarePolicy(securable_id=book.catalog))
    assert await book.store.care_policy(book.catalog) is None
    with pytest.raises(NotFound):
        await book.decide(DropCarePolicy(securable_id=book.catalog))
    kinds = [event.kind for event in await book.store.events(before - 1, 10)]
    assert kinds == ["care.policy-set", "care.policy-set", "care.policy-dropped"]


@pytest.mark.postgres
async def test_servers_fold_each_event_once(servers: tuple[Book, Book, Book]):
    table = await make(servers[0])
    for version in range(30):
        await servers[version % 3].decide(commit(table, version, counts(version + 1)))
        await outcomes(*(each.store.fold_events(3) for each in servers))
    found = await health(servers[0], table)
    assert (found.commits, found.totals.files, found.totals.bytes) == (30, 30, sum(range(31)))
