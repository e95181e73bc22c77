"""Fragments become fewer and lose their deleted rows. Planned here, executed by Spark's tasks, committed
here through the ledger.

pylance commits onto whatever writers have appended meanwhile, and gives up where they have changed the
fragments themselves; then the plan is made anew, a few times. Each commit replaces no more than the
policy says. What a commit that was given up has written stays until the clean-up of unverified files.
"""

from __future__ import annotations

from typing import Any

from inver.domain.care import Options, Outcome, Result
from inver.errors import Conflict
from inver.pipeline.lance.datasets import connected, numbers, storage_options, told
from inver.pipeline.tasks.lance_compaction import executing
from inver.pipeline.work import Work

ATTEMPTS = 3
MOST_ROUNDS = 1_000
FEWEST_ROWS = 1_024
MOST_ROWS = 1 << 24


def compact(work: Work) -> Result:
    options = work.ticket.options
    dataset, _ = connected(work)
    before = numbers(dataset)
    measured: dict[str, float] = dict.fromkeys(("commits", "lost", "removed", "added", "bytes_read"), 0)
    target = _target_rows(options, before)
    while measured["lost"] < ATTEMPTS and measured["commits"] < MOST_ROUNDS:
        tasks = _planned(dataset, options, target) if _worth(dataset, options, target) else []
        if not tasks:
            break
        if work.ticket.dry_run:
            found = {"tasks": float(len(tasks)), "files": float(sum(len(task.fragments) for task in tasks))}
            return Result(outcome=Outcome.DONE, before=before, after=before, measured=found)
        work.tell(_progress(dataset, before), "compacting fragments")
        results = _executed(work, dataset, tasks)
        work.tell(_progress(dataset, before), "committing")
        try:
            done = _committed(dataset, results)
        except Conflict:
            measured["lost"] += 1
        else:
            measured["commits"] += 1
            measured["removed"] += done.fragments_removed
            measured["added"] += done.fragments_added
            measured["bytes_read"] += sum(_size(task) for task in tasks)
        dataset, _ = connected(work)
    if not measured["commits"]:
        outcome = Outcome.LOST if measured["lost"] else Outcome.NOTHING
        message = "writers changed the table while it was compacted" if measured["lost"] else ""
        return Result(outcome=outcome, message=message, before=before, after=before, measured=measured)
    return Result(outcome=Outcome.DONE, before=before, after=numbers(dataset), measured=measured)


def _target_rows(options: Options, before: dict[str, float]) -> int:
    """Lance counts the size of a fragment in rows."""
    width = before["bytes"] / max(1.0, before["rows"] + before["deleted_rows"])
    return max(FEWEST_ROWS, min(MOST_ROWS, int(options.target_file_size / max(1.0, width))))


def _worth(dataset: Any, options: Options, target: int) -> bool:
    """Whether enough fragments are small, or one has lost enough rows."""
    small = 0
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        if metadata.num_deletions > options.deleted_ratio * metadata.physical_rows:
            return True
        small += metadata.physical_rows < options.small_file_ratio * target
    return small >= max(2, options.min_small_files)


def _planned(dataset: Any, options: Options, target: int) -> list[Any]:
    """The first tasks of a plan, as many as one commit may take and at least one."""
    from lance.optimize import Compaction

    plan = Compaction.plan(
        dataset,
        options={
            "target_rows_per_fragment": target,
            "materialize_deletions": True,
            "materialize_deletions_threshold": options.deleted_ratio,
        },
    )
    chosen: list[Any] = []
    size = 0
    for task in plan.tasks:
        size += _size(task)
        if chosen and size > options.commit_bytes:
            break
        chosen.append(task)
    return chosen


def _size(task: Any) -> int:
    return sum(file.file_size_bytes or 0 for fragment in task.fragments for file in fragment.files)


def _executed(work: Work, dataset: Any, tasks: list[Any]) -> list[Any]:
    from lance.optimize import RewriteResult

    execute = executing(dataset.uri, dataset.version, storage_options(work.place))
    waiting = work.spark().createDataFrame([(task.json(),) for task in tasks], "task string")
    done = waiting.repartition(len(tasks)).mapInArrow(execute, "result string").collect()
    return [RewriteResult.from_json(row[0]) for row in done]


def _committed(dataset: Any, results: list[Any]) -> Any:
    from lance.optimize import Compaction

    with told():
        return Compaction.commit(dataset, results)


def _progress(dataset: Any, before: dict[str, float]) -> float:
    left = len(dataset.get_fragments())
    return max(0.0, 1 - left / max(1.0, before["files"]))
