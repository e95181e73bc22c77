"""Old versions are given up, on storage and in the catalog's records; indices take in new rows.

The files go first. A run that ends in between leaves records of versions that are not there, and those
the catalog drops by itself when it next looks; the other way round, files would be left that no record
leads to.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec

from inver.client.core import Call, json_answer, json_body, query_of
from inver.client.naming import segment
from inver.domain.care import Outcome, Result
from inver.errors import Conflict
from inver.pipeline.lance.datasets import MOUNT, connected, numbers, told
from inver.pipeline.retention import snapshot_ms
from inver.pipeline.work import Work

BATCH = 500
"""Versions that are deleted between two looks at the lease."""

FOREVER = timedelta(days=36_500)
PAGE = 1_000
MAIN = (None, "", "main")
"""How pylance says that a tag is not on a branch."""


class _Version(msgspec.Struct, frozen=True):
    version: int
    timestamp_millis: int | None = None


class _Versions(msgspec.Struct, frozen=True):
    versions: tuple[_Version, ...]
    page_token: str | None = None


class _Deleted(msgspec.Struct, frozen=True):
    deleted_count: int


def expire(work: Work) -> Result:
    options = work.ticket.options
    keep_ms = snapshot_ms(options)
    versions = _versions(work)
    dataset, _ = connected(work)
    kept = _kept(work, dataset)
    gone = outdated(versions, int(time.time() * 1000) - keep_ms, options.min_snapshots, kept)
    before = {"versions": float(len(versions)), "kept": float(len(kept))}
    if work.ticket.dry_run:
        outcome = Outcome.DONE if gone else Outcome.NOTHING
        found = {"versions": float(len(gone))}
        return Result(outcome=outcome, before=before, after=before, measured=found)
    measured: dict[str, float] = {"versions": 0, "bytes": 0, "files": 0, "records": 0}
    for start in range(0, len(gone), BATCH):
        some = gone[start : start + BATCH]
        work.tell(start / len(gone), "deleting old versions")
        _clean(dataset, measured, versions=some, error_if_tagged_old_versions=False)
        measured["records"] += _forget(work, some)
    if not gone:
        work.tell(0.5, "deleting what was never committed")
        _clean(dataset, measured, older_than=FOREVER)
    outcome = Outcome.DONE if gone or measured["bytes"] else Outcome.NOTHING
    after = before | {"versions": float(len(_versions(work)) if gone else len(versions))}
    return Result(outcome=outcome, before=before, after=after, measured=measured)


def _clean(dataset: Any, measured: dict[str, float], **which: Any) -> None:
    """Lance also deletes what no version needs, once it is too old to be part of a write."""
    with told():
        stats = dataset.cleanup_old_versions(**which)
    measured["versions"] += stats.old_versions
    measured["bytes"] += stats.bytes_removed
    measured["files"] += stats.data_files_removed


def index(work: Work) -> Result:
    dataset, _ = connected(work)
    before = numbers(dataset) | {"unindexed_rows": float(_unindexed(dataset))}
    if not before["unindexed_rows"] or work.ticket.dry_run:
        outcome = Outcome.DONE if before["unindexed_rows"] else Outcome.NOTHING
        return Result(outcome=outcome, before=before, after=before)
    work.tell(0.1, "indexing new rows")
    try:
        with told():
            dataset.optimize.optimize_indices()
    except Conflict as lost:
        return Result(outcome=Outcome.LOST, message=str(lost), before=before, after=before)
    dataset, _ = connected(work)
    after = numbers(dataset) | {"unindexed_rows": float(_unindexed(dataset))}
    return Result(outcome=Outcome.DONE, before=before, after=after)


def outdated(versions: Sequence[Any], before_ms: int, least: int, kept: set[int]) -> list[int]:
    """Versions, given in order, that another one took the place of long enough ago."""
    gone = []
    for version, following in pairwise(versions):
        replaced = following.timestamp_millis
        if replaced is not None and replaced < before_ms and version.version not in kept:
            gone.append(version.version)
    newest = {each.version for each in versions[-max(1, least) :]}
    return [version for version in gone if version not in newest]


def _kept(work: Work, dataset: Any) -> set[int]:
    """What pins, tags and branches need."""
    kept = {tag["version"] for tag in dataset.tags.list().values() if tag.get("branch") in MAIN}
    for branch in dataset.branches.list().values():
        # The files of a branch are those of the version that it left, until it replaces them; also of one
        # that has left another branch.
        kept.add(branch["branch_identifier"][0][0])
    if work.ticket.pinned_from is not None:
        kept.update(range(work.ticket.pinned_from, dataset.version + 1))
    return kept


def _versions(work: Work) -> list[_Version]:
    """Those that the catalog has on record, in order."""
    found: list[_Version] = []
    token: str | None = None
    while True:
        page = work.client.run(
            Call(
                method="POST",
                path=f"{_path(work)}/version/list",
                query=query_of(limit=PAGE, page_token=token),
                read=json_answer(_Versions),
                mount=MOUNT,
            )
        )
        found.extend(page.versions)
        if not page.page_token:
            return sorted(found, key=lambda each: each.version)
        token = page.page_token


def _forget(work: Work, versions: Sequence[int]) -> int:
    ranges = [{"start_version": version, "end_version": version + 1} for version in versions]
    call = Call(
        method="POST",
        path=f"{_path(work)}/version/delete",
        body=json_body({"ranges": ranges}),
        read=json_answer(_Deleted),
        mount=MOUNT,
    )
    return work.client.run(call).deleted_count


def _path(work: Work) -> str:
    return "/v1/table/" + segment("$".join(work.ticket.name))


def _unindexed(dataset: Any) -> int:
    names = [each.name for each in dataset.describe_indices()]
    return sum(dataset.stats.index_stats(name)["num_unindexed_rows"] for name in names)
