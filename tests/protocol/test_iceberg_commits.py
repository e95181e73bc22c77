"""Iceberg REST through real HTTP: commits, transactions, keys, and what happens when writers meet."""

from __future__ import annotations

import gzip
import json
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.iceberg import SCHEMA, Lake, Table, append, error, first_commit, kind
from tests.fixtures.waiting import eventually

CONFLICT = (409, "CommitFailedException")


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.table("t")


def keyed(key: str | None = None) -> dict[str, str]:
    return {"Idempotency-Key": key or str(uuid.uuid4())}


def local(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def staged(lake: Lake, name: str) -> dict[str, Any]:
    body = {"name": name, "schema": SCHEMA, "stage-create": True}
    found: dict[str, Any] = lake.post("/namespaces/ns/tables", body)["metadata"]
    return found


def change(name: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"identifier": {"namespace": ["ns"], "name": name}, **body}


def transact(lake: Lake, *changes: dict[str, Any], **options: Any) -> httpx.Response:
    return lake.admin.post("/transactions/commit", json={"table-changes": list(changes)}, **options)


# --- one table ---


def test_a_commit_writes_its_file_first(table: Table) -> None:
    files = table.files()
    answer = table.commit(table.append())
    told = answer.json()
    place = told["metadata-location"]
    assert place.rpartition("/")[2].startswith("00001-")
    assert json.loads(local(place).read_bytes()) == told["metadata"]
    assert len(table.files()) == len(files) + 1
    metadata = told["metadata"]
    assert metadata["metadata-log"][0]["metadata-file"].endswith(files[0])
    assert metadata["current-snapshot-id"] == metadata["refs"]["main"]["snapshot-id"]
    assert table.load()["metadata"] == metadata


def test_who_comes_late_loses_and_leaves_no_file(table: Table) -> None:
    seen = table.metadata
    first, second = append(seen), append(seen)
    assert table.commit(first).status_code == 200
    files = table.files()
    told = error(table.commit(second))
    assert told[:2] == CONFLICT
    assert told[2].startswith("Requirement failed: branch main was created concurrently")
    assert table.files() == files
    # Its requirements hold for another branch, but its number is one of the past.
    seen = table.metadata
    stale = append(seen, "dev")
    stale["updates"][0]["snapshot"]["parent-snapshot-id"] = seen["current-snapshot-id"]
    assert table.commit(append(seen)).status_code == 200
    files = table.files()
    assert error(table.commit(stale))[2].startswith("Validation failed, please retry: Cannot add snapshot")
    assert table.files() == files


def test_the_same_commit_again_is_a_success_without_a_key(table: Table) -> None:
    body = table.append()
    first = table.commit(body)
    assert table.commit(body).json() == first.json()
    table.commit(table.append())
    later = table.commit(body)
    assert later.status_code == 200, "the branch has moved on from there"
    assert len(later.json()["metadata"]["snapshots"]) == 2
    other = json.loads(json.dumps(body))
    other["updates"][0]["snapshot"]["manifest-list"] += "x"
    assert table.commit(other).status_code in (400, 409), "another snapshot under the same number"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"requirements": [{"type": "assert-weather"}], "updates": []}, 400),
        ({"requirements": [], "updates": [{"action": "make-coffee"}]}, 400),
        ({"requirements": [], "updates": [{"action": "set-default-spec", "spec-id": 77}]}, 400),
        ({"requirements": [], "updates": [{"action": "set-current-schema", "schema-id": -1}]}, 400),
        ({"requirements": [{"type": "assert-view-uuid", "uuid": "x"}], "updates": []}, 400),
        (
            {"requirements": [{"type": "assert-current-schema-id", "current-schema-id": 9}], "updates": []},
            409,
        ),
        ({"requirements": [{"type": "assert-table-uuid", "uuid": str(uuid.uuid4())}], "updates": []}, 409),
        ({"updates": [{"action": "set-location", "location": "/etc"}]}, 400),
        ({"updates": [{"action": "set-location", "location": "s3://b/../c"}]}, 400),
        ({"updates": [{"action": "set-properties", "updates": {"write.metadata.path": "/etc/x"}}]}, 400),
        ({"updates": [{"action": "set-properties", "updates": {"write.data.path": "/etc/x"}}]}, 400),
        ({"updates": "all"}, 400),
        ({}, 400),
        ([], 400),
    ],
)
def test_bad_commits_change_nothing(table: Table, body: Any, status: int) -> None:
    before, files = table.load(), table.files()
    answer = table.lake.admin.post(table.url, json=body)
    assert error(answer)[0] == status, answer.text
    assert (table.load(), table.files()) == (before, files)


