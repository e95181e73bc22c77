"""Where metadata files lie and what they are called."""

from __future__ import annotations

from collections.abc import Mapping

from inver.domain.iceberg.failures import IllegalArgument

FOLDER = "metadata"
METADATA_PATH = "write.metadata.path"
COMPRESSION = "write.metadata.compression-codec"
_SUFFIXES = {"none": ".metadata.json", "gzip": ".gz.metadata.json"}


def strip_slash(location: str) -> str:
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    return location


def next_file(
    location: str, properties: Mapping[str, str], previous: str | None, file_id: str, codec: str = "none"
) -> str:
    """The file of the version after `previous`; `codec` is what the properties may say otherwise."""
    name = properties.get(COMPRESSION, codec)
    suffix = _SUFFIXES.get(name.lower())
    if suffix is None:
        raise IllegalArgument(f"Invalid codec name: {name}", field=COMPRESSION)
    folder = properties.get(METADATA_PATH)
    folder = f"{location}/{FOLDER}" if folder is None else strip_slash(folder)
    return f"{folder}/{_number(previous) + 1:05d}-{file_id}{suffix}"


def is_gzip(location: str) -> bool:
    return location.endswith((".gz.metadata.json", ".metadata.json.gz"))


def _number(location: str | None) -> int:
    """The number in a file's name, -1 when another catalog named it."""
    digits, dash, _ = (location or "").rpartition("/")[2].partition("-")
    return int(digits) if dash and digits.isascii() and digits.isdigit() and len(digits) < 10 else -1
