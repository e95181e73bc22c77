"""A database file that one server has for itself."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from inver.errors import Broken


def lock_file(path: Path) -> int:
    """Two servers on one SQLite file would each believe to be the only writer."""
    lock_path = path.with_suffix(path.suffix + ".lock")
    descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(descriptor, 32).decode(errors="replace").strip() or "another process"
        os.close(descriptor)
        raise Broken(
            f"{path} is in use by a running server (process {holder})",
            fix="stop that server, give another --home, or use PostgreSQL for several servers",
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor
