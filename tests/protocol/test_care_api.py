"""Care through the API: what commits of each protocol leave behind, and who may do what about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from inver.client import Client
from inver.domain.care import Job, Outcome, Result
from inver.domain.ledger import Transaction
from inver.domain.principals import ADMIN
from inver.errors import Conflict, Invalid, NotFound
from inver.services.maintenance import running
from tests.fixtures.care import MIB, commit, counts, managed
from tests.fixtures.delta import add_file, new_schema, new_table, unity
from tests.fixtures.house import House, Person, house, table_path
from tests.fixtures.iceberg import Lake
from tests.fixtures.ledger import Book
from tests.fixtures.server import InverServer

ORDERS = ("main", "sales", "orders")


class Ward:
    """A house with one Delta table of two hundred small files."""

    def __init__(self, home: House) -> None:
        self.home = home
        self.admin = home.admin
        self.table = ""
        self.version = 0

    async def build(self) -> Ward:
        await self.home.schema("main", "sales")
        self.table = await self.add("orders", *[MIB] * 200)
        self.home.clock.advance(2 * 3_600_000)
        return self

    async def add(self, name: str, *sizes: int) -> str:
        schema = await self.home.app.store.schema_by_path("main", ["sales"])
        assert schema is not None
        book = Book(self.home.app.store, self.home.clock)  # type: ignore[arg-type]
        book.schema = schema.id
        made = managed(book, name)
        await self.decide(made, commit(made.id, 0, counts(*sizes, rows=10 * len(sizes))))
        return made.id

    async def decide(self, *operations: Any) -> None:
        store = self.home.app.store
        await store.decide(Transaction(ADMIN.id, self.home.clock.now_ms(), operations))

    async def write(self, *sizes: int) -> None:
        self.version += 1
        await self.decide(commit(self.table, self.version, counts(*sizes, rows=len(sizes))))

    async def care(self, who: Person | None = None) -> Any:
        return await (who or self.admin).ok("GET", table_path(ORDERS) + "/care")

    async def start(self, job: str = "compact", **fields: Any) -> Any:
        return await self.admin.ok("POST", "/care/runs", asking(job, **fields))


def asking(job: str = "compact", **fields: Any) -> dict[str, Any]:
    return {"table": {"name": list(ORDERS)}, "job": job, "worker": "test/1", **fields}


@pytest.fixture
async def ward(tmp_path: Path) -> AsyncIterator[Ward]:
    async with house(tmp_path) as home:
        yield await Ward(home).build()


# --- knowing and planning ---


async def test_a_finding_its_plan_and_its_run(ward: Ward):
    shown = await ward.care()
    health = shown["health"]
    assert (health["files"], health["small_files"], health["small_bytes"]) == (200, 200, 200 * MIB)
    assert health["sizes"] == [{"at_least": MIB, "files": 200, "bytes": 200 * MIB}]
    assert (health["commits_since_checkpoint"], health["unpublished_commits"]) == (1, 1)
    assert (health["writes_per_hour"] > 0, health["reads_per_hour"]) == (True, None)
    (finding,) = shown["findings"]
    assert (finding["job"], finding["gain"], finding["bytes"]) == ("compact", 198, 200 * MIB)
    assert shown["policy"]["enabled"]

    plan = await ward.admin.ok("GET", "/care/plan")
    (step,) = plan["steps"]
    assert (step["full_name"], step["job"], step["cost_seconds"]) == (list(ORDERS), "compact", 13.0)
    assert (plan["count"], plan["cost_seconds"]) == (1, 13.0)
    assert (await ward.admin.ok("GET", "/care/plan", budget_seconds=12))["steps"] == []

    taken = (await ward.admin.ok("POST", "/care/runs/next", {"worker": "test/1"}))["ticket"]
    assert (taken["name"], taken["job"], taken["format"], taken["version"]) == (
        list(ORDERS),
        "compact",
        "DELTA",
        0,
    )
    assert (await ward.admin.ok("POST", "/care/runs/next", {"worker": "test/2"}))["ticket"] is None
    assert (await ward.admin.ok("GET", "/care/plan"))["steps"] == []

    run = f"/care/runs/{taken['run_id']}"
    assert (await ward.admin.post(run + "/heartbeat", {"progress": 0.5, "message": "half"})).status == 204
    (listed,) = (await ward.admin.ok("GET", "/care/runs"))["runs"]
    assert (listed["state"], listed["progress"], listed["message"]) == ("running", 0.5, "half")
    assert listed["predicted"]["seconds"] == 13.0

    await ward.decide(commit(ward.table, 1, counts(128 * MIB, 72 * MIB, removed=(MIB,) * 200), "OPTIMIZE"))
    done = {"outcome": "done", "before": {"files": 200}, "after": {"files": 2, "version": 1}}
    done["measured"] = {"seconds": 4, "bytes_read": 200 * MIB}
    assert (await ward.admin.post(run + "/finish", done)).status == 204
    shown = await ward.care()
    assert (shown["health"]["files"], shown["health"]["dead_bytes"]) == (2, 200 * MIB)
    assert [last["outcome"] for last in shown["last"]] == ["done"]
    assert shown["findings"] == []
    (listed,) = (await ward.admin.ok("GET", table_path(ORDERS) + "/care/runs"))["runs"]
    assert (listed["state"], listed["result"]["after"], listed["by"]) == ("finished", done["after"], "admin")
    kinds = [event["type"] for event in await ward.home.events()]
    assert [kind for kind in kinds if ".care." in kind] == [
        "io.inver.care.started.v1",
        "io.inver.care.finished.v1",
    ]


async def test_lists_of_runs_leave_out_the_files_of_dry_runs(ward: Ward):
    ticket = await ward.start("vacuum", dry_run=True)
    run = f"/care/runs/{ticket['run_id']}"
    told = {"outcome": "done", "measured": {"files": 2}, "files": ["a.parquet", "b.parquet"]}
    for _ in range(2):
        # The same end twice is one, files and all.
        assert (await ward.admin.post(run + "/finish", told)).status == 204
    other = await ward.admin.post(run + "/finish", {**told, "files": ["a.parquet"]})
    assert other.status == 409
    shown = await ward.admin.ok("GET", run)
    assert shown["result"] == told
    for path in ("/care/runs", table_path(ORDERS) + "/care/runs"):
        (listed,) = (await ward.admin.ok("GET", path))["runs"]
        assert listed["result"] == {"outcome": "done", "measured": {"files": 2}}
        assert {**listed, "result": None} == {**shown, "result": None}


async def test_costs_are_learned(ward: Ward):
    ticket = await ward.start()
    done = {"outcome": "done", "measured": {"seconds": 10, "bytes_read": 10 * MIB}}
    await ward.admin.ok("POST", f"/care/runs/{ticket['run_id']}/finish", done)
    await ward.write(*[MIB] * 60)
    await ward.add("other", *[MIB] * 17)
    ward.home.clock.advance(3_600_000)
    steps = (await ward.admin.ok("GET", "/care/plan"))["steps"]
    assert {step["full_name"][2]: step["cost_seconds"] for step in steps} == {"orders": 263, "other": 20}


async def test_a_worker_takes_only_what_it_can_do(ward: Ward):
    async def next_for(**wanted: Any) -> Any:
        body = {"worker": "w", **wanted}
        return (await ward.admin.ok("POST", "/care/runs/next", body))["ticket"]

    assert await next_for(jobs=["vacuum"]) is None
    assert await next_for(formats=["LANCE"]) is None
    assert await next_for(jobs=["compact"], formats=["DELTA"]) is not None


async def test_a_table_that_is_being_written_is_left_alone(ward: Ward):
    await ward.write(MIB)
    ward.home.clock.advance(60_000)
    policy = {"options": {"min_small_files": 100, "target_file_size": 64 * MIB}}
    await ward.admin.ok("PUT", table_path(ORDERS) + "/care/policy", policy)
    (finding,) = (await ward.care())["findings"]
    assert finding["not_before"] == ward.home.clock.now_ms() + 9 * 60_000
    assert (await ward.admin.ok("GET", "/care/plan"))["steps"] == []
    ward.home.clock.advance(9 * 60_000)
    assert len((await ward.admin.ok("GET", "/care/plan"))["steps"]) == 1


async def test_a_lost_race_costs_time(ward: Ward):
    ticket = await ward.start()
    await ward.admin.ok("POST", f"/care/runs/{ticket['run_id']}/finish", {"outcome": "lost"})
    assert (await ward.admin.ok("GET", "/care/plan"))["steps"] == []
    ward.home.clock.advance(10 * 60_000)
    assert len((await ward.admin.ok("GET", "/care/plan"))["steps"]) == 1


async def test_numbers_that_are_made_up_harm_nobody_else(ward: Ward):
    most = 2**63 - 1
    plain = await ward.home.table("main", "sales", "made_up")
    told = dict.fromkeys(("files_added", "bytes_added", "bytes_removed", "rows_added"), most)
    told["files_removed"] = 0
    for version in (1, 2, 3):
        operation = {"op": "commit", "table": {"id": plain}, "version": version, "token": str(version)}
        await ward.admin.ok("POST", "/transactions", {"operations": [{**operation, "counts": told}]})
    await ward.add("next_to_it", *[most // 200] * 100)
    ward.home.clock.advance(30 * 86_400_000)
    shown = await ward.admin.ok("GET", "/care/tables")
    assert len(shown["tables"]) == 3
    assert (await ward.admin.ok("GET", "/care/plan"))["count"] >= 1


async def test_pages(ward: Ward):
    for number in range(4):
        await ward.add(f"t{number}", 5)
    seen, token = [], None
    while True:
        query = {"max_results": 2, **({} if token is None else {"page_token": token})}
        page = await ward.admin.ok("GET", "/care/tables", catalog="main", **query)
        seen += [table["full_name"][-1] for table in page["tables"]]
        token = page["next_page_token"]
        if token is None:
            break
    assert sorted(seen) == ["orders", "t0", "t1", "t2", "t3"]
    ids = []
    for _ in range(3):
        ticket = await ward.start("vacuum")
        ids.append(ticket["run_id"])
        await ward.admin.ok("POST", f"/care/runs/{ticket['run_id']}/finish", {"outcome": "nothing"})
    first = await ward.admin.ok("GET", "/care/runs", max_results=2)
    rest = await ward.admin.ok("GET", "/care/runs", max_results=2, page_token=first["next_page_token"])
    assert [run["id"] for run in (*first["runs"], *rest["runs"])] == ids[::-1]
    assert rest["next_page_token"] is None


async def test_runs_that_one_may_not_see_leave_pages_short(ward: Ward, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(running, "LOOKED_AT", 3)
    other = ("main", "sales", "other")
    await ward.add("other", 5)
    ana = await ward.home.user("ana")
    await ward.home.grant("ana", ["USE CATALOG", "USE SCHEMA"], "catalog", "main")
    await ward.home.grant("ana", ["SELECT"], "table", *other)
    for hers in (False, True, False, False, False, False, True):
        asked = asking("vacuum", table={"name": list(other if hers else ORDERS)})
        ticket = await ward.admin.ok("POST", "/care/runs", asked)
        await ward.admin.ok("POST", f"/care/runs/{ticket['run_id']}/finish", {"outcome": "nothing"})
    pages: list[int] = []
    token = ""
    while token is not None:
        page = await ana.ok("GET", "/care/runs", page_token=token)
        pages.append(len(page["runs"]))
        token = page["next_page_token"]
    assert pages == [1, 1, 0]
    assert len((await ana.ok("GET", table_path(other) + "/care/runs", max_results=1))["runs"]) == 1


# --- refusals ---


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (asking("expire"), 400, "job"),
        (asking("polish"), 400, None),
        (asking(options={"retention_hours": 24}), 400, "options.retention_hours"),
        (asking(options={"retention_hours": -1}), 400, None),
        (asking(options={"colour": "red"}), 400, None),
        (asking(worker=""), 400, None),
        (asking(table={}), 400, "table"),
        (asking(table={"name": ["main", "sales", "none"]}), 404, None),
    ],
)
async def test_what_cannot_be_run(ward: Ward, body: dict[str, Any], status: int, field: str | None):
    answer = await ward.admin.post("/care/runs", body)
    assert answer.status == status, answer
    if field is not None:
        assert answer.json["field"] == field
    assert (await ward.admin.ok("GET", "/care/runs"))["runs"] == []


async def test_a_short_retention_takes_so_many_words(ward: Ward):
    options = {"retention_hours": 0, "allow_short_retention": True}
    ticket = await ward.start("vacuum", dry_run=True, options=options)
    assert (ticket["dry_run"], ticket["options"]) == (True, options)


async def test_tables_that_are_decided_elsewhere_are_left_to_them(ward: Ward):
    await ward.home.table("main", "sales", "plain")
    plain = {"name": ["main", "sales", "plain"]}
    answer = await ward.admin.post("/care/runs", asking(table=plain))
    assert (answer.status, answer.json["field"]) == (400, "table")


@pytest.mark.parametrize("what", ["heartbeat", "finish"])
@pytest.mark.parametrize(("run", "status"), [("no-uuid", 400), ("01980000-0000-7000-8000-000000000000", 404)])
async def test_no_such_run(ward: Ward, what: str, run: str, status: int):
    answer = await ward.admin.post(
        f"/care/runs/{run}/{what}", {"outcome": "done"} if what == "finish" else {}
    )
    assert answer.status == status


async def test_what_a_run_says_of_itself_is_bounded(ward: Ward):
    run = f"/care/runs/{(await ward.start())['run_id']}"
    for wrong in (
        {"outcome": "great"},
        {"outcome": "done", "after": {"files": -1}},
        {"outcome": "done", "after": {"files": 1e300}},
        {"outcome": "done", "after": {"files": "many"}},
        {"outcome": "done", "more": 1},
        {},
    ):
        assert (await ward.admin.post(run + "/finish", wrong)).status == 400, wrong
    assert (await ward.admin.post(run + "/heartbeat", {"progress": 2})).status == 400
    assert (await ward.admin.post(run + "/heartbeat", {"progress": 1})).status == 204


async def test_a_lease_that_ran_out_goes_to_the_next(ward: Ward):
    first = await ward.start()
    assert (await ward.admin.post("/care/runs", asking())).status == 409
    ward.home.clock.advance(int(first["lease_seconds"] * 1000) + 1)
    second = await ward.start()
    for what, body in (("heartbeat", {}), ("finish", {"outcome": "done"})):
        answer = await ward.admin.post(f"/care/runs/{first['run_id']}/{what}", body)
        assert answer.status == 409, what
        answer = await ward.admin.post(f"/care/runs/{second['run_id']}/{what}", body)
        assert answer.status == 204, what
    runs = (await ward.admin.ok("GET", "/care/runs"))["runs"]
    assert [(run["state"], run["attempt"]) for run in runs] == [("finished", 2), ("abandoned", 1)]


async def test_a_dropped_table_ends_its_run(ward: Ward):
    ticket = await ward.start()
    await ward.admin.ok("DELETE", table_path(ORDERS))
    run = f"/care/runs/{ticket['run_id']}"
    assert (await ward.admin.post(run + "/heartbeat", {})).status == 409
    assert (await ward.admin.post(run + "/finish", {"outcome": "failed"})).status == 204
    assert (await ward.admin.ok("GET", "/care/plan"))["steps"] == []


async def test_a_share_that_needs_older_versions_ends_a_run(ward: Ward):
    ticket = await ward.start("vacuum")
    run = f"/care/runs/{ticket['run_id']}"
    assert (await ward.admin.post(run + "/heartbeat", {})).status == 204
    await ward.admin.ok("POST", "/shares", {"name": "partners"})
    await ward.admin.ok("POST", "/shares/partners/items", {"name": list(ORDERS)})
    assert (await ward.admin.post(run + "/heartbeat", {})).status == 409
    assert (await ward.admin.post(run + "/finish", {"outcome": "lost"})).status == 204
    again = await ward.start("vacuum")
    assert again["pins"]
    assert (await ward.admin.post(f"/care/runs/{again['run_id']}/heartbeat", {})).status == 204


# --- who may ---


@pytest.mark.parametrize(
    ("privileges", "sees", "runs"),
    [
        ([], False, False),
        (["BROWSE"], False, False),
        (["SELECT"], True, False),
        (["MODIFY"], True, False),
        (["MAINTAIN"], True, True),
        (["ALL PRIVILEGES"], True, True),
    ],
)
async def test_who_may_see_and_who_may_run(ward: Ward, privileges: list[str], sees: bool, runs: bool):
    ana = await ward.home.user("ana")
    await ward.home.grant("ana", ["USE CATALOG", "USE SCHEMA"], "catalog", "main")
    if privileges:
        await ward.home.grant("ana", privileges, "table", *ORDERS)
    assert len((await ana.ok("GET", "/care/plan"))["steps"]) == sees
    ticket = await ward.start("vacuum")
    shown = await ana.get(table_path(ORDERS) + "/care")
    assert (shown.status == 200) is sees
    assert (shown.status == 404) is (not privileges)
    assert len((await ana.ok("GET", "/care/tables"))["tables"]) == sees
    assert len((await ana.ok("GET", "/care/runs"))["runs"]) == sees
    assert (await ana.get(table_path(ORDERS) + "/care/runs")).status == shown.status
    run = f"/care/runs/{ticket['run_id']}"
    assert (await ana.get(run)).status == (200 if sees else 404)
    for what, body in (("heartbeat", {}), ("finish", {"outcome": "done"})):
        # Also who may run jobs does not speak for somebody else's.
        assert (await ana.post(f"{run}/{what}", body)).status == (403 if sees or privileges else 404)
        assert (await ward.admin.post(f"{run}/{what}", body)).status == 204
    started = await ana.post("/care/runs", asking())
    assert (started.status == 201) is runs
    if runs:
        own = f"/care/runs/{started.json['run_id']}"
        assert (await ana.post(own + "/heartbeat", {})).status == 204
        assert (await ana.post(own + "/finish", {"outcome": "done"})).status == 204
    policy = await ana.ask("PUT", table_path(ORDERS) + "/care/policy", {"enabled": False})
    assert (policy.status == 200) is runs
    assert (await ana.ask("PUT", "/catalogs/main/care/policy", {})).status == 403


async def test_who_reads_a_table_is_not_told_of_shares(ward: Ward):
    await ward.admin.ok("POST", "/shares", {"name": "partners"})
    await ward.admin.ok("POST", "/shares/partners/items", {"name": list(ORDERS)})
    ana = await ward.home.user("ana")
    await ward.home.grant("ana", ["USE CATALOG", "USE SCHEMA", "SELECT"], "catalog", "main")
    pins = [{"reason": "share partners", "version": 0}]
    assert (await ward.care())["pins"] == pins
    assert (await ward.care(ana))["pins"] == []
    await ward.home.grant("ana", ["MAINTAIN"], "table", *ORDERS)
    assert (await ward.care(ana))["pins"] == pins
    assert (await ward.start())["pins"] == pins


async def test_next_is_for_who_maintains(ward: Ward):
    ana = await ward.home.user("ana")
    await ward.home.grant("ana", ["USE CATALOG", "USE SCHEMA", "SELECT"], "catalog", "main")
    asked = {"worker": "w"}
    assert (await ana.ok("POST", "/care/runs/next", asked))["ticket"] is None
    await ward.home.grant("ana", ["MAINTAIN"], "catalog", "main")
    reader = await ana.token_of(scope="read")
    assert (await reader.post("/care/runs/next", asked)).status == 403
    assert (await reader.ok("GET", "/care/plan"))["count"] == 1
    assert (await ana.ok("POST", "/care/runs/next", asked))["ticket"]["table_id"] == ward.table


# --- policies ---


async def test_a_table_goes_before_its_catalog(ward: Ward):
    catalog, table = "/catalogs/main/care/policy", table_path(ORDERS) + "/care/policy"
    assert (await ward.admin.get(catalog)).status == 404
    said = {"jobs": ["compact", "vacuum"], "options": {"min_small_files": 500, "full": True}}
    assert await ward.admin.ok("PUT", catalog, said) == said
    assert (await ward.care())["findings"] == []
    assert await ward.admin.ok("PUT", table, {"options": {"min_small_files": 50}}) == {
        "options": {"min_small_files": 50}
    }
    shown = await ward.care()
    assert [finding["job"] for finding in shown["findings"]] == ["compact"]
    assert shown["policy"]["jobs"] == ["compact", "vacuum"]
    assert shown["policy"]["options"] == {"min_small_files": 50, "full": True}
    assert (await ward.start("vacuum"))["options"] == {"min_small_files": 50, "full": True}
    await ward.admin.ok("PUT", table, {"enabled": False})
    assert (await ward.care())["findings"] == []
    assert (await ward.admin.ok("DELETE", table)) is None
    assert (await ward.admin.ask("DELETE", table)).status == 404


async def test_one_table_that_cannot_be_cared_for_does_not_keep_the_others(ward: Ward):
    """Its policy rested on its catalog's word, which is taken back."""
    catalog, table = "/catalogs/main/care/policy", table_path(ORDERS) + "/care/policy"
    await ward.admin.ok("PUT", catalog, {"options": {"allow_short_retention": True}})
    await ward.admin.ok("PUT", table, {"options": {"retention_hours": 1}})
    await ward.admin.ok("DELETE", catalog)
    await ward.add("other", *[MIB] * 90)
    ward.home.clock.advance(3_600_000)
    assert [step["full_name"][2] for step in (await ward.admin.ok("GET", "/care/plan"))["steps"]] == [
        "orders",
        "other",
    ]
    ticket = (await ward.admin.ok("POST", "/care/runs/next", {"worker": "w"}))["ticket"]
    assert ticket["name"][2] == "other"
    refused = await ward.admin.post("/care/runs", asking())
    assert (refused.status, refused.json["field"]) == (400, "options.retention_hours")
    assert (await ward.admin.ok("GET", table_path(ORDERS) + "/care/runs"))["runs"] == []


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"options": {"retention_hours": 24}}, "options.retention_hours"),
        ({"options": {"snapshot_hours": 1}}, "options.snapshot_hours"),
        ({"options": {"staged_hours": 0}}, "options.staged_hours"),
        ({"jobs": ["expire"]}, "jobs"),
        ({"jobs": ["polish"]}, None),
        ({"options": {"deleted_ratio": 2}}, None),
        ({"enabled": "perhaps"}, None),
    ],
)
async def test_policies_that_are_refused(ward: Ward, policy: dict[str, Any], field: str | None):
    place = table_path(ORDERS) + "/care/policy"
    answer = await ward.admin.ask("PUT", place, policy)
    assert answer.status == 400, answer
    assert field is None or answer.json["field"] == field
    assert (await ward.admin.get(place)).status == 404


