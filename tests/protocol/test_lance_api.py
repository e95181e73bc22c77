"""The Lance Namespace over its routes: names, versions, batches, and every way in which they are refused."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

import pytest

from tests.fixtures.house import Answer, House, Person, ask, house
from tests.fixtures.lance import final_name, fragment, manifest, stage

NS = "/v1/namespace"
TABLE = "/v1/table"


class Lake:
    """A house with the namespace `main$s`, asked through Lance's face."""

    def __init__(self, home: House) -> None:
        self.home = home
        self.token: str | None = home.admin.token

    async def ask(
        self, path: str, body: Any = None, method: str = "POST", headers: Any = None, **query: Any
    ) -> Answer:
        sent = {"Authorization": f"Bearer {self.token}"} if headers is None else headers
        return await ask(self.home.app.public, method, "/lance" + path, body, sent.items(), **query)

    async def ok(self, path: str, body: Any = None, method: str = "POST", **query: Any) -> Any:
        answer = await self.ask(path, {} if body is None and method == "POST" else body, method, **query)
        assert answer.status == 200, (path, answer)
        return answer.json

    async def refused(
        self, path: str, body: Any = None, method: str = "POST", **query: Any
    ) -> tuple[int, int]:
        answer = await self.ask(path, {} if body is None and method == "POST" else body, method, **query)
        return code(answer)

    async def declare(self, name: str = "t") -> str:
        location: str = (await self.ok(f"{at(name)}/declare"))["location"]
        return location

    async def create(self, name: str, location: str, version: int, **stageing: Any) -> Any:
        return await self.ok(f"{at(name)}/version/create", stage(location, version, **stageing))

    async def versions(self, name: str = "t", **query: Any) -> list[int]:
        told = await self.ok(f"{at(name)}/version/list", **query)
        return [each["version"] for each in told["versions"]]


def at(name: str) -> str:
    return f"{TABLE}/main$s${name}"


def code(answer: Answer) -> tuple[int, int]:
    body = answer.json
    assert set(body) <= {"error", "code", "detail", "instance"}, body
    assert body["error"]
    return answer.status, body["code"]


def folder(location: str) -> Path:
    return Path(urlsplit(location).path)


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[Lake]:
    external = tmp_path / "external"
    external.mkdir()
    async with house(tmp_path / "home", external_roots=(str(external),)) as home:
        lake = Lake(home)
        await lake.ok(f"{NS}/main/create")
        await lake.ok(f"{NS}/main$s/create", {"properties": {"a": "b"}})
        yield lake


# --- ids ---


@pytest.mark.parametrize("delimiter", ["$", ".", "::", "/", " "])
async def test_ids_in_any_delimiter(lake: Lake, delimiter: str):
    await lake.declare()
    path = quote(delimiter.join(["main", "s", "t"]), safe="")
    told = await lake.ok(f"{TABLE}/{path}/describe", delimiter=delimiter)
    assert told["is_only_declared"] is True
    root = quote(delimiter, safe="")
    names = await lake.ok(f"{NS}/{root}/list", method="GET", delimiter=delimiter)
    assert names["namespaces"] == ["main"]


async def test_root_without_an_id_and_trailing_slashes(lake: Lake):
    assert (await lake.ok(f"{NS}/list", method="GET", delimiter="."))["namespaces"] == ["main"]
    assert (await lake.ok(f"{NS}/main/list/", method="GET"))["namespaces"] == ["s"]
    assert (await lake.ok(f"{NS}/%24/describe/"))["properties"] == {}


