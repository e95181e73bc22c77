"""Manifest lists and manifests of Iceberg tables, of format versions 1 to 3.

What an entry inherits from its manifest (sequence number, snapshot, row ids) is filled in here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inver.domain.iceberg.content import Content, ContentFile, FieldSummary, Manifest, Metrics, Status
from inver.formats.avro import Container, Damaged

_METRICS = frozenset([108, 109, 110, 137, 125, 128])


def read_manifest_list(data: bytes) -> list[Manifest]:
    return [_checked(_manifest, record) for record in Container(data).records()]


def read_manifest(
    data: bytes,
    manifest: Manifest,
    partition_fields: Mapping[int, tuple[int, ...]],
    metrics: bool,
    first: int = 0,
) -> Iterator[ContentFile | None]:
    """Every entry from the one with the number `first` on: None for one whose file is no longer in the table.

    `partition_fields` are the field ids of every spec. Without `metrics`, columns are not looked at.
    """
    container = Container(data, frozenset() if metrics else _METRICS)
    spec_id = manifest.spec_id
    if spec_id is None:
        try:
            spec_id = int(container.metadata.get("partition-spec-id", b"0"))
        except ValueError:
            raise Damaged("the header of the manifest cannot be read") from None
    fields = partition_fields.get(spec_id)
    if fields is None:
        raise Damaged(f"the manifest is of partition spec {spec_id}, which the table does not have")
    next_row_id = manifest.first_row_id
    # Row ids are counted from the manifest's start, so that with them everything is looked at.
    start = first if next_row_id is None else 0
    for at, record in enumerate(container.records(start), start):
        entry = _checked(_file, record, manifest, spec_id, fields, next_row_id)
        if next_row_id is not None and entry is not None and record[2].get(142) is None:
            next_row_id += entry.record_count
        if at >= first:
            yield entry


def _checked(build: Any, record: Any, *more: Any) -> Any:
    try:
        return build(record, *more)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"the manifest has an entry that cannot be read: {type(error).__name__}") from None


def _manifest(record: dict[int, Any]) -> Manifest:
    get = record.get
    summaries = get(507)
    return Manifest(
        path=record[500],
        length=record[501],
        spec_id=record[502],
        content=Content(get(517) or 0),
        sequence_number=get(515) or 0,
        added_snapshot_id=get(503),
        added_files=get(504),
        existing_files=get(505),
        deleted_files=get(506),
        partitions=None if summaries is None else tuple(map(_summary, summaries)),
        first_row_id=get(520),
    )


def _summary(record: dict[int, Any]) -> FieldSummary:
    return FieldSummary(record[509], record.get(518), record.get(510), record.get(511))


def _file(
    record: dict[int, Any],
    manifest: Manifest,
    spec_id: int,
    fields: tuple[int, ...],
    next_row_id: int | None,
) -> ContentFile | None:
    status = record[0]
    if status == Status.DELETED:
        return None
    file = record[2]
    get = file.get
    partition = get(102) or {}
    sequence = record.get(3)
    snapshot = record.get(1)
    content = Content(get(134) or 0)
    first_row_id = None
    if next_row_id is not None and content is Content.DATA:
        first_row_id = next_row_id if get(142) is None else get(142)
    splits, equality = get(132), get(135)
    return ContentFile(
        content=content,
        path=file[100],
        format=file[101].lower(),
        spec_id=spec_id,
        partition=tuple([partition.get(field) for field in fields]),
        record_count=file[103],
        size=file[104],
        sequence_number=manifest.sequence_number if sequence is None else sequence,
        snapshot_id=manifest.added_snapshot_id if snapshot is None else snapshot,
        added=status == Status.ADDED,
        metrics=Metrics(get(108), get(109), get(110), get(137), get(125), get(128)),
        key_metadata=get(131),
        split_offsets=None if splits is None else tuple(splits),
        equality_ids=None if equality is None else tuple(equality),
        sort_order_id=get(140),
        first_row_id=first_row_id,
        referenced_data_file=get(143),
        content_offset=get(144),
        content_size=get(145),
    )