def test_a_snapshot_may_not_point_into_other_tables(lake: Lake, table: Table) -> None:
    other = lake.table("other")
    body = table.append()
    body["updates"][0]["snapshot"]["manifest-list"] = other.metadata["location"] + "/metadata/snap-1.avro"
    assert kind(table.commit(body)) == (400, "BadRequestException")


def test_schema_and_properties_are_kept_in_step(lake: Lake, table: Table) -> None:
    field = {"id": 3, "name": "age", "required": False, "type": "int"}
    schema = {**SCHEMA, "schema-id": 1, "fields": [*SCHEMA["fields"], field]}
    updates = [
        {"action": "add-schema", "schema": schema, "last-column-id": 3},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "set-properties", "updates": {"comment": "new", "a": "1"}},
    ]
    assert table.commit({"requirements": [], "updates": updates}).status_code == 200
    shown = lake.management("GET", f"/catalogs/{lake.catalog}/schemas/ns/tables/t")
    assert [column["name"] for column in shown["columns"]] == ["id", "name", "age"]
    assert (shown["comment"], shown["properties"]["a"]) == ("new", "1")
    removal = {"action": "remove-properties", "removals": ["comment", "a"]}
    assert table.commit({"requirements": [], "updates": [removal]}).status_code == 200
    shown = lake.management("GET", f"/catalogs/{lake.catalog}/schemas/ns/tables/t")
    assert (shown["comment"], "a" in shown["properties"]) == (None, False)


def test_a_table_moves(lake: Lake, table: Table) -> None:
    place = f"file://{lake.server.home.with_name('external')}/{uuid.uuid4()}"
    move = {"requirements": [], "updates": [{"action": "set-location", "location": place}]}
    told = table.commit(move).json()
    assert told["metadata"]["location"] == place
    assert told["metadata-location"].startswith(place + "/metadata/00001-")
    shown = lake.management("GET", f"/catalogs/{lake.catalog}/schemas/ns/tables/t")
    assert (shown["location"], shown["kind"]) == (place, "EXTERNAL")
    # Nobody else may come there, and the table may not go where others are.
    taken = lake.admin.post("/namespaces/ns/tables", json={"name": "x", "schema": SCHEMA, "location": place})
    assert taken.status_code == 409
    other = lake.table("other", location=place + "2")
    back = {"requirements": [], "updates": [{"action": "set-location", "location": place + "2/in"}]}
    assert kind(table.commit(back)) == (409, "AlreadyExistsException")
    assert other.metadata["location"] == place + "2"
    assert table.commit(table.append()).status_code == 200


def test_compressed_metadata(table: Table) -> None:
    table.commit(table.set(**{"write.metadata.compression-codec": "gzip"}))
    told = table.load()
    place = told["metadata-location"]
    assert place.endswith(".gz.metadata.json")
    assert json.loads(gzip.decompress(local(place).read_bytes())) == told["metadata"]
    bad = table.commit(table.set(**{"write.metadata.compression-codec": "rar"}))
    assert kind(bad) == (400, "IllegalArgumentException")


def test_metadata_in_a_folder_of_the_table(table: Table) -> None:
    folder = table.metadata["location"] + "/meta data"
    told = table.commit(table.set(**{"write.metadata.path": folder})).json()
    assert told["metadata-location"].startswith(folder + "/00001-")
    assert local(told["metadata-location"]).exists()


