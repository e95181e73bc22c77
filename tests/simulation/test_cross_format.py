"""One Delta, one Iceberg and one Lance table move together or not at all.

The server dies at each point of a transaction's way, and many clients ask at once. Whoever reads, in
whichever protocol, sees the tables in step, and the feed tells of all three or of none.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.processes import free_port
from tests.fixtures.server import InverServer, NotStarted, running_inver
from tests.fixtures.trio import Trio

CRASHED = 137
# Where the transaction stands when the server dies, and whether it was decided by then.
POINTS = {
    "before_decide": False,
    "decided_before_commit": False,
    "committed_before_answer": True,
    "lance_decided_before_finalize": True,
}
# Nothing but the transaction asks the ledger for a decision.
QUIET = {"INVER_DELTA__PUBLISH_AFTER_S": "3600"}
COMMITTED = "io.inver.table.committed.v1"
SECONDS = 2.0
WRITERS = 3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def trio(database: str | None, tmp_path: Path) -> Iterator[Trio]:
    """On a port that stays the same, so that clients find the server after its death."""
    arguments = ["--port", str(free_port()), "--management-port", "0"]
    with running_inver(tmp_path / "home", database, arguments, QUIET) as server:
        made = Trio(server)
        made.transact(*made.step(1)).raise_for_status()
        yield made
        made.close()


class Feed:
    """The commits of the three tables, in the ledger's order."""

    def __init__(self, trio: Trio) -> None:
        self.names = {trio.delta.id: "delta"}
        for name, url in (
            ("iceberg", f"/catalogs/{trio.lake.catalog}/schemas/ns/tables/t"),
            ("lance", f"/catalogs/{trio.lance.catalog}/schemas/s/tables/t"),
        ):
            self.names[trio.server.call("GET", url).raise_for_status().json()["id"]] = name
        self.versions: dict[str, list[int]] = {name: [] for name in self.names.values()}
        self.tables: dict[int, set[str]] = {}
        after = "0"
        while True:
            page = trio.server.call("GET", "/events", params={"after": after}).raise_for_status().json()
            if not page["events"]:
                break
            after = page["next"]
            for event in page["events"]:
                made = event["type"] == COMMITTED and event["data"]["version"] > 0
                if made and event["subject"] in self.names:
                    self._add(event)

    def _add(self, event: dict[str, Any]) -> None:
        name, number = self.names[event["subject"]], int(event["invertransaction"])
        assert not self.tables or number >= max(self.tables), "the feed goes back"
        self.versions[name].append(event["data"]["version"])
        self.tables.setdefault(number, set()).add(name)

    def require(self, together: set[int]) -> None:
        """After what made the tables: no version is missing or doubled; these moved all three, others one."""
        for name, versions in self.versions.items():
            assert versions == list(range(1, len(versions) + 1)), (name, versions)
        whole = set(self.versions)
        assert {number for number, tables in self.tables.items() if tables == whole} == together
        assert all(len(tables) == 1 for number, tables in self.tables.items() if number not in together)


def dies(server: InverServer, point: str, passes: int, ask: Callable[[], httpx.Response]) -> bool:
    """Whether the server dies at this pass of a point, at its start or on the way of what is asked."""
    try:
        server.start({**QUIET, "INVER_CRASH_AT": f"{point}:{passes}"})
        ask().raise_for_status()
    except NotStarted as ended:
        code = ended.code
    except httpx.TransportError:
        code = server.await_end()
    else:
        server.stop()
        return False
    assert code == CRASHED
    return True


@pytest.mark.parametrize("point", POINTS)
def test_all_or_nothing_when_the_server_dies(trio: Trio, point: str) -> None:
    """Each time a little further on, until it has died on the whole way of the transaction."""
    server, step, key = trio.server, trio.step(2), str(uuid.uuid4())
    server.stop()
    seen: set[tuple[int, int, int]] = set()
    for passes in range(1, 20):
        died = dies(server, point, passes, lambda: trio.transact(*step, key=key))
        server.start(QUIET)
        # Whoever asks first, in whichever protocol, sees all of it or nothing.
        found = trio.versions()
        if died:
            seen.add(found)
        if found == (2, 2, 2):
            break
        server.stop()
    assert seen <= {(1, 1, 1), (2, 2, 2)}
    assert ((2, 2, 2) if POINTS[point] else (1, 1, 1)) in seen
    again = trio.transact(*step, key=key)
    assert again.status_code == 200, again.text
    assert again.json()["replayed"] is True
    assert trio.versions() == (2, 2, 2)
    feed = Feed(trio)
    feed.require({*feed.tables})
    assert int(again.json()["transaction"]) == max(feed.tables)
    trio.transact(*trio.step(3)).raise_for_status()
    assert trio.versions() == (3, 3, 3)


def test_readers_see_none_or_all_of_every_transaction(trio: Trio) -> None:
    end = time.monotonic() + SECONDS
    won: set[int] = set()
    staging = threading.Lock()

    def write(_: int) -> None:
        answered = 0
        while time.monotonic() < end or not (answered and won):
            with staging:
                step = trio.step(trio.versions()[0] + 1)
            answer = trio.transact(*step)
            assert answer.status_code in (200, 409), answer.text
            if answer.status_code == 200:
                won.add(int(answer.json()["transaction"]))
            answered += 1

    def read(first: int) -> None:
        """Round and round the tables: whatever one of them shows, the next shows too."""
        looks: list[Callable[[], int]] = [
            lambda: int(trio.delta.load()["latest-table-version"]),
            lambda: len(trio.iceberg.metadata["snapshots"]),
            lambda: max(trio.lance.versions("t")),
        ]
        seen, looked = 0, 0
        while time.monotonic() < end or not looked:
            found = looks[(first + looked) % 3]()
            assert found >= seen, f"table {(first + looked) % 3} is at {found}, another was at {seen}"
            seen, looked = found, looked + 1

    with ThreadPoolExecutor(WRITERS + 3) as pool:
        writing = [pool.submit(write, number) for number in range(WRITERS)]
        reading = [pool.submit(read, number) for number in range(3)]
        for each in (*writing, *reading):
            each.result()
    feed = Feed(trio)
    feed.require({min(feed.tables), *won})
    assert trio.versions() == (len(won) + 1,) * 3


def test_transactions_and_single_commits_at_once(trio: Trio) -> None:
    end = time.monotonic() + SECONDS
    first = max(Feed(trio).tables)
    together: set[int] = set()
    alone: set[int] = set()
    staging = threading.Lock()

    def run(kind: int | None) -> None:
        """One of the three tables, or all of them."""
        while time.monotonic() < end or not (together and alone):
            with staging:
                delta, _, lance = trio.versions()
                operations: list[Callable[[], dict[str, Any]]] = [
                    partial(trio.delta_commit, delta + 1),
                    trio.iceberg_commit,
                    partial(trio.lance_commit, lance + 1),
                ]
                asked = [make() for number, make in enumerate(operations) if kind in (None, number)]
            answer = trio.transact(*asked)
            assert answer.status_code in (200, 409), answer.text
            if answer.status_code == 200:
                (together if kind is None else alone).add(int(answer.json()["transaction"]))

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(run, (None, None, 0, 1, 2)))
    feed = Feed(trio)
    feed.require({first, *together})
    assert set(feed.tables) == {first, *together, *alone}
    assert trio.versions() == tuple(len(feed.versions[name]) for name in ("delta", "iceberg", "lance"))
