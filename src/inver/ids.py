"""Identifiers: UUIDs of version 7, so that rows made together lie together in an index; others at random."""

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


_POOL = 4_096
_pool = b""
_at = 0


def random_uuid() -> str:
    """Version 4. Randomness is fetched for many at once: each call of the system lets other threads in."""
    global _pool, _at
    if _at >= len(_pool):
        _pool, _at = os.urandom(_POOL), 0
    value = int.from_bytes(_pool[_at : _at + 16], "big")
    _at += 16
    value = value & ~(0xF << 76) & ~(0x3 << 62) | 0x4 << 76 | _VARIANT
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _forget() -> None:
    """Two processes must not share what is left of the pool."""
    global _pool
    _pool = b""


os.register_at_fork(after_in_child=_forget)
