"""Data files, delete files and manifests are written again; the rows stay as they are.

One call of a procedure is one commit, and replaces no more than the policy says: the next call starts
from the table as writers have left it. A commit that writers were faster than is tried again a few
times. One that a writer has pushed out after it was made is found missing at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

from inver.domain.care import Options, Outcome, Result
from inver.domain.iceberg.expiring import History
from inver.domain.iceberg.yielding import MARK
from inver.errors import Conflict
from inver.pipeline.iceberg import metadata
from inver.pipeline.iceberg.procedures import CURRENT, Procedures, procedures
from inver.pipeline.work import Work

ATTEMPTS = 3
"""How often a commit is tried before writers have won."""

PATH_COLUMN = 2147483546
"""Iceberg's number for the column of position deletes that names the data file."""
EQUALITY = 2

MANIFEST_SIZE = "commit.manifest.target-size-bytes"
MANIFEST_BYTES = 8 << 20

Numbers = dict[str, float]
Step = Callable[[], tuple[int, Numbers]]
"""One commit: how many files it replaced, and what else there is to say. Zero means the end."""


def compact(work: Work) -> Result:
    history = metadata.load(work)
    if history.current is None:
        return Result(outcome=Outcome.NOTHING)
    options = work.ticket.options
    with procedures(work) as table:
        table.require_own(history.location, CURRENT)
        before = _numbers(table, history)
        small = _Small(table, options)
        if not small.gain:
            return Result(outcome=Outcome.NOTHING, before=before, after=before)
        if work.ticket.dry_run:
            found = {"files": float(small.files), "bytes": float(small.bytes), "gain": float(small.gain)}
            return Result(outcome=Outcome.DONE, before=before, after=before, measured=found)
        most = _files_at_once(options, small.files, small.bytes)
        arguments = _sizes(options) | {
            "min-input-files": options.min_small_files,
            "max-files-to-rewrite": most,
        }

        def step() -> tuple[int, Numbers]:
            return _rewrite(table, arguments) if _Small(table, options).gain else (0, {})

        return _run(work, table, before, [step], ceil(small.files / most) + 1)


def purge(work: Work) -> Result:
    history = metadata.load(work)
    if history.current is None:
        return Result(outcome=Outcome.NOTHING)
    options = work.ticket.options
    with procedures(work) as table:
        table.require_own(history.location, CURRENT)
        before = _numbers(table, history)
        if not before["delete_files"]:
            return Result(outcome=Outcome.NOTHING, before=before, after=before)
        if work.ticket.dry_run:
            found = {"files": before["delete_files"], "rows": before["deletes"]}
            return Result(outcome=Outcome.DONE, before=before, after=before, measured=found)
        most = _files_at_once(options, int(before["files"]), int(before["bytes"]))
        arguments = _sizes(options) | {
            # The size of a file is no reason here.
            "min-file-size-bytes": 0,
            "max-file-size-bytes": 1 << 60,
            "delete-ratio-threshold": min(1.0, max(options.deleted_ratio, 1e-9)),
            # These can be told from the rest only by what a whole partition has.
            "remove-dangling-deletes": True,
            "max-files-to-rewrite": most,
        }
        if options.full or _unknown_deletes(table):
            # With a number of its own, what is written is newer than all of these deletes.
            arguments |= {"delete-file-threshold": 1, "use-starting-sequence-number": False}
        steps = [lambda: _rewrite(table, arguments), lambda: _rewrite_deletes(table, options)]
        return _run(work, table, before, steps, ceil(before["files"] / most) + 2)


def manifests(work: Work) -> Result:
    history = metadata.load(work)
    if history.current is None:
        return Result(outcome=Outcome.NOTHING)
    options = work.ticket.options
    with procedures(work) as table:
        table.require_own(history.location, CURRENT)
        before = _numbers(table, history)
        # Large ones stay as many as they are.
        size = int(history.properties.get(MANIFEST_SIZE) or MANIFEST_BYTES)
        needed = ceil(before["manifest_bytes"] / max(size, 1))
        if before["manifests"] < max(options.min_manifests, 2 * needed):
            return Result(outcome=Outcome.NOTHING, before=before, after=before)
        if work.ticket.dry_run:
            found = {"manifests": before["manifests"], "needed": float(needed)}
            return Result(outcome=Outcome.DONE, before=before, after=before, measured=found)

        def step() -> tuple[int, Numbers]:
            [told] = table.call("rewrite_manifests", use_caching=False)
            count = told["rewritten_manifests_count"]
            return count, {"rewritten": count, "added": told["added_manifests_count"]}

        return _run(work, table, before, [step], 1)


