"""What comes and goes in one batch, names in any script, and what must not be lost on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from inver.domain.lance import check_branch
from tests.fixtures.house import Person, house
from tests.fixtures.lance import final_name
from tests.protocol.test_lance_api import NS, TABLE, Lake, at, folder
from tests.protocol.test_lance_batch import BATCH, declare, deregister, prepared


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[Lake]:
    async with house(tmp_path / "home") as home:
        yield await prepared(home)


def seen_by(lake: Lake, person: Person) -> Lake:
    theirs = Lake(lake.home)
    theirs.token = person.token
    return theirs


# --- batches ---


async def test_a_table_that_comes_and_goes_in_one_batch(lake: Lake):
    done = await lake.ok(BATCH, {"operations": [declare("t"), deregister("t")]})
    came, went = done["results"]
    assert came["declare_table"]["location"] == went["deregister_table"]["location"]
    assert came["declare_table"]["storage_options"] == {}
    assert await lake.refused(f"{at('t')}/exists") == (404, 4)
    told = await lake.ok(f"/v1/transaction/{done['transaction_id']}/describe")
    assert told["properties"]["operations"] == "2"


async def test_a_name_is_given_up_and_taken_again_in_one_batch(lake: Lake):
    done = await lake.ok(BATCH, {"operations": [declare("t"), deregister("t"), declare("t")]})
    last = done["results"][2]["declare_table"]["location"]
    assert last != done["results"][0]["declare_table"]["location"]
    assert (await lake.ok(f"{at('t')}/describe"))["location"] == last


async def test_a_table_with_the_name_it_has_already_stays(lake: Lake):
    location = await lake.declare()
    assert await lake.ok(f"{at('t')}/rename", {"new_table_name": "t"}) == {}
    assert (await lake.ok(f"{at('t')}/describe"))["location"] == location


# --- namespaces ---


@pytest.mark.parametrize("path", ["theirs", "main$theirs"])
async def test_who_cannot_make_a_namespace_again_does_not_lose_it(lake: Lake, path: str):
    """Its owner may drop it; what is above it is not theirs."""
    person = await lake.home.user("person")
    theirs = seen_by(lake, person)
    await lake.ok(f"{NS}/{path}/create", {"properties": {"a": "b"}})
    catalog, *schema = path.split("$")
    if schema:
        await lake.home.grant("person", ["USE CATALOG"], "catalog", catalog)
    change = {"owner": "person"}
    place = f"/catalogs/{catalog}" + "".join(f"/schemas/{each}" for each in schema)
    assert (await lake.home.admin.patch(place, change)).status == 200
    overwrite = {"mode": "Overwrite", "properties": {"c": "d"}}
    assert (await theirs.refused(f"{NS}/{path}/create", overwrite))[0] == 403
    assert await lake.ok(f"{NS}/{path}/describe") == {"properties": {"a": "b"}}
    assert await theirs.ok(f"{NS}/{path}/drop") == {"properties": {"a": "b"}}


async def test_of_those_that_overwrite_a_namespace_at_once_all_succeed(lake: Lake):
    """Each finds the one before it, whichever moment that was."""
    bodies = [{"mode": "Overwrite", "properties": {"by": str(number)}} for number in range(8)]
    made = await asyncio.gather(*(lake.ok(f"{NS}/main$new/create", body) for body in bodies))
    assert [each["properties"] for each in made] == [body["properties"] for body in bodies]
    assert await lake.ok(f"{NS}/main$new/describe") in made


# --- transactions ---


async def test_what_the_catalog_says_of_a_transaction_is_not_for_clients_to_change(lake: Lake):
    location = await lake.declare()
    number = (await lake.create("t", location, 1))["transaction_id"]
    for path, fact in ((number, "operations"), ("main$s$t$1", "version")):
        told = await lake.ok(f"/v1/transaction/{path}/describe")
        for action in (
            {"setPropertyAction": {"key": fact, "value": "99"}},
            {"unsetPropertyAction": {"key": fact}},
            {"setPropertyAction": {"key": "", "value": "99"}},
            {"setStatusAction": {"status": "Sleeping"}},
        ):
            assert await lake.refused(f"/v1/transaction/{path}/alter", {"actions": [action]}) == (400, 13)
        assert await lake.ok(f"/v1/transaction/{path}/describe") == told
        mine = {"actions": [{"setPropertyAction": {"key": "mine", "value": "1"}}]}
        answer = await lake.ok(f"/v1/transaction/{path}/alter", mine)
        assert answer["properties"] == {**told["properties"], "mine": "1"}


# --- tags and branches ---


async def test_tags_in_any_script(lake: Lake):
    """Clients write tags to storage by themselves, with names as Lance allows them."""
    location = await lake.declare()
    await lake.create("t", location, 1)
    await lake.create("t", location, 2)
    tags = f"{at('t')}/tags"
    await lake.ok(f"{tags}/create", {"tag": "été", "version": 1})
    assert (folder(location) / "_refs/tags/%C3%A9t%C3%A9.json").exists()
    written = {"branch": None, "version": 2, "manifestSize": 10}
    (folder(location) / "_refs/tags/%E5%A4%8F.json").write_text(json.dumps(written))
    listed = (await lake.ok(f"{tags}/list"))["tags"]
    assert {name: tag["version"] for name, tag in listed.items()} == {"été": 1, "夏": 2}
    assert (await lake.ok(f"{tags}/version", {"tag": "夏"}))["version"] == 2
    assert (await lake.ok(f"{at('t')}/describe", {"tag": "été"}))["version"] == 1
    first = await lake.ok(f"{tags}/list", limit="1")
    rest = await lake.ok(f"{tags}/list", limit="1", page_token=first["page_token"])
    assert {*first["tags"], *rest["tags"]} == {"été", "夏"}
    await lake.ok(f"{tags}/delete", {"tag": "été"})
    for wrong in ("a b", "a/b", "a%b", "", ".", "x.lock", "é" * 101):
        assert await lake.refused(f"{tags}/create", {"tag": wrong, "version": 1}) == (400, 13)


@pytest.mark.parametrize("name", ["_x", "-x", "a/_b"])
def test_names_of_branches_that_clients_may_choose(name: str):
    assert check_branch(name) == name


async def test_a_branch_made_anew_is_finished_like_any_other(lake: Lake):
    """Its versions have numbers that the branch before it had, whose manifests were in place."""
    location = await lake.declare()
    await lake.create("t", location, 1)
    await lake.create("t", location, 1, branch="dev")
    await lake.create("t", location, 2, branch="dev")
    (folder(location) / "_refs/branches").mkdir(parents=True, exist_ok=True)
    parent = {"parentBranch": None, "parentVersion": 1, "createAt": 1, "manifestSize": 1}
    (folder(location) / "_refs/branches/dev.json").write_text(json.dumps(parent))
    await lake.ok(f"{at('t')}/branches/delete", {"name": "dev"})
    await lake.create("t", location, 1, branch="dev")
    taken = folder(location) / "tree/dev/_versions" / final_name(2)
    taken.unlink(missing_ok=True)
    taken.mkdir()
    await lake.create("t", location, 2, branch="dev")
    taken.rmdir()
    assert await lake.versions(branch="dev") == [1, 2]
    assert taken.is_file()


async def test_lists_of_tables_are_for_who_is_there(lake: Lake):
    await lake.declare()
    person = seen_by(lake, await lake.home.user("person"))
    assert await person.ok(TABLE, method="GET") == {"tables": []}
