"""Snapshots are given up and files deleted; and statistics, which cost nobody anything."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

from inver.domain.care import HOUR_MS, Outcome, Result
from inver.domain.iceberg.expiring import History, endangered, expired
from inver.domain.locations import Location
from inver.errors import Conflict, Refused
from inver.pipeline.iceberg import files, metadata
from inver.pipeline.iceberg.procedures import ALL, CURRENT, procedures
from inver.pipeline.retention import snapshot_ms
from inver.pipeline.work import Work

BATCH = 2_000
"""Snapshots that one commit gives up."""

MOST_SHOWN = 1_000
ORPHAN_HOURS = 24
"""Iceberg's own floor: whatever is younger may be what a writer is about to commit."""

_EPOCH = datetime(1970, 1, 2, tzinfo=UTC)


def expire(work: Work) -> Result:
    ticket, options = work.ticket, work.ticket.options
    history = metadata.load(work)
    metadata.require_gc(history)
    keep_ms, now_ms = snapshot_ms(options), int(time.time() * 1000)
    pinned = metadata.pinned(work, history)
    if taken := endangered(history, pinned, now_ms):
        raise Refused(
            f"a branch's own retention gives up snapshot {taken[0]}, which somebody still needs",
            fix="lengthen max-snapshot-age-ms of the branch",
        )
    gone = expired(
        history, now_ms=now_ms, keep_ms=keep_ms, min_snapshots=options.min_snapshots, pinned=pinned
    )
    before = {"snapshots": float(len(history.snapshots)), "pinned": float(len(pinned))}
    if not gone or ticket.dry_run:
        outcome = Outcome.DONE if gone else Outcome.NOTHING
        found = {"snapshots": float(len(gone))}
        return Result(outcome=outcome, before=before, after=before, measured=found)
    measured: dict[str, float] = {"snapshots": 0}
    with procedures(work, history.files) as table:
        table.require_own(history.location, ALL)
        for start in range(0, len(gone), BATCH):
            some = gone[start : start + BATCH]
            work.tell(measured["snapshots"] / len(gone), "expiring snapshots")
            try:
                [told] = table.call(
                    "expire_snapshots",
                    # These and no others: the age of a snapshot is not how long nobody reads it.
                    older_than=_EPOCH,
                    snapshot_ids=some,
                    stream_results=True,
                )
            except Conflict as lost:
                return Result(outcome=Outcome.LOST, message=str(lost), before=before, measured=measured)
            measured["snapshots"] += len(some)
            for name, value in told.items():
                measured[name] = measured.get(name, 0) + (value or 0)
    left = metadata.load(work)
    after = before | {"snapshots": float(len(left.snapshots))}
    return Result(outcome=Outcome.DONE, before=before, after=after, measured=measured)


def orphans(work: Work) -> Result:
    ticket = work.ticket
    history = metadata.load(work)
    metadata.require_gc(history)
    if Location.parse(history.location) != Location.parse(ticket.location):
        raise Conflict("the table has moved meanwhile")
    hours = max(ORPHAN_HOURS, ticket.options.staged_hours)
    before_ms = int(time.time() * 1000 - hours * HOUR_MS) - 1_000
    work.tell(0.1, "listing files")
    found = files.own(files.listed(work.place))
    old = {_place(history, file.path): file for file in found if file.modified_ms < before_ms}
    before = {"files": float(len(found)), "bytes": float(sum(file.size for file in found))}
    if not old:
        return Result(outcome=Outcome.NOTHING, before=before, after=before)
    view = "care_files_" + re.sub(r"\W", "_", ticket.run_id)
    with procedures(work, None if history.files is None else history.files + len(old)) as table:
        table.listed([(path, _time(file.modified_ms)) for path, file in old.items()], view)
        try:
            work.tell(0.3, "comparing with the table")
            told = table.call(
                "remove_orphan_files",
                older_than=_time(before_ms),
                file_list_view=view,
                dry_run=ticket.dry_run,
            )
        finally:
            table.forget(view)
    gone = sorted(row["orphan_file_location"] for row in told)
    size = float(sum(old[path].size for path in gone))
    measured = {"files": float(len(gone)), "bytes": size}
    if ticket.dry_run:
        return Result(
            outcome=Outcome.DONE if gone else Outcome.NOTHING,
            before=before,
            after=before,
            measured=measured,
            files=tuple(gone[:MOST_SHOWN]),
        )
    after = {"files": before["files"] - len(gone), "bytes": before["bytes"] - size}
    outcome = Outcome.DONE if gone else Outcome.NOTHING
    return Result(outcome=outcome, before=before, after=after, measured=measured)


def statistics(work: Work) -> Result:
    history = metadata.load(work)
    current = history.current
    before = {"statistics": float(len(history.statistics))}
    if current is None or any(each.snapshot_id == current.snapshot_id for each in history.statistics):
        return Result(outcome=Outcome.NOTHING, before=before, after=before)
    if work.ticket.dry_run:
        return Result(outcome=Outcome.DONE, before=before, after=before)
    with procedures(work) as table:
        table.require_own(history.location, CURRENT)
        work.tell(0.1, "counting distinct values")
        table.call("compute_table_stats", snapshot_id=current.snapshot_id)
    after = {"statistics": float(len(metadata.load(work).statistics))}
    return Result(outcome=Outcome.DONE, before=before, after=after)


def _place(history: History, path: str) -> str:
    """As the table's own files are called."""
    return f"{history.location}/{path}"


def _time(ms: int) -> Any:
    return datetime.fromtimestamp(ms / 1000, UTC)
