"""Compaction and purge of Delta tables: files written again, larger and without deleted rows."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from inver.domain import delta_bins
from inver.domain.care import Options, Outcome, Result
from inver.domain.delta_actions import Add
from inver.domain.delta_bins import Bin
from inver.errors import Conflict, Refused
from inver.pipeline.delta.rewriting import Made, Rewrite
from inver.pipeline.delta.table import State, TableLog
from inver.pipeline.tasks.delta_rewrite import Rewriting, rewritten
from inver.pipeline.work import Work

Plan = Callable[[Iterable[Add], Options], list[Bin]]
_FIGURES = ("files", "bytes", "deleted_rows")


def compact(work: Work) -> Result:
    return _rewrite(work, delta_bins.compaction)


def purge(work: Work) -> Result:
    return _rewrite(work, delta_bins.purge)


def _rewrite(work: Work, plan: Plan) -> Result:
    options = work.ticket.options
    before: dict[str, float] = {}
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="inver-log-") as folder:
        try:
            work.tell(0.0, "reading the log")
            log = TableLog(work, Path(folder))
            state = log.state()
            largest = round(options.target_file_size * max(1.0, options.small_file_ratio))
            bins = plan(state.files(below=largest), options)
            before |= {
                "files": state.snapshot.files,
                "bytes": state.snapshot.bytes,
                "deleted_rows": sum(each.deleted for each in bins),
            }
            if not bins:
                return Result(outcome=Outcome.NOTHING, before=before, after=before)
            if work.ticket.dry_run:
                return planned_result(bins, before)
            rewrite = _run(work, log, state, bins)
        except Refused as refused:
            if isinstance(refused, Conflict):
                raise
            return Result(outcome=Outcome.REFUSED, message=refused.message, before=before)
    return result_of(rewrite, before, time.monotonic() - started)


def _run(work: Work, log: TableLog, state: State, bins: list[Bin]) -> Rewrite:
    options, standing = work.ticket.options, state.standing
    rewriting = Rewriting.of(work.place, standing.metadata, standing.keeps_row_ids, options.target_file_size)
    total, done = sum(each.bytes for each in bins), 0
    rewrite = Rewrite(log, state, lambda: work.tell(done / total, "committing"))
    for planned in delta_bins.batches(bins, options.commit_bytes):
        batch = rewrite.untouched(planned)
        work.tell(done / total, f"writing {sum(len(each.files) for each in batch)} files as {len(batch)}")
        files = rewritten(work.spark(), rewriting, batch) if batch else []
        made: list[Made] = [
            (bin, () if file is None else (file,)) for bin, file in zip(batch, files, strict=True)
        ]
        done += sum(each.bytes for each in planned)
        try:
            rewrite.commit(made)
        except Conflict:
            # The rest was planned for a table that is no more; the batches before this one stand.
            break
    return rewrite


def planned_result(bins: list[Bin], before: dict[str, float]) -> Result:
    files, size = sum(len(each.files) for each in bins), sum(each.bytes for each in bins)
    return Result(
        outcome=Outcome.DONE,
        message=f"would write {files} files of {size} bytes again as {len(bins)}",
        before=before,
        measured={"files": files, "bytes": size, "bins": len(bins)},
    )


def result_of(rewrite: Rewrite, before: dict[str, float], seconds: float) -> Result:
    removed, added = [0, 0, 0], [0, 0, 0]
    for bin, files in rewrite.replaced:
        for place, number in enumerate((len(bin.files), bin.bytes, bin.deleted)):
            removed[place] += number
        for place, number in enumerate((len(files), sum(file.size for file in files))):
            added[place] += number
    figures = zip(_FIGURES, removed, added, strict=True)
    measured = {
        "seconds": round(seconds, 3),
        "commits": rewrite.commits,
        "rebases": rewrite.rebases,
        "dropped": rewrite.dropped,
        "files_removed": removed[0],
        "bytes_removed": removed[1],
        "files_added": added[0],
        "bytes_added": added[1],
    }
    return Result(
        outcome=Outcome.DONE if rewrite.commits else Outcome.LOST,
        message=rewrite.lost,
        before=before,
        after={name: before[name] - gone + come for name, gone, come in figures},
        measured=measured,
    )
