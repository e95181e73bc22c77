"""Iceberg tables and views: their metadata, and what commits make of it.

A table or view is a `State`: a small head, and parts (schemas, specs, sort orders, snapshots, logs,
statistics, keys) that stay the bytes they came as. A commit turns a state into a `Change`: the new
head, exactly the parts that it adds and takes away, and the state that follows. What a commit does
not speak of is not decoded: an append to a table of thousands of snapshots reads the head and the
request, and nothing else.

    state = load(head, parts)
    request = decode_commit(body)
    change = commit(state, [request], now_ms=..., file_id=...)
    file = b"".join(document(change.state))

Failures: `inver.errors.Invalid` (and `IllegalArgument`) for what can never be applied,
`RequirementFailed` and `StaleCommit` for what somebody else was faster with.
"""

from __future__ import annotations

from collections.abc import Sequence

from inver.domain.iceberg.documents import Snapshots, table_document
from inver.domain.iceberg.failures import IllegalArgument, RequirementFailed, StaleCommit
from inver.domain.iceberg.files import is_gzip
from inver.domain.iceberg.registration import from_document
from inver.domain.iceberg.replays import has_snapshots, is_applied, manifest_lists
from inver.domain.iceberg.requests import (
    CommitRequest,
    CreateTable,
    CreateView,
    Identifier,
    decode_commit,
    decode_create_table,
    decode_create_view,
    decode_transaction,
)
from inver.domain.iceberg.requirements import check
from inver.domain.iceberg.series import Series
from inver.domain.iceberg.snapshots import Ref, Snapshot, read_snapshot
from inver.domain.iceberg.state import SCHEMA, VERSION, Change, Head, State, ViewHead, load, ref_of
from inver.domain.iceberg.tables import commit_table, create, new_table
from inver.domain.iceberg.view_documents import from_view_document, view_document
from inver.domain.iceberg.views import commit_view, new_view, read_version
from inver.domain.iceberg.yielding import marked
from inver.errors import Broken

__all__ = [
    "Change",
    "CommitRequest",
    "CreateTable",
    "CreateView",
    "Head",
    "Identifier",
    "IllegalArgument",
    "Ref",
    "RequirementFailed",
    "Series",
    "Snapshot",
    "StaleCommit",
    "State",
    "ViewHead",
    "check",
    "commit",
    "create",
    "current_schema",
    "decode_commit",
    "decode_create_table",
    "decode_create_view",
    "decode_transaction",
    "document",
    "from_document",
    "from_view_document",
    "has_snapshots",
    "is_applied",
    "is_gzip",
    "load",
    "manifest_lists",
    "marked",
    "new_table",
    "new_view",
    "read_snapshot",
    "ref_of",
]


def commit(state: State, requests: Sequence[CommitRequest], *, now_ms: int, file_id: str) -> Change:
    """One new version of all requests, each checked against what the ones before it leave.

    `file_id` makes the name of the new metadata file unlike any other.
    """
    run = commit_view if state.is_view else commit_table
    return run(state, requests, now_ms=now_ms, file_id=file_id)


def document(state: State, snapshots: Snapshots = "all") -> list[bytes]:
    """The metadata as JSON in pieces. With `refs`, only snapshots that a branch or tag names."""
    if isinstance(state.head, ViewHead):
        return view_document(state, state.head)
    return table_document(state, state.head, snapshots)


def current_schema(state: State) -> bytes:
    """The current schema as JSON."""
    if isinstance(state.head, ViewHead):
        version = state.parts(VERSION).get(str(state.head.current_version_id))
        schema_id = -1 if version is None else read_version(version).schema_id
    else:
        schema_id = state.head.current_schema_id
    body = state.parts(SCHEMA).get(str(schema_id))
    if body is None:
        raise Broken(f"there is no schema {schema_id}")
    return body