async def test_names_with_spaces_slashes_and_plus_signs(lake: Lake):
    await lake.ok(f"{TABLE}/main%24s%24a+b%2Fc%2Bd/declare")
    assert (await lake.ok(f"{NS}/main$s/table/list", method="GET"))["tables"] == ["a b/c+d"]


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"id":["main","s","t"]}'])
async def test_a_body_may_be_missing(lake: Lake, body: bytes):
    await lake.declare()
    assert (await lake.ask(f"{at('t')}/describe", body)).status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{at('t')}/describe", {"id": ["main", "s", "u"]}),
        (f"{TABLE}/main$$t/describe", {}),
        (f"{at('t')}/describe", {"version": -1}),
        (f"{at('t')}/describe", {"version": "one"}),
        (f"{at('t')}/describe", {"tag": "a", "version": 1}),
        (f"{at('t')}/describe", {"branch": "a//b"}),
        (f"{at('t')}/describe", b"{"),
        (f"{at('t')}/describe", [1]),
        (f"{at('t')}/version/create", {"manifest_path": "x"}),
        (f"{at('t')}/version/list?limit=0", {}),
        (f"{TABLE}/main$t/declare", {}),
        (f"{NS}/main$s/create", {"mode": "sometimes"}),
        (f"{NS}/main$s/drop", {"behavior": "perhaps"}),
        (f"{TABLE}/main$s$t%00/describe", {}),
    ],
)
async def test_bad_input_is_told_as_such(lake: Lake, path: str, body: Any):
    await lake.declare()
    before = await lake.home.last_event()
    path, _, query = path.partition("?")
    params = dict([query.split("=")]) if query else {}
    assert await lake.refused(path, body, **params) == (400, 13)
    assert await lake.home.last_event() == before


async def test_what_is_not_there(lake: Lake):
    await lake.declare()
    assert await lake.refused(f"{NS}/none/describe") == (404, 1)
    assert await lake.refused(f"{NS}/main$none/list", method="GET") == (404, 1)
    assert await lake.refused(f"{TABLE}/main$none$t/declare") == (404, 1)
    assert await lake.refused(f"{at('none')}/describe") == (404, 4)
    assert await lake.refused(f"{TABLE}/short/describe") == (404, 4)
    assert await lake.refused(f"{at('t')}/tags/version", {"tag": "none"}) == (404, 8)
    assert await lake.refused(f"{at('t')}/describe", {"tag": "none"}) == (404, 8)
    assert await lake.refused("/v1/transaction/999999/describe") == (404, 10)
    assert await lake.refused(f"{at('t')}/version/describe", {"version": 3}) == (404, 11)
    assert await lake.refused(f"{at('t')}/version/describe") == (404, 11)
    assert await lake.refused(f"{at('t')}/version/list", {"branch": "none"}) == (404, 22)
    assert await lake.refused("/v1/nothing") == (404, 0)
    assert await lake.refused(f"{at('t')}/describe", method="GET") == (405, 0)


async def test_credentials_in_any_place(lake: Lake):
    await lake.declare()
    secret = lake.token
    describe = f"{at('t')}/describe"
    assert (await lake.ask(describe, {}, headers={"x-api-key": secret})).status == 200
    for identity in ({"auth_token": secret}, {"api_key": secret}):
        assert (await lake.ask(describe, {"identity": identity}, headers={})).status == 200
    # A header counts more than what the body says.
    wrong = {"Authorization": f"Bearer inver_pat_{'0' * 32}_{'x' * 43}"}
    assert code(await lake.ask(describe, {"identity": {"auth_token": secret}}, headers=wrong)) == (401, 16)
    assert code(await lake.ask(describe, {}, headers={})) == (401, 16)
    assert code(await lake.ask(describe, {"identity": 1}, headers={})) == (401, 16)


# --- namespaces ---


async def test_modes_of_creating_and_dropping_namespaces(lake: Lake):
    assert await lake.refused(f"{NS}/main$s/create") == (409, 2)
    assert await lake.refused(f"{NS}/%24/create") == (409, 2)
    kept = await lake.ok(f"{NS}/main$s/create", {"mode": "exist_ok", "properties": {"c": "d"}})
    assert kept["properties"] == {"a": "b"}
    await lake.declare()
    assert await lake.refused(f"{NS}/main$s/drop") == (409, 3)
    assert await lake.refused(f"{NS}/main/drop", {"behavior": "Restrict"}) == (409, 3)
    made = await lake.ok(f"{NS}/main$s/create", {"mode": "Overwrite", "properties": {"c": "d"}})
    assert made["properties"] == {"c": "d"}
    assert (await lake.ok(f"{NS}/main$s/table/list", method="GET"))["tables"] == []
    assert await lake.refused(f"{NS}/main$none/drop") == (404, 1)
    assert await lake.ok(f"{NS}/main$none/drop", {"mode": "SKIP"}) == {"properties": {}}
    await lake.ok(f"{NS}/main$s$inner/create")
    assert await lake.ok(f"{NS}/main$s/drop", {"behavior": "cascade"}) == {"properties": {"c": "d"}}
    assert await lake.refused(f"{NS}/main$s$inner/exists") == (404, 1)
    assert await lake.refused(f"{NS}/%24/drop") == (400, 13)


