"""Care gives way to writers.

A rewrite of files changes no row, but it takes away the files that a writer has looked at. So a
commit of care is marked in its snapshot's summary, and a writer whose requirement names the snapshot
before it is not refused: the rewrite is taken back, and the writer's commit follows the snapshot that
the writer knows. Of the rewrite stay files that nothing refers to.

This holds for rewrites that are the newest of the table: nothing may have been built on them, and no
other branch or tag may name them.
"""

from __future__ import annotations

from msgspec import Raw, structs

from inver.domain.iceberg.builder import TableBuilder
from inver.domain.iceberg.failures import RequirementFailed
from inver.domain.iceberg.nodes import encode, members
from inver.domain.iceberg.properties import flag
from inver.domain.iceberg.requests import CommitRequest
from inver.domain.iceberg.snapshots import Snapshot, parse_snapshot, read_ref, read_snapshot
from inver.domain.iceberg.state import SNAPSHOT
from inver.domain.iceberg.updates import AddSnapshot, AssertRefSnapshotId, RemoveSnapshotRef, RemoveSnapshots
from inver.errors import Invalid

MARK = "inver.care"
"""In the summary of a snapshot that care made; its value is the run."""

GIVE_WAY = "inver.care.give-way"
"""A property of tables. With `false`, rewrites stay: a stream that has come to one finds it again."""

REPLACE = "replace"


def marked(request: CommitRequest, run: str) -> CommitRequest:
    """The request as one of care: its snapshots say so, and must not change rows."""
    updates = [
        AddSnapshot(snapshot=_mark(each.snapshot, run)) if isinstance(each, AddSnapshot) else each
        for each in request.updates
    ]
    return structs.replace(request, updates=tuple(updates), care=run)


def is_care(snapshot: Snapshot) -> bool:
    summary = snapshot.summary or {}
    return MARK in summary and summary.get("operation") == REPLACE


def give_way(builder: TableBuilder, request: CommitRequest) -> None:
    """Take back the rewrites that stand between a writer and the snapshot that it requires."""
    if request.care is not None or not flag(builder.head.properties, GIVE_WAY, True):
        return
    for requirement in request.requirements:
        if isinstance(requirement, AssertRefSnapshotId) and requirement.snapshot_id is not None:
            rewrites = _rewrites(builder, requirement.ref, requirement.snapshot_id)
            if rewrites:
                builder.take_back(requirement.ref, requirement.snapshot_id, rewrites)


def check_care(builder: TableBuilder, request: CommitRequest) -> None:
    """What care gives up may have got a name since it looked."""
    if request.care is None:
        return
    leaving = {each.ref_name for each in request.updates if isinstance(each, RemoveSnapshotRef)}
    names = {
        read_ref(raw).snapshot_id: name for name, raw in builder.head.refs.items() if name not in leaving
    }
    for update in request.updates:
        if isinstance(update, RemoveSnapshots):
            for snapshot_id in update.snapshot_ids:
                if snapshot_id in names:
                    raise RequirementFailed(f"snapshot {snapshot_id} is named by {names[snapshot_id]}")


def _rewrites(builder: TableBuilder, ref: str, expected: int) -> list[Snapshot]:
    """The snapshots from a ref down to the expected one, newest first; none if one of them must stay."""
    head, draft = builder.head, builder.draft
    if ref not in head.refs or (SNAPSHOT, str(expected)) not in draft:
        return []
    at = read_ref(head.refs[ref]).snapshot_id
    if at == expected:
        return []
    others = {read_ref(raw).snapshot_id for name, raw in head.refs.items() if name != ref}
    found: list[Snapshot] = []
    sequence, next_row = head.last_sequence_number, head.next_row_id
    while at != expected:
        body = draft.get(SNAPSHOT, str(at))
        snapshot = None if body is None else read_snapshot(body)
        if snapshot is None or snapshot.parent is None or at in others or not is_care(snapshot):
            return []
        # Numbers are given out once: these were the last ones, so that no other snapshot came after.
        if head.format_version >= 2 and snapshot.sequence != sequence:
            return []
        if head.format_version >= 3:
            first, added = snapshot.first_row_id, snapshot.added_rows
            if not isinstance(first, int) or not isinstance(added, int) or first + added != next_row:
                return []
            next_row = first
        found.append(snapshot)
        at, sequence = snapshot.parent, sequence - 1
    if head.format_version == 1 and not _are_last(builder, found):
        return []
    return found


def _are_last(builder: TableBuilder, newest_first: list[Snapshot]) -> bool:
    """By the order in which the table has got its snapshots, where they have no numbers."""
    ids = [str(snapshot.snapshot_id) for snapshot in reversed(newest_first)]
    return builder.draft.keys(SNAPSHOT)[-len(ids) :] == ids


def _mark(raw: Raw, run: str) -> Raw:
    snapshot, body = parse_snapshot(raw)
    summary = snapshot.summary or {}
    if summary.get("operation") != REPLACE:
        raise Invalid("care changes no rows: the operation of its snapshots is replace", field="operation")
    fields = members(body, "snapshot")
    return Raw(encode(fields | {"summary": Raw(encode(summary | {MARK: run}))}))
