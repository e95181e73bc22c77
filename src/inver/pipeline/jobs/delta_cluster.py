"""Clustering of Delta tables: rows that are read together come to lie in the same files."""

from __future__ import annotations

import tempfile
import time
import uuid
from pathlib import Path

from inver.domain.care import Outcome, Result
from inver.domain.delta_bins import Bin
from inver.domain.delta_clusters import Clustering, clustering, cubes
from inver.errors import Conflict, Refused
from inver.pipeline.delta.rewriting import Rewrite
from inver.pipeline.delta.table import State, TableLog
from inver.pipeline.jobs.delta_rewrite import planned_result, result_of
from inver.pipeline.tasks.delta_cluster import clustered
from inver.pipeline.tasks.delta_rewrite import Rewriting
from inver.pipeline.work import Work


def cluster(work: Work) -> Result:
    """By the table's own clustering columns, or by those of the policy."""
    before: dict[str, float] = {}
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="inver-log-") as folder:
        try:
            work.tell(0.0, "reading the log")
            log = TableLog(work, Path(folder))
            state = log.state()
            before |= {"files": state.snapshot.files, "bytes": state.snapshot.bytes, "deleted_rows": 0}
            wanted = clustering(state.standing, work.ticket.options)
            if wanted is None:
                message = "neither the table nor the policy names columns to cluster by"
                return Result(outcome=Outcome.NOTHING, message=message, before=before, after=before)
            bins = cubes(state.files(), wanted, work.ticket.options, state.snapshot.bytes)
            before["deleted_rows"] = sum(each.deleted for each in bins)
            if not bins:
                return Result(outcome=Outcome.NOTHING, before=before, after=before)
            if work.ticket.dry_run:
                return planned_result(bins, before)
            rewrite = _run(work, log, state, wanted, bins)
        except Refused as refused:
            if isinstance(refused, Conflict):
                raise
            return Result(outcome=Outcome.REFUSED, message=refused.message, before=before)
    return result_of(rewrite, before, time.monotonic() - started)


def _run(work: Work, log: TableLog, state: State, wanted: Clustering, bins: list[Bin]) -> Rewrite:
    standing, options = state.standing, work.ticket.options
    rewriting = Rewriting.of(work.place, standing.metadata, standing.keeps_row_ids, options.target_file_size)
    total, done = sum(each.bytes for each in bins), 0
    rewrite = Rewrite(log, state, lambda: work.tell(done / total, "committing"), wanted.names)
    for cube in bins:
        if not rewrite.untouched([cube]):
            continue
        work.tell(done / total, f"laying out {len(cube.files)} files by {', '.join(wanted.names)}")
        files = clustered(work.spark(), rewriting, wanted, cube, str(uuid.uuid4()))
        done += cube.bytes
        try:
            rewrite.commit([(cube, files)])
        except Conflict:
            break
    return rewrite
