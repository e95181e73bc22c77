"""Listings of a crowded schema: for everybody exactly what they see, without gaps or doubles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.crowded import Crowded, crowded
from tests.fixtures.house import Person, ask, path
from tests.fixtures.ledger import Backend

TABLES = 6_000
GRANTS = 600
PEOPLE = [
    "all, as an administrator",
    "all, by SELECT on the schema",
    "many, one by one",
    "a few",
    "a few here, many elsewhere",
    "none",
]
BACKENDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=BACKENDS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Crowded]:
    url = request.getfixturevalue("emptied_url") if request.param == "postgres" else None
    await Backend(tmp_path, url).prepare()
    async with crowded(tmp_path, url, TABLES, GRANTS) as place:
        yield place


async def pages(who: Person, target: str, size: int) -> list[list[str]]:
    found: list[list[str]] = []
    token = ""
    while True:
        page: dict[str, Any] = await who.ok("GET", target, max_results=size, page_token=token)
        found.append([table["name"] for table in page["tables"]])
        token = page["next_page_token"]
        if token is None:
            return found


async def test_everybody_gets_all_of_theirs_in_full_pages(place: Crowded):
    assert list(place.people) == PEOPLE
    for what, who in place.people.items():
        for size in (1_000, 137):
            found = await pages(who, place.target, size)
            assert [name for page in found for name in page] == place.names(what), (what, size)
            assert all(len(page) == size for page in found[:-1]), (what, size)


async def test_small_pages_of_few_tables(place: Crowded):
    found = await pages(place.people["a few"], place.target, 3)
    assert [len(page) for page in found] == [3, 3, 3, 1]
    assert [name for page in found for name in page] == place.names("a few")


async def test_owning_is_as_good_as_a_grant(place: Crowded):
    """Of a person and of their group, at the beginning, in the middle and at the end of the alphabet."""
    few = place.people["a few"]
    home = place.home
    await home.group("keepers", "few")
    names = {f"t{1_000_000 + number}" for number in (0, 1, TABLES // 2, TABLES - 1)}
    for at, name in enumerate(sorted(names)):
        await home.admin.ok("PATCH", place.target + "/" + name, {"owner": "few" if at % 2 else "keepers"})
    found = await pages(few, place.target, 4)
    assert [name for page in found for name in page] == sorted(names | set(place.names("a few")))
    await home.admin.ok("DELETE", "/groups/keepers/members/few")
    found = await pages(few, place.target, 4)
    expected = set(place.names("a few")) | {name for at, name in enumerate(sorted(names)) if at % 2}
    assert [name for page in found for name in page] == sorted(expected)


async def test_a_grant_that_shows_nothing_hides_nothing_either(place: Crowded):
    """Without the way to the schema, grants on its tables are of no use, and BROWSE still is."""
    home = place.home
    await home.revoke("everyone", ["USE SCHEMA"], "catalog", "main")
    few = place.people["a few"]
    assert (await few.get(place.target)).status == 404
    # Seeing the schema is one thing, using it another.
    await home.grant("few", ["CREATE TABLE"], "schema", "main", "crowded")
    assert await pages(few, place.target, 100) == [[]]
    shown = place.names("many, one by one")[7]
    await home.grant("few", ["BROWSE"], "table", "main", "crowded", shown)
    assert await pages(few, place.target, 100) == [[shown]]


async def test_what_stays_is_listed_once_while_others_come_and_go(place: Crowded):
    home = place.home
    many = place.people["many, one by one"]
    expected = place.names("many, one by one")
    first = await many.ok("GET", place.target, max_results=100)
    gone = [expected[3], expected[150], expected[400]]
    for name in gone:
        await home.admin.ok("DELETE", place.target + "/" + name)
    renamed = expected[200]
    to = ["main", "crowded", "t0"]
    await home.admin.ok("POST", place.target + "/" + renamed + "/rename", {"to": to})
    found = [table["name"] for table in first["tables"]]
    token = first["next_page_token"]
    while token is not None:
        page = await many.ok("GET", place.target, max_results=100, page_token=token)
        found += [table["name"] for table in page["tables"]]
        token = page["next_page_token"]
    assert found == [name for name in expected if name not in (*gone[1:], renamed)]


async def test_other_lists_are_filtered_too(place: Crowded):
    """Schemas, the search and the list of what was dropped."""
    home = place.home
    few, stranger = place.people["a few"], place.people["none"]
    schemas = path("catalogs", "main", "schemas")
    assert len((await stranger.ok("GET", schemas))["schemas"]) == 2
    await home.revoke("everyone", ["USE SCHEMA"], "catalog", "main")
    assert (await stranger.ok("GET", schemas))["schemas"] == []
    await home.grant("everyone", ["USE SCHEMA"], "schema", "main", "crowded")
    assert [each["name"] for each in (await stranger.ok("GET", schemas))["schemas"]] == ["crowded"]
    hits = (await few.ok("GET", "/search", q="t10", max_results=200))["results"]
    assert [hit["name"][-1] for hit in hits] == place.names("a few")
    assert (await stranger.ok("GET", "/search", q="t10"))["results"] == []
    name = place.names("a few")[0]
    await home.grant("few", ["MANAGE"], "table", "main", "crowded", name)
    for each in (name, f"t{1_000_000 + 1}"):
        await home.admin.ok("DELETE", place.target + "/" + each)
    dropped = path("catalogs", "main", "schemas", "crowded", "dropped")
    assert len((await home.admin.ok("GET", dropped))["tables"]) == 2
    assert [each["name"] for each in (await few.ok("GET", dropped, max_results=1))["tables"]] == [name]
    assert (await stranger.ok("GET", dropped))["tables"] == []


async def test_a_crowded_catalog_is_dropped_whole(tmp_path: Path):
    """It takes many transactions, and that schemas go in some of them does not stop the others."""
    async with crowded(tmp_path, None, 20, 10) as place:
        home = place.home
        for number in range(8):
            await home.schema("main", f"s{number}")
            await place.make(f"s{number}", range(10_000 * number + 1_000, 10_000 * number + 2_000))
        bearer = {"Authorization": f"Bearer {home.admin.token}"}
        target = "/api/2.1/unity-catalog/catalogs/main"
        answer = await ask(home.app.public, "DELETE", target, headers=bearer.items(), force="true")
        assert answer.status == 200, answer
        kinds = [event["type"] for event in await home.events()]
        assert kinds.count("io.inver.table.dropped.v1") == 8_030
        assert kinds.count("io.inver.schema.dropped.v1") == 10
        assert (await home.admin.get("/catalogs/main")).status == 404
