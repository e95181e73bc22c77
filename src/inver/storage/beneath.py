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
from collections.abc import Callable
from functools import cache

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
# The call has this number on each of them.
_MACHINES = frozenset({"x86_64", "aarch64", "ppc64le", "riscv64", "s390x"})
_OPENAT2 = 437
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH, _CACHED = 0x02, 0x04, 0x08, 0x20
_HERE = -100
_PAGE = 4_096
MOST = 65_536
"""Larger files are not read without a thread, since copying them takes time too."""


def open_beneath(folder: int, path: str) -> int | None:
    """The regular file `path`, none of whose segments is a link; None if it must be looked at closer."""
    file = _openat2()(folder, os.fsencode(path))
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
    file = _open_cached()(path)
    if file < 0:
        return None
    try:
        data = bytearray(_PAGE)
        count = os.preadv(file, (data,), 0, os.RWF_NOWAIT)
        if count == _PAGE:
            # There may be more, and a part of it may not be in memory.
            size = os.fstat(file).st_size
            if size > MOST:
                return None
            data = bytearray(size)
            count = os.preadv(file, (data,), 0, os.RWF_NOWAIT)
            if count != size:
                return None
        # Nothing read is nothing known: what is no regular file has no bytes at a place either.
        return bytes(memoryview(data)[:count]) or None
    except OSError:
        return None
    finally:
        os.close(file)


def create_new(path: bytes) -> int | None:
    """A new file by its absolute path, no segment of which is a link; None if it must be looked at closer."""
    file = _open_new()(path)
    return None if file < 0 else file


@cache
def _openat2() -> Callable[[int, bytes], int]:
    """Opens a file below an open folder."""
    found = _system_call(_NO_MAGIC_LINKS | _NO_LINKS | _BENEATH)
    if found is None:
        return _not_offered
    call, how, size = found

    def openat2(folder: int, path: bytes) -> int:
        opened: int = call(_OPENAT2, folder, path, how, size)
        return opened

    return openat2


@cache
def _open_cached() -> Callable[[bytes], int]:
    """Opens a file whose whole path is known without a look at the disk."""
    found = _system_call(_NO_MAGIC_LINKS | _NO_LINKS | _CACHED, waits=False)
    if found is None:
        return lambda path: -1
    call, how, size = found

    def open_cached(path: bytes) -> int:
        opened: int = call(_OPENAT2, _HERE, path, how, size)
        return opened

    return open_cached


@cache
def _open_new() -> Callable[[bytes], int]:
    found = _system_call(_NO_MAGIC_LINKS | _NO_LINKS, flags=_CREATE, mode=0o666)
    if found is None:
        return lambda path: -1
    call, how, size = found

    def open_new(path: bytes) -> int:
        opened: int = call(_OPENAT2, _HERE, path, how, size)
        return opened

    return open_new


def _system_call(
    resolve: int, waits: bool = True, flags: int = _READ, mode: int = 0
) -> tuple[Callable[..., int], object, int] | None:
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
    call = library.syscall
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    call.restype = ctypes.c_long
    return call, ctypes.byref(How(flags, mode, resolve)), ctypes.sizeof(How)


def _not_offered(folder: int, path: bytes) -> int:
    return -1
