"""The commit of a rewrite: files replaced by files with the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from inver.domain.delta_actions import Add, Words
from inver.domain.delta_rebase import CATALOG_MANAGED, ROW_TRACKING, Standing

# What Java's URI leaves as it is in a path, since most logs are written with it.
_UNQUOTED = "/-_.!~*'(),;:$&+=@"


class NewFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a task has written. `path` is below the table, as storage knows it."""

    path: str
    size: int
    rows: int
    modification_time: int
    stats: str
    partition_values: Words = {}
    tags: dict[str, str] = {}
    clustering_provider: str | None = None


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """How the commit is told to people."""

    cluster_by: tuple[str, ...] = ()
    engine: str
    transaction: str
    parameters: dict[str, str] = {}


class Commit(msgspec.Struct, frozen=True):
    """A commit file. `after` is what the next commit builds on if this one wins."""

    version: int
    timestamp: int
    data: bytes
    after: Standing


def encoded(path: str) -> str:
    """A path as the log has it; beyond ASCII, characters stay as they are."""
    return "".join(each if ord(each) > 0x7F else quote(each, safe=_UNQUOTED) for each in path)


def rewrite_commit(
    standing: Standing,
    removed: Sequence[Add],
    added: Sequence[NewFile],
    operation: Operation,
    now: int,
    raw_paths: Mapping[str, str] | None = None,
) -> Commit:
    """The commit of the version after `standing`. Everything in it that depends on the version or on
    earlier commits is made here, so a commit that lost its version is made again by this alone.

    Paths are as storage knows them; `raw_paths` has how the log spells one, where that is known.
    """
    version = standing.version + 1
    timestamp = max(now, standing.timestamp + 1)
    domains = dict(standing.domains)
    lines: list[dict[str, Any]] = [{"commitInfo": _info(standing, removed, added, operation, timestamp)}]
    first_ids: list[int | None] = [None] * len(added)
    if standing.gives_row_ids and added:
        next_id = standing.high_water_mark + 1
        for place, file in enumerate(added):
            first_ids[place] = next_id
            next_id += file.rows
        mark = msgspec.json.encode({"rowIdHighWaterMark": next_id - 1}).decode()
        domains[ROW_TRACKING] = mark
        lines.append({"domainMetadata": {"domain": ROW_TRACKING, "configuration": mark, "removed": False}})
    lines += [{"remove": _remove(file, timestamp, raw_paths or {})} for file in removed]
    lines += [{"add": _add(file, first, version)} for file, first in zip(added, first_ids, strict=True)]
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    after = Standing(version, timestamp, standing.protocol, standing.metadata, domains)
    return Commit(version, timestamp, data, after)


def _info(
    standing: Standing,
    removed: Sequence[Add],
    added: Sequence[NewFile],
    operation: Operation,
    timestamp: int,
) -> dict[str, Any]:
    info: dict[str, Any] = {}
    features = set(standing.protocol.writer_features or ())
    if standing.metadata.enabled("delta.enableInCommitTimestamps") or features & CATALOG_MANAGED:
        info["inCommitTimestamp"] = timestamp
    info |= {
        "timestamp": timestamp,
        "operation": "OPTIMIZE",
        "operationParameters": {
            "predicate": "[]",
            "zOrderBy": "[]",
            "clusterBy": msgspec.json.encode(operation.cluster_by).decode(),
            "auto": "false",
            **operation.parameters,
        },
        "readVersion": standing.version,
        "isolationLevel": "SnapshotIsolation",
        "isBlindAppend": False,
        "operationMetrics": _metrics(removed, added),
        "engineInfo": operation.engine,
        "txnId": operation.transaction,
    }
    if standing.keeps_row_ids:
        info["tags"] = {"delta.rowTracking.preserved": "true"}
    return info


def _metrics(removed: Sequence[Add], added: Sequence[NewFile]) -> dict[str, str]:
    figures = {
        "numRemovedFiles": len(removed),
        "numRemovedBytes": sum(file.size for file in removed),
        "numAddedFiles": len(added),
        "numAddedBytes": sum(file.size for file in added),
        "numDeletionVectorsRemoved": sum(file.deletion_vector is not None for file in removed),
        **_sizes(file.size for file in added),
    }
    return {name: str(value) for name, value in figures.items()}


def _sizes(sizes: Iterable[int]) -> dict[str, int]:
    ordered = sorted(sizes)
    if not ordered:
        return {}
    return {"minFileSize": ordered[0], "p50FileSize": ordered[len(ordered) // 2], "maxFileSize": ordered[-1]}


def _remove(file: Add, timestamp: int, raw_paths: Mapping[str, str]) -> dict[str, Any]:
    action: dict[str, Any] = {
        "path": raw_paths.get(file.path) or encoded(file.path),
        "deletionTimestamp": timestamp,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": file.partition_values,
        "size": file.size,
    }
    optional = {
        "tags": file.tags,
        "deletionVector": file.deletion_vector,
        "baseRowId": file.base_row_id,
        "defaultRowCommitVersion": file.default_row_commit_version,
    }
    return action | {name: value for name, value in optional.items() if value is not None}


def _add(file: NewFile, first_id: int | None, version: int) -> dict[str, Any]:
    action: dict[str, Any] = {
        "path": encoded(file.path),
        "partitionValues": file.partition_values,
        "size": file.size,
        "modificationTime": file.modification_time,
        "dataChange": False,
        "stats": file.stats,
    }
    if file.tags:
        action["tags"] = file.tags
    if first_id is not None:
        action |= {"baseRowId": first_id, "defaultRowCommitVersion": version}
    if file.clustering_provider is not None:
        action["clusteringProvider"] = file.clustering_provider
    return action
