"""Care: how runs and policies are decided."""

from __future__ import annotations

from typing import Any

import msgspec

from inver.domain import care, learning
from inver.domain.care import HOUR_MS, Job, Options, Outcome
from inver.domain.ledger import Reason, Result
from inver.domain.runs import DropCarePolicy, FinishRun, Predicted, Run, RunState, SetCarePolicy, StartRun
from inver.domain.securables import SecurableKind
from inver.domain.tables import Format, State
from inver.errors import NotFound
from inver.stores import observing
from inver.stores.deciding import Change, Context, Noop, conflict, encode
from inver.stores.deciding import Outcome as Decided
from inver.stores.relations import lock_table
from inver.stores.sql import Row, Steps

RUN = """r.id, r.table_id, r.job, r.dry_run, r.state, r.attempt, r.worker, r.by_id, r.started_at,
    r.lease_until, r.progress, r.message, r.options, r.predicted, r.pinned_from,
    r.finished_at, r.result"""
WHOLE_RUN = f"{RUN}, r.files"
MOST_LATER = 1_000
"""Commits since a run has seen the table; with more of them, what it says of it is too old to be of use."""

KEPT = 1_000
"""Runs of a table; the oldest go when there are more."""
_FORGET = """DELETE FROM care_runs WHERE table_id = ?1 AND id <
    (SELECT id FROM care_runs WHERE table_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)"""

LEAST_READ = 4 * care.MIB

_options = msgspec.json.Decoder(Options).decode
_predicted = msgspec.json.Decoder(Predicted).decode
_result = msgspec.json.Decoder(care.Result).decode
_files = msgspec.json.Decoder(tuple[str, ...]).decode


def run_of(row: Row) -> Run:
    """Without the files that its result names."""
    result = None if row[16] is None else msgspec.structs.replace(_result(row[16]), files=())
    return Run(
        id=row[0],
        table_id=row[1],
        job=Job(row[2]),
        dry_run=bool(row[3]),
        state=RunState(row[4]),
        attempt=row[5],
        worker=row[6],
        by=row[7],
        started_at=row[8],
        lease_until=row[9],
        progress=row[10] / 1000,
        message=row[11],
        options=_options(row[12]),
        predicted=_predicted(row[13]),
        pinned_from=row[14],
        finished_at=row[15],
        result=result,
    )


def whole_run_of(row: Row) -> Run:
    """Of `WHOLE_RUN`."""
    run = run_of(row)
    if run.result is None or row[17] is None:
        return run
    result = msgspec.structs.replace(run.result, files=_files(row[17]))
    return msgspec.structs.replace(run, result=result)


def start_run(context: Context, op: StartRun) -> Steps[Decided]:
    row = yield from lock_table(op.table_id)
    if row[1] != State.LIVE:
        raise NotFound("the table does not exist", kind="table")
    live = yield (
        "SELECT id, lease_until FROM care_runs WHERE table_id = ?1 AND state = 'running' {update}",
        (op.table_id,),
    )
    if live:
        if live[0][1] > context.at:
            raise conflict(context, op.table_id, Reason.TABLE_LEASED, None, live[0][0])
        yield (
            "UPDATE care_runs SET state = 'abandoned', finished_at = ?2 WHERE id = ?1",
            (live[0][0], context.at),
        )
    attempt = yield from _attempt(op)
    yield (
        """INSERT INTO care_runs VALUES (?1, ?2, ?3, ?4, 'running', ?5, ?6, ?7, ?8, ?9, 0, '', ?10, ?11,
           ?12, NULL, NULL, NULL)""",
        (
            op.id,
            op.table_id,
            op.job,
            int(op.dry_run),
            attempt,
            op.worker,
            context.by,
            context.at,
            context.at + op.lease_ms,
            encode(op.options),
            encode(op.predicted),
            op.pinned_from,
        ),
    )
    told: dict[str, Any] = {"run": op.id, "job": op.job, "worker": op.worker, "attempt": attempt}
    return Change(Result(op.table_id), {**told, "dry_run": True} if op.dry_run else told)


def finish_run(context: Context, op: FinishRun) -> Steps[Decided]:
    rows = yield f"SELECT {WHOLE_RUN} FROM care_runs r WHERE r.id = ?1 {{update}}", (op.id,)
    if not rows:
        raise NotFound("the run does not exist", kind="run")
    run = whole_run_of(rows[0])
    if run.state is RunState.FINISHED and run.result == op.result:
        return Noop(Result(run.table_id))
    if run.state is not RunState.RUNNING:
        raise conflict(context, run.table_id, Reason.LEASE_LOST, op.id, run.state)
    yield (
        """UPDATE care_runs SET state = 'finished', finished_at = ?2, lease_until = ?2, progress = ?3,
           result = ?4, files = ?5 WHERE id = ?1""",
        (
            op.id,
            context.at,
            1000 if op.result.outcome in (Outcome.DONE, Outcome.NOTHING) else int(run.progress * 1000),
            encode(msgspec.structs.replace(op.result, files=())),
            encode(op.result.files) if op.result.files else None,
        ),
    )
    yield _FORGET, (run.table_id, KEPT - 1)
    if not run.dry_run:
        yield from _learn(context, run, op.result)
    return Change(
        Result(run.table_id), {"run": op.id, "job": run.job, "outcome": op.result.outcome, **_seconds(op)}
    )