async def test_pages_of_namespaces_and_tables(lake: Lake):
    for name in "edcba":
        await lake.declare(name)
        await lake.ok(f"{NS}/main$s${name}/create")
    await lake.ok(f"{TABLE}/main$s$a$deep/declare")
    seen: list[str] = []
    token = ""
    while True:
        page = await lake.ok(f"{NS}/main$s/table/list", method="GET", limit=2, page_token=token)
        assert len(page["tables"]) <= 2
        seen += page["tables"]
        token = page.get("page_token")
        if not token:
            break
    assert seen == list("abcde")
    first = await lake.ok(f"{NS}/main$s/list", method="GET", limit=3)
    rest = await lake.ok(f"{NS}/main$s/list", method="GET", limit=3, page_token=first["page_token"])
    assert first["namespaces"] + rest["namespaces"] == list("abcde")
    assert "page_token" not in rest
    everything = await lake.ok(TABLE, method="GET", limit=4, delimiter=".")
    more = await lake.ok(TABLE, method="GET", page_token=everything["page_token"], delimiter=".")
    assert everything["tables"] + more["tables"] == [
        *(f"main.s.{name}" for name in "abcde"),
        "main.s.a.deep",
    ]
    assert (await lake.ok(TABLE, method="GET", include_declared="false"))["tables"] == []


# --- tables ---


async def test_a_declared_table_and_its_first_version(lake: Lake):
    location = await lake.declare()
    told = await lake.ok(f"{at('t')}/describe")
    assert (told["version"], told["schema"], told["is_only_declared"]) == (0, {"fields": []}, True)
    assert told["managed_versioning"] is True
    assert await lake.refused(f"{at('t')}/declare") == (409, 5)
    assert await lake.versions() == []
    made = await lake.create("t", location, 1)
    assert made["version"]["manifest_path"] == f"{folder(location)}/_versions/{final_name(1)}"[1:]
    told = await lake.ok(f"{at('t')}/describe", {"load_detailed_metadata": True, "with_table_uri": True})
    assert (told["version"], told["is_only_declared"]) == (1, False)
    assert told["schema"]["fields"] == [{"name": "customer", "type": {"type": "string"}, "nullable": True}]
    assert told["stats"] == {"num_deleted_rows": 0, "num_fragments": 1}
    assert (told["table"], told["namespace"], told["table_uri"]) == ("t", ["main", "s"], location)
    stats = await lake.ok(f"{at('t')}/stats")
    assert (stats["num_rows"], stats["total_bytes"]) == (10, 100)
    assert (await lake.ok(f"{at('t')}/exists", {"version": 1})) == {}
    assert await lake.refused(f"{at('t')}/exists", {"version": 2}) == (404, 11)


async def test_a_table_of_another_format_is_no_table_here(lake: Lake):
    await lake.home.table("main", "s", "delta")
    assert await lake.refused(f"{at('delta')}/describe") == (404, 4)
    assert (await lake.ok(f"{NS}/main$s/table/list", method="GET"))["tables"] == []
    assert await lake.refused(f"{at('delta')}/declare") == (409, 5)