def _run(work: Work, table: Procedures, before: Numbers, steps: Sequence[Step], rounds: int) -> Result:
    """Commit after commit until nothing is left or writers have won; `rounds` is more than it takes."""
    measured: Numbers = {"commits": 0, "lost": 0}
    waiting = list(steps)
    while waiting and measured["commits"] < rounds and measured["lost"] < ATTEMPTS:
        work.tell(measured["commits"] / rounds, "rewriting")
        try:
            replaced, told = waiting[0]()
        except Conflict:
            measured["lost"] += 1
            continue
        if not replaced:
            waiting.pop(0)
            continue
        measured["commits"] += 1
        for name, value in told.items():
            measured[name] = measured.get(name, 0) + value
    history = metadata.load(work)
    mine = [each for each in history.snapshots if (each.summary or {}).get(MARK) == work.ticket.run_id]
    outcome, message = Outcome.DONE, ""
    if measured["commits"] and not mine:
        outcome, message = Outcome.LOST, "writers took the place of the rewrite"
    elif not measured["commits"]:
        outcome = Outcome.LOST if measured["lost"] else Outcome.NOTHING
        message = "writers changed the table while it was rewritten" if measured["lost"] else ""
    after = _numbers(table, history) if measured["commits"] else before
    return Result(outcome=outcome, message=message, before=before, after=after, measured=measured)


class _Small:
    """Files below the threshold, and how many fewer they would be: none where two make two again."""

    def __init__(self, table: Procedures, options: Options) -> None:
        target = options.target_file_size
        limit = int(target * options.small_file_ratio)
        self.files = self.bytes = self.gain = 0
        for row in table.rows(
            "SELECT count(*) AS files, sum(file_size_in_bytes) AS bytes"
            f" FROM {table.table}.data_files WHERE file_size_in_bytes < {limit}"
            f" GROUP BY {'spec_id, partition' if _is_partitioned(table) else 'spec_id'}"
        ):
            files, size = row["files"], row["bytes"]
            gain = files - ceil(size / target)
            if gain > 0 and (files >= options.min_small_files or size > target):
                self.files += files
                self.bytes += size
                self.gain += gain


def _is_partitioned(table: Procedures) -> bool:
    """An unpartitioned table has no such column."""
    described = table.rows(f"DESCRIBE {table.table}.data_files")
    return any(row["col_name"] == "partition" for row in described)


def _numbers(table: Procedures, history: History) -> Numbers:
    found: Numbers = {"snapshots": len(history.snapshots)}
    found |= dict.fromkeys(("files", "bytes", "rows", "delete_files", "deletes"), 0.0)
    for row in table.rows(
        "SELECT content, count(*) AS files, sum(file_size_in_bytes) AS bytes, sum(record_count) AS rows"
        f" FROM {table.table}.files GROUP BY content"
    ):
        if row["content"] == 0:
            found |= {"files": row["files"], "bytes": row["bytes"], "rows": row["rows"]}
        else:
            found["delete_files"] += row["files"]
            found["deletes"] += row["rows"]
    [row] = table.rows(f"SELECT count(*) AS count, sum(length) AS bytes FROM {table.table}.manifests")
    return found | {"manifests": row["count"], "manifest_bytes": row["bytes"] or 0}


def _deletes(table: Procedures) -> str:
    """Delete files by what they are, and the data file that they are about if it is only one.

    Newer tables name it; in older ones it is what the paths lie between.
    """
    low, high = (f"{which}_bounds[{PATH_COLUMN}]" for which in ("lower", "upper"))
    only = f"coalesce(referenced_data_file, if({low} = {high}, cast({low} AS string), NULL))"
    return f"(SELECT content, {only} AS about FROM {table.table}.delete_files)"


def _unknown_deletes(table: Procedures) -> bool:
    """Deletes that do not say which file they are about count for each file that they may be about."""
    [row] = table.rows(
        f"SELECT count(*) AS count FROM {_deletes(table)} WHERE content = {EQUALITY} OR about IS NULL"
    )
    return bool(row["count"])


def _dangling(table: Procedures) -> bool:
    """Whether there are deletes of rows in files that are not of the table any more."""
    [row] = table.rows(
        f"SELECT count(*) AS count FROM {_deletes(table)} gone"
        f" LEFT ANTI JOIN {table.table}.data_files file ON gone.about = file.file_path"
        f" WHERE gone.content <> {EQUALITY} AND gone.about IS NOT NULL"
    )
    return bool(row["count"])


def _sizes(options: Options) -> dict[str, Any]:
    target = options.target_file_size
    return {
        "target-file-size-bytes": target,
        "min-file-size-bytes": int(target * options.small_file_ratio),
        "max-file-group-size-bytes": options.commit_bytes,
    }


def _files_at_once(options: Options, files: int, size: int) -> int:
    average = max(1, size // max(1, files))
    return max(2 * options.min_small_files, options.commit_bytes // average)


def _rewrite(table: Procedures, options: Mapping[str, Any]) -> tuple[int, Numbers]:
    given = {key: str(value).lower() for key, value in options.items()}
    [told] = table.call("rewrite_data_files", options=given)
    count = told["rewritten_data_files_count"]
    return count, {
        "rewritten": count,
        "added": told["added_data_files_count"],
        "bytes_read": told["rewritten_bytes_count"],
        "deletes_removed": told["removed_delete_files_count"],
    }


def _rewrite_deletes(table: Procedures, options: Options) -> tuple[int, Numbers]:
    """Position deletes in files of their own; those of newer tables are vectors, one to a data file."""
    given = {"min-input-files": str(options.min_small_files), "rewrite-all": str(_dangling(table)).lower()}
    [told] = table.call("rewrite_position_delete_files", options=given)
    count = told["rewritten_delete_files_count"]
    return count, {"deletes_rewritten": count, "added": told["added_delete_files_count"]}
