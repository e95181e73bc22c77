"""Registering beside others who use the same name, while the metadata file is being read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from inver.services.iceberg.commits import Commits
from inver.services.iceberg.files import Files
from inver.services.iceberg.relations import Relations
from tests.fixtures.iceberg_house import Client, client, home

__all__ = ["client", "home"]

Meanwhile = Callable[[], Awaitable[Any]]
Before = Callable[[type, str, Meanwhile], None]


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Before:
    """Lets something happen once, just before a method is called the next time."""

    def arrange(kind: type, name: str, meanwhile: Meanwhile) -> None:
        method = getattr(kind, name)

        async def slow(*given: Any, **named: Any) -> Any:
            monkeypatch.setattr(kind, name, method)
            await meanwhile()
            return await method(*given, **named)

        monkeypatch.setattr(kind, name, slow)

    return arrange


async def test_a_table_that_came_meanwhile_is_not_replaced(client: Client, before: Before) -> None:
    await client.create("old")
    place = await client.unregister("old")
    before(Files, "read", lambda: client.create("t", properties={"whose": "another"}))
    answer = await client.register("t", place)
    assert (answer.status, answer.json["error"]["type"]) == (409, "AlreadyExistsException")
    assert answer.json["error"]["message"] == "Table already exists: ns.t"
    assert (await client.load("t"))["metadata"]["properties"]["whose"] == "another"


async def test_a_table_that_came_meanwhile_is_replaced_where_that_is_asked_for(
    client: Client, before: Before
) -> None:
    made = await client.create("old")
    place = await client.unregister("old")
    before(Files, "read", lambda: client.create("t", properties={"whose": "another"}))
    answer = await client.register("t", place, overwrite=True)
    assert answer.status == 200, answer
    found = (await client.load("t"))["metadata"]
    assert (found["table-uuid"], "whose" in found["properties"]) == (made["metadata"]["table-uuid"], False)


async def test_a_table_that_is_renamed_meanwhile_stays_as_it_is(client: Client, before: Before) -> None:
    await client.create("old")
    place = await client.unregister("old")
    await client.create("t", properties={"whose": "another"})
    before(Relations, "load", lambda: client.rename("t", "moved"))
    assert (await client.register("t", place, overwrite=True)).status == 200
    assert (await client.load("moved"))["metadata"]["properties"]["whose"] == "another"
    assert "whose" not in (await client.load("t"))["metadata"]["properties"]


async def test_a_commit_meanwhile_is_written_over(client: Client, before: Before) -> None:
    made = await client.create("t")

    async def write() -> None:
        assert (await client.set("t", a="1")).status == 200

    before(Commits, "make", write)
    assert (await client.register("t", made["metadata-location"], overwrite=True)).status == 200
    assert (await client.load("t"))["metadata"]["properties"] == made["metadata"]["properties"]


async def test_a_file_that_is_too_large_is_not_read(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.create("old")
    place = await client.unregister("old")
    size = Path(place.removeprefix("file://")).stat().st_size
    monkeypatch.setattr("inver.services.iceberg.files.MAX_METADATA", size - 1)
    answer = await client.register("t", place)
    assert (answer.status, answer.json["error"]["type"]) == (400, "BadRequestException")
    monkeypatch.setattr("inver.services.iceberg.files.MAX_METADATA", size)
    assert (await client.register("t", place)).status == 200
