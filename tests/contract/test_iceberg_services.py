"""Iceberg tables below the protocol: several servers on one database, files, signatures, memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from inver.config.settings import IcebergSettings, StorageSettings
from inver.domain.ledger import CreateTable, Receipt, Transaction
from inver.secrets import Secret
from inver.services.iceberg.signing import STAGED_MS
from inver.services.iceberg.states import States
from tests.fixtures.house import House, ask, house
from tests.fixtures.iceberg import SCHEMA
from tests.fixtures.iceberg_house import TABLES, Client, client, home, two

__all__ = ["client", "home", "two"]


# --- several servers ---


@pytest.mark.postgres
async def test_servers_take_turns_on_one_table(two: tuple[Client, Client]) -> None:
    await two[0].create("t")
    for number in range(6):
        here, there = two[number % 2], two[1 - number % 2]
        seen = (await there.load("t"))["metadata"]
        assert (await here.append("t", seen)).status == 200
        # What a server remembers may be old, and is never the reason of a refusal.
        assert (await there.set("t", **{f"p{number}": "x"})).status == 200
    metadata = (await two[0].load("t"))["metadata"]
    assert len(metadata["snapshots"]) == 6
    assert {f"p{number}" for number in range(6)} <= set(metadata["properties"])
    assert (await two[1].load("t"))["metadata"] == metadata


@pytest.mark.postgres
async def test_a_writer_who_was_overtaken_elsewhere_loses(two: tuple[Client, Client]) -> None:
    seen = (await two[0].create("t"))["metadata"]
    assert (await two[0].append("t", seen)).status == 200
    seen = (await two[0].load("t"))["metadata"]
    assert (await two[1].append("t", seen)).status == 200
    late = await two[0].append("t", seen)
    assert (late.status, late.json["error"]["type"]) == (409, "CommitFailedException")
    folder = Path(seen["location"].removeprefix("file://")) / "metadata"
    assert len(list(folder.glob("*.metadata.json"))) == 3


@pytest.mark.postgres
async def test_a_name_that_was_given_away_elsewhere(two: tuple[Client, Client]) -> None:
    first = (await two[0].create("t"))["metadata"]
    assert (await two[1].set("t", a="1")).status == 200
    assert (await two[0].rename("t", "u")).status == 204
    assert (await two[1].set("t", b="2")).status == 404
    second = (await two[0].create("t"))["metadata"]
    assert second["table-uuid"] != first["table-uuid"]
    assert (await two[1].set("t", c="3")).status == 200
    properties = (await two[0].load("u"))["metadata"]["properties"]
    assert (properties["a"], "b" in properties, "c" in properties) == ("1", False, False)
    # Dropped and made again without a rename.
    assert (await two[0].ask("DELETE", "/namespaces/ns/tables/t")).status == 204
    third = (await two[0].create("t"))["metadata"]
    changed = await two[1].set("t", d="4")
    assert changed.json["metadata"]["table-uuid"] == third["table-uuid"]


@pytest.mark.postgres
async def test_a_right_that_was_taken_away_elsewhere(two: tuple[Client, Client]) -> None:
    one, other = two
    await one.create("t")
    ann = await one.home.user("ann")
    for privilege in ("USE CATALOG", "USE SCHEMA", "MODIFY"):
        await one.home.grant("ann", [privilege], "catalog", "main")
    writer = Client(other.home, ann.at(other.home))
    assert (await writer.set("t", a="1")).status == 200
    await one.home.revoke("ann", ["MODIFY"], "catalog", "main")
    assert (await writer.set("t", a="2")).status in (403, 404)
    assert (await one.load("t"))["metadata"]["properties"]["a"] == "1"


# --- files ---


def file_of(told: dict[str, Any]) -> Path:
    return Path(told["metadata-location"].removeprefix("file://"))


async def published(home: House, told: dict[str, Any]) -> tuple[int, int]:
    table = await home.app.store.table_by_id(told["metadata"]["table-uuid"])
    assert table is not None
    return table.version, table.published


async def test_files_are_made_durable_after_the_commit(home: House, client: Client) -> None:
    made = await client.create("t")
    await client.set("t", a="1")
    assert await published(home, made) == (1, -1)
    await home.app.services.iceberg.settling.settle()
    assert await published(home, made) == (1, 1)


async def test_files_of_many_tables_are_made_durable_together(home: House, client: Client) -> None:
    made = [await client.create(f"t{number}") for number in range(6)]
    told = [(await client.set(f"t{number}", a="1")).json for number in range(6)]
    gone = file_of(told[2])
    gone.unlink()
    await client.ask("DELETE", "/namespaces/ns/tables/t3")
    await home.app.services.iceberg.settling.settle()
    assert [await published(home, each) for each in made] == [(1, 1)] * 6
    assert json.loads(gone.read_bytes()) == told[2]["metadata"]


@pytest.mark.parametrize("left", [None, b"", b"\x00" * 4096, b'{"format-version":2,"table-'])
async def test_a_file_that_a_power_cut_took_is_written_again(
    home: House, client: Client, left: bytes | None
) -> None:
    await client.create("t")
    told = (await client.set("t", a="1")).json
    file = file_of(told)
    file.unlink()
    if left is not None:
        file.write_bytes(left)
    settling = home.app.services.iceberg.settling
    # As after a start: nothing is remembered, and the database knows what was not settled.
    settling._decided.clear()
    await settling._scan()
    await settling.settle()
    assert json.loads(file.read_bytes()) == told["metadata"]
    assert await published(home, told) == (1, 1)


async def test_every_table_is_found_again_however_many_cannot_be_settled(
    home: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inver.services.iceberg.settling.SCAN_LIMIT", 1)
    made = [await client.create(f"t{number}") for number in range(2)]
    broken, whole = sorted(made, key=lambda told: str(told["metadata"]["table-uuid"]))
    folder = file_of(broken).parent
    shutil.rmtree(folder)
    folder.write_bytes(b"not a folder")
    settling = home.app.services.iceberg.settling
    settling._decided.clear()
    for _ in range(2):
        await settling._scan()
        await settling.settle()
    assert settling.failed > 0
    assert await published(home, broken) == (0, -1)
    assert await published(home, whole) == (0, 0)


async def test_a_file_of_somebody_else_is_never_touched(home: House, client: Client) -> None:
    told = await client.create("t")
    await client.ask("DELETE", "/namespaces/ns/tables/t")
    file = file_of(told)
    spaced = json.dumps(json.loads(file.read_bytes()), indent=2).encode() + b"\n"
    file.write_bytes(spaced)
    body = {"name": "back", "metadata-location": told["metadata-location"]}
    assert (await client.ask("POST", "/namespaces/ns/register", body)).status == 200
    await home.app.services.iceberg.settling.settle()
    assert file.read_bytes() == spaced


async def test_a_dropped_table_is_forgotten_and_its_files_are_not(tmp_path: Path) -> None:
    async with house(tmp_path / "home", hold_ms=1_000) as home:
        await home.schema("main", "ns")
        client = Client(home)
        told = await client.create("t")
        table_id = told["metadata"]["table-uuid"]
        await client.ask("DELETE", "/namespaces/ns/tables/t")
        followup = home.app.services.followup
        assert await followup.step() == 0
        home.clock.advance(1_000)
        assert await followup.step() == 1
        gone = await home.app.store.table_by_id(table_id)
        assert gone is not None
        assert gone.state == "purged"
        assert file_of(told).exists()


async def test_files_that_were_registered_again_are_not_purged(home: House, client: Client) -> None:
    """Dropped over another face, whose drops remove the files of managed tables after a while."""
    told = await client.create("t")
    await home.admin.ok("DELETE", "/catalogs/main/schemas/ns/tables/t")
    body = {"name": "back", "metadata-location": told["metadata-location"]}
    assert (await client.ask("POST", "/namespaces/ns/register", body)).status == 200
    home.clock.advance(home.app.settings.hold_ms + 1)
    assert await home.app.services.followup.step() == 1
    assert file_of(told).exists()
    assert (await client.set("back", a="1")).status == 200


# --- signing ---


async def test_the_place_of_a_staged_table_is_signed_for_while_it_is_theirs(tmp_path: Path) -> None:
    """Nothing is sent to the store: a signature is a matter of the server's own."""
    storage = StorageSettings(
        warehouse="s3://bucket/wh",
        endpoint="http://127.0.0.1:9",
        allow_http=True,
        region="r",
        access_key="key",
        secret_key=Secret("secret"),
    )
    async with house(tmp_path / "home", storage=storage) as home:
        await home.schema("main", "ns")
        ann = await home.user("ann")
        for privilege in ("USE CATALOG", "USE SCHEMA", "CREATE TABLE"):
            await home.grant("ann", [privilege], "catalog", "main")
        client = Client(home, ann)
        body = {"name": "t", "schema": SCHEMA, "stage-create": True}
        answer = await client.ask("POST", TABLES, body, **{"X-Iceberg-Access-Delegation": "remote-signing"})
        location = answer.json["metadata"]["location"].removeprefix("s3://")
        request = {
            "region": "r",
            "uri": f"http://127.0.0.1:9/{location}/data/a",
            "method": "PUT",
            "headers": {},
            "properties": answer.json["remote-signing-config"]["properties"],
        }

        async def sign() -> int:
            return (await client.ask("POST", f"{TABLES}/t/sign", request)).status

        assert await sign() == 200
        await home.revoke("ann", ["CREATE TABLE"], "catalog", "main")
        assert await sign() == 403
        await home.grant("ann", ["CREATE TABLE"], "catalog", "main")
        home.clock.advance(STAGED_MS)
        assert await sign() == 200
        home.clock.advance(1)
        assert await sign() == 404


