"""Objects as files in a local folder, with the promises of an object store.

A write goes to a temporary file that is synced before it gets its name, and the folder is synced
after; so a reader sees all of an object or nothing of it, also after a power cut. Folders are
opened without following links, so no link below the trusted folder leads anywhere.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import TypeVar

from inver.domain.locations import Location
from inver.errors import Invalid, InverError, NotFound, Unavailable, Unsupported
from inver.ports import ObjectInfo
from inver.storage import files, reading
from inver.storage.beneath import open_beneath
from inver.storage.paths import check_expiry, check_range, split_path, split_prefix
from inver.storage.signing import UrlSigner

T = TypeVar("T")

_LIST_CHUNK = 500
_MAX_KNOWN_FOLDERS = 10_000
# A folder may be removed, because it became empty, between finding it and writing into it.
_ATTEMPTS = 20


class LocalStore:
    """`trusted` is a folder at or above `root` that an administrator chose: links are followed up
    to it and nowhere below. Without it the root itself is trusted."""

    def __init__(
        self, root: Location, *, trusted: Location | None = None, signer: UrlSigner | None = None
    ) -> None:
        trusted = trusted or root
        below = trusted.relative(root)
        self._root = root
        self._base = trusted.local_path
        self._inner = tuple(below.split("/")) if below else ()
        self._signer = signer
        # Folders whose entry in their parent is known to be on disk, with their inode.
        self._synced: dict[tuple[str, ...], int] = {}

    @property
    def root(self) -> Location:
        return self._root

    async def put(self, path: str, data: bytes) -> None:
        await _in_thread(path, self._write, _split(path), data, True)

    async def put_if_absent(self, path: str, data: bytes) -> bool:
        return await _in_thread(path, self._write, _split(path), data, False)

    async def get(self, path: str) -> bytes:
        read = partial(self._read, _split(path), 0, None)
        try:
            return await reading.read(read)
        except OSError as error:
            raise _explained(path, error) from error

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        check_range(start, length)
        return await _in_thread(path, self._read, _split(path), start, length)

    async def head(self, path: str) -> ObjectInfo | None:
        return await _in_thread(path, self._head, _split(path))

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        found = self._walk(split_prefix(prefix))
        while chunk := await _in_thread(prefix, lambda: tuple(islice(found, _LIST_CHUNK))):
            for info in chunk:
                yield info

    async def delete(self, path: str) -> bool:
        return await _in_thread(path, self._delete, _split(path))

    async def signed_url(self, path: str, expires_in_s: int) -> str:
        _split(path)
        check_expiry(expires_in_s)
        if self._signer is None:
            raise Unsupported(
                f"objects in {self._root} cannot be shared by URL",
                fix="set the server's public URL and its signing key",
            )
        absolute = f"{self._root.local_path.rstrip('/')}/{path}"
        return self._signer.sign(absolute, self._signer.now_s() + expires_in_s)

    def _write(self, segments: Sequence[str], data: bytes, replace: bool) -> bool:
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError), self._folder(segments[:-1], create=True) as folder:
                return files.write_file(folder, segments, data, replace=replace)
        raise Unavailable(f"the folder of {'/'.join(segments)!r} is removed as often as it is made")

    def _read(self, segments: Sequence[str], start: int, length: int | None) -> bytes:
        file = self._open(segments)
        try:
            return files.read_at(file, start, length)
        finally:
            os.close(file)

    def _open(self, segments: Sequence[str]) -> int:
        trusted = files.open_trusted(self._base, create=False)
        try:
            file = open_beneath(trusted, "/".join((*self._inner, *segments)))
        finally:
            os.close(trusted)
        if file is not None:
            return file
        with self._folder(segments[:-1]) as folder:
            return files.open_file(folder, segments)

    def _head(self, segments: Sequence[str]) -> ObjectInfo | None:
        with suppress(FileNotFoundError, NotADirectoryError), self._folder(segments[:-1]) as folder:
            status = files.file_status(folder, segments)
            return _info("/".join(segments), status) if status else None
        return None

    def _delete(self, segments: Sequence[str]) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError), self._folder(segments[:-1]) as folder:
            if files.file_status(folder, segments) is None:
                return False
            os.unlink(segments[-1], dir_fd=folder)
            os.fsync(folder)
            self._prune(segments[:-1])
            return True
        return False

    def _prune(self, folders: Sequence[str]) -> None:
        """Object stores have no empty folders, and the name must be free again for an object."""
        for depth in range(len(folders), 0, -1):
            try:
                with self._folder(folders[: depth - 1]) as parent:
                    os.rmdir(folders[depth - 1], dir_fd=parent)
            except OSError:
                return
            self._synced.pop((*self._inner, *folders[:depth]), None)

    def _walk(self, folders: Sequence[str]) -> Iterator[ObjectInfo]:
        """Files in the order of their paths; no folder stays open between two of them."""
        waiting: list[tuple[Sequence[str], ObjectInfo | None]] = [(folders, None)]
        while waiting:
            segments, info = waiting.pop()
            if info is not None:
                yield info
            else:
                waiting.extend(reversed(self._entries(segments)))

    def _entries(self, folders: Sequence[str]) -> Sequence[tuple[Sequence[str], ObjectInfo | None]]:
        found: dict[str, tuple[Sequence[str], ObjectInfo | None]] = {}
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            self._folder(folders) as folder,
            os.scandir(folder) as entries,
        ):
            for entry in entries:
                segments = (*folders, entry.name)
                path = "/".join(segments)
                # What the store cannot address, such as a temporary file, is no object; nor is a link.
                with suppress(FileNotFoundError, Invalid):
                    _split(path)
                    if entry.is_dir(follow_symlinks=False):
                        found[path + "/"] = segments, None
                    elif entry.is_file(follow_symlinks=False):
                        found[path] = segments, _info(path, entry.stat(follow_symlinks=False))
        return [found[path] for path in sorted(found)]

    @contextmanager
    def _folder(self, folders: Sequence[str], *, create: bool = False) -> Iterator[int]:
        """An open folder below the root, reached without following a link."""
        path = (*self._inner, *folders)
        current = files.open_trusted(self._base, create=create)
        try:
            for depth in range(1, len(path) + 1):
                enter = self._make if create else files.open_folder
                parent, current = current, enter(current, path[:depth])
                os.close(parent)
            yield current
        finally:
            os.close(current)

    def _make(self, parent: int, path: tuple[str, ...]) -> int:
        """The folder, made if need be, its own entry on disk."""
        with suppress(FileExistsError):
            if path not in self._synced:
                os.mkdir(path[-1], dir_fd=parent)
        try:
            folder = files.open_folder(parent, path)
        except NotADirectoryError:
            raise Invalid(
                f"{'/'.join(path)!r} is an object, so nothing can lie below it", field="path"
            ) from None
        except FileNotFoundError:
            self._synced.pop(path, None)
            raise
        try:
            inode = os.fstat(folder).st_ino
            if self._synced.get(path) != inode:
                # Also if somebody else has just made it: then it may not be on disk yet.
                os.fsync(parent)
                self._remember(path, inode)
        except BaseException:
            os.close(folder)
            raise
        return folder

    def _remember(self, path: tuple[str, ...], inode: int) -> None:
        if len(self._synced) >= _MAX_KNOWN_FOLDERS:
            self._synced.clear()
        self._synced[path] = inode


def _split(path: str) -> Sequence[str]:
    segments = split_path(path)
    for segment in segments:
        if files.is_temporary(segment):
            raise Invalid(f"{segment!r} is a name for temporary files of the store", field="path")
    return segments


def _info(path: str, status: os.stat_result) -> ObjectInfo:
    etag = f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"'
    return ObjectInfo(path, status.st_size, status.st_mtime_ns // 1_000_000, etag)


async def _in_thread(path: str, work: Callable[..., T], *args: object) -> T:
    try:
        return await asyncio.to_thread(work, *args)
    except OSError as error:
        raise _explained(path, error) from error


def _explained(path: str, error: OSError) -> InverError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFound(f"there is no object {path!r}", kind="object")
    if error.errno == errno.ENAMETOOLONG:
        return Invalid(f"a segment of {path!r} is too long for the file system", field="path")
    return Unavailable(f"the file system failed at {path!r}: {error.strerror}")
