"""Where the jobs are; a module is imported when one of its jobs is first run."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from inver.domain.care import Job
from inver.domain.tables import Format
from inver.pipeline.work import Job as Run

_PLACES = {
    (Format.DELTA, Job.COMPACT): "delta_rewrite:compact",
    (Format.DELTA, Job.PURGE): "delta_rewrite:purge",
    (Format.DELTA, Job.CLUSTER): "delta_cluster:cluster",
    (Format.DELTA, Job.VACUUM): "delta_vacuum:vacuum",
    (Format.DELTA, Job.ORPHANS): "delta_vacuum:orphans",
    (Format.DELTA, Job.CHECKPOINT): "delta_log:checkpoint",
    (Format.DELTA, Job.LOG): "delta_log:log",
    (Format.ICEBERG, Job.COMPACT): "iceberg:compact",
    (Format.ICEBERG, Job.PURGE): "iceberg:purge",
    (Format.ICEBERG, Job.MANIFESTS): "iceberg:manifests",
    (Format.ICEBERG, Job.EXPIRE): "iceberg:expire",
    (Format.ICEBERG, Job.ORPHANS): "iceberg:orphans",
    (Format.ICEBERG, Job.STATISTICS): "iceberg:statistics",
    (Format.LANCE, Job.COMPACT): "lance:compact",
    (Format.LANCE, Job.EXPIRE): "lance:expire",
    (Format.LANCE, Job.INDEX): "lance:index",
}


def find(format: Format, job: Job) -> Run:
    module, name = _PLACES[format, job].split(":")
    return cast(Run, getattr(import_module(f"inver.pipeline.jobs.{module}"), name))
