"""Opening a file below a folder in one call of the kernel, where it can refuse links on the way.

Linux has `openat2` since 5.6, and Python has no function for it. Sandboxes and other systems do not
offer it; then, and whenever the call fails, the answer is None and the caller walks the folders.

The kernel can also be told not to wait for a disk. A file that was just written is in memory, and
reading it then costs less than handing the read to a thread.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
import threading
from collections.abc import Callable
from functools import cache

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
# The call has this number on each of them.
_MACHINES = frozenset({"x86_64", "aarch64", "ppc64le", "riscv64", "s390x"})
_OPENAT2 = 437
_NO_LINKS, _BENEATH, _CACHED = 0x02 | 0x04, 0x08, 0x20
_HERE = -100
_PAGE = 4_096
MOST = 65_536
"""Larger files are not read without a thread, since copying them takes time too."""


class _Own(threading.local):
    """A thread's page, which is read into and copied from again and again."""

    def __init__(self) -> None:
        self.page = memoryview(bytearray(_PAGE))


_own = _Own()


def open_beneath(folder: int, path: str) -> int | None:
    """The regular file `path`, none of whose segments is a link; None if it must be looked at closer."""
    file = _below()(folder, os.fsencode(path))
    if file < 0:
        return None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    return file


def read_cached(path: bytes) -> bytes | None:
    """A regular file by its absolute path, if it is in memory and no segment is a link; None says nothing.

    It never waits for a disk, so an event loop may call it.
    """
    file = _cached()(_HERE, path)
    return None if file < 0 else _read_now(file)


def read_cached_in(folder: int, name: str) -> bytes | None:
    """The same for a file of an open folder that was just looked up."""
    try:
        return _read_now(os.open(name, _READ, dir_fd=folder))
    except OSError:
        return None


def open_folder(path: bytes) -> int | None:
    """A folder by its absolute path, to name files in; None if it must be looked at closer."""
    folder = _folder()(_HERE, path)
    return None if folder < 0 else folder


def create_new(path: bytes) -> int | None:
    """A new file by its absolute path, no segment of which is a link; None if it must be looked at closer."""
    file = _new()(_HERE, path)
    return None if file < 0 else file


def _read_now(file: int) -> bytes | None:
    try:
        data = _own.page
        count = os.preadv(file, (data,), 0, os.RWF_NOWAIT)
        if count == _PAGE:
            # There may be more, and a part of it may not be in memory.
            size = os.fstat(file).st_size
            if size > MOST:
                return None
            data = memoryview(bytearray(size))
            count = os.preadv(file, (data,), 0, os.RWF_NOWAIT)
            if count != size:
                return None
        # Nothing read is nothing known: what is no regular file has no bytes at a place either.
        return data[:count].tobytes() or None
    except OSError:
        return None
    finally:
        os.close(file)


def _opener(
    flags: int, resolve: int, mode: int = 0, waits: bool = True
) -> Callable[[], Callable[[int, bytes], int]]:
    """What opens a path below an open folder, or an absolute one, made when it is first needed."""

    @cache
    def made() -> Callable[[int, bytes], int]:
        found = _system_call(flags, mode, resolve, waits)
        if found is None:
            return not_offered
        call, number, how, size = found

        def openat2(folder: int, path: bytes) -> int:
            opened: int = call(number, folder, path, how, size)
            return opened

        return openat2

    return made


_below = _opener(_READ, _NO_LINKS | _BENEATH)
_cached = _opener(_READ, _NO_LINKS | _CACHED, waits=False)
"""Only paths that are known without a look at the disk."""
_folder = _opener(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, _NO_LINKS)
_new = _opener(_CREATE, _NO_LINKS, 0o666)


def _system_call(
    flags: int, mode: int, resolve: int, waits: bool
) -> tuple[Callable[..., int], object, object, object] | None:
    """The call with what it is told; one that never waits keeps the interpreter to itself."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return None
    import ctypes

    class How(ctypes.Structure):
        _fields_ = (
            ("flags", ctypes.c_uint64),
            ("mode", ctypes.c_uint64),
            ("resolve", ctypes.c_uint64),
        )

    library = ctypes.CDLL(None) if waits else ctypes.PyDLL(None)
    how = How(flags, mode, resolve)
    # What has its type already need not be given one by each call.
    size = ctypes.c_size_t(ctypes.sizeof(how))
    return library.syscall, ctypes.c_long(_OPENAT2), ctypes.byref(how), size


def not_offered(folder: int, path: bytes) -> int:
    return -1