async def test_rename_drop_and_deregister(lake: Lake):
    location = await lake.declare()
    await lake.create("t", location, 1)
    await lake.ok(f"{NS}/main$other/create")
    await lake.ok(f"{at('t')}/rename", {"new_table_name": "u", "new_namespace_id": ["main", "other"]})
    moved = f"{TABLE}/main$other$u"
    assert await lake.refused(f"{at('t')}/describe") == (404, 4)
    assert (await lake.ok(f"{moved}/describe"))["location"] == location
    left = await lake.ok(f"{moved}/deregister")
    assert (left["id"], left["location"]) == (["main", "other", "u"], location)
    assert (folder(location) / "_versions" / final_name(1)).exists()
    back = await lake.ok(f"{at('back')}/register", {"location": location})
    assert back["location"] == location
    assert await lake.versions("back") == [1]
    await lake.create("back", location, 2)
    dropped = await lake.ok(f"{at('back')}/drop", b"")
    assert dropped["location"] == location
    assert await lake.refused(f"{at('back')}/drop") == (404, 4)


async def test_register_takes_only_what_lies_under_a_root(lake: Lake, tmp_path: Path):
    place = tmp_path / "external" / "table"
    stage(str(place), 1)
    assert await lake.refused(f"{at('t')}/register", {"location": str(place)}) == (400, 13)
    for version in (3, 4, 7):
        data = manifest(version, str(uuid4()))
        (place / "_versions" / final_name(version)).write_bytes(data)
    (place / "_versions" / "latest_version_hint.json").write_text("{}")
    await lake.ok(f"{at('t')}/register", {"location": str(place), "properties": {"x": "y"}})
    assert await lake.versions() == [3, 4, 7]
    told = await lake.ok(f"{at('t')}/describe", {"version": 3})
    assert (told["version"], told["properties"]) == (3, {"x": "y"})
    assert await lake.refused(f"{at('t')}/describe", {"version": 5}) == (404, 11)
    await lake.create("t", str(place), 8)
    for wrong in (str(tmp_path / "elsewhere"), "relative/path", "http://host/x", "file:///etc", ""):
        assert await lake.refused(f"{at('u')}/register", {"location": wrong}) == (400, 13), wrong
    assert await lake.refused(f"{at('t')}/register", {"location": str(place)}) == (409, 5)
    assert await lake.refused(f"{at('u')}/register", {"location": str(place)}) == (409, 5)
    other = tmp_path / "external" / "other"
    (other / "_versions").mkdir(parents=True)
    (other / "_versions" / "1.manifest").write_bytes(manifest(1, str(uuid4())))
    await lake.ok(f"{at('t')}/register", {"location": str(other), "mode": "overwrite"})
    assert await lake.versions() == [1]


# --- versions ---


async def test_versions_follow_each_other_strictly(lake: Lake):
    location = await lake.declare()
    assert await lake.refused(f"{at('t')}/version/create", stage(location, 2)) == (409, 14)
    await lake.create("t", location, 1)
    taken = await lake.ask(f"{at('t')}/version/create", stage(location, 1))
    assert code(taken) == (409, 14)
    assert "version-taken" in taken.json["detail"]
    assert await lake.refused(f"{at('t')}/version/create", stage(location, 9)) == (409, 14)
    await lake.create("t", location, 2)
    assert await lake.versions() == [1, 2]


async def test_the_same_commit_sent_twice_is_one(lake: Lake):
    location = await lake.declare()
    uuid = str(uuid4())
    body = stage(location, 1, uuid=uuid)
    first = await lake.ok(f"{at('t')}/version/create", body)
    await lake.home.app.services.lance.finalizing.let_go()
    assert await lake.ok(f"{at('t')}/version/create", body) == first, "its staged file is gone by now"
    again = await lake.ok(f"{at('t')}/version/create", stage(location, 1, uuid=uuid))
    assert again["version"] == first["version"]
    assert await lake.versions() == [1]
    await lake.home.app.services.lance.finalizing.let_go()
    left = {path.name for path in (folder(location) / "_versions").iterdir()}
    assert left == {final_name(1)}


