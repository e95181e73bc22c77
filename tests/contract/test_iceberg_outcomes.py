"""What a client is told, and which files stay, by how the decision of a commit ended."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from inver.domain.ledger import Append, ConflictDetail, Reason, Receipt, Transaction
from inver.errors import Conflict, OutcomeUnknown, Overloaded
from inver.services.iceberg.commits import ATTEMPTS
from tests.fixtures.house import Answer, House, Person, ask, house
from tests.fixtures.iceberg import SCHEMA, append

TABLE = "/namespaces/ns/tables/t"


class Client:
    def __init__(self, home: House, who: Person) -> None:
        self.home = home
        self._who = who

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        sent = {"Authorization": f"Bearer {self._who.token}", **headers}
        return await ask(self.home.app.public, method, f"/iceberg/v1/main{path}", body, sent.items())

    async def create(self) -> dict[str, Any]:
        answer = await self.ask("POST", "/namespaces/ns/tables", {"name": "t", "schema": SCHEMA})
        assert answer.status == 200, answer
        return dict(answer.json["metadata"])

    async def load(self) -> dict[str, Any]:
        answer = await self.ask("GET", TABLE)
        assert answer.status == 200, answer
        return dict(answer.json["metadata"])

    def append(self, seen: dict[str, Any]) -> dict[str, Any]:
        body = append(seen)
        # The clock of these servers stands still.
        body["updates"][0]["snapshot"]["timestamp-ms"] = self.home.clock.now_ms()
        return body


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with house(tmp_path / "home") as home:
        await home.schema("main", "ns")
        yield Client(home, home.admin)


def files(metadata: dict[str, Any]) -> int:
    folder = Path(metadata["location"].removeprefix("file://")) / "metadata"
    return len(list(folder.glob("*.metadata.json")))


async def test_an_outcome_that_nobody_knows(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit stands, the database's answer is lost: neither a refusal nor a missing file may follow."""
    seen = await client.create()
    decide = client.home.app.store.decide

    async def lose(transaction: Transaction) -> Receipt:
        await decide(transaction)
        raise OutcomeUnknown("the connection to the database broke")

    body, key = client.append(seen), str(uuid.uuid4())
    with monkeypatch.context() as patch:
        patch.setattr(client.home.app.store, "decide", lose)
        answer = await client.ask("POST", TABLE, body, **{"Idempotency-Key": key})
    assert (answer.status, answer.json["error"]["type"]) == (500, "CommitStateUnknownException")
    assert files(seen) == 2
    loaded = await client.load()
    assert loaded["current-snapshot-id"] == body["updates"][1]["snapshot-id"]
    # Sent again, with the key and without it.
    for headers in ({"Idempotency-Key": key}, {}):
        again = await client.ask("POST", TABLE, body, **headers)
        assert (again.status, again.json["metadata"]) == (200, loaded)
    assert files(seen) == 2


async def test_overload_is_not_an_outcome(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = await client.create()

    async def refuse(transaction: Transaction) -> Receipt:
        raise Overloaded("too many commits wait", retry_after=2)

    body, key = client.append(seen), {"Idempotency-Key": str(uuid.uuid4())}
    with monkeypatch.context() as patch:
        patch.setattr(client.home.app.store, "decide", refuse)
        answer = await client.ask("POST", TABLE, body, **key)
    assert (answer.status, answer.json["error"]["type"]) == (503, "ServiceUnavailableException")
    assert answer.headers["retry-after"] == "2"
    assert files(seen) == 1, "what was not applied leaves nothing behind"
    assert (await client.ask("POST", TABLE, body, **key)).status == 200, "and may come under the same key"


async def test_who_is_overtaken_every_time_is_told_so_in_the_end(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = await client.create()
    tries = 0

    async def lose(transaction: Transaction) -> Receipt:
        nonlocal tries
        tries += 1
        [append] = transaction.operations
        assert isinstance(append, Append)
        detail = ConflictDetail(
            operation=0,
            subject=append.table_id,
            reason=Reason.VERSION_TAKEN,
            expected=append.version - 1,
            current=append.version,
        )
        raise Conflict("another commit was faster", [detail])

    body = client.append(seen)
    with monkeypatch.context() as patch:
        patch.setattr(client.home.app.store, "decide", lose)
        answer = await client.ask("POST", TABLE, body)
    assert (answer.status, answer.json["error"]["type"]) == (409, "CommitFailedException")
    assert tries == ATTEMPTS
    assert files(seen) == 1
    assert (await client.ask("POST", TABLE, body)).status == 200


@pytest.mark.postgres
async def test_duplicates_in_flight_on_two_servers(tmp_path: Path, postgres_url: str) -> None:
    storage = {"external_roots": (str(tmp_path),)}
    async with (
        house(tmp_path / "one", postgres_url, **storage) as one,
        house(tmp_path / "two", postgres_url, **storage) as two,
    ):
        root = f"file://{tmp_path}/shared"
        await one.admin.ok("POST", "/catalogs", {"name": "main", "storage_root": root})
        await one.admin.ok("POST", "/catalogs/main/schemas", {"path": ["ns"]})
        clients = [Client(one, one.admin), Client(two, one.admin.at(two))]
        seen = await clients[0].create()
        for round_ in range(1, 6):
            body, key = clients[0].append(seen), {"Idempotency-Key": str(uuid.uuid4())}
            asked = [client.ask("POST", TABLE, body, **key) for client in clients * 2]
            answers = await asyncio.gather(*asked)
            assert {answer.status for answer in answers} == {200}
            seen = await clients[1].load()
            assert len(seen["snapshots"]) == round_
            assert files(seen) == round_ + 1
