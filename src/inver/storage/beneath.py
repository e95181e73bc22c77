"""Opening a file below a folder in one call of the kernel, where it can refuse links on the way.

Linux has `openat2` since 5.6, and Python has no function for it. Sandboxes and other systems do not
offer it; then, and whenever the call fails, the answer is None and the caller walks the folders.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
from collections.abc import Callable
from functools import cache

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
# The call has this number on each of them.
_MACHINES = frozenset({"x86_64", "aarch64", "ppc64le", "riscv64", "s390x"})
_OPENAT2 = 437
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08


def open_beneath(folder: int, path: str) -> int | None:
    """The regular file `path`, none of whose segments is a link; None if it must be looked at closer."""
    file = _openat2()(folder, os.fsencode(path))
    if file < 0:
        return None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    return file


@cache
def _openat2() -> Callable[[int, bytes], int]:
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return _not_offered
    import ctypes

    class How(ctypes.Structure):
        _fields_ = (
            ("flags", ctypes.c_uint64),
            ("mode", ctypes.c_uint64),
            ("resolve", ctypes.c_uint64),
        )

    how = How(_READ, 0, _NO_MAGIC_LINKS | _NO_LINKS | _BENEATH)
    size = ctypes.sizeof(how)
    call = ctypes.CDLL(None).syscall
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    call.restype = ctypes.c_long
    pointer = ctypes.byref(how)

    def openat2(folder: int, path: bytes) -> int:
        opened: int = call(_OPENAT2, folder, path, pointer, size)
        return opened

    return openat2


def _not_offered(folder: int, path: bytes) -> int:
    return -1
