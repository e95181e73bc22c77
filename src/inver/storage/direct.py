"""Large files written past the kernel's cache.

Most of what is written here is read by nobody before it is replaced. In the cache it would take memory
all the same, and finding that memory takes the kernel longer than the writing does.
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

LEAST = 512 * 1024
"""Smaller files are in the cache before the disk would have answered."""
_BUFFER = 2**20
_BLOCK = 4_096
# Part of the open flags on Linux; elsewhere nothing is written like this.
_DIRECT = getattr(os, "O_DIRECT", 0)

# More threads would wait for the interpreter instead of the disk, and the event loop for them.
_writers = ThreadPoolExecutor(2, thread_name_prefix="inver-files")


class _Own(threading.local):
    """A buffer as the disk wants it, beginning where a page does."""

    def __init__(self) -> None:
        self.buffer = mmap.mmap(-1, _BUFFER)
        self.view = memoryview(self.buffer)


_own = _Own()


def write_direct(file: int, pieces: Sequence[bytes]) -> bool:
    """Fill a new file; False if it cannot be done, and the file is empty as before."""
    return _begin(file) and _end(file, _write_blocks(file, pieces))


async def write_direct_aside(file: int, pieces: Sequence[bytes]) -> bool:
    """The same beside the event loop; not to be cancelled, since the file must stay open for the thread.

    The thread has only the blocks to write. For every other call of the system it would give the interpreter
    away and wait for it, which takes both longer than the call.
    """
    if not _begin(file):
        return False
    loop = asyncio.get_running_loop()
    return _end(file, await loop.run_in_executor(_writers, _write_blocks, file, pieces))


def _begin(file: int) -> bool:
    """Not every file system offers it."""
    with suppress(OSError):
        if _DIRECT:
            fcntl.fcntl(file, fcntl.F_SETFL, _DIRECT)
            return True
    return False


def _write_blocks(file: int, pieces: Sequence[bytes]) -> bytes | None:
    """All but the end, which is no whole block and is returned; None if they cannot be written."""
    buffer, view = _own.buffer, _own.view
    buffer.seek(0)
    try:
        for piece in pieces:
            start = 0
            while (left := _BUFFER - buffer.tell()) <= len(piece) - start:
                buffer.write(memoryview(piece)[start : start + left])
                start += left
                _put(file, view)
                buffer.seek(0)
            buffer.write(memoryview(piece)[start:] if start else piece)
        filled = buffer.tell()
        whole = filled - filled % _BLOCK
        if whole:
            _put(file, view[:whole])
    except OSError:
        return None
    return bytes(view[whole:filled])


def _end(file: int, rest: bytes | None) -> bool:
    """The end goes through the cache: written as a block and cut off, it would be read again."""
    fcntl.fcntl(file, fcntl.F_SETFL, 0)
    with suppress(OSError):
        if rest is not None:
            _put(file, rest)
            return True
    # Why it failed, the usual way tells better.
    os.ftruncate(file, 0)
    os.lseek(file, 0, os.SEEK_SET)
    return False


def _put(file: int, some: bytes | memoryview) -> None:
    if some and os.write(file, some) != len(some):
        raise OSError("a part was not written")