def test_old_metadata_files_are_removed_where_the_table_says_so(table: Table) -> None:
    table.commit(
        table.set(
            **{
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "2",
            }
        )
    )
    for number in range(4):
        table.commit(table.set(a=str(number)))
    told = table.load()
    wanted = {
        told["metadata-location"],
        *(each["metadata-file"] for each in told["metadata"]["metadata-log"]),
    }
    assert len(wanted) == 3
    names = {each.rpartition("/")[2] for each in wanted}
    eventually(lambda: set(table.files()) == names, table.files)


def test_long_histories_arrive_whole(table: Table) -> None:
    """A document too large for one piece."""
    summary = {"operation": "append", "note": "x" * 4_000_000}
    for _ in range(5):
        body = table.append(table.load(snapshots="refs")["metadata"])
        body["updates"][0]["snapshot"]["summary"] = summary
        assert table.commit(body).status_code == 200
    told = table.load()
    assert len(told["metadata"]["snapshots"]) == 5
    assert json.loads(local(told["metadata-location"]).read_bytes()) == told["metadata"]


# --- writers that meet ---


def test_of_many_writers_one_wins_each_time(table: Table) -> None:
    seen = table.metadata
    bodies = [append(seen) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        statuses = Counter(answer.status_code for answer in pool.map(table.commit, bodies))
    assert statuses == {200: 1, 409: 7}
    metadata = table.metadata
    assert len(metadata["snapshots"]) == 1
    assert len(table.files()) == 2


def test_writers_who_try_again_all_get_in(table: Table) -> None:
    def write(_: int) -> int:
        for attempt in range(200):
            if table.commit(table.append()).status_code == 200:
                return attempt
        raise AssertionError("never got in")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(24)))
    metadata = table.metadata
    assert len(metadata["snapshots"]) == 24
    assert [each["sequence-number"] for each in metadata["snapshots"]] == list(range(1, 25))
    assert len(table.files()) == 25


def test_changes_that_do_not_exclude_each_other_all_hold(table: Table) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: table.commit(table.set(**{f"p{n}": "x"})), range(24)))
    assert {answer.status_code for answer in answers} == {200}
    assert {f"p{number}" for number in range(24)} <= set(table.metadata["properties"])
    assert len(table.files()) == 25


# --- keys ---


def test_a_key_makes_a_commit_once(table: Table) -> None:
    body, key = table.append(), keyed()
    first = table.commit(body, headers=key)
    again = table.commit(body, headers=key)
    assert (again.status_code, again.json()) == (200, first.json())
    spelled = json.dumps(body, indent=3, sort_keys=True)
    assert table.lake.admin.post(table.url, content=spelled, headers=key).status_code == 200
    other = table.commit(table.append(), headers=key)
    assert kind(other) == (422, "UnprocessableEntityException")
    elsewhere = table.lake.admin.post("/namespaces", json={"namespace": ["x"]}, headers=key)
    assert kind(elsewhere) == (422, "UnprocessableEntityException")
    table.commit(table.append())
    newer = table.commit(body, headers=key).json()
    assert len(newer["metadata"]["snapshots"]) == 2, "the answer shows the table as it is now"


def test_a_refusal_under_a_key_stays_one(table: Table) -> None:
    """The client has deleted its files by now: the commit must never come true after all."""
    seen, key = table.metadata, keyed()
    late = append(seen)
    winner = table.commit(append(seen)).json()["metadata"]
    refusal = error(table.commit(late, headers=key))
    assert refusal[:2] == CONFLICT
    undo = {
        "requirements": [],
        "updates": [
            {"action": "remove-snapshot-ref", "ref-name": "main"},
            {"action": "remove-snapshots", "snapshot-ids": [winner["current-snapshot-id"]]},
        ],
    }
    assert table.commit(undo).status_code == 200
    assert error(table.commit(late, headers=key)) == refusal
    assert table.metadata["snapshots"] == []


