"""What the catalog says of an Iceberg table."""

from __future__ import annotations

from typing import Any

import msgspec

from inver.client.core import Call, json_answer
from inver.client.naming import schema_segment, segment
from inver.domain.iceberg.expiring import History
from inver.domain.tables import TableKind
from inver.errors import Refused
from inver.pipeline.work import Work

MOUNT = "/iceberg"
PAGE = 1_000
GC = "gc.enabled"
NEWEST_FORMAT = 3


class _Loaded(msgspec.Struct, frozen=True):
    metadata: History


def load(work: Work) -> History:
    """The table's metadata as it is now; refused if it is nothing that care understands."""
    ticket = work.ticket
    if ticket.kind is TableKind.VIEW:
        raise Refused("a view has no files to care for")
    catalog, *path, name = ticket.name
    url = f"/v1/{segment(catalog)}/namespaces/{schema_segment(path)}/tables/{segment(name)}"
    call = Call(method="GET", path=url, read=json_answer(_Loaded), mount=MOUNT)
    history = work.client.run(call).metadata
    if history.format_version > NEWEST_FORMAT:
        raise Refused(f"format version {history.format_version} of Iceberg is newer than care knows")
    if history.encryption_keys:
        raise Refused("the table is encrypted, and care has no keys to it")
    return history


def require_gc(history: History) -> None:
    if history.properties.get(GC, "true").lower() == "false":
        raise Refused(f"{GC} is false: files of this table may be those of others too")


def pinned(work: Work, history: History) -> set[int]:
    """Snapshots that were current at the versions that somebody still needs.

    Those that a branch or tag names are kept by Iceberg.
    """
    first = work.ticket.pinned_from
    if first is None:
        return set()
    current = {each.snapshot_id for each in history.snapshots}
    found: set[int] = set()
    last: int | None = None
    while True:
        page = work.client.history(work.ticket.name, first=first, last=last, limit=PAGE)
        found |= {number for commit in page for number in _named(commit.payload)}
        if len(page) < PAGE or page[-1].version <= first:
            return found & current
        last = page[-1].version - 1


def _named(payload: Any) -> list[int]:
    """The snapshots that the record of a version names."""
    given = payload if isinstance(payload, dict) else {}
    return [given[key] for key in ("current-snapshot-id", "snapshot-id") if isinstance(given.get(key), int)]
