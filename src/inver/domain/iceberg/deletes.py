"""Which delete files are about which data files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from inver.domain.iceberg.content import NO_METRICS, Content, ContentFile, Metrics
from inver.domain.iceberg.schemas import Field, is_primitive
from inver.domain.iceberg.values import from_binary

Key: TypeAlias = Hashable
T = TypeVar("T")


def slim(file: ContentFile) -> ContentFile:
    """A delete file without what nobody asks of it, since many may have to be held at once."""
    if file.content is Content.POSITION_DELETES:
        return msgspec.structs.replace(
            file, metrics=NO_METRICS, referenced_data_file=file.deletes_from, split_offsets=None
        )
    ids, metrics = frozenset(file.equality_ids or ()), file.metrics
    return msgspec.structs.replace(
        file,
        metrics=Metrics(
            None,
            _only(metrics.value_counts, ids),
            _only(metrics.null_counts, ids),
            None,
            _only(metrics.lower, ids),
            _only(metrics.upper, ids),
        ),
    )


class DeleteIndex:
    """`unpartitioned` are the specs whose equality deletes are about every file of the table."""

    def __init__(
        self, files: Iterable[ContentFile], unpartitioned: frozenset[int], columns: Mapping[int, Field]
    ) -> None:
        self._columns = columns
        self._vectors: dict[str, ContentFile] = {}
        self._by_path: dict[str, _Group] = {}
        self._by_partition: dict[Key, _Group] = {}
        self._equality: dict[Key, _Group] = {}
        self._size = 0
        for file in files:
            self._add(file, unpartitioned)
        for groups in (self._by_path, self._by_partition, self._equality):
            for group in groups.values():
                group.order()

    def __len__(self) -> int:
        return self._size

    def of(self, file: ContentFile) -> list[ContentFile]:
        """The delete files that a reader of this data file must apply."""
        sequence, key = file.sequence_number, _key(file)
        found = [
            delete
            for group in (self._equality.get(None), self._equality.get(key))
            if group is not None
            for delete in group.since(sequence + 1)
            if self._may_delete(delete, file)
        ]
        vector = self._vectors.get(file.path)
        if vector is not None and vector.sequence_number >= sequence:
            # It holds what the position deletes before it said.
            return [*found, vector]
        for group in (self._by_partition.get(key), self._by_path.get(file.path)):
            if group is not None:
                found += group.since(sequence)
        return found

    def _add(self, file: ContentFile, unpartitioned: frozenset[int]) -> None:
        self._size += 1
        if file.content is Content.EQUALITY_DELETES:
            key = None if file.spec_id in unpartitioned else _key(file)
            self._equality.setdefault(key, _Group()).add(file)
            return
        path = file.deletes_from
        if path is None:
            self._by_partition.setdefault(_key(file), _Group()).add(file)
        elif file.is_vector:
            known = self._vectors.get(path)
            if known is None or known.sequence_number < file.sequence_number:
                self._vectors[path] = file
        else:
            self._by_path.setdefault(path, _Group()).add(file)

    def _may_delete(self, delete: ContentFile, data: ContentFile) -> bool:
        """False if no row of the data file can equal one of the delete file."""
        columns = (self._columns.get(id_) for id_ in delete.equality_ids or ())
        return all(column is None or _may_meet(column, delete, data) for column in columns)


class _Group:
    """Delete files in the order of their sequence numbers, once they are all there."""

    __slots__ = ("_files", "_sequences")

    def __init__(self) -> None:
        self._files: list[ContentFile] = []
        self._sequences: list[int] = []

    def add(self, file: ContentFile) -> None:
        self._files.append(file)

    def order(self) -> None:
        self._files.sort(key=lambda file: file.sequence_number)
        self._sequences = [file.sequence_number for file in self._files]

    def since(self, sequence: int) -> Sequence[ContentFile]:
        return self._files[bisect_left(self._sequences, sequence) :]


def _only(known: Mapping[int, T] | None, ids: frozenset[int]) -> Mapping[int, T] | None:
    return None if known is None else {id_: value for id_, value in known.items() if id_ in ids}


def _key(file: ContentFile) -> Key:
    # NaN is one partition, although it equals nothing.
    values = tuple(["NaN" if value != value else value for value in file.partition])
    return file.spec_id, values


def _may_meet(column: Field, delete: ContentFile, data: ContentFile) -> bool:
    if not is_primitive(column.type) or not isinstance(column.type, str):
        return True
    nulls, deleted_nulls = _nulls(column, data), _nulls(column, delete)
    if nulls != 0 and deleted_nulls != 0:
        return True
    if (_all_null(column, data) and deleted_nulls == 0) or (_all_null(column, delete) and nulls == 0):
        return False
    lower, upper = _bound(column, data.metrics.lower), _bound(column, data.metrics.upper)
    first, last = _bound(column, delete.metrics.lower), _bound(column, delete.metrics.upper)
    if None in (lower, upper, first, last):
        return True
    return bool(lower <= last and first <= upper)


def _nulls(column: Field, file: ContentFile) -> int | None:
    return 0 if column.required else (file.metrics.null_counts or {}).get(column.id)


def _all_null(column: Field, file: ContentFile) -> bool:
    nulls = _nulls(column, file)
    return nulls is not None and nulls == (file.metrics.value_counts or {}).get(column.id)


def _bound(column: Field, bounds: Mapping[int, bytes] | None) -> Any:
    data = (bounds or {}).get(column.id)
    value = None if data is None or not isinstance(column.type, str) else from_binary(column.type, data)
    return None if value != value else value
