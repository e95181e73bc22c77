"""What the files that a Delta commit adds and removes come to.

- A file that is removed and added again under its own path is the same file with another deletion
  vector. It counts neither as added nor as removed, and only the change of its deleted rows counts.
- `files_*` and `bytes_*` count every other add and remove, also those of a rewrite that changes no
  data. Change data files and deletion vectors are no files of the table. `bytes_removed` is None
  when a remove does not say its size.
- `rows_*` count rows that readers see, so a file's rows are its records without its deleted ones,
  and only for actions with `dataChange`. A deletion vector that grows removes rows, one that
  shrinks adds them. A number of records that is not in the action makes the sum None: never a guess.
- `sizes` follow `files_*` and `bytes_*`; `deletes` and `deleted_rows` count deletion vectors that came
  and went, whatever else the action changes.

One file does not tell whether a path that is only added was already there (as when a writer adds
statistics to files of earlier versions); such an add counts as a new file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from inver.domain.ledger import Counts
from inver.domain.sizes import bin_of, flat

Amount = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
# Writers put the number first, and then the statistics of every column need not be read.
_records_first = re.compile(r'\{\s*"numRecords"\s*:\s*(\d{1,18})\s*[,}]').match


class DeletionVector(msgspec.Struct, gc=False):
    cardinality: Amount


class Add(msgspec.Struct, gc=False):
    path: str
    size: Amount
    dataChange: bool  # noqa: N815
    stats: str | None = None
    deletionVector: DeletionVector | None = None  # noqa: N815


class Remove(msgspec.Struct, gc=False):
    path: str
    dataChange: bool  # noqa: N815
    size: Amount | None = None
    stats: str | None = None
    deletionVector: DeletionVector | None = None  # noqa: N815


class _Statistics(msgspec.Struct, gc=False):
    numRecords: Amount | None = None  # noqa: N815


_statistics = msgspec.json.Decoder(_Statistics).decode


def count(adds: Sequence[Add], removes: Sequence[Remove]) -> Counts:
    if len(adds) == 1 and not removes:
        return _one(adds[0])
    rows_added: int | None = 0
    bytes_removed: int | None = 0
    files_added = files_removed = bytes_added = hidden = deletes = deleted_rows = 0
    sizes: dict[int, tuple[int, int]] = {}
    replaced = {remove.path: remove for remove in removes} if adds else {}
    kept = set()
    for add in adds:
        if add.deletionVector is not None:
            deletes += 1
            deleted_rows += add.deletionVector.cardinality
        before = replaced.get(add.path) if replaced else None
        if before is None:
            files_added += 1
            size = add.size
            bytes_added += size
            place = bin_of(size)
            files, total = sizes.get(place, (0, 0))
            sizes[place] = files + 1, total + size
            if add.dataChange and rows_added is not None:
                rows = _rows(add)
                rows_added = None if rows is None else rows_added + rows
            continue
        kept.add(add.path)
        if add.dataChange:
            growth = _deleted(add) - _deleted(before)
            if growth > 0:
                hidden += growth
            elif rows_added is not None:
                rows_added -= growth
    rows_removed: int | None = hidden
    for remove in removes:
        if remove.deletionVector is not None:
            deletes -= 1
            deleted_rows -= remove.deletionVector.cardinality
        if remove.path in kept:
            continue
        files_removed += 1
        if bytes_removed is not None:
            bytes_removed = None if remove.size is None else bytes_removed + remove.size
        if remove.size is not None:
            place = bin_of(remove.size)
            files, total = sizes.get(place, (0, 0))
            sizes[place] = files - 1, total - remove.size
        if remove.dataChange and rows_removed is not None:
            rows = _rows(remove)
            rows_removed = None if rows is None else rows_removed + rows
    return Counts(
        rows_added,
        rows_removed,
        files_added,
        files_removed,
        bytes_added,
        bytes_removed,
        # What came and went can be alike; no sizes at all are for files that did neither.
        flat(sizes) if sizes and bytes_removed is not None else None,
        deletes,
        deleted_rows,
    )


def _one(add: Add) -> Counts:
    """The same for what most commits are: one new file."""
    size, vector = add.size, add.deletionVector
    return Counts(
        _rows(add) if add.dataChange else 0,
        0,
        1,
        0,
        size,
        0,
        ((bin_of(size), 1, size),),
        0 if vector is None else 1,
        0 if vector is None else vector.cardinality,
    )


def _rows(file: Add | Remove) -> int | None:
    """Rows of a file that readers see, or None when the action does not say."""
    if file.stats is None:
        return None
    found = _records_first(file.stats)
    if found is not None:
        records: int | None = int(found[1])
    else:
        try:
            records = _statistics(file.stats).numRecords
        except (msgspec.DecodeError, RecursionError):
            return None
    if file.deletionVector is None or records is None:
        return records
    return None if records < _deleted(file) else records - _deleted(file)


def _deleted(file: Add | Remove) -> int:
    return 0 if file.deletionVector is None else file.deletionVector.cardinality
