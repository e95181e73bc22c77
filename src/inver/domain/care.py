"""Care of tables: the jobs there are, what one is asked to do, and what it says of itself."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from inver.domain.tables import Format, TableKind

MIB = 1 << 20
GIB = 1 << 30
HOUR_MS = 3_600_000


class Job(StrEnum):
    COMPACT = "compact"
    """Small files become large ones."""
    PURGE = "purge"
    """Files with deleted rows are written again without them."""
    CLUSTER = "cluster"
    """Rows that are read together come to lie together."""
    VACUUM = "vacuum"
    """Files that no retained version needs are deleted."""
    CHECKPOINT = "checkpoint"
    """The state of a log is written down, so that readers need not replay it."""
    LOG = "log"
    """Log files are compacted, and those past their retention deleted."""
    ORPHANS = "orphans"
    """Files that never became part of a table are deleted."""
    EXPIRE = "expire"
    """Old snapshots or versions are given up, with what only they needed."""
    MANIFESTS = "manifests"
    """Manifests are written again, sorted by partition."""
    STATISTICS = "statistics"
    INDEX = "index"
    """Indices take in what was written after them."""


JOBS_OF: dict[Format, tuple[Job, ...]] = {
    Format.DELTA: (
        Job.COMPACT,
        Job.PURGE,
        Job.CLUSTER,
        Job.VACUUM,
        Job.CHECKPOINT,
        Job.LOG,
        Job.ORPHANS,
    ),
    Format.ICEBERG: (Job.COMPACT, Job.PURGE, Job.MANIFESTS, Job.EXPIRE, Job.ORPHANS, Job.STATISTICS),
    Format.LANCE: (Job.COMPACT, Job.EXPIRE, Job.INDEX),
}


class Outcome(StrEnum):
    DONE = "done"
    NOTHING = "nothing"
    """There was nothing to do."""
    LOST = "lost"
    """Writers were first; the table is as they left it."""
    REFUSED = "refused"
    """The table has something that this job must not touch."""
    FAILED = "failed"
    STOPPED = "stopped"
    """Its worker was told to end; what was done until then holds, and the rest is for the next run."""


class Curve(StrEnum):
    """How rows are laid out by several columns at once; the names are those of Delta's tags."""

    HILBERT = "hilbert"
    ZORDER = "zorder"


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a policy says of a job, every default filled in."""

    target_file_size: int = 128 * MIB
    small_file_ratio: float = 0.75
    """A file is small when it is below this part of the target."""
    min_small_files: int = 8
    quiet_minutes: float = 10
    """How long a table must not have been written to before it is rewritten unasked."""
    deleted_ratio: float = 0.1
    """Files of which more rows than this part are deleted are worth a purge."""
    dead_ratio: float = 0.1
    """Dead files are worth deleting when they hold more than this part of what the table does."""
    commit_bytes: int = GIB
    """How much input one commit replaces, so that a lost race costs no more."""
    cluster_columns: tuple[str, ...] = ()
    cluster_curve: Curve = Curve.HILBERT
    retention_hours: float = 168
    """How long files stay after they were removed from the table."""
    allow_short_retention: bool = False
    """Retention below the floor deletes files that a slow reader may still need."""
    full: bool = False
    """Compare with a listing of the table's folder, not with the log alone."""
    log_retention_hours: float = 720
    checkpoint_commits: int = 100
    staged_hours: float = 24
    snapshot_hours: float = 120
    min_snapshots: int = 1
    min_manifests: int = 50


class Pin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody still needs the table as it was: from `version` on, or that version `alone`, because a name
    in the format points at it; such names the formats' own ways of expiry respect."""

    reason: str
    version: int
    alone: bool = False


def pinned_from(pins: Iterable[Pin]) -> int | None:
    """The version from which on everything stays readable; None if nobody asks for that."""
    return min((pin.version for pin in pins if not pin.alone), default=None)


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """One job on one table, given to one worker until the lease ends."""

    run_id: str
    table_id: str
    name: tuple[str, ...]
    format: Format
    kind: TableKind
    location: str
    version: int
    job: Job
    dry_run: bool = False
    options: Options = Options()
    pins: tuple[Pin, ...] = ()
    lease_seconds: float = 60

    @property
    def pinned_from(self) -> int | None:
        return pinned_from(self.pins)


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run ended. `before`, `after` and `measured` are named numbers: files, bytes, rows, seconds…"""

    outcome: Outcome
    message: str = ""
    before: dict[str, float] = {}
    after: dict[str, float] = {}
    measured: dict[str, float] = {}
    files: tuple[str, ...] = ()
    """What a dry run would delete, at most the first thousand."""


class SchedulerState(StrEnum):
    OFF = "off"
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """The worker has ended and is started again after a while."""


class Scheduler(msgspec.Struct, frozen=True, kw_only=True):
    """The worker that a server keeps beside itself."""

    state: SchedulerState
    since: int = 0
    restarts: int = 0
    message: str = ""
