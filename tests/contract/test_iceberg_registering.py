"""Registering beside others who use the same name, while the metadata file is being read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from inver.services.iceberg.commits import Commits
from inver.services.iceberg.files import Files
from inver.services.iceberg.relations import Relations
from tests.fixtures.house import Answer, House, ask, house
from tests.fixtures.iceberg import SCHEMA

Meanwhile = Callable[[], Awaitable[Any]]
Before = Callable[[type, str, Meanwhile], None]


class Registry:
    def __init__(self, home: House) -> None:
        self._home = home

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        headers = {"Authorization": f"Bearer {self._home.admin.token}"}
        return await ask(self._home.app.public, method, f"/iceberg/v1/main{path}", body, headers.items())

    async def create(self, name: str, **properties: str) -> dict[str, Any]:
        body = {"name": name, "schema": SCHEMA, "properties": properties}
        answer = await self.ask("POST", "/namespaces/ns/tables", body)
        assert answer.status == 200, answer
        return dict(answer.json)

    async def load(self, name: str) -> dict[str, Any]:
        answer = await self.ask("GET", f"/namespaces/ns/tables/{name}")
        assert answer.status == 200, answer
        return dict(answer.json)

    async def unregister(self, name: str) -> str:
        """Where the metadata of a table is that the catalog has let go."""
        answer = await self.ask("POST", f"/namespaces/ns/tables/{name}/unregister")
        assert answer.status == 200, answer
        return str(answer.json["metadata-location"])

    async def register(self, name: str, place: str, overwrite: bool = False) -> Answer:
        body = {"name": name, "metadata-location": place, "overwrite": overwrite}
        return await self.ask("POST", "/namespaces/ns/register", body)


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    async with house(tmp_path / "home") as home:
        await home.schema("main", "ns")
        yield Registry(home)


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


async def test_a_table_that_came_meanwhile_is_not_replaced(registry: Registry, before: Before) -> None:
    await registry.create("old")
    place = await registry.unregister("old")
    before(Files, "read", lambda: registry.create("t", whose="another"))
    answer = await registry.register("t", place)
    assert (answer.status, answer.json["error"]["type"]) == (409, "AlreadyExistsException")
    assert answer.json["error"]["message"] == "Table already exists: ns.t"
    assert (await registry.load("t"))["metadata"]["properties"]["whose"] == "another"


async def test_a_table_that_came_meanwhile_is_replaced_where_that_is_asked_for(
    registry: Registry, before: Before
) -> None:
    made = await registry.create("old")
    place = await registry.unregister("old")
    before(Files, "read", lambda: registry.create("t", whose="another"))
    answer = await registry.register("t", place, overwrite=True)
    assert answer.status == 200, answer
    found = (await registry.load("t"))["metadata"]
    assert (found["table-uuid"], "whose" in found["properties"]) == (made["metadata"]["table-uuid"], False)


async def test_a_table_that_is_renamed_meanwhile_stays_as_it_is(registry: Registry, before: Before) -> None:
    await registry.create("old")
    place = await registry.unregister("old")
    await registry.create("t", whose="another")
    names = {
        "source": {"namespace": ["ns"], "name": "t"},
        "destination": {"namespace": ["ns"], "name": "moved"},
    }
    before(Relations, "load", lambda: registry.ask("POST", "/tables/rename", names))
    assert (await registry.register("t", place, overwrite=True)).status == 200
    assert (await registry.load("moved"))["metadata"]["properties"]["whose"] == "another"
    assert "whose" not in (await registry.load("t"))["metadata"]["properties"]


async def test_a_commit_meanwhile_is_written_over(registry: Registry, before: Before) -> None:
    made = await registry.create("t")
    update = {"action": "set-properties", "updates": {"a": "1"}}
    commit = {"requirements": [], "updates": [update]}

    async def write() -> None:
        assert (await registry.ask("POST", "/namespaces/ns/tables/t", commit)).status == 200

    before(Commits, "make", write)
    assert (await registry.register("t", made["metadata-location"], overwrite=True)).status == 200
    assert (await registry.load("t"))["metadata"]["properties"] == made["metadata"]["properties"]


async def test_a_file_that_is_too_large_is_not_read(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await registry.create("old")
    place = await registry.unregister("old")
    size = Path(place.removeprefix("file://")).stat().st_size
    monkeypatch.setattr("inver.services.iceberg.files.MAX_METADATA", size - 1)
    answer = await registry.register("t", place)
    assert (answer.status, answer.json["error"]["type"]) == (400, "BadRequestException")
    monkeypatch.setattr("inver.services.iceberg.files.MAX_METADATA", size)
    assert (await registry.register("t", place)).status == 200
