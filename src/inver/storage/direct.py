"""Large files written past the kernel's cache.

Most of what is written here is read by nobody before it is replaced. In the cache it would take memory
all the same, and finding that memory takes the kernel longer than the writing does.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from collections.abc import Sequence

LEAST = 512 * 1024
"""Smaller files are in the cache before the disk would have answered."""
_BUFFER = 2**20
_BLOCK = 4_096
# Part of the open flags on Linux; elsewhere nothing is written like this.
_DIRECT = getattr(os, "O_DIRECT", 0)


class _Own(threading.local):
    """A buffer as the disk wants it, beginning where a page does."""

    def __init__(self) -> None:
        self.buffer = memoryview(mmap.mmap(-1, _BUFFER))


_own = _Own()


def write_direct(file: int, pieces: Sequence[bytes]) -> bool:
    """Fill a new file; False if it cannot be done, and the file is empty as before."""
    if not _DIRECT:
        return False
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | _DIRECT)
        _write(file, pieces)
    except OSError:
        # Not every file system offers it; and why else it failed, the usual way tells better.
        fcntl.fcntl(file, fcntl.F_SETFL, flags)
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        return False
    return True


def _write(file: int, pieces: Sequence[bytes]) -> None:
    buffer, filled, written = _own.buffer, 0, 0
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            some = min(len(rest), _BUFFER - filled)
            buffer[filled : filled + some] = rest[:some]
            rest = rest[some:]
            filled += some
            if filled == _BUFFER:
                written += _put(file, buffer)
                filled = 0
    if filled:
        # Only whole blocks go to the disk. What is in the last one behind the end is cut off.
        _put(file, buffer[: -(-filled // _BLOCK) * _BLOCK])
        os.ftruncate(file, written + filled)


def _put(file: int, blocks: memoryview) -> int:
    count = os.write(file, blocks)
    if count != len(blocks):
        raise OSError("a part was not written")
    return count
