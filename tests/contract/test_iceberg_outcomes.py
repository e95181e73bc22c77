"""What a client is told, and which files stay, by how the decision of a commit ended."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from inver.domain.ledger import Append, ConflictDetail, Reason, Receipt, Transaction
from inver.errors import Conflict, OutcomeUnknown, Overloaded
from inver.services.iceberg.commits import ATTEMPTS
from tests.fixtures.iceberg_house import TABLES, Client, client, home, two

__all__ = ["client", "home", "two"]

TABLE = f"{TABLES}/t"


def files(metadata: dict[str, Any]) -> int:
    folder = Path(metadata["location"].removeprefix("file://")) / "metadata"
    return len(list(folder.glob("*.metadata.json")))


async def test_an_outcome_that_nobody_knows(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit stands, the database's answer is lost: neither a refusal nor a missing file may follow."""
    seen = (await client.create())["metadata"]
    decide = client.home.app.store.decide

    async def lose(transaction: Transaction) -> Receipt:
        await decide(transaction)
        raise OutcomeUnknown("the connection to the database broke")

    body, key = client.appending(seen), str(uuid.uuid4())
    with monkeypatch.context() as patch:
        patch.setattr(client.home.app.store, "decide", lose)
        answer = await client.ask("POST", TABLE, body, **{"Idempotency-Key": key})
    assert (answer.status, answer.json["error"]["type"]) == (500, "CommitStateUnknownException")
    assert files(seen) == 2
    loaded = (await client.load())["metadata"]
    assert loaded["current-snapshot-id"] == body["updates"][1]["snapshot-id"]
    # Sent again, with the key and without it.
    for headers in ({"Idempotency-Key": key}, {}):
        again = await client.ask("POST", TABLE, body, **headers)
        assert (again.status, again.json["metadata"]) == (200, loaded)
    assert files(seen) == 2


async def test_overload_is_not_an_outcome(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = (await client.create())["metadata"]

    async def refuse(transaction: Transaction) -> Receipt:
        raise Overloaded("too many commits wait", retry_after=2)

    body, key = client.appending(seen), {"Idempotency-Key": str(uuid.uuid4())}
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
    seen = (await client.create())["metadata"]
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

    body = client.appending(seen)
    with monkeypatch.context() as patch:
        patch.setattr(client.home.app.store, "decide", lose)
        answer = await client.ask("POST", TABLE, body)
    assert (answer.status, answer.json["error"]["type"]) == (409, "CommitFailedException")
    assert tries == ATTEMPTS
    assert files(seen) == 1
    assert (await client.ask("POST", TABLE, body)).status == 200


@pytest.mark.postgres
async def test_duplicates_in_flight_on_two_servers(two: tuple[Client, Client]) -> None:
    seen = (await two[0].create())["metadata"]
    for round_ in range(1, 6):
        body, key = two[0].appending(seen), {"Idempotency-Key": str(uuid.uuid4())}
        answers = await asyncio.gather(*(client.ask("POST", TABLE, body, **key) for client in two * 2))
        assert {answer.status for answer in answers} == {200}
        seen = (await two[1].load())["metadata"]
        assert len(seen["snapshots"]) == round_
        assert files(seen) == round_ + 1
