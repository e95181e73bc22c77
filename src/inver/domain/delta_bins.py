"""Which files of a Delta table a rewrite takes together: bins, each of which becomes one file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from inver.domain.care import Options
from inver.domain.delta_actions import Add

TARGET_TAG = "OPTIMIZE_TARGET_SIZE"
"""Marks a file that was filled up to a target: what was merged often ends smaller than its parts, and
must not count as small the next time."""
CUBE_TAG = "ZCUBE_ID"
"""Which files were laid out together by a curve. They keep apart from others, or the order would be lost."""

_CLASSES = 6
_RECORDS_FIRST = re.compile(r'\{\s*"numRecords"\s*:\s*(\d{1,18})\s*[,}]')
_Partition: TypeAlias = tuple[tuple[str, str | None], ...]


class Bin(msgspec.Struct, frozen=True):
    """Files of one partition, in the order in which their rows were written.

    Their paths are as storage knows them, not percent-encoded.
    """

    files: tuple[Add, ...]
    full: bool = False
    """Whether nothing more would have fitted in."""

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def deleted(self) -> int:
        return sum(deleted_rows(file) for file in self.files)

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(file.path for file in self.files)

    @property
    def cube_tags(self) -> dict[str, str]:
        """What its files say of the cube that they are all part of."""
        tags = self.files[0].tags or {}
        if cube_of(self.files[0]) is None:
            return {}
        return {key: value for key, value in tags.items() if key.startswith("ZCUBE_") and value is not None}


class _Statistics(msgspec.Struct):
    records: int | None = msgspec.field(default=None, name="numRecords")


def records(file: Add) -> int | None:
    """How many rows a file holds, deleted ones included, if its statistics say so."""
    if file.stats is None:
        return None
    found = _RECORDS_FIRST.match(file.stats)
    if found is not None:
        return int(found[1])
    try:
        return msgspec.json.decode(file.stats, type=_Statistics).records
    except (msgspec.DecodeError, RecursionError):
        return None


def deleted_rows(file: Add) -> int:
    return 0 if file.deletion_vector is None else file.deletion_vector.cardinality


def deleted_ratio(file: Add) -> float:
    """The part of a file's rows that is deleted; all of them where nobody knows how many there are."""
    deleted = deleted_rows(file)
    if not deleted:
        return 0.0
    rows = records(file)
    return 1.0 if not rows else deleted / rows


def cube_of(file: Add) -> str | None:
    return (file.tags or {}).get(CUBE_TAG)


def is_small(file: Add, options: Options) -> bool:
    limit = options.target_file_size * options.small_file_ratio
    if file.size >= limit or cube_of(file) is not None:
        return False
    tag = (file.tags or {}).get(TARGET_TAG)
    return not (tag is not None and tag.isdecimal() and int(tag) >= limit)


def purges(file: Add, options: Options) -> bool:
    return deleted_ratio(file) > options.deleted_ratio


def compaction(files: Iterable[Add], options: Options) -> list[Bin]:
    """Small files together, and what has too many deleted rows, alone if need be."""
    wanted = [file for file in files if is_small(file, options) or purges(file, options)]
    bins = _pack(wanted, options.target_file_size)
    return [each for each in bins if len(each.files) > 1 or purges(each.files[0], options)]


def purge(files: Iterable[Add], options: Options) -> list[Bin]:
    """Files with too many deleted rows, and no others."""
    return _pack([file for file in files if purges(file, options)], options.target_file_size)


def batches(bins: Sequence[Bin], commit_bytes: int) -> Iterator[list[Bin]]:
    """Bins that are committed together: a lost race costs no more than one of these."""
    batch: list[Bin] = []
    size = 0
    for each in bins:
        if batch and size + each.bytes > commit_bytes:
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += each.bytes
    if batch:
        yield batch


def partition_of(file: Add) -> _Partition:
    """An empty text is null in a partition column of any type."""
    return tuple(sorted((name, value or None) for name, value in file.partition_values.items()))


def _pack(files: Sequence[Add], target: int) -> list[Bin]:
    """Files of about the same size in the order in which they were written, so that what is sorted by time
    stays so; the smaller ones first. Of those beyond half of the target no two fit together, so what is
    left alone once is left alone ever after."""
    partitions: dict[tuple[_Partition, str | None], list[Add]] = {}
    for file in files:
        partitions.setdefault((partition_of(file), cube_of(file)), []).append(file)
    bins: list[Bin] = []
    for together in partitions.values():
        together.sort(key=lambda file: (_size_class(_live_bytes(file), target), *_written(file)))
        bin: list[Add] = []
        size = 0
        lonely = False
        for file in together:
            live = _live_bytes(file)
            if bin and size + live > target:
                lonely = lonely or len(bin) == 1
                bins.append(_bin(bin, full=True))
                bin, size = [], 0
            bin.append(file)
            size += live
        # Were this one to shrink, it must not make room for a file that was left alone beside it.
        bins.append(_bin(bin, full=size >= target or (lonely and 2 * size > target)))
    return bins


def _size_class(size: int, target: int) -> int:
    """0 for what is larger than half of the target, -1 for what is larger than a quarter…"""
    for smaller in range(_CLASSES):
        if size << (smaller + 1) > target:
            return -smaller
    return -_CLASSES


def _bin(files: Iterable[Add], *, full: bool) -> Bin:
    return Bin(tuple(sorted(files, key=_written)), full)


def _written(file: Add) -> tuple[int, int, str]:
    """Rows that arrived together are often read together."""
    return -1 if file.base_row_id is None else file.base_row_id, file.modification_time, file.path


def _live_bytes(file: Add) -> int:
    return round(file.size * (1 - deleted_ratio(file))) if records(file) else file.size
