"""What becomes of managed Delta tables: crowds of writers, counts, reports, time limits, clean-up."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from inver.storage.beneath import read_cached
from tests.fixtures.cli import Shell
from tests.fixtures.delta import DeltaTable, add_file
from tests.fixtures.server import InverServer, new_database, running_inver
from tests.fixtures.unity import Place, code, first_actions, kind, proposal
from tests.fixtures.waiting import eventually

BACKENDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
WRITERS = 12
INVALID = (400, "INVALID_PARAMETER_VALUE")
INVALID_V1 = (400, "InvalidParameterValueException")
CLOUDS = ("s3://bucket/lake", "gs://bucket/lake", "abfss://data@account.dfs.core.windows.net/lake")


@pytest.fixture(scope="module", params=BACKENDS)
def hasty_inver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InverServer]:
    """A server that believes its writers and soon gives up what nobody needs."""
    env = {
        "INVER_DELTA__VERIFY_COMMITS": "false",
        "INVER_DELTA__STAGE": "4s",
        "INVER_TABLES__HOLD": "3s",
    }
    home = tmp_path_factory.mktemp("hasty") / "home"
    external = home.with_name("external")
    external.mkdir()
    with (
        new_database(request, request.param) as database,
        running_inver(home, database, roots(str(external), *CLOUDS), env=env) as server,
    ):
        yield server


@pytest.fixture
def hasty(hasty_inver: InverServer) -> Iterator[Place]:
    made = Place(hasty_inver)
    yield made
    made.close()


@pytest.fixture(params=BACKENDS)
def patient(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A server that publishes nothing of which no writer speaks."""
    env = {"INVER_DELTA__PUBLISH_AFTER_S": "3600"}
    with (
        new_database(request, request.param) as database,
        running_inver(tmp_path / "home", database, env=env) as server,
    ):
        made = Place(server)
        yield made
        made.close()


def history(place: Place, table: DeltaTable) -> list[dict[str, Any]]:
    with place.server.client() as management:
        found = management.get(f"/tables/{table.id}/commits").raise_for_status().json()
    commits: list[dict[str, Any]] = found["commits"]
    return commits


def await_purge(table: DeltaTable) -> None:
    eventually(lambda: not any(table.folder.rglob("*")), lambda: "its files are still there")


# --- crowds ---


@pytest.mark.parametrize("route", ["managed", "v1"])
def test_of_a_crowd_one_wins_each_version(place: Place, route: str) -> None:
    crowd(place, route)


def test_of_a_crowd_one_wins_without_a_look_at_the_files(hasty: Place) -> None:
    crowd(hasty, "managed")


def crowd(place: Place, route: str) -> None:
    table = place.table("crowded")
    rounds = 4
    staged = [
        [table.stage(version, [add_file(f"{version}-{w}")]) for w in range(WRITERS)]
        for version in range(1, rounds + 1)
    ]

    def send(commit: dict[str, Any]) -> int:
        if route == "v1":
            return place.admin.post(table.url, json=update(table, commit)).status_code
        info = {name.replace("-", "_"): value for name, value in commit.items()}
        return place.admin.post("/delta/commit", json={**proposal(table), "commit_info": info}).status_code

    with ThreadPoolExecutor(WRITERS) as threads:
        for version, commits in enumerate(staged, start=1):
            # Each is sent twice, as a client does that got no answer.
            answers = list(threads.map(send, [*commits, *commits]))
            first, second = answers[:WRITERS], answers[WRITERS:]
            assert Counter(first + second) == {200: 2, 409: 2 * WRITERS - 2}, (version, answers)
            won = commits[first.index(200)]
            assert first.index(200) == second.index(200)
            newest = history(place, table)[0]
            assert (newest["version"], newest["token"]) == (version, won["file-name"])


def test_rivals_of_a_commit_that_fails_have_their_chance(place: Place) -> None:
    """The ones that go ahead have no file; those who wait for them must not wait for ever, or lose."""
    table = place.table("failing")
    for version in range(1, 6):
        good = table.stage(version, [])
        gone = [dict(good, **{"file-name": f"{version:020d}.gone-{number}.json"}) for number in range(6)]

        def send(commit: dict[str, Any]) -> int:
            return place.admin.post(table.url, json=update(table, commit)).status_code

        with ThreadPoolExecutor(7) as threads:
            answers = list(threads.map(send, [*gone[:3], good, *gone[3:]]))
        assert answers[3] == 200, answers
        assert set(answers[:3] + answers[4:]) <= {400, 409}


