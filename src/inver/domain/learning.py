"""What is learned of a table from those who have seen it: clients that report, and runs that end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from inver.domain.care import Job, Outcome
from inver.domain.health import DAY_MS, HOUR_MS, UNKNOWN, Cared, Committed, Health, Totals, summed
from inver.domain.sizes import MOST, bin_of, merged
from inver.domain.tables import Format

_PAUSES = {Outcome.NOTHING: HOUR_MS, Outcome.REFUSED: DAY_MS}
_TOTALS = {
    "files": "files",
    "bytes": "bytes",
    "rows": "rows",
    "deletes": "files_with_deletes",
    "deleted_rows": "deleted_rows",
    "unclustered": "unclustered_bytes",
}


def told(health: Health, format: Format, numbers: Mapping[str, float], later: Iterable[Committed]) -> Health:
    """With what somebody who read the whole table says of it; `later` are the commits since then."""
    known = {name: int(value) for name, value in numbers.items()}
    given: dict[str, Any] = {name: known[word] for name, word in _TOTALS.items() if word in known}
    if "small_files" in known and "small_bytes" in known and health.totals.sizes is None:
        seen = replace(UNKNOWN, **given)
        given["sizes"] = _two_bins(seen, known["small_files"], known["small_bytes"])
    others = {name: known[name] for name in ("snapshots", "manifests") if name in known}
    dead = health.dead
    if dead is None and "dead_bytes" in known:
        dead = {health.written_at // DAY_MS: known["dead_bytes"]}
    checkpoint = known.get("checkpoint_version")
    if checkpoint is None or (health.checkpoint is not None and health.checkpoint > checkpoint):
        checkpoint = health.checkpoint
    totals = _since(health.totals, given, format, later)
    return replace(health, totals=totals, dead=dead, checkpoint=checkpoint, **others)


def reported(
    health: Health,
    format: Format,
    boundaries: Iterable[int],
    counts: Iterable[int],
    sizes: Iterable[int],
    later: Iterable[Committed],
) -> Health:
    """With a client's histogram of the whole table; each of its bins counts with its mean size."""
    told = [
        (bin_of(max(low, size // files)), files, size)
        for low, files, size in zip(boundaries, counts, sizes, strict=True)
        if files
    ]
    files, total = sum(files for _, files, _ in told), sum(size for _, _, size in told)
    if max(files, total) > MOST:
        return health
    given = {"files": files, "bytes": total, "sizes": merged({}, told)}
    return replace(health, totals=_since(health.totals, given, format, later))


def cared_for(
    health: Health, job: Job, outcome: Outcome, at: int, version: int, bytes_s: float | None, forget: int
) -> Health:
    """After a run. Bytes that were dead before `forget` are gone when what deletes them has done so."""
    before = health.cared.get(job)
    streak = _streak(before, outcome)
    cared = Cared(
        at=at,
        outcome=outcome,
        version=version if outcome in (Outcome.DONE, Outcome.NOTHING) else before.version if before else -1,
        streak=streak,
        retry_at=_retry_at(outcome, streak, at),
        bytes_s=smoothed(before.bytes_s if before else None, bytes_s),
    )
    changes: dict[str, Any] = {"cared": {**health.cared, job: cared}}
    if outcome is Outcome.DONE and job in (Job.VACUUM, Job.EXPIRE) and health.dead is not None:
        changes["dead"] = {day: size for day, size in health.dead.items() if (day + 1) * DAY_MS > forget}
    return replace(health, **changes)


def clustered_at(health: Health, later: Iterable[Committed]) -> Health:
    """After the table was laid out anew; `later` are the commits since that began."""
    totals = _since(health.totals, {"unclustered": 0}, Format.DELTA, later)
    return replace(health, totals=totals)


def back_off_ms(streak: int) -> int:
    """10 minutes after the first time, and twice as long each time, up to a week."""
    return min(7 * DAY_MS, 600_000 << min(max(streak, 1) - 1, 20))


def smoothed(before: float | None, measured: float | None) -> float | None:
    if before is None or measured is None:
        return measured if measured is not None else before
    return 0.7 * before + 0.3 * measured


def _since(totals: Totals, given: Mapping[str, Any], format: Format, later: Iterable[Committed]) -> Totals:
    """The totals with some of them as they were at an earlier version, and what was committed since."""
    seen = replace(UNKNOWN, **given)
    for commit in later:
        seen = summed(seen, format, commit)
    return replace(totals, **{name: getattr(seen, name) for name in given})


def _two_bins(totals: Totals, files: int, size: int) -> dict[int, tuple[int, int]] | None:
    """The small files and the others, each as if of their mean size."""
    if totals.files is None or totals.bytes is None or files > totals.files or size > totals.bytes:
        return None
    groups = ((files, size), (totals.files - files, totals.bytes - size))
    return merged({}, [(bin_of(total // count), count, total) for count, total in groups if count])


def _streak(before: Cared | None, outcome: Outcome) -> int:
    if outcome in (Outcome.LOST, Outcome.FAILED):
        return (before.streak if before else 0) + 1
    if outcome is Outcome.STOPPED:
        return before.streak if before else 0
    return 0


def _retry_at(outcome: Outcome, streak: int, at: int) -> int:
    if outcome in (Outcome.LOST, Outcome.FAILED):
        return at + back_off_ms(streak)
    return at + _PAUSES[outcome] if outcome in _PAUSES else 0
