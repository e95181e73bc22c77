"""Identifiers: UUIDs of version 7, so that rows made together lie together in an index."""

from __future__ import annotations

import os
import time

_VERSION = 0x7 << 76
_VARIANT = 0x2 << 62


_last = 0


def new_id() -> str:
    """48 bits of milliseconds, then 74 random bits; in one process, each is greater than the one before."""
    global _last
    random = int.from_bytes(os.urandom(10), "big")
    value = (
        (time.time_ns() // 1_000_000) << 80
        | _VERSION
        | (random >> 62 & 0xFFF) << 64
        | _VARIANT
        | (random & 0x3FFF_FFFF_FFFF_FFFF)
    )
    # Two of one millisecond would be in random order, and lists are shown in the order of creation.
    _last = value = max(value, _last + 1)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
