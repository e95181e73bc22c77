"""Files and folders by descriptor: no link is followed, and what returns is on disk."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

from inver.errors import Invalid, OutcomeUnknown
from inver.storage.direct import LEAST, write_direct, write_direct_aside

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe that lies in the folder must not wait for its writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECES = 1_000
# The kernel takes so many buffers at once.
_TEMP_PREFIX, _TEMP_SUFFIX = ".inver-", ".tmp"


def is_temporary(name: str) -> bool:
    return name.startswith(_TEMP_PREFIX) and name.endswith(_TEMP_SUFFIX)


def open_trusted(path: str, *, create: bool) -> int:
    """An administrator's folder. This path alone may lead through links."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        if not create:
            raise
    _make_folders(path)
    return os.open(path, flags)


def open_folder(parent: int, path: Sequence[str]) -> int:
    """The folder `path[-1]` of an open parent."""
    try:
        return os.open(path[-1], _FOLDER, dir_fd=parent)
    except NotADirectoryError:
        _refuse_link(parent, path)
        raise


def open_file(folder: int, path: Sequence[str]) -> int:
    """The regular file `path[-1]` of an open folder; anything else is not there."""
    try:
        file = os.open(path[-1], _READ, dir_fd=folder)
    except OSError:
        _refuse_link(folder, path)
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError
    return file


def file_status(folder: int, path: Sequence[str]) -> os.stat_result | None:
    """Status of the regular file `path[-1]`, or None if it is something else."""
    status = os.stat(path[-1], dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        _say_link(path)
    return status if stat.S_ISREG(status.st_mode) else None


def read_at(file: int, start: int, length: int | None) -> bytes:
    """Bytes of the slice `[start : start + length]`; to the end without a length."""
    left = max(0, os.fstat(file).st_size - start)
    if length is not None:
        left = min(left, length)
    parts = []
    while left and (part := os.pread(file, left, start)):
        parts.append(part)
        start += len(part)
        left -= len(part)
    return b"".join(parts)


def write_file(
    folder: int,
    path: Sequence[str],
    data: bytes | Sequence[bytes],
    *,
    replace: bool,
    durable: bool = True,
    whole: bool = False,
) -> bool:
    """Give synced bytes the name `path[-1]`; False if it is taken and may not be replaced."""
    if not (replace or durable or whole):
        return _write_new(folder, path, data)
    temporary = f"{_TEMP_PREFIX}{os.urandom(12).hex()}{_TEMP_SUFFIX}"
    file = os.open(temporary, _CREATE, 0o666, dir_fd=folder)
    try:
        try:
            _write_all(file, data)
            if durable:
                os.fsync(file)
        finally:
            os.close(file)
        # A link never replaces, so of all writers at once exactly one succeeds.
        publish: Callable[..., None] = os.rename if replace else os.link
        try:
            publish(temporary, path[-1], src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            if file_status(folder, path) is None:
                _say_folder(path)
            return False
        except IsADirectoryError:
            _say_folder(path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
    if not durable:
        return True
    try:
        os.fsync(folder)
    except OSError as error:
        raise OutcomeUnknown(f"{'/'.join(path)} was written, and its folder could not be synced") from error
    return True


def _write_new(folder: int, path: Sequence[str], data: bytes | Sequence[bytes]) -> bool:
    """In place and unsynced, for names that nobody else knows yet."""
    try:
        file = os.open(path[-1], _CREATE, 0o666, dir_fd=folder)
    except FileExistsError:
        if file_status(folder, path) is None:
            _say_folder(path)
        return False
    fill_new(file, data, partial(os.unlink, path[-1], dir_fd=folder))
    return True


def fill_new(file: int, data: bytes | Sequence[bytes], remove: Callable[[], None]) -> None:
    """Write a file that was just made, and close it; nothing is left of one that cannot be written."""
    try:
        pieces = [data] if isinstance(data, bytes) else data
        if sum(map(len, pieces)) < LEAST or not write_direct(file, pieces):
            _write_all(file, data)
    except BaseException:
        with suppress(FileNotFoundError):
            remove()
        raise
    finally:
        os.close(file)


async def fill_large(file: int, data: bytes | Sequence[bytes], remove: Callable[[], None]) -> None:
    """The same for a large file, beside the event loop. It is cancelled only when the process ends."""
    try:
        if not await write_direct_aside(file, [data] if isinstance(data, bytes) else data):
            await asyncio.to_thread(_write_all, file, data)
    except asyncio.CancelledError:
        # A thread may still be writing: the number of the file must not become that of another.
        raise
    except BaseException:
        os.close(file)
        with suppress(FileNotFoundError):
            remove()
        raise
    os.close(file)


def _write_all(file: int, data: bytes | Sequence[bytes]) -> None:
    if not isinstance(data, bytes):
        if len(data) <= _PIECES and os.writev(file, data) == sum(map(len, data)):
            return
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        data = b"".join(data)
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _make_folders(path: str) -> None:
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        _make_folders(parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_link(folder: int, path: Sequence[str]) -> None:
    status = os.stat(path[-1], dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        _say_link(path)


def _say_link(path: Sequence[str]) -> NoReturn:
    raise Invalid(
        f"{'/'.join(path)!r} is a symbolic link",
        field="path",
        fix="links are not followed; put the files themselves there",
    )


def _say_folder(path: Sequence[str]) -> NoReturn:
    raise Invalid(f"{'/'.join(path)!r} is a folder, so it cannot be an object as well", field="path")
