"""Runs and policies of care: what may be asked, what is written down, and how long anything lives."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from inver.domain.care import JOBS_OF, Curve, Job, Options, Result
from inver.domain.securables import SecurableKind
from inver.domain.tables import Format
from inver.errors import Invalid

LEASE_SECONDS = 60.0
FLOORS = {"retention_hours": 168.0, "log_retention_hours": 24.0, "snapshot_hours": 24.0, "staged_hours": 1.0}
"""Below these, files go that a slow reader or writer may still need."""

_Bytes = Annotated[int, Meta(ge=1 << 10, le=1 << 40)]
_Part = Annotated[float, Meta(ge=0, le=1)]
_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Hours = Annotated[float, Meta(ge=0, le=87_600)]
_Column = Annotated[str, Meta(min_length=1, max_length=255)]
_Columns = Annotated[tuple[_Column, ...], Meta(max_length=8)]


class SomeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of jobs; those that are left out stay as the layer below has them."""

    target_file_size: _Bytes | UnsetType = UNSET
    small_file_ratio: _Part | UnsetType = UNSET
    min_small_files: _Count | UnsetType = UNSET
    quiet_minutes: Annotated[float, Meta(ge=0, le=10_080)] | UnsetType = UNSET
    deleted_ratio: _Part | UnsetType = UNSET
    dead_ratio: _Part | UnsetType = UNSET
    commit_bytes: _Bytes | UnsetType = UNSET
    cluster_columns: _Columns | UnsetType = UNSET
    cluster_curve: Curve | UnsetType = UNSET
    retention_hours: _Hours | UnsetType = UNSET
    allow_short_retention: bool | UnsetType = UNSET
    full: bool | UnsetType = UNSET
    log_retention_hours: _Hours | UnsetType = UNSET
    checkpoint_commits: _Count | UnsetType = UNSET
    staged_hours: _Hours | UnsetType = UNSET
    snapshot_hours: _Hours | UnsetType = UNSET
    min_snapshots: _Count | UnsetType = UNSET
    min_manifests: _Count | UnsetType = UNSET


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is done unasked with a table, or with every table of a catalog. No `jobs` means all of them."""

    enabled: bool = True
    jobs: Annotated[tuple[Job, ...], Meta(max_length=len(Job))] | None = None
    options: SomeOptions = SomeOptions()


NO_POLICY = Policy()


class InForce(msgspec.Struct, frozen=True):
    """What the policies of a table and its catalog come to."""

    enabled: bool
    jobs: tuple[Job, ...]
    options: Options


def in_force(format: Format, *layers: Policy | None) -> InForce:
    """From the outermost layer to the innermost; each says what it differs in."""
    known = [layer for layer in layers if layer is not None]
    jobs = JOBS_OF[format]
    for layer in known:
        if layer.jobs is not None:
            jobs = tuple(job for job in JOBS_OF[format] if job in layer.jobs)
    return InForce(all(layer.enabled for layer in known), jobs, layered(*(layer.options for layer in known)))


def layered(*layers: SomeOptions) -> Options:
    given = {
        name: value
        for layer in layers
        for name in layer.__struct_fields__
        if (value := getattr(layer, name)) is not UNSET
    }
    return Options(**given)


def require_floors(options: Options, field: str = "options") -> None:
    """Refuse what would delete too early, unless that is what was asked for in so many words."""
    if options.allow_short_retention:
        return
    for name, floor in FLOORS.items():
        if getattr(options, name) < floor:
            raise Invalid(
                f"{name} is below the floor of {floor:g} hours",
                field=f"{field}.{name}",
                fix="readers and writers may still need what is deleted so early; "
                "if none can be there, set allow_short_retention",
            )


def require_job(format: Format, job: Job) -> None:
    if job not in JOBS_OF[format]:
        raise Invalid(
            f"there is no job {job} for {format} tables",
            field="job",
            fix="one of " + ", ".join(JOBS_OF[format]),
        )


class RunState(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    ABANDONED = "abandoned"
    """Its lease ran out, and another run took the table."""


class Predicted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was thought of a run before it began."""

    reason: str = ""
    gain: float = 0
    bytes: int | None = None
    seconds: float | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """`attempt` counts the runs of this job on this table since one came to its end."""

    id: str
    table_id: str
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
    pinned_from: int | None = None
    finished_at: int | None = None
    result: Result | None = None


class StartRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run takes a table that no live lease holds."""

    id: str
    table_id: str
    job: Job
    worker: str
    dry_run: bool = False
    lease_ms: int = int(LEASE_SECONDS * 1000)
    options: Options = Options()
    predicted: Predicted = Predicted()
    pinned_from: int | None = None


class FinishRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run ends, and what it says of the table is learned. The same end twice is one."""

    id: str
    result: Result


class SetCarePolicy(msgspec.Struct, frozen=True, kw_only=True):
    securable_id: str
    kind: SecurableKind
    policy: Policy


class DropCarePolicy(msgspec.Struct, frozen=True, kw_only=True):
    securable_id: str


Caring: TypeAlias = StartRun | FinishRun | SetCarePolicy | DropCarePolicy