# --- what the protocols leave behind, with their own words on the wire ---


def test_delta_commits_and_reports(shared_inver: InverServer):
    with unity(shared_inver) as http, Client(shared_inver.url, shared_inver.token) as client:
        new_schema(http, "delta_care.s")
        table = new_table(http, "delta_care.s.t", actions=[add_file("0", 500, 4)])
        for version in range(1, 13):
            table.append(version, add_file(f"f{version}", 1000, 5))
        vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 9, "cardinality": 2}
        gone = {"path": "f1", "size": 1000, "dataChange": True, "stats": '{"numRecords":5}'}
        back: dict[str, Any] = dict(add_file("f1", 1000, 5)["add"]) | {"deletionVector": vector}
        table.append(13, {"remove": gone}, {"add": back})
        health = client.care("delta_care.s.t").health
        assert (health.version, health.files, health.bytes, health.rows) == (13, 13, 12_500, 62)
        assert (health.files_with_deletes, health.deleted_rows, health.dead_bytes) == (1, 2, 0)
        assert (health.small_files, health.commits_since_checkpoint) == (13, 14)
        assert [(each.at_least, each.files) for each in health.sizes or ()] == [(448, 1), (896, 12)]


def test_iceberg_commits_and_scans(shared_inver: InverServer):
    lake = Lake(shared_inver)
    table = lake.table("cared_for")
    with Client(shared_inver.url, shared_inver.token) as client:
        name = (lake.catalog, "ns", "cared_for")
        assert client.care(name).health.files == 0
        asked = table.append()
        for update in asked["updates"]:
            if update["action"] == "add-snapshot":
                update["snapshot"]["summary"] |= {
                    "added-files-size": "3000",
                    "total-data-files": "1",
                    "total-files-size": "3000",
                    "total-records": "3",
                    "total-delete-files": "0",
                    "total-position-deletes": "0",
                    "total-equality-deletes": "0",
                }
        assert table.commit(asked).status_code == 200
        found = client.care(name).health
        assert (found.files, found.bytes, found.rows, found.snapshots) == (1, 3000, 3, 1)
        assert (found.deleted_rows, found.manifests, found.reads_per_hour) == (0, None, 0)
        snapshot = table.metadata["current-snapshot-id"]
        report = {
            "report-type": "scan-report",
            "table-name": "cared_for",
            "snapshot-id": snapshot,
            "filter": True,
            "schema-id": 0,
            "projected-field-ids": [1],
            "projected-field-names": ["id"],
            "metrics": {},
        }
        for _ in range(12):
            lake.send("POST", f"{table.url}/metrics", report)
        assert client.care(name).health.reads_per_hour == 0.5
    lake.close()


