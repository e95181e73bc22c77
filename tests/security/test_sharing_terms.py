"""What a recipient was given on other terms opens nothing on these: a table that is put into a share anew is
shared as it is said now, whatever tokens and URLs were made before (C9, C17)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.delta_log import FIELDS, PROTOCOL, LogFolder, add, metadata, remove
from tests.fixtures.house import house
from tests.security.test_sharing import ABOUT_A_TABLE, FEED, MOUNT, ROUTES, World, world

__all__ = ["world"]

ORDERS = {"name": ["main", "sales", "orders"]}
TABLE = "/shares/s/schemas/sales/tables/orders"
NOT_THIS_TABLE = "does not match the table of the request"


async def given(world: World) -> tuple[list[str], list[tuple[str, str, Any]]]:
    """URLs of version 0, and requests that go on with answers about it."""
    asked = {"version": 0, "maxFiles": 1}
    first = (await world.ask("acme", "POST", f"{TABLE}/query", asked)).lines
    token = first[-1]["endStreamAction"]["nextPageToken"]
    ranged = f"{TABLE}/changes?startingVersion=0&maxFiles=1"
    since = await world.ask("acme", "GET", f"{TABLE}/changes", startingVersion=0, maxFiles=1)
    changed = since.lines[-1]["endStreamAction"]["nextPageToken"]
    latest = (await world.ask("acme", "POST", f"{TABLE}/query", {"includeRefreshToken": True})).lines
    refresh = latest[-1]["endStreamAction"]["refreshToken"]
    headers = {
        "Authorization": f"Bearer {world.tokens['acme']}",
        "delta-sharing-capabilities": "asyncquery=true",
    }
    later = await world.raw("POST", f"{MOUNT}{TABLE}/query", headers=headers, body={"version": 0})
    query_id = later.lines[0]["queryStatus"]["queryId"]
    requests = [
        ("POST", f"{TABLE}/query", {**asked, "pageToken": token}),
        ("GET", f"{ranged}&pageToken={changed}", None),
        ("POST", f"{TABLE}/query", {"refreshToken": refresh}),
        ("POST", f"{TABLE}/queries/{query_id}", {}),
    ]
    return [line["file"]["url"] for line in first if "file" in line], requests


async def answers(world: World, requests: list[tuple[str, str, Any]], to: str = "") -> list[tuple[int, bool]]:
    """Their statuses, and whether they say that they are about something else."""
    found = []
    for method, target, body in requests:
        target, _, query = target.replace(TABLE, to or TABLE).partition("?")
        headers = {"Authorization": f"Bearer {world.tokens['acme']}"}
        answer = await world.raw(method, MOUNT + target, query, headers, body)
        found.append((answer.status, NOT_THIS_TABLE.encode() in answer.body))
    return found


@pytest.mark.parametrize("terms", [{"start_version": 1}, {"history": False}, {}])
async def test_c17_a_table_that_is_shared_anew_is_shared_on_new_terms(world: World, terms: dict[str, Any]):
    (url,), requests = await given(world)
    assert (await world.fetch(url)).status == 200
    assert await answers(world, requests) == [(200, False)] * 4
    await world.home.admin.ok("DELETE", TABLE)
    await world.home.admin.ok("POST", "/shares/s/items", {**ORDERS, **terms})
    assert (await world.fetch(url)).status == 403
    refused = await answers(world, requests)
    # Without its history a table has no changes at all.
    assert refused == [(400, True), (400, terms.get("history", True)), (400, True), (400, True)]


async def test_c17_tokens_of_one_share_open_nothing_in_another(world: World):
    """Also when it is the same table, and the same recipient has both."""
    admin = world.home.admin
    await admin.ok("POST", "/shares", {"name": "since"})
    await admin.ok("POST", "/shares/since/items", {**ORDERS, "start_version": 1})
    await admin.ok("PUT", "/shares/since/recipients/acme", {})
    _, requests = await given(world)
    other = TABLE.replace("/shares/s/", "/shares/since/")
    assert await answers(world, requests, to=other) == [(400, True)] * 4
    await admin.ok("DELETE", "/shares/s/recipients/acme")
    assert await answers(world, requests, to=other) == [(400, True)] * 4


async def test_c9_tokens_end_when_the_partition_filter_changes(world: World):
    log = LogFolder(world.lake / "parts")
    files = [add(f"{number}.parquet", number, {"day": f"2024-01-0{number}"}) for number in (1, 2, 3)]
    log.commit(0, PROTOCOL, metadata(("day",)), *files)
    await world.home.table("main", "sales", "parts", kind="EXTERNAL", location=str(log.folder))
    await world.home.admin.ok("POST", "/shares/s/items", {"name": ["main", "sales", "parts"]})
    table = TABLE.replace("orders", "parts")
    first = (await world.ask("acme", "POST", f"{table}/query", {"maxFiles": 1})).lines
    again = {"maxFiles": 1, "pageToken": first[-1]["endStreamAction"]["nextPageToken"]}
    assert (await world.ask("acme", "POST", f"{table}/query", again)).status == 200
    where = {"schema": "sales", "table": "parts", "where": "day = '2024-01-03'"}
    await world.home.admin.ok("PUT", "/shares/s/recipients/acme", {"filters": [where]})
    assert (await world.ask("acme", "POST", f"{table}/query", again)).status == 400


async def test_a_query_that_is_answered_later_is_about_the_version_at_which_it_was_asked(world: World):
    """Also where only the latest version is shared, which is another one by then."""
    await world.home.admin.ok("DELETE", TABLE)
    await world.home.admin.ok("POST", "/shares/s/items", {**ORDERS, "history": False})
    headers = {
        "Authorization": f"Bearer {world.tokens['acme']}",
        "delta-sharing-capabilities": "asyncquery=true",
    }
    later = await world.raw("POST", f"{MOUNT}{TABLE}/query", headers=headers, body={})
    query_id = later.lines[0]["queryStatus"]["queryId"]
    log = world.lake / "orders" / "_delta_log"
    (log / f"{2:020d}.json").write_text(json.dumps(remove("c.parquet", size=5)) + "\n")
    found = await world.ask("acme", "POST", f"{TABLE}/queries/{query_id}", {})
    assert (found.status, found.headers["delta-table-version"], len(found.lines)) == (200, "1", 4)
    assert (await world.ask("acme", "POST", f"{TABLE}/query", {"version": 1})).status == 400


async def test_c9_files_of_another_partitioning_are_not_shown(world: World):
    """A file that says nothing of the column of a filter is not one that has null in it."""
    log = LogFolder(world.lake / "parts")
    log.commit(0, PROTOCOL, metadata((), FIELDS, **FEED), add("all.parquet", 1))
    days = [add(f"{day}.parquet", 2, {"day": day}) for day in ("2024-01-01", "2024-01-02", None)]
    log.commit(1, metadata(("day",), FIELDS, **FEED), remove("all.parquet", size=1), *days)
    await world.home.table("main", "sales", "parts", kind="EXTERNAL", location=str(log.folder))
    await world.home.admin.ok("POST", "/shares/s/items", {"name": ["main", "sales", "parts"]})
    where = {"schema": "sales", "table": "parts", "where": "day <> '2024-01-01' OR day IS NULL"}
    await world.home.admin.ok("PUT", "/shares/s/recipients/acme", {"filters": [where]})
    table = TABLE.replace("orders", "parts")
    changed = await world.ask("acme", "GET", f"{table}/changes", startingVersion=0)
    since = await world.ask("acme", "POST", f"{table}/query", {"startingVersion": 0})
    for answer in (changed, since):
        told = [line["add"]["url"] for line in answer.lines if "add" in line]
        assert [url.partition("?")[0].rpartition("/")[2] for url in told] == [
            "2024-01-02.parquet",
            "None.parquet",
        ]
        assert not any("remove" in line for line in answer.lines)
    # There was no such column to decide by.
    for body in ({"version": 0}, {"startingVersion": 0, "endingVersion": 0}):
        assert (await world.ask("acme", "POST", f"{table}/query", body)).status == 403


async def test_a_file_that_was_cleaned_away_is_missed_when_it_is_read(world: World):
    urls = await world.urls()
    (world.lake / "orders" / "c.parquet").unlink()
    answers = {url: await world.fetch(url) for url in urls}
    assert sorted(answer.status for answer in answers.values()) == [200, 404]
    (missed,) = (answer for answer in answers.values() if answer.status == 404)
    assert missed.json["errorCode"] == "RESOURCE_DOES_NOT_EXIST"
    # What is there, and what changed, is told all the same.
    assert await world.urls()
    changed = await world.ask("acme", "GET", f"{TABLE}/changes", startingVersion=0)
    assert changed.status == 200


async def test_signed_urls_and_tokens_are_not_logged(world: World, caplog: pytest.LogCaptureFixture):
    caplog.set_level("DEBUG")
    (url, *_), requests = await given(world)
    await world.fetch(url)
    await world.fetch(url[:-1] + "x")
    await world.fetch(url.replace("/files/", "/files/x"))
    (world.lake / "orders" / "_delta_log" / f"{2:020d}.json").write_text("{")
    await answers(world, requests)
    signature = url.rpartition("=")[2]
    assert len(signature) == 64
    secrets = [signature, world.tokens["acme"], *(body["pageToken"] for _, _, body in requests[:1])]
    assert not any(secret in record.getMessage() for record in caplog.records for secret in secrets)


async def test_b7_what_an_administrator_no_longer_allows_is_not_read(tmp_path: Path):
    """Neither by asking for it nor by a URL from before, and nobody is told where it lies."""
    lake, other = tmp_path / "lake", tmp_path / "other"
    lake.mkdir()
    other.mkdir()
    async with house(tmp_path / "home", external_roots=(str(lake),)) as home:
        world = await World(home, lake).build()
        url, *_ = await world.urls()
        assert (await world.fetch(url)).status == 200
    async with house(tmp_path / "home", external_roots=(str(other),)) as world.home:
        assert (await world.fetch(url)).status == 403
        for method, target in ABOUT_A_TABLE[1:]:
            answer = await world.ask("acme", method, target, {} if method == "POST" else None)
            assert (answer.status, b"lake" in answer.body) == (403, False), target
        # What there is, and under which name, is not where it lies.
        assert (await world.ask("acme", *ABOUT_A_TABLE[0])).status == 200


async def test_every_route_is_on_record(world: World):
    """Whatever is answered; where nothing is, there was no access."""
    actions = []
    for method, target in ROUTES:
        before = await world.home.last_event()
        query: dict[str, Any] = {"startingVersion": 0} if target.endswith("/changes") else {}
        answer = await world.ask("acme", method, target, {} if method == "POST" else None, **query)
        found = await world.home.events(before)
        told = [each["data"]["action"] for each in found if each["type"] == "io.inver.share.accessed.v1"]
        assert len(told) == (1 if answer.status == 200 else 0), target
        actions += told
    assert len(actions) == len(ROUTES) - 2
