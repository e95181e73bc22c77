"""Statistics files and encryption keys: checked when they come, kept as they came."""

from __future__ import annotations

import base64
import binascii

import msgspec

from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.nodes import decode_as
from inver.domain.iceberg.snapshots import Int, Long


class _Blob(msgspec.Struct, rename="kebab"):
    type: str
    snapshot_id: Long
    sequence_number: Long
    fields: list[Int]
    properties: dict[str, str] = {}


class _PartitionStatistics(msgspec.Struct, rename="kebab"):
    snapshot_id: Long
    statistics_path: str
    file_size_in_bytes: Long


class _Statistics(_PartitionStatistics, rename="kebab"):
    file_footer_size_in_bytes: Long
    blob_metadata: list[_Blob]


class _Key(msgspec.Struct, rename="kebab"):
    key_id: str
    encrypted_key_metadata: str
    encrypted_by_id: str | None = None
    properties: dict[str, str] | None = None


_statistics = msgspec.json.Decoder(_Statistics)
_partition_statistics = msgspec.json.Decoder(_PartitionStatistics)
_key = msgspec.json.Decoder(_Key)


def statistics_of(raw: bytes | msgspec.Raw) -> int:
    """The snapshot that the file is about."""
    return decode_as(_statistics, raw, "statistics").snapshot_id


def partition_statistics_of(raw: bytes | msgspec.Raw) -> int:
    return decode_as(_partition_statistics, raw, "partition-statistics").snapshot_id


def encryption_key_id(raw: bytes | msgspec.Raw) -> str:
    key = decode_as(_key, raw, "encryption-key")
    written = key.encrypted_key_metadata
    try:
        base64.b64decode(written + "=" * (-len(written) % 4), validate=True)
    except binascii.Error as error:
        raise IllegalArgument(
            f"Cannot parse encrypted-key-metadata: {error}", field="encryption-key"
        ) from None
    return key.key_id
