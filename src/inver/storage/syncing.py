"""Many files made durable by one call of the kernel, where it has one for a whole file system.

Every `fsync` waits for the disk, and holds up those of the database meanwhile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache


def sync_file_system(file: int) -> bool:
    """Everything written to the file system that an open file is in; False where there is no such call."""
    call = _syncfs()
    if call is None:
        return False
    if call(file) != 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return True


@cache
def _syncfs() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is not None:
        call.argtypes, call.restype = (ctypes.c_int,), ctypes.c_int
    return call