def set_policy(context: Context, op: SetCarePolicy) -> Steps[Decided]:
    body = encode(op.policy)
    table = "catalogs" if op.kind is SecurableKind.CATALOG else "tables"
    found = yield f"SELECT 1 FROM {table} WHERE id = ?1 {{share}}", (op.securable_id,)
    if not found:
        raise NotFound(f"the {op.kind} does not exist", kind=op.kind)
    rows = yield "SELECT body FROM care_policies WHERE securable_id = ?1 {update}", (op.securable_id,)
    if rows and bytes(rows[0][0]) == body:
        return Noop(Result(op.securable_id))
    yield (
        """INSERT INTO care_policies VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (securable_id)
           DO UPDATE SET body = excluded.body, updated_at = excluded.updated_at,
           updated_by = excluded.updated_by""",
        (op.securable_id, op.kind, body, context.at, context.by),
    )
    return Change(Result(op.securable_id), {"kind": op.kind, "policy": op.policy})


def drop_policy(context: Context, op: DropCarePolicy) -> Steps[Decided]:
    gone = yield (
        "DELETE FROM care_policies WHERE securable_id = ?1 RETURNING kind",
        (op.securable_id,),
    )
    if not gone:
        raise NotFound("there is no care policy", kind="policy")
    return Change(Result(op.securable_id), {"kind": gone[0][0]})


def _attempt(op: StartRun) -> Steps[int]:
    """One more than the run before, unless that came to its end."""
    rows = yield (
        """SELECT state, attempt, result FROM care_runs WHERE table_id = ?1 AND job = ?2
           ORDER BY id DESC LIMIT 1""",
        (op.table_id, op.job),
    )
    if not rows:
        return 1
    state, attempt, result = rows[0]
    ended = state == RunState.FINISHED and _result(result).outcome in (Outcome.DONE, Outcome.NOTHING)
    return 1 if ended else attempt + 1


def _learn(context: Context, run: Run, result: care.Result) -> Steps[None]:
    """What the run did and saw becomes part of what is known of the table."""
    rows = yield "SELECT format, version FROM tables WHERE id = ?1", (run.table_id,)
    if not rows:
        return
    format, current = Format(rows[0][0]), int(rows[0][1])
    health = yield from observing.locked_health(run.table_id)
    bytes_s = _rate(run, result)
    came_to_end = result.outcome in (Outcome.DONE, Outcome.NOTHING)
    seen = min(current, int(result.after.get("version", current)))
    if came_to_end and "version" in result.after and health.version >= seen:
        later = yield from observing.commits_between(run.table_id, seen, health.version, MOST_LATER + 1)
        if len(later) <= MOST_LATER:
            health = learning.told(health, format, result.after, later)
    if run.job is Job.CLUSTER and result.outcome is Outcome.DONE:
        newest = yield from observing.commits_from(run.table_id, run.started_at, health.version)
        health = learning.clustered_at(health, newest)
    hours = run.options.snapshot_hours if run.job is Job.EXPIRE else run.options.retention_hours
    forget = run.started_at - int(hours * HOUR_MS)
    health = learning.cared_for(health, run.job, result.outcome, context.at, seen, bytes_s, forget)
    yield from observing.write_health({run.table_id: health})
    if bytes_s is not None:
        yield from _measure(format, run.job, bytes_s)


def _rate(run: Run, result: care.Result) -> float | None:
    """Bytes a second. A run that read little tells more of how it starts than of how it reads."""
    measured = result.measured
    seconds = measured.get("seconds", 0)
    read = measured.get("bytes_read") or measured.get("bytes_removed") or run.predicted.bytes or 0
    if result.outcome is not Outcome.DONE or seconds <= 0 or read < LEAST_READ:
        return None
    return read / seconds


def _measure(format: Format, job: Job, bytes_s: float) -> Steps[None]:
    rows = yield (
        "SELECT bytes_s FROM care_rates WHERE format = ?1 AND job = ?2 {update}",
        (format, job),
    )
    smoothed = learning.smoothed(rows[0][0] if rows else None, bytes_s) or 0
    yield (
        """INSERT INTO care_rates VALUES (?1, ?2, ?3) ON CONFLICT (format, job)
           DO UPDATE SET bytes_s = excluded.bytes_s""",
        (format, job, max(1, int(smoothed))),
    )


def _seconds(op: FinishRun) -> dict[str, Any]:
    seconds = op.result.measured.get("seconds")
    return {} if seconds is None else {"seconds": seconds}
