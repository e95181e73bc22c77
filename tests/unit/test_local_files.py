"""Local files: what is on disk when a call returns, and what is left when it fails."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import resource
import threading
from collections.abc import Callable

import pytest

from inver.domain.locations import Location
from inver.errors import Invalid, OutcomeUnknown, Unavailable
from inver.storage.local import LocalStore
from tests.fixtures.waiting import PATIENCE_S


@pytest.fixture
def store(tmp_path) -> LocalStore:
    return LocalStore(Location.parse(str(tmp_path / "made" / "on demand")))


def names(tmp_path) -> list[str]:
    return sorted(os.fsdecode(path.name) for path in tmp_path.rglob("*") if path.is_file())


class Journal:
    """Which folder entries and files are not yet on disk, told by the system calls as they happen."""

    def __init__(self, monkeypatch) -> None:
        self.dirty: set[tuple[int, int]] = set()
        self.published_dirty = False
        for name in ("mkdir", "rename", "link", "write", "fsync"):
            self.watch(monkeypatch, name, getattr(os, name))

    def watch(self, monkeypatch, name: str, real: Callable[..., object]) -> None:
        def call(*args, **kwargs):
            if name in ("rename", "link"):
                source = os.stat(args[0], dir_fd=kwargs["src_dir_fd"])
                self.published_dirty |= (source.st_dev, source.st_ino) in self.dirty
                self.dirty.add(inode(kwargs["dst_dir_fd"]))
            elif name == "mkdir":
                folder = kwargs["dir_fd"] if "dir_fd" in kwargs else os.path.dirname(args[0])
                self.dirty.add(inode(folder))
            elif name == "write":
                self.dirty.add(inode(args[0]))
            result = real(*args, **kwargs)
            if name == "fsync":
                self.dirty.discard(inode(args[0]))
            return result

        monkeypatch.setattr(os, name, call)


def inode(target) -> tuple[int, int]:
    status = os.stat(target)
    return status.st_dev, status.st_ino


@pytest.mark.parametrize("method", ["put", "put_if_absent"])
def test_a_write_is_on_disk_with_every_folder_above_it_when_it_returns(store, monkeypatch, method):
    journal = Journal(monkeypatch)
    for path in ("a/b/c/first", "a/b/c/second", "a/d/third"):
        asyncio.run(getattr(store, method)(path, b"data"))
        assert journal.dirty == set()
    assert not journal.published_dirty


@pytest.mark.parametrize("together", [False, True])
def test_what_is_synced_later_is_on_disk_with_every_folder_above_it(store, monkeypatch, together):
    journal = Journal(monkeypatch)
    asyncio.run(store.put_if_absent("a/b/first", b"data", durable=False))
    assert journal.dirty
    asyncio.run(store.sync_all(["a/b/first"]) if together else store.sync("a/b/first"))
    assert journal.dirty == set()


def test_a_folder_that_is_made_again_is_synced_again(store, tmp_path, monkeypatch):
    asyncio.run(store.put("a/b/first", b""))
    (tmp_path / "made" / "on demand" / "a" / "b" / "first").unlink()
    (tmp_path / "made" / "on demand" / "a" / "b").rmdir()
    asyncio.run(store.put_if_absent("a/b/second", b"data", durable=False))
    journal = Journal(monkeypatch)
    journal.dirty.add(inode(tmp_path / "made" / "on demand" / "a"))
    asyncio.run(store.sync("a/b/second"))
    assert journal.dirty == set()


@pytest.mark.parametrize("size", [512 * 1024 - 1, 512 * 1024, 2**20, 3 * 2**20 + 7])
def test_a_large_file_is_written_whole(store, size):
    data = bytes(range(251)) * (size // 251 + 1)
    pieces = [data[:100], b"", data[100 : size // 2], data[size // 2 : size]]
    assert asyncio.run(store.put_if_absent("large", pieces, durable=False)) is True
    assert asyncio.run(store.put_if_absent("large", pieces, durable=False)) is False
    assert asyncio.run(store.get("large")) == data[:size]


def test_a_large_file_is_written_whole_when_its_writer_stops_waiting(store):
    data = bytes(range(251)) * 20_000

    async def give_up() -> None:
        await store.put("small", b"")
        writing = asyncio.ensure_future(store.put_if_absent("large", data, durable=False))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        while len(await store.get("large")) < len(data):
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(give_up(), 30))
    assert asyncio.run(store.get("large")) == data


def test_a_large_file_is_written_where_the_cache_cannot_be_passed_by(store, monkeypatch):
    real = fcntl.fcntl

    def refusing(file, command, flags=0):
        if command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "not on this file system")
        return real(file, command, flags)

    monkeypatch.setattr(fcntl, "fcntl", refusing)
    data = b"x" * (2**20 + 1)
    assert asyncio.run(store.put_if_absent("large", data, durable=False)) is True
    assert asyncio.run(store.get("large")) == data


def test_a_folder_that_somebody_else_made_is_synced_too(store, tmp_path, monkeypatch):
    asyncio.run(store.put("a/x", b""))
    (tmp_path / "made" / "on demand" / "a" / "foreign").mkdir()
    parent = inode(tmp_path / "made" / "on demand" / "a")
    synced = set()
    real = os.fsync

    def watched(target: int) -> None:
        synced.add(inode(target))
        real(target)

    monkeypatch.setattr(os, "fsync", watched)
    asyncio.run(store.put("a/foreign/x", b""))
    assert parent in synced


def test_a_folder_that_was_removed_behind_our_back_is_made_again(store, tmp_path):
    root = tmp_path / "made" / "on demand"
    asyncio.run(store.put("a/b/x", b"1"))
    (root / "a" / "b" / "x").unlink()
    (root / "a" / "b").rmdir()
    asyncio.run(store.put("a/b/x", b"2"))
    assert asyncio.run(store.get("a/b/x")) == b"2"


def test_a_full_disk_leaves_nothing_behind(store, tmp_path):
    asyncio.run(store.put("a", b"old"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        for work in (
            store.put("a", b"x" * 5000),
            store.put_if_absent("b", b"x" * 5000),
            store.put_if_absent("b", b"x" * 5000, durable=False),
            store.put_if_absent("b", b"x" * 2**20, durable=False),
        ):
            with pytest.raises(Unavailable) as failed:
                asyncio.run(work)
            assert isinstance(failed.value.__cause__, OSError)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == ["a"]
    assert asyncio.run(store.get("a")) == b"old"


def test_a_folder_that_cannot_be_synced_leaves_the_outcome_unknown(store, monkeypatch):
    asyncio.run(store.put("folder/a", b""))
    real = os.fsync

    def failing(target):
        if os.path.isdir(f"/proc/self/fd/{target}"):
            raise OSError(errno.EIO, "broken disk")
        real(target)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OutcomeUnknown):
        asyncio.run(store.put_if_absent("folder/b", b""))


def test_a_copy_that_is_there_already_is_on_disk_when_it_counts(store, monkeypatch):
    """It may be our own, of which we never heard that its folder was synced."""
    asyncio.run(store.put("staged", b"one"))
    journal = Journal(monkeypatch)
    asyncio.run(store.put_if_absent("log/1.json", b"one", durable=False, whole=True))
    assert journal.dirty
    assert asyncio.run(store.copy_if_absent([("staged", "log/1.json")])) == 1
    assert journal.dirty == set()


def test_what_was_copied_before_a_failure_counts(store):
    asyncio.run(store.put("log/2.json/inside", b"so it is a folder"))
    pairs = [(b"one", "log/1.json"), (b"two", "log/2.json"), (b"three", "log/3.json")]
    assert asyncio.run(store.copy_if_absent(pairs)) == 1
    with pytest.raises(Invalid):
        asyncio.run(store.copy_if_absent(pairs[1:]))
    assert asyncio.run(store.get("log/1.json")) == b"one"
    assert asyncio.run(store.head("log/3.json")) is None


def test_copies_to_a_disk_that_hangs_take_no_thread_of_others(store, monkeypatch):
    over = threading.Event()
    real = LocalStore._copy_all

    def hang(self: LocalStore, pairs) -> int:
        over.wait()
        return real(self, pairs)

    async def scenario() -> None:
        copies = [
            asyncio.ensure_future(store.copy_if_absent([(b"x", f"log/{number}.json")]))
            for number in range(100)
        ]
        await asyncio.sleep(0.01)
        try:
            await asyncio.wait_for(store.put("beside", b"data"), PATIENCE_S)
            assert not any(each.done() for each in copies)
        finally:
            over.set()
        assert await asyncio.gather(*copies) == [1] * 100

    monkeypatch.setattr(LocalStore, "_copy_all", hang)
    asyncio.run(scenario())


def test_temporary_files_of_a_crash_are_no_objects(store, tmp_path):
    left = ".inver-0123456789abcdef01234567.tmp"
    asyncio.run(store.put("a/x", b"1"))
    (tmp_path / "made" / "on demand" / "a" / left).write_bytes(b"half")

    async def listing() -> list[str]:
        return [info.path async for info in store.list()]

    assert asyncio.run(listing()) == ["a/x"]
    for work in (store.get(f"a/{left}"), store.put(f"a/{left}", b""), store.delete(f"a/{left}")):
        with pytest.raises(Invalid):
            asyncio.run(work)


def test_files_that_no_path_can_name_are_no_objects(store, tmp_path):
    asyncio.run(store.put("a", b"1"))
    folder = os.fsencode(tmp_path / "made" / "on demand")
    for name in (b"not-utf8-\xff", b"new\nline", b"back\\slash"):
        with open(folder + b"/" + name, "wb"):
            pass
    os.mkfifo(folder + b"/pipe")

    async def listing() -> list[str]:
        return [info.path async for info in store.list()]

    assert asyncio.run(listing()) == ["a"]
    assert asyncio.run(store.head("pipe")) is None


def test_what_a_file_system_cannot_hold_is_refused_with_the_reason(store):
    async def scenario() -> None:
        await store.put("a/b", b"1")
        with pytest.raises(Invalid, match="is a folder"):
            await store.put("a", b"2")
        with pytest.raises(Invalid, match="is a folder"):
            await store.put_if_absent("a", b"2")
        with pytest.raises(Invalid, match="is an object"):
            await store.put("a/b/c", b"2")
        with pytest.raises(Invalid, match="too long"):
            await store.put("x" * 256, b"2")
        assert await store.get("a/b") == b"1"

    asyncio.run(scenario())


def test_no_descriptor_stays_open(store):
    async def scenario() -> None:
        for n in range(20):
            await store.put(f"a/{n}", b"x")
            await store.put_if_absent(f"a/{n}", b"x")
            await store.get(f"a/{n}")
            await store.head(f"b/{n}")
            with pytest.raises(Invalid):
                await store.put(f"a/{n}/below", b"x")
        async for _ in store.list():
            break
        for n in range(20):
            await store.delete(f"a/{n}")

    asyncio.run(scenario())
    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(scenario())
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_has_no_urls_of_its_own(store):
    assert store.url_signer(60) is None
