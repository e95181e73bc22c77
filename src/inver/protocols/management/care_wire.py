"""Types of the management API for care."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from inver.domain.care import Job, Options, Outcome, Pin, Result, Ticket
from inver.domain.findings import Finding
from inver.domain.health import Cared
from inver.domain.plans import Step
from inver.domain.runs import Predicted, RunState, SomeOptions
from inver.domain.sizes import MOST, floor_of
from inver.domain.tables import Format
from inver.protocols.management.change_wire import TableName
from inver.protocols.management.wire import Strict
from inver.services.maintenance.knowledge import Seen
from inver.services.maintenance.running import NamedRun

Worker = Annotated[str, Meta(min_length=1, max_length=255)]
Text = Annotated[str, Meta(max_length=10_000)]
Number = Annotated[float, Meta(ge=0, le=2**53)]
Numbers = Annotated[dict[Annotated[str, Meta(max_length=64)], Number], Meta(max_length=100)]
Files = Annotated[tuple[Annotated[str, Meta(max_length=4_096)], ...], Meta(max_length=1_000)]


class StartCare(Strict):
    table: TableName
    job: Job
    worker: Worker
    dry_run: bool = False
    options: SomeOptions = SomeOptions()


class NextCare(Strict):
    worker: Worker
    jobs: Annotated[tuple[Job, ...], Meta(max_length=len(Job))] = ()
    formats: Annotated[tuple[Format, ...], Meta(max_length=len(Format))] = ()


class NextTicket(msgspec.Struct):
    ticket: Ticket | None


class Heartbeat(Strict):
    progress: Annotated[float, Meta(ge=0, le=1)] = 0
    message: Text = ""


class FinishCare(Strict):
    """How a run ended."""

    outcome: Outcome
    message: Text = ""
    before: Numbers = msgspec.field(default_factory=dict)
    after: Numbers = msgspec.field(default_factory=dict)
    measured: Numbers = msgspec.field(default_factory=dict)
    files: Files = ()

    def result(self) -> Result:
        return Result(
            outcome=self.outcome,
            message=self.message,
            before=self.before,
            after=self.after,
            measured=self.measured,
            files=self.files,
        )


class SizeBin(msgspec.Struct):
    at_least: int
    files: int
    bytes: int


class HealthShown(msgspec.Struct, kw_only=True):
    """Null is what is not known."""

    version: int
    files: int | None
    bytes: int | None
    rows: int | None
    small_files: int | None
    small_bytes: int | None
    sizes: list[SizeBin] | None
    files_with_deletes: int | None
    deleted_rows: int | None
    unclustered_bytes: int | None
    dead_bytes: int | None
    commits_since_checkpoint: int | None
    unpublished_commits: int | None
    snapshots: int | None
    manifests: int | None
    writes_per_hour: float
    reads_per_hour: float | None
    last_write_at: int | None

    @classmethod
    def of(cls, seen: Seen, now: int) -> HealthShown:
        health, options, table = seen.health, seen.policy.options, seen.table
        totals = health.totals
        small = health.small(int(options.small_file_ratio * options.target_file_size))
        checkpoint = -1 if health.checkpoint is None else health.checkpoint
        is_delta = table.format is Format.DELTA
        return cls(
            version=health.version,
            files=totals.files,
            bytes=totals.bytes,
            rows=totals.rows,
            small_files=None if small is None else small[0],
            small_bytes=None if small is None else small[1],
            sizes=None
            if totals.sizes is None
            else [
                SizeBin(floor_of(place), files, size) for place, (files, size) in sorted(totals.sizes.items())
            ],
            files_with_deletes=totals.deletes,
            deleted_rows=totals.deleted_rows,
            unclustered_bytes=totals.unclustered if is_delta else None,
            dead_bytes=None if health.dead is None else min(MOST, sum(health.dead.values())),
            commits_since_checkpoint=table.version - checkpoint if is_delta else None,
            unpublished_commits=max(0, table.version - table.published) if is_delta else None,
            snapshots=health.snapshots,
            manifests=health.manifests,
            writes_per_hour=round(health.writes_per_hour(now), 3),
            reads_per_hour=None if seen.scans_per_hour is None else round(seen.scans_per_hour, 3),
            last_write_at=health.written_at or None,
        )


class LastCare(msgspec.Struct, kw_only=True):
    job: Job
    at: int
    outcome: Outcome
    version: int
    retry_at: int | None

    @classmethod
    def of(cls, job: Job, cared: Cared) -> LastCare:
        return cls(
            job=job,
            at=cared.at,
            outcome=cared.outcome,
            version=cared.version,
            retry_at=cared.retry_at or None,
        )


class FindingShown(msgspec.Struct, kw_only=True):
    job: Job
    reason: str
    gain: float
    bytes: int
    not_before: int | None

    @classmethod
    def of(cls, finding: Finding) -> FindingShown:
        return cls(
            job=finding.job,
            reason=finding.reason,
            gain=finding.gain,
            bytes=finding.bytes,
            not_before=finding.not_before or None,
        )


class CareTable(msgspec.Struct, kw_only=True):
    table_id: str
    full_name: list[str]
    format: Format
    version: int
    health: HealthShown
    findings: list[FindingShown]
    last: list[LastCare]

    @classmethod
    def of(cls, seen: Seen, now: int) -> CareTable:
        return cls(**_shown(seen, now))


class PolicyInForce(msgspec.Struct, kw_only=True):
    enabled: bool
    jobs: tuple[Job, ...]
    options: Options


class CareDetails(CareTable, kw_only=True):
    """With what the policies come to, and who still needs older versions."""

    policy: PolicyInForce
    pins: tuple[Pin, ...]

    @classmethod
    def with_pins(cls, seen: Seen, now: int, pins: tuple[Pin, ...]) -> CareDetails:
        policy = seen.policy
        in_force = PolicyInForce(enabled=policy.enabled, jobs=policy.jobs, options=policy.options)
        return cls(**_shown(seen, now), policy=in_force, pins=pins)


class CareTableList(msgspec.Struct):
    tables: list[CareTable]
    next_page_token: str | None


class StepShown(msgspec.Struct, kw_only=True):
    table_id: str
    full_name: list[str]
    format: Format
    job: Job
    reason: str
    gain: float
    bytes: int
    cost_seconds: float
    score: float

    @classmethod
    def of(cls, seen: Seen, step: Step) -> StepShown:
        return cls(
            table_id=step.table_id,
            full_name=list(seen.table.name),
            format=seen.table.format,
            job=step.job,
            reason=step.reason,
            gain=step.gain,
            bytes=step.bytes,
            cost_seconds=round(step.cost_seconds, 3),
            score=step.score,
        )


class CarePlan(msgspec.Struct, kw_only=True):
    """`steps` may be cut off; the sums are of the whole plan."""

    steps: list[StepShown]
    count: int
    cost_seconds: float


class RunShown(msgspec.Struct, kw_only=True):
    id: str
    table_id: str
    full_name: list[str]
    job: Job
    dry_run: bool
    state: RunState
    attempt: int
    worker: str
    by: str
    started_at: int
    lease_until: int
    progress: float
    message: str
    options: Options
    predicted: Predicted
    finished_at: int | None
    result: Result | None

    @classmethod
    def of(cls, named: NamedRun) -> RunShown:
        run = named.run
        return cls(
            id=run.id,
            table_id=run.table_id,
            full_name=list(named.name),
            job=run.job,
            dry_run=run.dry_run,
            state=run.state,
            attempt=run.attempt,
            worker=run.worker,
            by=named.by,
            started_at=run.started_at,
            lease_until=run.lease_until,
            progress=run.progress,
            message=run.message,
            options=run.options,
            predicted=run.predicted,
            finished_at=run.finished_at,
            result=run.result,
        )


class RunList(msgspec.Struct):
    runs: list[RunShown]
    next_page_token: str | None


def _shown(seen: Seen, now: int) -> dict[str, Any]:
    table = seen.table
    return {
        "table_id": table.id,
        "full_name": list(table.name),
        "format": table.format,
        "version": table.version,
        "health": HealthShown.of(seen, now),
        "findings": [FindingShown.of(each) for each in seen.findings],
        "last": [LastCare.of(job, cared) for job, cared in seen.health.cared.items()],
    }