def test_duplicates_in_flight_wait_for_the_first(table: Table) -> None:
    body, key = table.append(), keyed()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: table.commit(body, headers=key), range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(table.metadata["snapshots"]) == 1
    assert len(table.files()) == 2


def test_commits_that_change_nothing_have_keys_too(table: Table) -> None:
    key = keyed()
    body: dict[str, Any] = {"requirements": [], "updates": []}
    for _ in range(2):
        assert table.commit(body, headers=key).json()["metadata"] == table.metadata
    assert kind(table.commit(table.set(a="1"), headers=key)) == (422, "UnprocessableEntityException")


def test_every_other_mutation_takes_a_key(lake: Lake, table: Table) -> None:
    def twice(method: str, url: str, body: Any = None) -> list[httpx.Response]:
        key = keyed()
        return [lake.admin.request(method, url, json=body, headers=key) for _ in range(2)]

    made = twice("POST", "/namespaces/ns/tables", {"name": "k", "schema": SCHEMA})
    assert [each.status_code for each in made] == [200, 200]
    assert made[0].json() == made[1].json()
    rename = {"source": {"namespace": ["ns"], "name": "k"}, "destination": {"namespace": ["ns"], "name": "l"}}
    assert [each.status_code for each in twice("POST", "/tables/rename", rename)] == [204, 204]
    refused = twice("POST", "/tables/rename", rename)
    assert [error(each)[:2] for each in refused] == [(404, "NoSuchTableException")] * 2
    changes = {"table-changes": [change("l", append(Table(lake, ("ns",), "l").metadata))]}
    assert [each.status_code for each in twice("POST", "/transactions/commit", changes)] == [204, 204]
    gone = twice("POST", "/namespaces/ns/tables/l/unregister")
    assert [each.status_code for each in gone] == [200, 200]
    assert gone[0].json() == gone[1].json()
    register = {"name": "m", "metadata-location": gone[0].json()["metadata-location"]}
    assert [each.status_code for each in twice("POST", "/namespaces/ns/register", register)] == [200, 200]
    assert [each.status_code for each in twice("DELETE", "/namespaces/ns/tables/m")] == [204, 204]
    assert kind(lake.admin.delete("/namespaces/ns/tables/m")) == (404, "NoSuchTableException")


def test_a_commit_that_happened_is_not_denied_when_its_table_is_gone(table: Table) -> None:
    body, key = table.append(), keyed()
    assert table.commit(body, headers=key).status_code == 200
    table.lake.admin.delete(table.url)
    assert kind(table.commit(body, headers=key)) == (500, "CommitStateUnknownException")


@pytest.mark.parametrize("value", ["x", "0" * 36, "urn:uuid:017f22e2-79b0-7cc3-98c4-dc0c0c07398f"])
def test_keys_are_uuids(table: Table, value: str) -> None:
    assert kind(table.commit(table.set(a="1"), headers=keyed(value))) == (400, "BadRequestException")
    assert "a" not in table.metadata["properties"]


def test_one_key_at_a_time(table: Table) -> None:
    headers = [("Idempotency-Key", str(uuid.uuid4())), ("Idempotency-Key", str(uuid.uuid4()))]
    answer = table.lake.admin.post(table.url, json=table.set(a="1"), headers=headers)
    assert kind(answer) == (400, "BadRequestException")


# --- several tables ---


def test_all_tables_or_none(lake: Lake) -> None:
    tables = [lake.table(f"t{number}") for number in range(3)]
    seen = [each.metadata for each in tables]
    changes = [change(f"t{number}", append(metadata)) for number, metadata in enumerate(seen)]
    assert transact(lake, *changes).status_code == 204
    assert [len(each.metadata["snapshots"]) for each in tables] == [1, 1, 1]
    files = [each.files() for each in tables]
    mixed = [
        change("t0", tables[0].append()),
        change("t1", append(seen[1])),
        change("t2", tables[2].append()),
    ]
    assert kind(transact(lake, *mixed)) == CONFLICT
    assert [len(each.metadata["snapshots"]) for each in tables] == [1, 1, 1]
    assert [each.files() for each in tables] == files
    missing = transact(lake, mixed[0], change("nowhere", tables[0].set(a="1")))
    assert error(missing) == (404, "NoSuchTableException", "Table does not exist: ns.nowhere")
    assert [each.files() for each in tables] == files