def test_a_right_that_is_taken_away_is_gone_for_the_next_commit(place: Place) -> None:
    table = place.table("t")
    writer = place.visitor("MODIFY")
    for version in (1, 2):
        writer.post("/delta/commit", json=proposal(table, version)).raise_for_status()
    change = {"principal": writer.headers["X-Name"], "add": [], "remove": ["MODIFY"]}
    place.send("PATCH", f"/permissions/schema/{place.schema}", {"changes": [change]})
    assert writer.post("/delta/commit", json=proposal(table, 3)).status_code in (403, 404)
    assert writer.get(table.url).status_code in (403, 404)
    assert place.get(table.url)["latest-table-version"] == 2


def test_who_may_not_commit_learns_nothing_of_the_table(place: Place) -> None:
    """Whether or not the server has just had to do with it."""
    known, unknown = place.table("known"), str(uuid.uuid4())
    for version in (1, 2):
        place.post("/delta/commit", proposal(known, version))
    stranger = place.person()
    for uri in (known.location, "file:///elsewhere", "nowhere", ""):
        body = {**proposal(known, 3), "table_uri": uri}
        answers = [
            stranger.post("/delta/commit", json={**body, "table_id": table_id})
            for table_id in (known.id, unknown)
        ]
        assert [code(answer) for answer in answers] == [(404, "TABLE_DOES_NOT_EXIST")] * 2, uri


def test_a_late_commit_is_late_whether_or_not_its_file_is_there(place: Place) -> None:
    table = place.table("t")
    for version in (1, 2):
        place.post("/delta/commit", proposal(table, version))
    for version in (1, 2):
        body = proposal(table, version)
        body["commit_info"]["file_name"] = f"{version:020d}.nowhere.json"
        assert code(place.admin.post("/delta/commit", json=body)) == (409, "ALREADY_EXISTS")
    body = proposal(table, 3)
    body["commit_info"]["file_name"] = f"{3:020d}.nowhere.json"
    assert code(place.admin.post("/delta/commit", json=body)) == INVALID


def test_a_refusal_for_another_reason_says_nothing_of_versions(place: Place) -> None:
    """An etag is a number too; taken for a version it would let commits pass that nobody has looked at."""
    table = place.table("t")
    table.append(1)
    for comment in ("a", "b", "c", "d", "e"):
        place.send("PATCH", f"/tables/{table.name}", {"comment": comment})
    stale = update(table, table.stage(2, []))
    stale["requirements"].append({"type": "assert-etag", "etag": "etag-1"})
    assert kind(place.admin.post(table.url, json=stale)) == (409, "UpdateRequirementConflictException")
    for body in (proposal(table, 2), proposal(table, 2)):
        body["commit_info"]["file_size"] += 1
        assert code(place.admin.post("/delta/commit", json=body)) == INVALID
    place.post("/delta/commit", proposal(table, 2))


WRONG = ("file_size", "timestamp", "file_name")


def test_a_file_is_compared_with_its_request(place: Place) -> None:
    table = place.table("t")
    for field in WRONG:
        answer = place.admin.post("/delta/commit", json=belied(table, 1, field))
        assert code(answer) == INVALID
        assert f"commit_info.{field}" in answer.json()["message"]
    assert place.get(table.url)["latest-table-version"] == 0


def test_a_server_that_is_told_so_believes_its_writers(hasty: Place) -> None:
    table = hasty.table("t")
    for version, field in enumerate(WRONG, start=1):
        assert hasty.post("/delta/commit", belied(table, version, field)) == {}
    assert hasty.get(table.url)["latest-table-version"] == len(WRONG)
    assert all("counts" not in commit for commit in history(hasty, table)[: len(WRONG)])


