"""What manifests say: files of rows, files of deletes, and what is known of their columns.

Values are in one form per type that compares as the type does: whole numbers for dates, times and
timestamps (days, micro- or nanoseconds since 1970), unscaled whole numbers for decimals, bytes for
uuid, fixed and binary.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import msgspec

PATH_ID = 2147483546
"""The column of a position delete file that names the data file."""


class Content(IntEnum):
    """Of a file. Of a manifest, only whether it lists data or deletes."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


class Status(IntEnum):
    EXISTING = 0
    ADDED = 1
    DELETED = 2


class FieldSummary(msgspec.Struct, frozen=True):
    """Of one partition field over all files of a manifest; bounds are single values in binary form."""

    contains_null: bool
    contains_nan: bool | None = None
    lower: bytes | None = None
    upper: bytes | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a manifest list. Counts are None where an old writer left them out."""

    path: str
    length: int = 0
    spec_id: int | None = None
    content: Content = Content.DATA
    sequence_number: int = 0
    added_snapshot_id: int | None = None
    added_files: int | None = None
    existing_files: int | None = None
    deleted_files: int | None = None
    partitions: tuple[FieldSummary, ...] | None = None
    first_row_id: int | None = None

    @property
    def entries(self) -> int | None:
        """How many entries there are, deleted ones included."""
        counts = (self.added_files, self.existing_files, self.deleted_files)
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def is_live(self) -> bool:
        """Whether it may list files that are still in the table."""
        return self.added_files != 0 or self.existing_files != 0


class Metrics(msgspec.Struct, frozen=True):
    """By column, as far as the writer kept them."""

    column_sizes: Mapping[int, int] | None = None
    value_counts: Mapping[int, int] | None = None
    null_counts: Mapping[int, int] | None = None
    nan_counts: Mapping[int, int] | None = None
    lower: Mapping[int, bytes] | None = None
    upper: Mapping[int, bytes] | None = None


NO_METRICS = Metrics()


class ContentFile(msgspec.Struct, frozen=True, kw_only=True):
    """A live file of one manifest. `partition` is in the order of its spec's fields."""

    content: Content
    path: str
    format: str
    spec_id: int
    partition: tuple[Any, ...]
    record_count: int
    size: int
    sequence_number: int
    snapshot_id: int | None = None
    added: bool = False
    metrics: Metrics = NO_METRICS
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size: int | None = None

    @property
    def is_vector(self) -> bool:
        """A deletion vector: a piece of a Puffin file."""
        return self.content is Content.POSITION_DELETES and self.format == "puffin"

    @property
    def deletes_from(self) -> str | None:
        """The one data file that all position deletes of this file are about, if that is known."""
        if self.referenced_data_file is not None:
            return self.referenced_data_file
        lower = (self.metrics.lower or {}).get(PATH_ID)
        if lower is None or lower != (self.metrics.upper or {}).get(PATH_ID):
            return None
        return lower.decode(errors="replace")
