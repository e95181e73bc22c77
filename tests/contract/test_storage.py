"""What every object store promises. Each test runs unchanged against each kind of store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from inver.domain.locations import Location
from inver.errors import Invalid, NotFound
from inver.ports import ObjectStore
from inver.storage.open import open_store
from inver.storage.options import StorageOptions
from tests.fixtures.s3 import S3Server

T = TypeVar("T")

ODD_PATHS = [
    "with space/and more",
    "100%",
    "%2e%2e/x",
    "ds=2024-01-01 00%3A00%3A00/part.parquet",
    "a%2Fb",
    "a+b",
    "a?b=c",
    "a#b",
    "a&b=c;d",
    "quote'\"s",
    "*[]{}()|^~`<>$!,@:",
    "Größe/日本語/🐟",
    "e\u0301 is not \u00e9",
    "family=👨\u200d👩\u200d👧",
    ".hidden",
    "...",
    "-",
    "x" * 200 + "/" + "y" * 200,
]

PATHS_OUT = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/.",
    "a/..",
    "../a",
    "a/../b",
    "a/./b",
    "..\\a",
    "a\\b",
]
PATHS_OUT += ["a\x00b", "a\nb", "a\tb", "a\x7fb", "a\udc80b", "x" * 1025]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def paths(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.path async for info in store.list(prefix)]


async def refused(work: Awaitable[object]) -> bool:
    try:
        await work
    except Invalid:
        return True
    return False


def s3_store(server: S3Server, root: Location) -> ObjectStore:
    return open_store(root, server.options)


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def make_store(request, tmp_path) -> Callable[[str], ObjectStore]:
    """Opens a store rooted at any folder of a place that no other test uses."""
    if request.param == "local":
        base = Location.parse(str(tmp_path))
        return lambda folder: open_store(base.join(folder), StorageOptions(), allowed_roots=[base])
    server = request.getfixturevalue("s3_server")
    base = Location.parse(f"s3://{server.bucket}/{uuid4()}")
    return lambda folder: s3_store(server, base.join(folder))


@pytest.fixture
def store(make_store: Callable[[str], ObjectStore]) -> ObjectStore:
    return make_store("warehouse/root of the store")


def test_what_is_put_is_there(store):
    async def scenario() -> None:
        assert await store.head("a/b.json") is None
        before = int(time.time() * 1000)
        await store.put("a/b.json", b"one")
        assert await store.get("a/b.json") == b"one"
        info = await store.head("a/b.json")
        assert (info.path, info.size) == ("a/b.json", 3)
        # Object stores round to seconds.
        assert before - 2000 <= info.modified_ms <= time.time() * 1000 + 2000
        await store.put("a/b.json", b"and two")
        assert await store.get("a/b.json") == b"and two"
        replaced = await store.head("a/b.json")
        assert replaced.size == 7
        assert replaced.etag != info.etag
        assert await paths(store) == ["a/b.json"]

    run(scenario())


def test_the_root_is_the_location_it_was_opened_at(store):
    assert store.root.canonical.endswith("/warehouse/root of the store")


@pytest.mark.parametrize("size", [0, 1, 65_536, 12_000_000])
def test_objects_of_any_size_come_back_whole(store, size):
    data = bytes(range(256)) * (size // 256) + b"\x00" * (size % 256)

    async def scenario() -> None:
        await store.put("blob", data)
        assert await store.get("blob") == data
        assert (await store.head("blob")).size == size
        assert await store.put_if_absent("second", data)
        assert await store.get("second") == data

    run(scenario())


@pytest.mark.parametrize("path", ["nothing", "no/such/folder/nothing"])
def test_what_is_absent_is_not_found(store, path):
    async def scenario() -> None:
        await store.put("something", b"x")
        assert await store.head(path) is None
        assert await store.delete(path) is False
        for work in (store.get(path), store.get_range(path, 0, 1), store.get_range(path, 0, 0)):
            with pytest.raises(NotFound) as missing:
                await work
            assert missing.value.kind == "object"
        assert await paths(store, path) == []

    run(scenario())


def test_a_store_with_nothing_in_it_lists_nothing(store):
    assert run(paths(store)) == []


def test_what_lies_above_an_object_is_not_an_object(store):
    async def scenario() -> None:
        await store.put("a/b/c", b"x")
        for folder in ("a", "a/b"):
            assert await store.head(folder) is None
            assert await store.delete(folder) is False
            with pytest.raises(NotFound):
                await store.get(folder)
        # Nor is what lies below one.
        assert await store.head("a/b/c/d") is None
        assert await store.delete("a/b/c/d") is False
        with pytest.raises(NotFound):
            await store.get("a/b/c/d")
        assert await paths(store, "a/b/c") == []
        assert await paths(store) == ["a/b/c"]

    run(scenario())


def test_a_range_is_a_slice(store):
    data = bytes(range(200))

    async def scenario() -> None:
        await store.put("blob", data)
        await store.put("empty", b"")
        for start in (0, 1, 100, 199, 200, 201, 5000):
            for length in (0, 1, 50, 200, 5000):
                assert await store.get_range("blob", start, length) == data[start : start + length]
        assert await store.get_range("empty", 0, 10) == b""
        assert await refused(store.get_range("blob", -1, 5))
        assert await refused(store.get_range("blob", 0, -5))

    run(scenario())


def test_put_if_absent_never_replaces(store):
    async def scenario() -> None:
        assert await store.put_if_absent("log/0.json", b"first") is True
        assert await store.put_if_absent("log/0.json", b"second") is False
        assert await store.get("log/0.json") == b"first"
        await store.delete("log/0.json")
        assert await store.put_if_absent("log/0.json", b"third") is True
        assert await store.get("log/0.json") == b"third"
        assert await paths(store) == ["log/0.json"]

    run(scenario())


def test_what_is_made_durable_later_is_there_at_once(store):
    async def scenario() -> None:
        assert await store.put_if_absent("log/1.json", b"first", durable=False) is True
        assert await store.put_if_absent("log/1.json", b"second", durable=False) is False
        assert await store.get("log/1.json") == b"first"
        await store.sync("log/1.json")
        assert await store.get("log/1.json") == b"first"
        with pytest.raises(NotFound):
            await store.sync("log/2.json")
        assert list(await store.sync_all([])) == []
        assert list(await store.sync_all(["log/2.json", "log/1.json"])) == ["log/2.json"]
        many = [f"many/{number}" for number in range(10)]
        for path in many[::2]:
            await store.put_if_absent(path, b"data", durable=False)
        assert list(await store.sync_all(many)) == many[1::2]
        await store.discard([])
        await store.discard(many)
        assert await paths(store, "many") == []
        for number, pieces in enumerate(([b"a", b"", b"bc"], [b"%d," % n for n in range(3_000)], [])):
            for durable in (True, False):
                path = f"pieces/{number}-{durable}"
                assert await store.put_if_absent(path, pieces, durable=durable) is True
                assert await store.get(path) == b"".join(pieces)

    run(scenario())


def test_copies_never_replace_and_stop_at_the_first_that_differs(store):
    async def scenario() -> None:
        for number in range(6):
            await store.put(f"log/staged/{number}", f"commit {number}".encode())
        pairs = [(f"log/staged/{number}", f"log/{number}.json") for number in range(6)]
        assert await store.copy_if_absent([]) == 0
        assert await store.copy_if_absent(pairs[:2]) == 2
        assert await store.get("log/1.json") == b"commit 1"
        # What is there already is as good as a copy, if it is the same.
        await store.put("log/2.json", b"commit 2")
        await store.put("log/4.json", b"commit X")
        assert await store.copy_if_absent(pairs) == 4
        assert await store.get("log/3.json") == b"commit 3"
        assert await store.get("log/4.json") == b"commit X"
        assert await store.head("log/5.json") is None
        # Bytes that are known need no source.
        assert await store.copy_if_absent([(b"commit 1", "log/1.json"), (b"five", "log/5.json")]) == 2
        assert await store.get("log/5.json") == b"five"
        assert await store.copy_if_absent([(b"other", "log/5.json")]) == 0

    run(scenario())


def test_nothing_is_said_of_a_copy_whose_source_is_gone(store):
    async def scenario() -> None:
        await store.put("log/1.json", b"one")
        assert await store.copy_if_absent([("log/staged/1", "log/1.json")]) == 0
        assert await store.copy_if_absent([("log/staged/2", "log/2.json")]) == 0
        assert await paths(store) == ["log/1.json"]

    run(scenario())


@pytest.mark.parametrize("pair", [("../a", "b"), ("a", "../b"), (b"x", "/b"), ("a/../b", "c")])
def test_copies_do_not_leave_the_root(store, pair):
    assert run(refused(store.copy_if_absent([pair])))


def test_what_can_be_had_at_once_is_what_is_there(store):
    async def scenario() -> None:
        for data in (b"one", b"", bytes(100_000)):
            await store.put("log/1.json", data)
            assert store.get_at_once("log/1.json") in (data, None)
        await store.delete("log/1.json")
        for path in ("log/1.json", "log", "none/1.json"):
            assert store.get_at_once(path) is None

    run(scenario())


def test_of_writers_that_race_exactly_one_wins(make_store):
    stores = [make_store("race") for _ in range(8)]

    async def scenario() -> None:
        for race in range(50):
            path = f"_delta_log/{race:020}.json"
            won = await asyncio.gather(
                *(store.put_if_absent(path, f"writer {n}".encode()) for n, store in enumerate(stores))
            )
            assert won.count(True) == 1
            assert await stores[0].get(path) == f"writer {won.index(True)}".encode()

    run(scenario())


def test_a_reader_never_sees_half_an_object(store):
    versions = [bytes([n]) * 300_000 for n in range(20)]

    async def write() -> None:
        for version in versions:
            await store.put("pointer", version)

    async def scenario() -> None:
        await store.put("pointer", versions[0])
        writing = asyncio.create_task(write())
        while not writing.done():
            assert await store.get("pointer") in versions
        await writing

    run(scenario())


def test_a_folder_may_empty_while_others_write_into_it(store):
    async def work(name: str) -> None:
        for n in range(25):
            path = f"shared/folder/{name}-{n}"
            await store.put(path, path.encode())
            assert await store.get(path) == path.encode()
            assert await store.delete(path) is True

    async def scenario() -> None:
        await asyncio.gather(*(work(name) for name in "abcd"))
        assert await paths(store) == []
        # The folder's name is free again.
        await store.put("shared", b"x")
        assert await paths(store) == ["shared"]

    run(scenario())


def test_a_folder_that_was_made_is_no_object_and_goes_when_asked(store):
    async def scenario() -> None:
        await store.make_folder("a/b/c")
        await store.make_folder("a/b/c")
        assert await paths(store) == []
        await store.put("a/x", b"1")
        await store.make_folder("d")
        await store.remove_folders()
        assert await paths(store) == ["a/x"]
        # Their names are free again.
        await store.put("a/b", b"2")
        await store.put("d", b"3")
        await store.remove_folders()
        assert await paths(store) == ["a/b", "a/x", "d"]

    run(scenario())


def test_delete_says_whether_there_was_something(store):
    async def scenario() -> None:
        await store.put("a/x", b"1")
        await store.put("a/y", b"2")
        assert await store.delete("a/x") is True
        assert await store.delete("a/x") is False
        assert await paths(store) == ["a/y"]

    run(scenario())


@pytest.mark.parametrize("path", ODD_PATHS)
def test_paths_are_literal(store, path):
    async def scenario() -> None:
        await store.put(path, path.encode())
        assert await store.put_if_absent(path, b"x") is False
        assert await store.get(path) == path.encode()
        assert (await store.head(path)).path == path
        assert await paths(store) == [path]
        assert await store.delete(path) is True
        assert await paths(store) == []

    run(scenario())


@pytest.mark.parametrize("path", PATHS_OUT)
def test_paths_that_could_leave_the_root_are_refused(store, path):
    async def scenario() -> None:
        await store.put("a", b"x")
        assert await refused(store.put(path, b"y"))
        assert await refused(store.put_if_absent(path, b"y"))
        assert await refused(store.get(path))
        assert await refused(store.get_range(path, 0, 1))
        assert await refused(store.head(path))
        assert await refused(store.delete(path))
        if path not in ("", "a/"):
            assert await refused(paths(store, path))
        assert await store.get("a") == b"x"

    run(scenario())


def test_a_listing_is_in_path_order_by_whole_segments(store):
    names = ["orders.txt", "orders-1/x", "orders/a", "orders/b/c", "orders/b.d", "orders/b0"]
    names += ["orders2/a", "Orders/a", "z", "é/x", "日/x", "\ue000x", "🐟/x"]

    async def scenario() -> None:
        await asyncio.gather(*(store.put(name, b"x") for name in names))
        assert await paths(store) == sorted(names, key=str.encode)
        assert await paths(store, "orders") == ["orders/a", "orders/b.d", "orders/b/c", "orders/b0"]
        assert await paths(store, "orders/") == await paths(store, "orders")
        assert await paths(store, "orders/b") == ["orders/b/c"]
        assert await paths(store, "order") == []
        assert await paths(store, "orders/b/c") == []
        assert [info.size async for info in store.list("orders")] == [1, 1, 1, 1]

    run(scenario())


def test_a_long_listing_is_complete(store):
    names = [f"part-{n:05}" for n in range(1203)]

    async def scenario() -> None:
        for start in range(0, len(names), 100):
            await asyncio.gather(*(store.put(f"data/{name}", b"") for name in names[start : start + 100]))
        assert await paths(store, "data") == [f"data/{name}" for name in names]

    run(scenario())


def test_stores_side_by_side_do_not_see_each_other(make_store):
    orders, orders2, above = make_store("orders"), make_store("orders2"), make_store("x").root

    async def scenario() -> None:
        await orders.put("a", b"1")
        await orders2.put("b", b"2")
        assert await paths(orders) == ["a"]
        assert await paths(orders2) == ["b"]
        assert await orders.head("b") is None
        assert not above.contains(orders.root)

    run(scenario())
