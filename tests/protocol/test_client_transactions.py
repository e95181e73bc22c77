"""Blocks of the Python client, with commits made by hand: sent once, explained when they are lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import inver
from inver.client import AsyncClient, Client, Policy, Unreachable
from inver.client.blocks import Block
from inver.errors import AlreadyExists, Conflict, Invalid, NotFound
from tests.fixtures.lossy import Loss, lossy
from tests.fixtures.server import InverServer
from tests.fixtures.trio import Trio

QUICK = Policy(first_wait=0.01, longest_wait=0.02)


@pytest.fixture
def trio(shared_inver: InverServer) -> Iterator[Trio]:
    made = Trio(shared_inver)
    yield made
    made.close()


@pytest.fixture
def client(shared_inver: InverServer) -> Iterator[Client]:
    with Client(shared_inver.url, shared_inver.token, policy=QUICK) as client:
        yield client


def move(block: Block, table: Any, trio: Trio, number: int) -> None:
    """The three tables, by the methods for each format."""
    delta, iceberg, lance = trio.step(number)
    block.delta_commit(table, delta["commit"]["commit_info"])
    block.iceberg_commit(iceberg["table"], iceberg["commit"]["updates"], iceberg["commit"]["requirements"])
    created = dict(lance["operation"]["create_table_version"])
    block.lance_version(created.pop("id"), created.pop("version"), created.pop("manifest_path"), **created)


def test_a_block_is_one_transaction(client: Client, trio: Trio) -> None:
    table, cursor = client.table(trio.delta.name), f"flow/{trio.delta.id}"
    with client.begin() as tx:
        move(tx, table, trio, 1)
        tx.move_cursor(cursor, None, "1")
        tx.rename_table((trio.lake.catalog, "ns", "t"), (trio.lake.catalog, "ns", "u"))
        assert trio.versions() == (0, 0, 0)
        assert len(tx.operations) == 5
    assert tx.receipt is not None
    assert len(tx.receipt.results) == 5
    assert client.cursor(cursor).value == "1"
    assert client.table((trio.lake.catalog, "ns", "u")).version == 1
    assert trio.delta.load()["latest-table-version"] == max(trio.lance.versions("t")) == 1


def test_a_renamed_table_may_be_committed_to(client: Client, trio: Trio) -> None:
    """In whichever order it was asked for, the commit is of the table that had the name."""
    name = (trio.lake.catalog, "ns", "t")
    with client.begin() as tx:
        tx.rename_table(name, (*name[:2], "u"))
        tx.iceberg_commit(name, [{"action": "set-properties", "updates": {"a": "1"}}])
    assert client.table((*name[:2], "u")).version == 1


@pytest.mark.parametrize("loss", Loss)
def test_a_lost_answer_is_asked_for_again(shared_inver: InverServer, trio: Trio, loss: Loss) -> None:
    with lossy(shared_inver.url) as line, Client(line.url, shared_inver.token, policy=QUICK) as client:
        table = client.table(trio.delta.name)
        line.lose("/transactions", loss, times=2)
        with client.begin() as tx:
            move(tx, table, trio, 1)
        assert [path for path in line.seen if path.endswith("/transactions")] == [
            "POST /api/management/v1/transactions"
        ] * 3
    assert tx.receipt is not None
    assert tx.receipt.replayed is (loss is not Loss.REQUEST)
    assert trio.versions() == (1, 1, 1)


def test_nothing_is_sent_of_a_block_that_fails(client: Client, trio: Trio) -> None:
    table, last = client.table(trio.delta.name), client.info().last_event
    with pytest.raises(ZeroDivisionError), client.begin() as tx:  # noqa: PT012
        move(tx, table, trio, 1)
        raise ZeroDivisionError
    with pytest.raises(Invalid, match="has ended"):
        tx.drop_table(trio.delta.name)
    with client.begin() as empty:
        pass
    assert (tx.receipt, empty.receipt) == (None, None)
    assert client.info().last_event == last


@pytest.mark.parametrize("loser", [0, 1, 2])
def test_what_is_lost_is_said_by_name(client: Client, trio: Trio, loser: int) -> None:
    table = client.table(trio.delta.name)
    with client.begin() as tx:
        move(tx, table, trio, 1)
    names = [trio.delta.name, f"{trio.lake.catalog}.ns.t", f"{trio.lance.catalog}.s.t"]
    with pytest.raises(Conflict) as lost, client.begin() as late:  # noqa: PT012
        move(late, table, trio, 2)
        won = trio.transact(trio.step(2)[loser]).raise_for_status().json()["transaction"]
        before = trio.versions()
    message = lost.value.message
    assert message == str(lost.value)
    assert f"{names[loser]}: " in message
    assert f"transaction {won} by " in message
    assert not any(f"{name}: " in message for name in names if name != names[loser])
    assert trio.versions() == before


def test_other_refusals_are_said_by_name_too(client: Client, trio: Trio) -> None:
    name = (trio.lake.catalog, "ns", "t")
    trio.lake.table("taken")
    with pytest.raises(AlreadyExists, match="taken"), client.begin() as tx:
        tx.rename_table(name, (*name[:2], "taken"))
    with pytest.raises(NotFound, match=f"{trio.lake.catalog}.ns.missing"), client.begin() as tx:
        tx.iceberg_commit((*name[:2], "missing"), [])
    with pytest.raises(Invalid, match="1000"), client.begin() as tx:  # noqa: PT012
        for number in range(1_001):
            tx.move_cursor(str(number), None, "1")


async def test_on_an_event_loop(shared_inver: InverServer, trio: Trio) -> None:
    async with AsyncClient(shared_inver.url, shared_inver.token, policy=QUICK) as client:
        table = await client.table(trio.delta.name)
        async with client.begin() as tx:
            move(tx, table, trio, 1)
        assert tx.receipt is not None
        trio.transact(trio.iceberg_commit()).raise_for_status()
        with pytest.raises(Conflict, match=f"{trio.lake.catalog}.ns.t: "):  # noqa: PT012
            async with client.begin() as late:
                move(late, table, trio, 2)
                trio.transact(trio.iceberg_commit()).raise_for_status()
        with pytest.raises(KeyError):  # noqa: PT012
            async with client.begin() as late:
                move(late, table, trio, 2)
                raise KeyError
    assert trio.versions() == (1, 3, 1)


def test_by_the_name_of_the_package(shared_inver: InverServer, trio: Trio) -> None:
    with inver.transaction(shared_inver.url, shared_inver.token) as tx:
        tx.move_cursor(f"own/{trio.delta.id}", None, "1")
    assert tx.receipt is not None
    with pytest.raises(Unreachable), inver.transaction("http://127.0.0.1:1", "x") as tx:  # noqa: PT012
        tx._client._policy = QUICK
        tx.move_cursor("own", None, "1")
    with pytest.raises(AttributeError):
        _ = inver.transactions


def test_the_libraries_are_loaded_by_who_uses_them() -> None:
    program = "import inver, sys; inver.transaction('http://127.0.0.1:1', 'x'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"lance", "lance_namespace", "pyiceberg", "pyarrow", "pydantic"} & set(done.stdout.split())