async def test_a_transaction_is_one_version_whatever_number_it_is_tried_under(lake: Lake):
    location = await lake.declare()
    uuid = str(uuid4())
    await lake.create("t", location, 1)
    await lake.create("t", location, 2, uuid=uuid)
    doubled = await lake.ask(f"{at('t')}/version/create", stage(location, 3, uuid=uuid))
    assert code(doubled) == (409, 14)
    assert "committed-before" in doubled.json["detail"]
    assert await lake.versions() == [1, 2]
    await lake.create("t", location, 3)


async def test_the_manifest_must_be_there_and_be_what_is_said(lake: Lake, tmp_path: Path):
    location = await lake.declare()
    await lake.create("t", location, 1)
    good = stage(location, 2)
    before = await lake.home.last_event()
    inside = good["manifest_path"].rpartition("/")[0]
    other = await lake.declare("other")
    wrong = [
        {**good, "manifest_path": f"{inside}/{final_name(2)}-missing"},
        {**good, "manifest_size": 1},
        stage(location, 2, data=manifest(3, str(uuid4()))),
        stage(location, 2, data=b"LANC"),
        stage(location, 2, data=b"x" * 100 + b"LANC"),
        stage(location, 2, data=manifest(2, str(uuid4()), branch="dev")),
        {**good, "manifest_path": good["manifest_path"].replace("_versions/", "_versions/../")},
        {**good, "manifest_path": stage(other, 2)["manifest_path"]},
        {**good, "manifest_path": "etc/passwd"},
        {**good, "manifest_path": f"file:///{good['manifest_path']}"},
        {**good, "manifest_path": f"{inside}/sub/{final_name(2)}-x"},
        {**good, "manifest_path": f"{inside}/{final_name(1)}"},
        {**good, "version": 0},
        {**good, "naming_scheme": "V9"},
        {**good, "branch": "../x"},
    ]
    for body in wrong:
        assert await lake.refused(f"{at('t')}/version/create", body) == (400, 13), body
    assert await lake.home.last_event() == before + 1
    assert await lake.versions() == [1]
    await lake.ok(f"{at('t')}/version/create", good)


async def test_both_naming_schemes_and_metadata(lake: Lake):
    location = await lake.declare()
    await lake.ok(f"{at('t')}/version/create", {**stage(location, 1), "metadata": {"who": "me"}})
    old = {**stage(location, 2), "naming_scheme": "V1"}
    assert (await lake.ok(f"{at('t')}/version/create", old))["version"]["manifest_path"].endswith(
        "/_versions/2.manifest"
    )
    told = await lake.ok(f"{at('t')}/version/describe", {"version": 1})
    assert told["version"]["metadata"] == {"who": "me"}
    assert (folder(location) / "_versions" / "2.manifest").exists()


async def test_pages_of_versions_both_ways(lake: Lake):
    location = await lake.declare()
    for version in range(1, 8):
        await lake.create("t", location, version)
    for descending in (True, False):
        seen: list[int] = []
        query: dict[str, Any] = {"limit": 3, "descending": str(descending).lower()}
        while True:
            page = await lake.ok(f"{at('t')}/version/list", b"null", **query)
            seen += [each["version"] for each in page["versions"]]
            if not page.get("page_token"):
                break
            query["page_token"] = page["page_token"]
        assert seen == sorted(range(1, 8), reverse=descending)
    assert await lake.refused(f"{at('t')}/version/list", {"page_token": "x"}) == (400, 13)


async def test_deleting_ranges_of_versions(lake: Lake):
    location = await lake.declare()
    for version in range(1, 8):
        await lake.create("t", location, version)

    def ranges(*pairs: tuple[int, int]) -> dict[str, Any]:
        return {"ranges": [{"start_version": start, "end_version": end} for start, end in pairs]}

    delete = f"{at('t')}/version/delete"
    assert (await lake.ok(delete, ranges((1, 3))))["deleted_count"] == 2
    assert await lake.versions() == [3, 4, 5, 6, 7]
    assert (folder(location) / "_versions" / final_name(1)).exists(), "data stays"
    assert await lake.refused(delete, ranges((7, -1))) == (409, 19)
    assert await lake.refused(delete, ranges((5, 8))) == (409, 19)
    bad: list[Any] = [ranges((-1, 3)), ranges((5, 4)), ranges((1, -2)), {"ranges": []}, {}]
    for wrong in bad:
        assert await lake.refused(delete, wrong) == (400, 13)
    assert await lake.versions() == [3, 4, 5, 6, 7]
    assert (await lake.ok(delete, ranges((4, 5), (4, 6))))["deleted_count"] == 2
    assert (await lake.ok(delete, ranges((0, -1))))["deleted_count"] == 3
    assert await lake.versions() == []
    assert await lake.refused(f"{at('t')}/version/create", stage(location, 1)) == (409, 14)
    await lake.create("t", location, 8)