def test_a_large_staged_file_is_read_too(place: Place) -> None:
    table = place.table("t")
    body = proposal(table)
    staged = table.stage(1, [add_file(f"file-{number}", 100, 7) for number in range(2_000)])
    assert staged["file-size"] > 100_000
    body["commit_info"] = {name.replace("-", "_"): value for name, value in staged.items()}
    place.post("/delta/commit", body)
    assert history(place, table)[0]["counts"]["rows_added"] == 14_000


# --- counts and reports ---


def test_what_a_commit_changes_is_counted_from_its_file(place: Place) -> None:
    """Also without any report: version 0 of a table made from a query, appends, and a replacement."""
    table = place.staged("t")
    log = table.folder / "_delta_log" / f"{0:020d}.json"
    log.write_bytes(log.read_bytes() + b"".join(line(add_file(f"ctas-{n}", 10, 5)) for n in range(3)))
    place.post("/tables", place.creation(table))
    table.append(1, add_file("a", 1000, 10), add_file("b", 500, 5))
    removals = [
        {"remove": {"path": name, "dataChange": True, "size": size, "stats": f'{{"numRecords":{rows}}}'}}
        for name, size, rows in (("a", 1000, 10), ("b", 500, 5), *((f"ctas-{n}", 10, 5) for n in range(3)))
    ]
    replaced = table.stage(2, [*first_actions(table)[1:], *removals, add_file("c", 70, 2)], "REPLACE TABLE")
    table.commit(replaced).raise_for_status()
    newest, appended, created = history(place, table)
    for commit, files, total in ((created, 3, 30), (appended, 2, 1500), (newest, -4, -1460)):
        sizes = commit["counts"].pop("sizes")
        assert [sum(column) for column in zip(*sizes, strict=True)][1:] == [files, total]
    assert created["counts"] == counts(rows=(15, 0), files=(3, 0), bytes_=(30, 0))
    assert appended["counts"] == counts(rows=(15, 0), files=(2, 0), bytes_=(1500, 0))
    assert newest["counts"] == counts(rows=(2, 30), files=(1, 5), bytes_=(70, 1530))
    assert newest["operation"] == "REPLACE TABLE"
    assert table.load()["metadata"]["table-uuid"] == table.id