def test_the_client_says_what_the_server_says(shared_inver: InverServer):
    with unity(shared_inver) as http, Client(shared_inver.url, shared_inver.token) as client:
        new_schema(http, "client_care.s")
        new_table(http, "client_care.s.t", actions=[add_file("0", 500, 4)])
        name = "client_care.s.t"
        ticket = client.start_care(name, "vacuum", worker="w", options={"full": True}, dry_run=True)
        assert (ticket.job, ticket.dry_run, ticket.options.full) == (Job.VACUUM, True, True)
        assert ticket.name == ("client_care", "s", "t")
        with pytest.raises(Conflict):
            client.start_care(name, "compact", worker="w")
        client.care_heartbeat(ticket.run_id, 0.25, "listing")
        result = Result(outcome=Outcome.NOTHING, message="clean", files=("a",))
        client.finish_care(ticket.run_id, result)
        client.finish_care(ticket.run_id, result)
        with pytest.raises(Conflict):
            client.care_heartbeat(ticket.run_id, 0.5)
        (run,) = client.care_runs(name)
        assert (run.state, run.progress) == ("finished", 1.0)
        assert client.care_run(run.id).result == result
        assert run.id in [each.id for each in client.care_runs()]
        assert client.next_care("w", formats=["LANCE"]) is None
        assert client.care_plan(budget_seconds=0, catalog="client_care").steps == []
        with pytest.raises(NotFound):
            client.care_policy(name)
        with pytest.raises(Invalid):
            client.set_care_policy("client_care", options={"retention_hours": 1})
        made = client.set_care_policy("client_care", jobs=["compact"], options={"target_file_size": MIB})
        assert (made.jobs, made.options) == (["compact"], {"target_file_size": MIB})
        assert client.care_policy("client_care") == made
        (listed,) = client.care_tables("client_care")
        assert listed.full_name == ["client_care", "s", "t"]
        assert client.care(name).policy.jobs == ["compact"]
        client.drop_care_policy("client_care")
        with pytest.raises(NotFound):
            client.care("client_care.s.none")