async def test_branches_have_versions_of_their_own(lake: Lake):
    location = await lake.declare()
    for version in (1, 2):
        await lake.create("t", location, version)
    await lake.create("t", location, 2, branch="dev/x")
    await lake.create("t", location, 3, branch="dev/x")
    assert await lake.refused(f"{at('t')}/version/create", stage(location, 3, branch="dev/x")) == (409, 14)
    assert await lake.versions() == [1, 2]
    assert await lake.versions(branch="dev/x") == [2, 3]
    assert (folder(location) / "tree/dev/x/_versions" / final_name(3)).exists()
    assert (await lake.ok(f"{at('t')}/describe", {"branch": "dev/x"}))["version"] == 3
    await lake.ok(f"{at('t')}/branches/delete", {"name": "dev/x"})
    assert await lake.refused(f"{at('t')}/version/list", {"branch": "dev/x"}) == (404, 22)
    await lake.create("t", location, 1, branch="dev/x")
    assert await lake.versions(branch="dev/x") == [1]


async def test_tags(lake: Lake):
    location = await lake.declare()
    for version in (1, 2):
        await lake.create("t", location, version)
    tags = f"{at('t')}/tags"
    await lake.ok(f"{tags}/create", {"tag": "a", "version": 1})
    assert await lake.refused(f"{tags}/create", {"tag": "a", "version": 2}) == (409, 9)
    assert await lake.refused(f"{tags}/create", {"tag": "b", "version": 9}) == (404, 11)
    assert await lake.refused(f"{tags}/create", {"tag": "../b", "version": 1}) == (400, 13)
    assert (await lake.ok(f"{tags}/version", {"tag": "a"}))["version"] == 1
    await lake.ok(f"{tags}/update", {"tag": "a", "version": 2})
    assert (await lake.ok(f"{at('t')}/describe", {"tag": "a"}))["version"] == 2
    listed = (await lake.ok(f"{tags}/list"))["tags"]
    assert set(listed) == {"a"}
    assert listed["a"]["version"] == 2
    await lake.ok(f"{tags}/delete", {"tag": "a"})
    assert await lake.refused(f"{tags}/delete", {"tag": "a"}) == (404, 8)


async def test_what_disappears_from_storage_leaves_the_list(lake: Lake):
    location = await lake.declare()
    for version in range(1, 5):
        await lake.create("t", location, version)
    for version in (1, 2):
        (folder(location) / "_versions" / final_name(version)).unlink()
    assert await lake.refused(f"{at('t')}/version/describe", {"version": 1}) == (404, 11)
    assert await lake.versions() == [3, 4]
    assert await lake.versions(limit=10, descending="true") == [4, 3]


async def test_a_decision_is_finished_by_the_next_reader(lake: Lake):
    """Whatever became of the files that its writer staged."""
    location = await lake.declare()
    await lake.create("t", location, 1)
    final = folder(location) / "_versions" / final_name(1)
    data = final.read_bytes()
    final.unlink()
    # The database keeps the bytes until it is known that they are in their place.
    lake.home.app.services.lance.finalizing._done.clear()
    assert await lake.versions(limit=1, descending="true") == [1]
    assert final.read_bytes() == data


