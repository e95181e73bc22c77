"""A table that is made with its data: there with its first version or not at all, whoever else makes it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pyarrow
import pyarrow.ipc
import pytest

from tests.engines.conftest import lance_extra
from tests.fixtures.lance import Namespace, code
from tests.fixtures.processes import free_port
from tests.fixtures.server import InverServer, running_inver

ROWS = 100
WRITERS = 4
CRASHED = 137
TABLE_EXISTS, CONCURRENT = 5, 14


@pytest.fixture(scope="module")
def extra() -> dict[str, str]:
    return lance_extra()


@pytest.fixture(scope="module")
def server(extra: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    """On a port that stays the same, so that clients find it after its death."""
    arguments = ["--port", str(free_port()), "--management-port", "0"]
    with running_inver(tmp_path_factory.mktemp("creation") / "home", None, arguments, extra) as started:
        yield started


@pytest.fixture
def space(server: InverServer) -> Iterator[Namespace]:
    space = Namespace(server)
    yield space
    space.close()


def arrow(first: int = 0) -> bytes:
    table = pyarrow.table({"id": pyarrow.array(range(first, first + ROWS), pyarrow.int64())})
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def create(space: Namespace, name: str, mode: str = "create", first: int = 0) -> httpx.Response:
    return space.client.post(f"{space.path(name)}/create", content=arrow(first), params={"mode": mode})


def tables(space: Namespace) -> list[str]:
    found: list[str] = space.ask("GET", f"/v1/namespace/{space.catalog}$s/table/list").json()["tables"]
    return found


def folders(server: InverServer) -> set[str]:
    """Those in which there is something."""
    return {path.name for path in (server.home / "warehouse").iterdir() if any(path.rglob("*"))}


def test_a_table_and_its_first_version_are_one_transaction(server: InverServer, space: Namespace) -> None:
    made = create(space, "t")
    assert (made.status_code, made.json()["version"]) == (200, 1), made.text
    assert space.of("t", "count_rows") == ROWS
    page = server.call("GET", "/events", params={"after": "0", "limit": 1000}).json()["events"]
    mine = [event for event in page if event["subject"] in made.json()["location"]]
    assert [event["type"] for event in mine] == ["io.inver.table.created.v1", "io.inver.table.committed.v1"]
    assert len({event["invertransaction"] for event in mine}) == 1


def test_of_those_that_make_the_same_table_one_does(server: InverServer, space: Namespace) -> None:
    before = folders(server)
    with ThreadPoolExecutor(WRITERS) as pool:
        for mode in ("create", "exist_ok", "overwrite"):
            firsts = [number * ROWS for number in range(WRITERS)]
            answers = list(pool.map(partial(create, space, mode, mode), firsts))
            good = [answer for answer in answers if answer.status_code == 200]
            lost = [code(answer) for answer in answers if answer.status_code != 200]
            if mode == "create":
                assert (len(good), lost) == (1, [(409, TABLE_EXISTS)] * (WRITERS - 1))
            else:
                # Lance lets nobody replace what they have not seen.
                allowed = {(409, CONCURRENT)} if mode == "overwrite" else set()
                assert good, lost
                assert set(lost) <= allowed
            assert len({answer.json()["location"] for answer in good}) == 1
            assert space.versions(mode) == list(range(1, len(good) + 1 if mode == "overwrite" else 2))
            assert space.of(mode, "count_rows") == ROWS
    # Nothing stays of the data of those that lost.
    assert len(folders(server) - before) == 3


def test_what_is_refused_leaves_neither_a_table_nor_files(server: InverServer, space: Namespace) -> None:
    before = folders(server)
    refused = space.client.post(f"{space.path('t')}/create", content=b"not Arrow")
    assert refused.status_code == 400, refused.text
    assert tables(space) == []
    assert folders(server) == before
    absent = create(space, "t").json()["location"]
    assert Path(absent.removeprefix("file://")).name in folders(server) - before


@pytest.mark.parametrize(
    ("point", "decided"), [("lance_written_before_decide", False), ("lance_decided_before_finalize", True)]
)
def test_a_server_that_dies_leaves_the_whole_table_or_none(
    server: InverServer, space: Namespace, extra: dict[str, str], point: str, decided: bool
) -> None:
    server.stop()
    server.start({**extra, "INVER_CRASH_AT": point})
    with pytest.raises(httpx.TransportError):
        create(space, "t")
    assert server.await_end() == CRASHED
    server.start(extra)
    assert tables(space) == (["t"] if decided else [])
    again = create(space, "t")
    assert again.status_code == (409 if decided else 200), again.text
    assert space.versions("t") == [1]
    assert space.of("t", "count_rows") == ROWS
