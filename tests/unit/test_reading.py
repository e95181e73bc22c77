"""Reads that share a thread, and the one call that opens a file below a folder."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from pathlib import Path

import pytest

from inver.domain.locations import Location
from inver.errors import Invalid, NotFound
from inver.storage import beneath, reading
from inver.storage.local import LocalStore
from tests.fixtures.waiting import PATIENCE_S


class Reads:
    """Reads that say in which thread they ran, and wait for a sign where they are asked to."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.started = threading.Event()

    def where(self) -> bytes:
        return threading.current_thread().name.encode()

    def slowly(self) -> bytes:
        self.started.set()
        assert self.go.wait(PATIENCE_S)
        return b"slow"


async def started(reads: Reads) -> None:
    assert await asyncio.to_thread(reads.started.wait, 10)


async def test_reads_are_answered_in_a_thread_of_their_own():
    names = await asyncio.gather(*(reading.read(Reads().where) for _ in range(500)))
    assert len(names) == 500
    assert all(name.startswith(b"inver-read") for name in names)


async def test_what_is_asked_together_is_read_together():
    reads = Reads()
    assert len(set(await asyncio.gather(*(reading.read(reads.where) for _ in range(40))))) == 1


async def test_each_read_gets_its_own_error():
    def fail() -> bytes:
        raise OSError(5, "broken")

    reads = Reads()
    outcomes = await asyncio.gather(
        reading.read(reads.where), reading.read(fail), reading.read(reads.where), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [bytes, OSError, bytes]


async def test_a_slow_read_does_not_hold_up_the_others():
    reads = Reads()
    slow = reading.read(reads.slowly)
    await started(reads)
    assert await asyncio.wait_for(reading.read(reads.where), PATIENCE_S)
    assert not slow.done()
    reads.go.set()
    assert await slow == b"slow"


async def test_reads_wait_when_every_thread_is_busy_and_then_go_on():
    busy = [Reads() for _ in range(4)]
    slow = []
    for reads in busy:
        slow.append(reading.read(reads.slowly))
        await started(reads)
    waiting = [reading.read(Reads().where) for _ in range(200)]
    await asyncio.sleep(0.03)
    assert not any(future.done() for future in waiting)
    busy[0].go.set()
    assert len(await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)) == 200
    for reads in busy:
        reads.go.set()
    assert await asyncio.gather(*slow) == [b"slow"] * 4


async def test_a_read_that_nobody_waits_for_any_more_is_left_out():
    reads = Reads()
    ran = threading.Event()

    def count() -> bytes:
        ran.set()
        return b""

    abandoned = reading.read(count)
    abandoned.cancel()
    assert await reading.read(reads.where)
    assert not ran.is_set()


def test_a_loop_that_ended_is_forgotten():
    gc.collect()
    before = len(reading._readers)
    for _ in range(3):
        asyncio.run(_read_once())
    gc.collect()
    assert len(reading._readers) <= before


async def _read_once() -> None:
    await reading.read(Reads().where)


@pytest.fixture(params=["one call", "walk"])
def store(request, tmp_path: Path, monkeypatch) -> LocalStore:
    """A store whose trusted folder lies above its root, with and without the kernel's help."""
    if request.param == "walk":
        for name in ("_below", "_cached"):
            monkeypatch.setattr(beneath, name, lambda: beneath.not_offered)
    (tmp_path / "table" / "log").mkdir(parents=True)
    (tmp_path / "table" / "log" / "1.json").write_bytes(b"one")
    root = Location.parse(tmp_path.as_uri())
    return LocalStore(root.join("table"), trusted=root)


async def test_files_are_read(store):
    assert await store.get("log/1.json") == b"one"
    assert await store.get_range("log/1.json", 1, 1) == b"n"


@pytest.mark.parametrize("path", ["log/2.json", "log", "log/1.json/x", "none/1.json"])
async def test_what_is_no_file_is_not_found(store, path):
    with pytest.raises(NotFound):
        await store.get(path)


@pytest.mark.parametrize("link", ["table", "log", "file"])
async def test_links_lead_nowhere(store, tmp_path: Path, link):
    target = {"table": "table", "log": "table/log", "file": "table/log/1.json"}[link]
    (tmp_path / target).rename(tmp_path / "elsewhere")
    (tmp_path / target).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Invalid, match="symbolic link"):
        await store.get("log/1.json")


async def test_a_pipe_is_no_object_and_is_not_waited_for(store, tmp_path: Path):
    os.mkfifo(tmp_path / "table" / "log" / "pipe")
    with pytest.raises(NotFound):
        await asyncio.wait_for(store.get("log/pipe"), PATIENCE_S)


@pytest.mark.skipif(sys.platform != "linux", reason="openat2 is a call of Linux")
def test_the_kernel_opens_files_and_refuses_links(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x")
    (tmp_path / "a" / "link").symlink_to("file")
    (tmp_path / "b").symlink_to("a")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        opened = beneath.open_beneath(folder, "a/file")
        if opened is None:
            pytest.skip("the kernel or its sandbox does not offer openat2")
        os.close(opened)
        for path in ("a/link", "b/file", "a", "../" + tmp_path.name + "/a/file", "a/none"):
            assert beneath.open_beneath(folder, path) is None
    finally:
        os.close(folder)


@pytest.mark.parametrize("link", ["table", "log", "file"])
def test_links_lead_nowhere_at_once(store, tmp_path: Path, link):
    target = {"table": "table", "log": "table/log", "file": "table/log/1.json"}[link]
    (tmp_path / target).rename(tmp_path / "elsewhere")
    (tmp_path / target).symlink_to(tmp_path / "elsewhere")
    assert store.get_at_once("log/1.json") is None


@pytest.mark.skipif(sys.platform != "linux", reason="openat2 is a call of Linux")
def test_what_was_just_written_is_read_without_waiting(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 1000)
    os.mkfifo(tmp_path / "a" / "pipe")
    (tmp_path / "b").symlink_to("a")
    place = bytes(tmp_path)
    if beneath.read_cached(place + b"/a/file") is None:
        pytest.skip("the kernel, its sandbox or the file system cannot read without waiting")
    for size in (1, 1000, 4095, 4096, 4097, 50_000, beneath.MOST):
        (tmp_path / "a" / "file").write_bytes(b"x" * size)
        assert beneath.read_cached(place + b"/a/file") == b"x" * size
    (tmp_path / "a" / "large").write_bytes(b"x" * (beneath.MOST + 1))
    (tmp_path / "a" / "empty").write_bytes(b"")
    for path in (b"a/none", b"a", b"a/pipe", b"b/file", b"a/large", b"a/empty"):
        assert beneath.read_cached(place + b"/" + path) is None


def test_no_descriptor_stays_open_at_once(store):
    before = len(os.listdir("/proc/self/fd"))
    for path in ("log/1.json", "log/2.json", "log"):
        store.get_at_once(path)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_no_descriptor_stays_open(store):
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    await store.get("log/1.json")
    before = descriptors()
    for path in ["log/1.json", "log/2.json", "log"] * 10:
        await asyncio.gather(store.get(path), return_exceptions=True)
    assert descriptors() == before