async def test_every_decision_is_finished_however_many_cannot_be(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    """As after a crash, when nobody reads."""
    monkeypatch.setattr("inver.services.lance.finalizing.SCAN_LIMIT", 1)
    finals = []
    for name in ("t", "u"):
        location = await lake.declare(name)
        await lake.create(name, location, 1)
        finals.append(folder(location) / "_versions" / final_name(1))
    finalizing = lake.home.app.services.lance.finalizing
    finalizing._done.clear()
    finalizing._placed.clear()
    waiting = await lake.home.app.store.waiting_records(10)
    assert len(waiting) == 2
    first = await lake.home.app.store.table_by_id(waiting[0][0])
    assert first is not None
    broken, whole = finals if first.name == "t" else reversed(finals)
    whole.unlink()
    shutil.rmtree(broken.parent)
    broken.parent.write_bytes(b"not a folder")
    for _ in range(2):
        await finalizing._scan()
    assert finalizing.failed > 0
    assert whole.exists()


async def test_a_final_name_that_somebody_else_took(lake: Lake):
    location = await lake.declare()
    body = stage(location, 1)
    phantom = folder(location) / "_versions" / final_name(1)
    phantom.write_bytes(b"somebody else's")
    await lake.ok(f"{at('t')}/version/create", body)
    assert phantom.read_bytes().endswith(b"LANC")
    [aside] = (folder(location) / "_quarantine").iterdir()
    assert aside.read_bytes() == b"somebody else's"


async def test_the_first_version_may_be_written_past_the_catalog(lake: Lake):
    location = await lake.declare()
    versions = folder(location) / "_versions"
    versions.mkdir(parents=True)
    (versions / final_name(1)).write_bytes(manifest(1, str(uuid4())))
    await lake.create("t", location, 2)
    assert await lake.versions() == [1, 2]


async def test_what_is_counted(lake: Lake):
    location = await lake.declare()
    for version, fragments in enumerate(
        [
            (fragment(0, 10),),
            (fragment(0, 10), fragment(1, 5, size=70)),
            (fragment(0, 10, 4), fragment(1, 5, size=70)),
            (fragment(2, 11, size=150),),
        ],
        start=1,
    ):
        data = manifest(version, str(uuid4()), fragments)
        await lake.create("t", location, version, data=data)
    told = await lake.home.admin.ok("GET", "/catalogs/main/schemas/s/tables/t/commits")
    counts = [each["counts"] for each in reversed(told["commits"])]
    names = ("rows_added", "rows_removed", "files_added", "files_removed", "bytes_added", "bytes_removed")
    assert [[count[name] for name in names] for count in counts] == [
        [10, 0, 1, 0, 100, 0],
        [5, 0, 1, 0, 70, 0],
        [0, 4, 0, 0, 0, 0],
        [11, 11, 1, 2, 150, 170],
    ]


async def test_features_that_hide_the_fragments_leave_the_counts_unknown(lake: Lake):
    location = await lake.declare()
    data = manifest(1, str(uuid4()), flags=512)
    await lake.create("t", location, 1, data=data)
    told = await lake.home.admin.ok("GET", "/catalogs/main/schemas/s/tables/t/commits")
    assert told["commits"][0].get("counts") is None


# --- people ---


async def test_rights_are_those_of_the_catalog(lake: Lake):
    location = await lake.declare()
    await lake.create("t", location, 1)
    reader = await lake.home.user("reader")
    await lake.home.grant("reader", ["USE CATALOG", "USE SCHEMA", "SELECT"], "catalog", "main")

    def as_(person: Person) -> Lake:
        other = Lake(lake.home)
        other.token = person.token
        return other

    theirs = as_(reader)
    assert await theirs.versions() == [1]
    assert await theirs.refused(f"{at('t')}/version/create", stage(location, 2)) == (403, 15)
    assert await theirs.refused(f"{at('u')}/declare") == (403, 15)
    assert await theirs.refused(f"{at('t')}/drop") == (403, 15)
    stranger = as_(await lake.home.user("stranger"))
    assert await stranger.refused(f"{at('t')}/describe") == (404, 4)
    assert (await stranger.ok(TABLE, method="GET"))["tables"] == []
    batch = {"operations": [{"deregister_table": {"id": ["main", "s", "t"]}}]}
    assert await theirs.refused(f"{TABLE}/batch-commit", batch) == (403, 15)