def test_reports_are_kept_per_version_and_shown(
    place: Place, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.table("t")
    for version in (1, 2):
        place.post("/delta/commit", proposal(table, version))
    nothing = {"num_files_added": 0, "num_bytes_added": 0, "num_rows_inserted": 0, "commit_version": 1}
    report(place, table, nothing)
    report(place, table, {"num_files_added": 3, "num_rows_inserted": 9, "commit_version": 2})
    again = {"num_files_added": 4, "num_files_removed": 1, "num_rows_inserted": 10, "commit_version": 2}
    report(place, table, again)
    monkeypatch.setenv("INVER_URL", place.server.url)
    monkeypatch.setenv("INVER_TOKEN", place.server.token)
    shown = Shell(place.server, capfd).good("table", "metrics", table.name, "-o", "json").json
    assert [(each["version"], each["report"]) for each in shown] == [
        (2, {"version": 2, "files_added": 4, "files_removed": 1, "rows_inserted": 10}),
        (1, {"version": 1, "files_added": 0, "bytes_added": 0, "rows_inserted": 0}),
    ]
    rows = Shell(place.server, capfd).good("table", "metrics", table.name).rows
    assert [row[0] for row in rows] == ["VERSION", "2", "1"]


COUNTS = (
    "num_files_added",
    "num_bytes_added",
    "num_clustered_bytes_added",
    "num_files_removed",
    "num_bytes_removed",
    "num_clustered_bytes_removed",
    "num_rows_inserted",
    "num_rows_removed",
    "num_rows_updated",
)
NO_COUNTS: tuple[Any, ...] = (-1, "1", 1.5, True, 2**63, [])
NO_BOUNDARIES: tuple[Any, ...] = (
    [],
    [1, 10, 20],
    [0, 10],
    [0, 10, 20, 30],
    [0, 20, 10],
    [0, 10, 10],
    [0, -1, 2],
    ["0", 1, 2],
    None,
)
NO_VALUES: tuple[Any, ...] = ([1, 0], [1, 0, 2, 3], [], [1, -1, 2], [1, 0.5, 2], "102", None)
BINS: dict[str, Any] = {
    "sorted_bin_boundaries": [0, 10, 20],
    "file_counts": [1, 0, 2],
    "total_bytes": [5, 0, 90],
}


def test_reports_that_say_nothing_right_are_refused(place: Place) -> None:
    table = place.table("t")
    place.post("/delta/commit", proposal(table, 1))
    good = {**dict.fromkeys(COUNTS, 0), "file_size_histogram": BINS, "commit_version": 1}
    report(place, table, good)
    wrong: list[dict[str, Any]] = [
        *({name: value} for name in COUNTS for value in NO_COUNTS),
        *({"commit_version": value} for value in (None, -1, 2, "1", 2**63)),
        *({"file_size_histogram": {**BINS, "sorted_bin_boundaries": value}} for value in NO_BOUNDARIES),
        *({"file_size_histogram": {**BINS, "file_counts": value}} for value in NO_VALUES),
        *({"file_size_histogram": {**BINS, "total_bytes": value}} for value in NO_VALUES),
        {"file_size_histogram": []},
    ]
    for change in wrong:
        body = {
            "table_id": table.id,
            "table_uri": table.location,
            "report": {"commit_report": {**good, **change}},
        }
        assert code(place.admin.post("/delta/metrics", json=body)) == INVALID, change
        if any("clustered" in name for name in change) or change.get("commit_version", 0) is None:
            continue  # delta/v1 has no such field, or does not need it
        named = kebab({**good, **change})
        version = named.pop("commit-version")
        if isinstance(named["file-size-histogram"], dict):
            named["file-size-histogram"]["commit-version"] = version
        body = {"table-id": table.id, "report": {"commit-report": named}}
        assert kind(place.admin.post(f"{table.url}/metrics", json=body)) == INVALID_V1, change
    catalog, schema, name = table.name.split(".")
    with place.server.client() as management:
        kept = management.get(f"/catalogs/{catalog}/schemas/{schema}/tables/{name}/metrics").json()["reports"]
    assert [each["version"] for each in kept] == [1]


# --- time limits ---


def test_a_staged_table_that_nobody_finishes_is_cleaned_up(hasty: Place) -> None:
    table = hasty.staged("left")
    done = hasty.table("kept")
    (table.folder / "part.parquet").write_bytes(b"rows")
    await_purge(table)
    answer = hasty.admin.post("/tables", json=hasty.creation(table))
    assert code(answer) == (404, "TABLE_DOES_NOT_EXIST")
    credentials = {"table_id": table.id, "operation": "READ_WRITE"}
    answer = hasty.admin.post("/temporary-table-credentials", json=credentials)
    assert code(answer) == (404, "TABLE_NOT_FOUND")
    # One that was finished in time stays.
    assert done.published == [0]
    assert hasty.get(done.url)["latest-table-version"] == 0


def test_a_dropped_table_comes_back_until_its_time_is_over(hasty: Place) -> None:
    table, other = hasty.table("back"), hasty.table("other")
    table.append(1, add_file("a"))
    with hasty.server.client() as management:
        assert hasty.send("DELETE", f"/tables/{table.name}") == {}
        management.post(f"/tables/{table.id}/undrop", json={}).raise_for_status()
    assert table.load()["latest-table-version"] == 1
    table.append(2, add_file("b"))
    hasty.send("DELETE", f"/tables/{other.name}")
    await_purge(other)  # and it was dropped later
    assert table.load()["latest-table-version"] == 2
    assert (table.folder / "_delta_log" / f"{0:020d}.json").exists()

    assert hasty.send("DELETE", f"/tables/{table.name}") == {}
    assert code(hasty.admin.get(f"/tables/{table.name}")) == (404, "TABLE_DOES_NOT_EXIST")
    assert kind(hasty.admin.get(table.url)) == (404, "NoSuchTableException")
    late = table.commit(table.stage(3, []))
    assert kind(late) == (404, "NoSuchTableException")
    assert code(hasty.admin.post("/delta/commit", json=proposal(table, 3))) == (404, "TABLE_DOES_NOT_EXIST")
    await_purge(table)
    with hasty.server.client() as management:
        assert management.post(f"/tables/{table.id}/undrop", json={}).status_code == 404


@pytest.mark.parametrize("root", CLOUDS)
def test_where_no_keys_are_made_a_place_is_told_alone(hasty: Place, root: str) -> None:
    """Clients of such storage have keys of their own."""
    location = f"{root}/{hasty.catalog}"
    external = hasty.named("theirs", table_type="EXTERNAL", data_source_format="DELTA", columns=[])
    made = hasty.post("/tables", {**external, "storage_location": location})
    assert made["storage_location"] == location
    asked = {"table_id": made["table_id"], "operation": "READ_WRITE"}
    assert hasty.post("/temporary-table-credentials", asked) == {"url": location}
    path = {"url": location + "-new", "operation": "PATH_CREATE_TABLE"}
    assert hasty.post("/temporary-path-credentials", path) == {"url": location + "-new"}
    url = f"/delta/v1/catalogs/{hasty.catalog}/schemas/s/tables/theirs/credentials?operation=READ"
    [credential] = hasty.get(url)["storage-credentials"]
    assert (credential["prefix"], credential["operation"], credential["config"]) == (location, "READ", {})
    answer = hasty.admin.post("/temporary-table-credentials", json=asked)
    assert answer.headers["cache-control"] == "no-store"


def test_the_files_of_an_external_table_outlive_it(hasty: Place) -> None:
    folder = hasty.server.home.with_name("external") / hasty.catalog
    folder.mkdir(parents=True)
    (folder / "part.parquet").write_bytes(b"rows")
    external = hasty.named("theirs", table_type="EXTERNAL", data_source_format="DELTA", columns=[])
    hasty.post("/tables", {**external, "storage_location": f"file://{folder}"})
    managed = hasty.table("ours")
    hasty.send("DELETE", f"/tables/{hasty.schema}.theirs")
    hasty.send("DELETE", f"/tables/{managed.name}")
    await_purge(managed)  # and it was dropped later
    assert (folder / "part.parquet").read_bytes() == b"rows"


# --- publishing ---


def test_many_tables_are_published_side_by_side_each_in_order(place: Place) -> None:
    tables = [place.table(f"t{number}") for number in range(24)]
    for version in (1, 2, 3):
        for table in tables:
            table.append(version)
    eventually(lambda: all(table.published == [0, 1, 2, 3] for table in tables))
    eventually(lambda: not any(table.load()["commits"] for table in tables))


def test_a_table_that_cannot_be_published_does_not_hold_up_others(place: Place) -> None:
    broken, other = place.table("broken"), place.table("other")
    (broken.folder / "_delta_log" / f"{1:020d}.json").write_text('{"commitInfo":{}}\n')
    broken.append(1)
    other.append(1)
    eventually(lambda: other.published == [0, 1])
    eventually(lambda: not other.load()["commits"])
    assert [each["version"] for each in broken.load()["commits"]] == [1]


def test_what_a_writer_says_it_has_published_is_looked_at_soon(place: Place) -> None:
    table = place.table("t")
    staged = table.stage(1, [add_file("a")])
    table.commit(staged).raise_for_status()
    log = table.folder / "_delta_log"
    (log / f"{1:020d}.json").write_bytes((log / "_staged_commits" / staged["file-name"]).read_bytes())
    told = {"action": "set-latest-backfilled-version", "latest-published-version": 1}
    table.commit(table.stage(2, []), told).raise_for_status()
    eventually(lambda: [each["version"] for each in table.load()["commits"]] in ([2], []))


def test_what_is_seen_to_be_published_is_noted_with_the_next_commit(patient: Place) -> None:
    table = patient.table("t")
    log = table.folder / "_delta_log"
    files: dict[int, bytes] = {}

    def commit(version: int, published: int) -> list[int]:
        """The versions that its answer tells as not published."""
        staged = table.stage(version, [add_file(f"file-{version}")])
        files[version] = (log / "_staged_commits" / staged["file-name"]).read_bytes()
        told = {"action": "set-latest-backfilled-version", "latest-published-version": published}
        answer = table.commit(staged, told).raise_for_status().json()
        assert answer["latest-table-version"] == version
        return [each["version"] for each in answer["commits"]]

    def publish(version: int, data: bytes) -> bool:
        """Whether the server can see it without a wait."""
        path = log / f"{version:020d}.json"
        with path.open("xb") as file:
            file.write(data)
        return read_cached(os.fsencode(path)) == data

    def waiting() -> list[int]:
        return [each["version"] for each in table.load()["commits"]]

    commit(1, 0)
    publish(1, files[1])
    commit(2, 1)
    eventually(lambda: waiting() == [2])
    seen = publish(2, files[2])
    assert commit(3, 2) == [3] or not seen
    eventually(lambda: waiting() == [3])
    # It is said, and not done: so the server does it.
    assert commit(4, 3)[0] == 4
    eventually(lambda: table.published == [0, 1, 2, 3])
    eventually(lambda: waiting() == [4])
    # It is another commit than the one that was ratified.
    publish(4, files[1])
    assert commit(5, 4) == [5, 4]
    assert commit(6, 5) == [6, 5, 4]
    assert waiting() == [6, 5, 4]


def test_a_range_of_commits_is_told_whole(patient: Place) -> None:
    """Of commits that nobody publishes, every one is told once, whatever the way of asking."""
    table = patient.table("t")
    made = {}
    for version in range(1, 8):
        body = proposal(table, version)
        patient.post("/delta/commit", body)
        made[version] = body["commit_info"]
    asked = {"table_id": table.id, "table_uri": table.location}
    ranges: list[tuple[dict[str, Any], range]] = [
        ({}, range(1, 8)),
        ({"start_version": 0}, range(1, 8)),
        ({"start_version": 3}, range(3, 8)),
        ({"end_version": 2}, range(1, 3)),
        ({"start_version": 2, "end_version": 4}, range(2, 5)),
        ({"start_version": 7, "end_version": 7}, range(7, 8)),
        ({"start_version": 6, "end_version": 2**63 - 1}, range(6, 8)),
        ({"start_version": 8}, range(0)),
        ({"end_version": 0}, range(0)),
    ]
    for limits, expected in ranges:
        body = {**asked, **limits}
        for told in (
            patient.send("GET", "/delta/commits", body),
            patient.send("GET", "/delta/preview/commits", body),
            patient.admin.get("/delta/commits", params=body).json(),
            patient.admin.get("/delta/preview/commits", params=body).json(),
        ):
            assert set(told) == {"commits", "latest_table_version"}
            assert told["latest_table_version"] == 7
            found = sorted(told["commits"], key=lambda commit: commit["version"])
            assert found == [made[version] for version in expected], limits


# --- helpers ---


def roots(*places: str) -> list[str]:
    return [word for place in places for word in ("--external-root", place)]


def belied(table: DeltaTable, version: int, field: str) -> dict[str, Any]:
    """A commit of which the request says something else than its file, or names none that is there."""
    body = proposal(table, version)
    info = body["commit_info"]
    info[field] = f"{version:020d}.nowhere.json" if field == "file_name" else info[field] + 1
    return body


def update(table: DeltaTable, commit: dict[str, Any]) -> dict[str, Any]:
    return {
        "requirements": [{"type": "assert-table-uuid", "uuid": table.id}],
        "updates": [{"action": "add-commit", "commit": commit}],
    }


def counts(rows: tuple[int, int], files: tuple[int, int], bytes_: tuple[int, int]) -> dict[str, int]:
    return {
        f"{what}_{how}": number
        for what, numbers in (("rows", rows), ("files", files), ("bytes", bytes_))
        for how, number in zip(("added", "removed"), numbers, strict=True)
    }


def report(place: Place, table: DeltaTable, given: dict[str, Any]) -> None:
    body = {"table_id": table.id, "table_uri": table.location, "report": {"commit_report": given}}
    assert place.post("/delta/metrics", body) == {}


def kebab(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    return {name.replace("_", "-"): kebab(value) for name, value in given.items()}


def line(action: Any) -> bytes:
    return httpx.Request("POST", "http://x", json=action).content + b"\n"