def test_it_is_one_transaction_of_the_ledger(lake: Lake) -> None:
    tables = [lake.table(f"t{number}") for number in range(2)]
    changes = [change(f"t{number}", each.append()) for number, each in enumerate(tables)]
    assert transact(lake, *changes).status_code == 204
    newest = [
        lake.management("GET", f"/catalogs/{lake.catalog}/schemas/ns/tables/t{number}/commits")["commits"][0]
        for number in range(2)
    ]
    assert newest[0]["transaction"] == newest[1]["transaction"]


def test_several_changes_to_one_table(lake: Lake, table: Table) -> None:
    """In their order, each on what the one before it leaves, as one version."""
    first = table.append()
    seen = table.metadata
    number = first["updates"][1]["snapshot-id"]
    follows = {**seen, "refs": {"main": {"snapshot-id": number}}, "last-sequence-number": 1}
    changes = [change("t", first), change("t", append(follows)), change("T", table.set(a="1"))]
    assert transact(lake, *changes).status_code == 204
    metadata = table.metadata
    assert (len(metadata["snapshots"]), metadata["properties"]["a"]) == (2, "1")
    assert len(metadata["metadata-log"]) == 1
    assert len(table.files()) == 2
    # The second was made for a state that the first does not leave.
    stale = [change("t", table.append()), change("t", table.append())]
    assert kind(transact(lake, *stale)) == CONFLICT
    assert len(table.metadata["snapshots"]) == 2


def test_staged_tables_in_a_transaction(lake: Lake, table: Table) -> None:
    new = staged(lake, "new")
    snapshot = append(new)
    changes = [
        change("new", first_commit(new)),
        change("new", {"requirements": snapshot["requirements"], "updates": snapshot["updates"]}),
        change("t", table.append()),
    ]
    assert transact(lake, *changes).status_code == 204
    made = Table(lake, ("ns",), "new").metadata
    assert (made["table-uuid"], len(made["snapshots"]), made["metadata-log"]) == (new["table-uuid"], 1, [])
    assert len(table.metadata["snapshots"]) == 1
    # All of it was sent again; none of it happens again.
    assert transact(lake, *changes).status_code == 204
    assert len(table.metadata["snapshots"]) == 1
    other = staged(lake, "x")
    taken = [change("t", table.append()), change("new", first_commit(other))]
    assert error(transact(lake, *taken))[2] == "Requirement failed: table already exists"
    assert len(table.metadata["snapshots"]) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"table-changes": []},
        {"table-changes": [{"requirements": [], "updates": []}]},
        {"table-changes": [{"identifier": {"name": "t"}, "updates": []}]},
        {"table-changes": [{"identifier": {"namespace": ["ns"], "name": "t"}, "updates": [{"action": "x"}]}]},
    ],
)
def test_bad_transactions(lake: Lake, table: Table, body: Any) -> None:
    answer = lake.admin.post("/transactions/commit", json=body)
    assert kind(answer) == (400, "BadRequestException")


def test_transactions_that_cross_do_not_stand_in_each_others_way(lake: Lake) -> None:
    tables = [lake.table(f"t{number}") for number in range(4)]

    def write(number: int) -> int:
        names = [f"t{(number + step) % 4}" for step in range(3)]
        changes = [change(name, tables[0].set(**{f"p{number}": "x"})) for name in names]
        return transact(lake, *changes).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(write, range(16))) == {204}
    for number, table in enumerate(tables):
        properties = table.metadata["properties"]
        expected = {f"p{n}" for n in range(16) if number in {(n + step) % 4 for step in range(3)}}
        assert {name for name in properties if name.startswith("p")} == expected
