"""What is worth doing to a table, and why: rules over what the ledger knows of it.

A rule looks at numbers alone. One that needs a number which is not known finds nothing, except where
not knowing is itself a reason to look. `gain` is counted in files that a reader of the whole table need
no longer open, or what weighs about as much: docs/care.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil

import msgspec

from inver.domain.care import Job, Options, Outcome
from inver.domain.health import DAY_MS, HOUR_MS, Health
from inver.domain.runs import InForce
from inver.domain.sizes import MOST
from inver.domain.tables import Format

OVERDUE = 10
"""So many times the files that make a finding, and a table is rewritten even while it is written to."""
CLUSTER_FILES = 4
WEEK_MS = 7 * DAY_MS
STATE_BYTES = 1_000
"""About what a file takes in the state of a log."""
REWRITES = frozenset({Job.COMPACT, Job.PURGE, Job.CLUSTER, Job.MANIFESTS})


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A table as the rules see it. `scans` are reads per hour, where clients tell of them."""

    format: Format
    version: int
    created_at: int
    health: Health
    published: int = -1
    managed: bool = True
    scans: float | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`bytes` is what the job has to read; nobody should start it before `not_before`."""

    job: Job
    reason: str
    gain: float
    bytes: int = 0
    not_before: int = 0


class _Found(msgspec.Struct, frozen=True):
    reason: str
    gain: float
    bytes: int = 0
    overdue: bool = False


def findings(subject: Subject, policy: InForce, now: int) -> list[Finding]:
    """In the order of the jobs. Tables whose commits the catalog does not decide are left alone."""
    if not policy.enabled or not subject.managed:
        return []
    return list(_findings(subject, policy, now))


def _findings(subject: Subject, policy: InForce, now: int) -> Iterator[Finding]:
    health, options = subject.health, policy.options
    for job in policy.jobs:
        cared = health.cared.get(job)
        seen = cared is not None and cared.version >= subject.version
        if seen and job in _ONCE_A_VERSION:
            continue
        if cared is not None and cared.at > now - DAY_MS and cared.outcome in _ENDS and job in _ONCE_A_DAY:
            continue
        found = _RULES[job](subject, options, now)
        if found is None:
            continue
        not_before = cared.retry_at if cared is not None else 0
        if job in REWRITES and not found.overdue:
            not_before = max(not_before, health.written_at + int(options.quiet_minutes * 60_000))
        yield Finding(
            job=job, reason=found.reason, gain=found.gain, bytes=min(MOST, found.bytes), not_before=not_before
        )


def _compact(subject: Subject, options: Options, now: int) -> _Found | None:
    totals = subject.health.totals
    target = options.target_file_size
    small = subject.health.small(int(options.small_file_ratio * target))
    if subject.format is Format.LANCE and (found := _purge(subject, options, now)) is not None:
        # Lance takes deleted rows out when it compacts.
        return found
    if small is None or small[0] < options.min_small_files:
        return None
    files, size = small
    gain = files - ceil(size / target)
    overdue = files >= OVERDUE * options.min_small_files
    worth = size >= 2 * target or overdue or now - subject.health.written_at >= HOUR_MS
    if gain < 1 or not worth:
        return None
    return _Found(
        f"{files} of {totals.files} files are smaller than {_size(options.small_file_ratio * target)}",
        gain,
        size,
        overdue,
    )


def _purge(subject: Subject, options: Options, now: int) -> _Found | None:
    totals = subject.health.totals
    if not totals.deletes or not totals.deleted_rows:
        return None
    if totals.rows is not None:
        all_rows = totals.rows + (0 if subject.format is Format.ICEBERG else totals.deleted_rows)
        part = totals.deleted_rows / max(1, all_rows)
        told = f"{min(part, 1):.0%} of its rows are deleted"
    elif totals.files:
        part = totals.deletes / totals.files
        told = f"{min(part, 1):.0%} of its files have deleted rows"
    else:
        return None
    if part <= options.deleted_ratio:
        return None
    size = totals.bytes or 0
    share = min(1.0, totals.deletes / totals.files) if totals.files else 1.0
    return _Found(f"{told}, in {totals.deletes} files", float(totals.deletes), int(size * share))


def _cluster(subject: Subject, options: Options, now: int) -> _Found | None:
    unclustered = subject.health.totals.unclustered
    if unclustered is None or not (options.cluster_columns or subject.health.clustered):
        return None
    if unclustered < CLUSTER_FILES * options.target_file_size:
        return None
    columns = f" by {', '.join(options.cluster_columns)}" if options.cluster_columns else ""
    return _Found(
        f"{_size(unclustered)} were written since it was clustered{columns}",
        unclustered / options.target_file_size,
        unclustered,
    )


def _vacuum(subject: Subject, options: Options, now: int) -> _Found | None:
    return _dead(subject, options, now, options.retention_hours, Job.VACUUM)


def _dead(subject: Subject, options: Options, now: int, hours: float, job: Job) -> _Found | None:
    health = subject.health
    dead = health.dead_before(now - int(hours * HOUR_MS))
    if dead is None:
        cared = health.cared.get(job)
        since = subject.created_at if cared is None else cared.at
        if now - since < max(WEEK_MS, int(hours * HOUR_MS)):
            return None
        return _Found("how many of its files are dead is not known", 0.5, STATE_BYTES)
    if dead < max(1, options.dead_ratio * (health.totals.bytes or 0)):
        return None
    return _Found(
        f"{_size(dead)} were removed more than {hours:g} hours ago",
        max(0.1, 0.1 * dead / options.target_file_size),
        STATE_BYTES * (health.totals.files or 0),
    )


def _checkpoint(subject: Subject, options: Options, now: int) -> _Found | None:
    health = subject.health
    since = subject.version - (-1 if health.checkpoint is None else health.checkpoint)
    if since < options.checkpoint_commits:
        return None
    known = "" if health.checkpoint is not None else "up to "
    return _Found(
        f"{known}{since} commits since the last checkpoint",
        since / 10,
        STATE_BYTES * ((health.totals.files or 0) + since),
    )


def _log(subject: Subject, options: Options, now: int) -> _Found | None:
    health = subject.health
    cared = health.cared.get(Job.LOG)
    since = subject.version - (cared.version if cared is not None else -1)
    if health.checkpoint is None or since < options.checkpoint_commits:
        return None
    if now - (subject.created_at if cared is None else cared.at) < DAY_MS:
        return None
    return _Found(f"{since} commits since its log was compacted", since / 100, STATE_BYTES * since)


def _orphans(subject: Subject, options: Options, now: int) -> _Found | None:
    if not _weekly(subject, Job.ORPHANS, now):
        return None
    return _Found("files that never became part of it were not looked for in a week", 0.5, STATE_BYTES)


def _statistics(subject: Subject, options: Options, now: int) -> _Found | None:
    if not _weekly(subject, Job.STATISTICS, now):
        return None
    return _Found("it was written to since its statistics were made", 0.5, subject.health.totals.bytes or 0)


def _weekly(subject: Subject, job: Job, now: int) -> bool:
    """Whether a week has passed, and somebody wrote since the last time."""
    cared = subject.health.cared.get(job)
    last = 0 if cared is None else cared.at
    return now - (last or subject.created_at) >= WEEK_MS and subject.health.written_at > last


def _expire(subject: Subject, options: Options, now: int) -> _Found | None:
    health = subject.health
    cared = health.cared.get(Job.EXPIRE)
    since = subject.created_at if cared is None else cared.at
    old = health.snapshots is not None and health.snapshots > options.min_snapshots
    if not old or now - since < max(DAY_MS, int(options.snapshot_hours * HOUR_MS)):
        return None
    dead = health.dead_before(now - int(options.snapshot_hours * HOUR_MS)) or 0
    return _Found(
        f"{health.snapshots} snapshots, some older than {options.snapshot_hours:g} hours",
        0.1 * (health.snapshots or 0) + 0.1 * dead / options.target_file_size,
        STATE_BYTES * (health.totals.files or 0),
    )


def _manifests(subject: Subject, options: Options, now: int) -> _Found | None:
    manifests = subject.health.manifests
    if manifests is None or manifests < options.min_manifests:
        return None
    return _Found(f"{manifests} manifests", manifests / 2, STATE_BYTES * (subject.health.totals.files or 0))


def _index(subject: Subject, options: Options, now: int) -> _Found | None:
    cared = subject.health.cared.get(Job.INDEX)
    if now - (subject.created_at if cared is None else cared.at) < DAY_MS:
        return None
    return _Found("it was written to since its indices were made", 1.0, subject.health.totals.bytes or 0)


_RULES: dict[Job, Callable[[Subject, Options, int], _Found | None]] = {
    Job.COMPACT: _compact,
    Job.PURGE: _purge,
    Job.CLUSTER: _cluster,
    Job.VACUUM: _vacuum,
    Job.CHECKPOINT: _checkpoint,
    Job.LOG: _log,
    Job.ORPHANS: _orphans,
    Job.EXPIRE: _expire,
    Job.MANIFESTS: _manifests,
    Job.STATISTICS: _statistics,
    Job.INDEX: _index,
}
_ONCE_A_VERSION = frozenset(
    {Job.COMPACT, Job.PURGE, Job.CLUSTER, Job.CHECKPOINT, Job.LOG, Job.MANIFESTS, Job.STATISTICS, Job.INDEX}
)
"""Jobs that find the same again as long as nobody writes; what time brings about is not among them."""
_ONCE_A_DAY = frozenset(Job) - _ONCE_A_VERSION
_ENDS = frozenset({Outcome.DONE, Outcome.NOTHING})


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"
