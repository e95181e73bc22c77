"""Objects as files in a local folder, with the promises of an object store.

A write goes to a temporary file that is synced before it gets its name, and the folder is synced
after; so a reader sees all of an object or nothing of it, also after a power cut. Folders are
opened without following links, so no link below the trusted folder leads anywhere.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import islice
from typing import TypeVar

from inver.domain.locations import Location
from inver.errors import Invalid, InverError, NotFound, Unavailable
from inver.ports import ObjectInfo, SignUrls
from inver.storage import files, reading
from inver.storage.beneath import create_new, open_beneath, open_folder, read_cached, read_cached_in
from inver.storage.direct import LEAST
from inver.storage.paths import check_range, split_path, split_prefix
from inver.storage.syncing import sync_file_system

T = TypeVar("T")

# Segments of plain letters that do not begin with a dot: neither one that leads up, nor a temporary file.
_USUAL_PATH = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*").fullmatch
_LIST_CHUNK = 500
# What is written to memory in less time than a thread takes to come to it beside a busy event loop.
_UNSYNCED = 256 * 1024
# The same, under a name for the time being first.
_AT_ONCE = 64 * 1024
_LOOK = 32
"""So many files are compared without a thread."""
_MAX_KNOWN_FOLDERS = 10_000
# A folder may be removed, because it became empty, between finding it and writing into it.
_ATTEMPTS = 20
_COPIERS = 8
_FEW = 3
"""Above this, one call for the whole file system is cheaper than two for each file."""


class LocalStore:
    """`trusted` is a folder at or above `root` that an administrator chose: links are followed up
    to it and nowhere below. Without it the root itself is trusted."""

    def __init__(self, root: Location, *, trusted: Location | None = None) -> None:
        trusted = trusted or root
        below = trusted.relative(root)
        self._root = root
        self._base = trusted.local_path
        self._inner = tuple(below.split("/")) if below else ()
        self._prefix = os.fsencode(root.local_path.rstrip("/") + "/")
        # Folders whose entry in their parent is known to be on disk, with their inode.
        self._synced: dict[tuple[str, ...], int] = {}

    @property
    def root(self) -> Location:
        return self._root

    async def put(self, path: str, data: bytes) -> None:
        await _in_thread(path, self._write, _split(path), data, True)

    async def put_if_absent(
        self, path: str, data: bytes | Sequence[bytes], durable: bool = True, whole: bool = False
    ) -> bool:
        segments = _split(path)
        size = len(data) if isinstance(data, bytes) else sum(map(len, data))
        try:
            if size <= _UNSYNCED and not durable:
                return self._write(segments, data, False, durable, whole)
            if size >= LEAST and not (durable or whole):
                name = self._prefix + os.fsencode(path)
                file = create_new(name)
                if file is not None:
                    await asyncio.shield(files.fill_large(file, data, partial(os.unlink, name)))
                    return True
        except OSError as error:
            raise _explained(path, error) from error
        return await _in_thread(path, self._write, segments, data, False, durable, whole)

    def put_at_once(self, path: str, data: bytes) -> bool | None:
        if len(data) > _AT_ONCE:
            return None
        try:
            return self._write(_split(path), data, False, durable=False, whole=True)
        except OSError:
            return None

    def link_at_once(self, path: str, other: str, data: bytes) -> bool | None:
        source, target = _split(path), _split(other)
        if source[:-1] != target[:-1]:
            return None
        try:
            folder = open_folder(self._prefix + os.fsencode("/".join(source[:-1])))
            if folder is None:
                with self._folder(source[:-1]) as walked:
                    return _link(walked, source[-1], target[-1], data)
            try:
                return _link(folder, source[-1], target[-1], data)
            finally:
                os.close(folder)
        except OSError:
            return None

    async def sync(self, path: str) -> None:
        await _in_thread(path, self._sync, _split(path))

    async def sync_all(self, paths: Sequence[str]) -> Sequence[str]:
        return (
            await _in_thread(paths[0], self._sync_all, {path: _split(path) for path in paths})
            if paths
            else []
        )

    def get_at_once(self, path: str) -> bytes | None:
        if _USUAL_PATH(path) is not None:
            return read_cached(self._prefix + path.encode())
        _split(path)
        return read_cached(self._prefix + os.fsencode(path))

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

    async def copy_if_absent(self, pairs: Sequence[tuple[str | bytes, str]]) -> int:
        done = 0
        while done < min(len(pairs), _LOOK) and self.get_at_once(pairs[done][1]) == pairs[done][0]:
            done += 1
        if done == len(pairs):
            return done
        split = [
            (source if isinstance(source, bytes) else _split(source), _split(target))
            for source, target in pairs[done:]
        ]
        try:
            return done + await asyncio.get_running_loop().run_in_executor(_copiers(), self._copy_all, split)
        except OSError as error:
            raise _explained(pairs[done][1], error) from error

    async def delete(self, path: str, durable: bool = True) -> bool:
        return await _in_thread(path, self._delete, _split(path), durable)

    async def discard(self, paths: Sequence[str]) -> None:
        if paths:
            await _in_thread(paths[0], self._discard, [_split(path) for path in paths])

    async def make_folder(self, path: str) -> None:
        await _in_thread(path, self._make_folder, _split(path))

    async def remove_folders(self) -> None:
        await _in_thread("", self._remove_folders, ())

    def url_signer(self, expires_in_s: int) -> SignUrls | None:
        return None

    def _write(
        self,
        segments: Sequence[str],
        data: bytes | Sequence[bytes],
        replace: bool,
        durable: bool = True,
        whole: bool = False,
    ) -> bool:
        if not (durable or whole or replace):
            name = self._prefix + os.fsencode("/".join(segments))
            file = create_new(name)
            if file is not None:
                files.fill_new(file, data, partial(os.unlink, name))
                return True
        for _ in range(_ATTEMPTS):
            opened = self._folder(segments[:-1], create=True, durable=durable)
            with suppress(FileNotFoundError), opened as folder:
                return files.write_file(folder, segments, data, replace=replace, durable=durable, whole=whole)
        raise Unavailable(f"the folder of {'/'.join(segments)!r} is removed as often as it is made")

    def _sync(self, segments: Sequence[str]) -> None:
        with self._folder(segments[:-1], durable=True) as folder:
            file = files.open_file(folder, segments)
            try:
                os.fsync(file)
            finally:
                os.close(file)
            os.fsync(folder)

    def _sync_all(self, paths: Mapping[str, Sequence[str]]) -> Sequence[str]:
        names = {tuple(segments): path for path, segments in paths.items()}
        found = {names[tuple(segments)]: status for _, segments, status in self._statuses(paths.values())}
        # One call writes everything: of large files the versions before them too, which nobody needs on disk.
        small = {path: status for path, status in found.items() if status.st_size <= _UNSYNCED}
        alone = set(found)
        if len(small) > _FEW:
            trusted = self._open_base()
            try:
                if sync_file_system(trusted):
                    device = os.fstat(trusted).st_dev
                    # Below a folder there may be other file systems.
                    alone -= {path for path, status in small.items() if status.st_dev == device}
            finally:
                os.close(trusted)
        for path in alone:
            self._sync(paths[path])
        return [path for path in paths if path not in found]

    def _discard(self, paths: Sequence[Sequence[str]]) -> None:
        for folder, segments, _ in self._statuses(paths):
            with suppress(FileNotFoundError):
                os.unlink(segments[-1], dir_fd=folder)

    def _copy_all(self, pairs: Sequence[tuple[Sequence[str] | bytes, Sequence[str]]]) -> int:
        found: dict[str, Sequence[str]] = {}
        done = 0
        trusted = self._open_base(create=True)
        try:
            for source, target in pairs:
                wrote = self._copy(trusted, source, target)
                if wrote is None:
                    break
                if not wrote:
                    found["/".join(target)] = target
                done += 1
        except (OSError, InverError):
            # What was done before it counts; the next call meets it first.
            if not done:
                raise
        finally:
            os.close(trusted)
        # We may have written it ourselves, and have been stopped before it was on disk.
        missing = set(self._sync_all(found))
        return next((n for n, (_, target) in enumerate(pairs[:done]) if "/".join(target) in missing), done)

    def _copy(self, trusted: int, source: Sequence[str] | bytes, target: Sequence[str]) -> bool | None:
        """Whether it was written, or was there already; None if the target is not the source."""
        try:
            data = source if isinstance(source, bytes) else self._read_beneath(trusted, source, 0, None)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return False if self._read_beneath(trusted, target, 0, None) == data else None
        except (FileNotFoundError, NotADirectoryError):
            if self._write(target, data, False):
                return True
            return False if self._read(target, 0, None) == data else None

    def _read(self, segments: Sequence[str], start: int, length: int | None) -> bytes:
        trusted = self._open_base()
        try:
            return self._read_beneath(trusted, segments, start, length)
        finally:
            os.close(trusted)

    def _read_beneath(self, trusted: int, segments: Sequence[str], start: int, length: int | None) -> bytes:
        file = open_beneath(trusted, "/".join((*self._inner, *segments)))
        if file is None:
            with self._folder(segments[:-1]) as folder:
                file = files.open_file(folder, segments)
        try:
            return files.read_at(file, start, length)
        finally:
            os.close(file)

    def _head(self, segments: Sequence[str]) -> ObjectInfo | None:
        status = self._status(segments)
        return _info("/".join(segments), status) if status else None

    def _status(self, segments: Sequence[str]) -> os.stat_result | None:
        with suppress(FileNotFoundError, NotADirectoryError), self._folder(segments[:-1]) as folder:
            return files.file_status(folder, segments)
        return None

    def _statuses(
        self, paths: Iterable[Sequence[str]]
    ) -> Iterator[tuple[int, Sequence[str], os.stat_result]]:
        """Files that are there, in their open folders, each of which is walked to once."""
        inside: dict[tuple[str, ...], list[Sequence[str]]] = {}
        for segments in paths:
            inside.setdefault(tuple(segments[:-1]), []).append(segments)
        for folders, together in inside.items():
            with suppress(FileNotFoundError, NotADirectoryError), self._folder(folders) as folder:
                for segments in together:
                    with suppress(FileNotFoundError):
                        status = files.file_status(folder, segments)
                        if status is not None:
                            yield folder, segments, status

    def _delete(self, segments: Sequence[str], durable: bool) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError), self._folder(segments[:-1]) as folder:
            if files.file_status(folder, segments) is None:
                return False
            os.unlink(segments[-1], dir_fd=folder)
            if durable:
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

    def _make_folder(self, segments: Sequence[str]) -> None:
        with self._folder(segments, create=True, durable=True):
            pass

    def _remove_folders(self, folders: Sequence[str]) -> None:
        for segments, info in self._entries(folders):
            if info is None:
                self._remove_folders(segments)
        self._prune(folders)

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
    def _folder(
        self, folders: Sequence[str], *, create: bool = False, durable: bool = False
    ) -> Iterator[int]:
        """An open folder below the root, reached without following a link."""
        path = (*self._inner, *folders)
        current = self._open_base(create=create)
        try:
            for depth in range(1, len(path) + 1):
                enter = self._make if create else files.open_folder
                parent, current = current, enter(current, path[:depth])
                try:
                    if durable:
                        self._keep(parent, path[:depth], current)
                finally:
                    os.close(parent)
            yield current
        finally:
            os.close(current)

    def _open_base(self, create: bool = False) -> int:
        """The trusted folder. Where it is above the root it was made by somebody else, and is made by nobody
        when it is not there: what it held is not gone, but on a disk that is away."""
        try:
            return files.open_trusted(self._base, create=create and not self._inner)
        except FileNotFoundError:
            if not self._inner:
                raise
            raise Unavailable(f"the folder {self._base} is not there") from None

    def _make(self, parent: int, path: tuple[str, ...]) -> int:
        """The folder, made if need be."""
        try:
            try:
                return files.open_folder(parent, path)
            except FileNotFoundError:
                # The new one may get the inode of one that was there before.
                self._synced.pop(path, None)
                with suppress(FileExistsError):
                    os.mkdir(path[-1], dir_fd=parent)
                return files.open_folder(parent, path)
        except NotADirectoryError:
            raise Invalid(
                f"{'/'.join(path)!r} is an object, so nothing can lie below it", field="path"
            ) from None

    def _keep(self, parent: int, path: tuple[str, ...], folder: int) -> None:
        """The entry of a folder in its parent is on disk, whoever made it."""
        inode = os.fstat(folder).st_ino
        if self._synced.get(path) != inode:
            os.fsync(parent)
            self._remember(path, inode)

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


def _link(folder: int, name: str, other: str, data: bytes) -> bool:
    try:
        # A name that is itself a link would lead elsewhere.
        os.link(name, other, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    return read_cached_in(folder, other) == data


def _info(path: str, status: os.stat_result) -> ObjectInfo:
    etag = f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"'
    return ObjectInfo(path, status.st_size, status.st_mtime_ns // 1_000_000, etag)


@cache
def _copiers() -> ThreadPoolExecutor:
    """Their own: copies to a disk that hangs must not take the threads of everything else."""
    return ThreadPoolExecutor(_COPIERS, thread_name_prefix="inver-copy")


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
