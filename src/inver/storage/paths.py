"""Paths of objects below a store's root. They are literal: nothing in them is decoded or resolved."""

from __future__ import annotations

import re

from inver.errors import Invalid

# No object store takes longer keys.
MAX_PATH_BYTES = 1024
# The longest life that S3 gives to a signed URL; the others follow it.
MAX_EXPIRY_S = 7 * 24 * 3600

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")


def split_path(path: str) -> list[str]:
    """The segments of an object's path, or Invalid if it could lead anywhere but below the root."""
    segments = path.split("/")
    if "" in segments or "." in segments or ".." in segments:
        raise Invalid(
            f"object path {path!a} is absolute or has an empty, '.' or '..' segment",
            field="path",
            fix="give a path relative to the root of the store",
        )
    forbidden = _FORBIDDEN.search(path)
    if forbidden:
        raise Invalid(f"object path {path!a} contains {forbidden[0]!a}", field="path")
    if len(path.encode()) > MAX_PATH_BYTES:
        raise Invalid(f"object path is longer than {MAX_PATH_BYTES} bytes", field="path")
    return segments


def split_prefix(prefix: str) -> list[str]:
    """The segments of a folder to list; none for the root. One trailing slash is allowed."""
    return split_path(prefix.removesuffix("/")) if prefix else []


def check_range(start: int, length: int) -> None:
    if start < 0 or length < 0:
        raise Invalid(f"range of {length} bytes from {start} is negative", field="range")


def check_expiry(expires_in_s: int) -> None:
    if not 1 <= expires_in_s <= MAX_EXPIRY_S:
        raise Invalid(
            f"a signed URL cannot be valid for {expires_in_s} seconds",
            field="expires_in_s",
            fix=f"choose between 1 and {MAX_EXPIRY_S} seconds",
        )