# --- memory ---


async def test_memory_is_bounded_and_holds_the_newest(home: House, client: Client) -> None:
    store = home.app.store
    tables = []
    for number in range(5):
        told = await client.create(f"t{number}")
        table = await store.table_by_id(told["metadata"]["table-uuid"])
        assert table is not None
        tables.append(table)
    one = (await States(store, 10**9).of(tables[0])).size
    states = States(store, 3 * one + one // 2)
    for table in tables:
        await states.of(table)
    assert [states.known(table.id) is not None for table in tables] == [False, False, True, True, True]
    await states.of(tables[2])
    await states.of(tables[0])
    assert states.known(tables[2].id) is not None
    assert states.known(tables[3].id) is None
    # A table larger than all of it is read each time, and nothing breaks.
    small = States(store, 1)
    assert (await small.of(tables[0])).version == 0
    assert small.known(tables[0].id) is None


# --- tokens ---


@pytest.mark.parametrize(
    ("as_419", "told"),
    [(False, (401, "NotAuthorizedException")), (True, (419, "AuthenticationTimeoutException"))],
)
async def test_an_expired_token_is_told_as_configured(
    tmp_path: Path, as_419: bool, told: tuple[int, str]
) -> None:
    settings = IcebergSettings(expired_as_419=as_419)
    async with house(tmp_path / "home", iceberg=settings) as home:
        await home.schema("main", "ns")
        brief = await home.admin.token_of(expires_in_s=60)
        client = Client(home, brief)
        assert (await client.ask("GET", "/namespaces")).status == 200
        home.clock.advance(61_000)
        answer = await client.ask("GET", "/namespaces")
        error = answer.json["error"]
        assert (answer.status, error["type"]) == told
        assert error["code"] == answer.status
        # Whoever was never known is not somebody whose time is over.
        assert (await Client(home, home.nobody).ask("GET", "/namespaces")).status == 401


async def test_listing_what_one_may_see(home: House, client: Client) -> None:
    for number in range(30):
        await client.create(f"t{number:02d}")
    ann = await home.user("ann")
    for privilege in ("USE CATALOG", "USE SCHEMA"):
        await home.grant("ann", [privilege], "catalog", "main")
    for number in range(0, 30, 3):
        await home.grant("ann", ["SELECT"], "table", "main", "ns", f"t{number:02d}")
    found: list[str] = []
    token = ""
    while token is not None:
        sent = {"Authorization": f"Bearer {ann.token}"}
        page = await ask(
            home.app.public,
            "GET",
            "/iceberg/v1/main/namespaces/ns/tables",
            None,
            sent.items(),
            pageToken=token,
            pageSize=4,
        )
        found += [each["name"] for each in page.json["identifiers"]]
        token = page.json["next-page-token"]
    assert found == [f"t{number:02d}" for number in range(0, 30, 3)]


async def test_rights_that_change_after_a_table_was_made_do_not_make_it_twice(
    home: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is there, and a request that starts over would be told that it exists already."""
    decide = home.app.store.decide
    moved = False

    async def decide_and_move(transaction: Transaction) -> Receipt:
        nonlocal moved
        receipt = await decide(transaction)
        if not moved and any(isinstance(op, CreateTable) for op in transaction.operations):
            moved = True
            await home.user("somebody")
            await home.admin.ok("DELETE", "/principals/somebody")
        return receipt

    monkeypatch.setattr(home.app.store, "decide", decide_and_move)
    answer = await client.ask(
        "POST",
        "/namespaces/ns/tables",
        {"name": "t", "schema": SCHEMA},
        **{"X-Iceberg-Access-Delegation": "vended-credentials"},
    )
    assert (moved, answer.status) == (True, 200)
