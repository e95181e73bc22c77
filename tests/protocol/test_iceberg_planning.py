"""Iceberg REST through real HTTP: scans that the server plans."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import httpx
import pytest

from tests.fixtures.avro import data_file, optional
from tests.fixtures.iceberg import Lake, Table, error, kind
from tests.fixtures.iceberg_snapshots import DELETED, EXISTING, Writer

NO_TABLE = (404, "NoSuchTableException")
NO_PLAN = (404, "NoSuchPlanIdException")
NO_TASK = (404, "NoSuchPlanTaskException")
BAD = (400, "BadRequestException")
FIELDS = [
    {"id": 1, "name": "id", "required": True, "type": "long"},
    {"id": 2, "name": "name", "required": False, "type": "string"},
    {"id": 3, "name": "day", "required": False, "type": "date"},
    {"id": 4, "name": "price", "required": False, "type": "decimal(9, 2)"},
]
PARTITIONED: dict[str, Any] = {
    "partition-spec": {"fields": [{"source-id": 3, "transform": "day", "name": "d"}]}
}
DAY = [optional(1000, "d", {"type": "int", "logicalType": "date"})]
PAGE = 2_000


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.table("t", schema={"type": "struct", "fields": FIELDS})


@pytest.fixture
def writer(table: Table) -> Writer:
    return Writer(table)


@pytest.fixture
def by_day(lake: Lake) -> Writer:
    made = lake.table("d", schema={"type": "struct", "fields": FIELDS}, **PARTITIONED)
    return Writer(made, DAY)


def ask(table: Table, client: httpx.Client | None = None, **request: Any) -> httpx.Response:
    body = {name.replace("_", "-"): value for name, value in request.items()}
    return (client or table.lake.admin).post(f"{table.url}/plan", json=body)


def plan(table: Table, **request: Any) -> dict[str, Any]:
    answer = ask(table, **request)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    assert told["status"] == "completed"
    return told


def paths(told: dict[str, Any]) -> list[str]:
    return sorted(task["data-file"]["file-path"] for task in told["file-scan-tasks"])


def deletes(told: dict[str, Any]) -> dict[str, list[str]]:
    """By data file, the files of deletes that apply to it."""
    files = [each["file-path"] for each in told.get("delete-files", [])]
    return {
        task["data-file"]["file-path"]: sorted(files[at] for at in task.get("delete-file-references", []))
        for task in told["file-scan-tasks"]
    }


def fetch(table: Table, task: str, client: httpx.Client | None = None) -> httpx.Response:
    return (client or table.lake.admin).post(f"{table.url}/tasks", json={"plan-task": task})


def everything(table: Table, told: dict[str, Any]) -> list[dict[str, Any]]:
    """All tasks of a plan, those behind its tokens too."""
    tasks, waiting = list(told["file-scan-tasks"]), list(told.get("plan-tasks", []))
    while waiting:
        answer = fetch(table, waiting.pop())
        assert answer.status_code == 200, answer.text
        tasks += answer.json()["file-scan-tasks"]
        waiting += answer.json().get("plan-tasks", [])
    return tasks


def ids(low: int, high: int) -> dict[str, Any]:
    """Metrics of a file whose ids lie between these."""
    return {
        "value_counts": {1: 10},
        "null_value_counts": {1: 0},
        "lower_bounds": {1: struct.pack("<q", low)},
        "upper_bounds": {1: struct.pack("<q", high)},
    }


def test_a_table_without_rows(table: Table) -> None:
    told = plan(table)
    assert told["file-scan-tasks"] == []
    assert "plan-tasks" not in told
    assert told["plan-id"]


def test_the_files_of_the_newest_snapshot(writer: Writer) -> None:
    writer.commit([writer.manifest([data_file("s3://old/f")])])
    kept = data_file("s3://b/a", split_offsets=[4, 9], sort_order_id=0, column_sizes={1: 5}, **ids(3, 9))
    gone = data_file("s3://b/gone", status=DELETED)
    writer.commit([writer.manifest([kept, gone])], "overwrite")
    [task] = plan(writer.table)["file-scan-tasks"]
    assert task == {
        "data-file": {
            "spec-id": 0,
            "content": "data",
            "file-path": "s3://b/a",
            "file-format": "parquet",
            "partition": [],
            "file-size-in-bytes": 1000,
            "record-count": 10,
            "split-offsets": [4, 9],
            "sort-order-id": 0,
        },
        "residual-filter": True,
    }


def test_statistics_of_the_columns_that_are_asked_for(writer: Writer) -> None:
    file = data_file("a", column_sizes={1: 5, 2: 6}, **ids(3, 9))
    writer.commit([writer.manifest([file])])
    [task] = plan(writer.table, stats_fields=["id"])["file-scan-tasks"]
    found = task["data-file"]
    assert found["column-sizes"] == {"keys": [1], "values": [5]}
    assert found["value-counts"] == {"keys": [1], "values": [10]}
    assert found["lower-bounds"] == {"keys": [1], "values": ["0300000000000000"]}
    assert found["upper-bounds"] == {"keys": [1], "values": ["0900000000000000"]}
    answer = ask(writer.table, stats_fields=["id", "nobody"])
    assert kind(answer) == BAD
    assert "stats-fields[1]" in error(answer)[2]


def test_files_are_left_out_by_their_metrics(writer: Writer) -> None:
    writer.commit(
        [
            writer.manifest([data_file("a", **ids(0, 9)), data_file("b", **ids(10, 19))]),
            writer.manifest([data_file("c", **ids(20, 29)), data_file("unknown")]),
        ]
    )
    told = plan(writer.table, filter={"type": "gt", "term": "id", "value": 15}, select=["name"])
    assert paths(told) == ["b", "c", "unknown"]
    residuals = {str(task["residual-filter"]) for task in told["file-scan-tasks"]}
    assert residuals == {str({"type": "gt", "term": "id", "value": 15})}
    assert paths(plan(writer.table, filter=False)) == []
    assert len(paths(plan(writer.table, filter=True))) == 4
    assert len(paths(plan(writer.table, filter=None))) == 4


def test_partitions(by_day: Writer) -> None:
    files = [data_file(f"d{day}", partition={"d": day}) for day in (19000, 19001, -1, None)]
    by_day.commit([by_day.manifest(files)])
    told = plan(by_day.table)
    assert {
        task["data-file"]["file-path"]: task["data-file"]["partition"] for task in told["file-scan-tasks"]
    } == {
        "d19000": ["2022-01-08"],
        "d19001": ["2022-01-09"],
        "d-1": ["1969-12-31"],
        "dNone": [None],
    }
    on = {"type": "eq", "term": "day", "value": "2022-01-08"}
    [task] = plan(by_day.table, filter=on)["file-scan-tasks"]
    assert task["data-file"]["file-path"] == "d19000"
    after = {"type": "gt-eq", "term": "day", "value": 19001}
    [task] = plan(by_day.table, filter=after)["file-scan-tasks"]
    assert task["residual-filter"] is True
    assert paths(plan(by_day.table, filter={"type": "is-null", "term": "day"})) == ["dNone"]


def test_manifests_are_left_out_by_their_summaries(by_day: Writer) -> None:
    def summary(low: int, high: int) -> list[dict[str, Any]]:
        bounds = {"lower_bound": struct.pack("<i", low), "upper_bound": struct.pack("<i", high)}
        return [{"contains_null": False, "contains_nan": False, **bounds}]

    read = by_day.manifest([data_file("a", partition={"d": 5})], partitions=summary(5, 5))
    never = by_day.manifest([data_file("b", partition={"d": 50})], partitions=summary(50, 50))
    by_day.commit([read, never])
    # The other one cannot even be read.
    (by_day.folder / never.path.rpartition("/")[2]).write_bytes(b"nothing")
    assert paths(plan(by_day.table, filter={"type": "lt", "term": "day", "value": "1970-02-01"})) == ["a"]
    answer = ask(by_day.table)
    assert kind(answer) == BAD
    assert never.path in error(answer)[2]


# --- deletes ---


def test_position_deletes(by_day: Writer) -> None:
    first = by_day.manifest([data_file(f"d{day}-1", partition={"d": day}) for day in (1, 2)])
    by_day.commit([first])
    whole = data_file("del-day1", content=1, partition={"d": 1})
    path = {2147483546: b"d2-1"}
    single = data_file("del-d2", content=1, partition={"d": 2}, lower_bounds=path, upper_bounds=path)
    dropped = data_file("del-gone", content=1, partition={"d": 1}, status=DELETED)
    second = by_day.manifest([whole, single, dropped], content=1)
    later = by_day.manifest([data_file("d1-2", partition={"d": 1}), data_file("d2-2", partition={"d": 2})])
    by_day.commit([first, second], "delete")
    by_day.commit([first, second, later])
    told = plan(by_day.table)
    assert deletes(told) == {"d1-1": ["del-day1"], "d2-1": ["del-d2"], "d1-2": [], "d2-2": []}
    files = {each["file-path"]: each for each in told["delete-files"]}
    assert files["del-d2"]["content"] == "position-deletes"
    assert files["del-d2"]["referenced-data-file"] == "d2-1"
    assert files["del-day1"]["partition"] == ["1970-01-02"]
    # Deletes that no file refers to are not told.
    told = plan(by_day.table, filter={"type": "eq", "term": "day", "value": "1970-01-03"})
    assert [each["file-path"] for each in told["delete-files"]] == ["del-d2"]


def test_equality_deletes(writer: Writer) -> None:
    """They apply to what was there before them, not to what came with them."""
    old = writer.manifest([data_file("old", **ids(0, 9)), data_file("high", **ids(50, 59))])
    writer.commit([old])
    new = writer.manifest([data_file("new", **ids(0, 9))])
    eq = writer.manifest([data_file("eq", content=2, equality_ids=[1], **ids(5, 7))], content=1)
    writer.commit([old, new, eq], "overwrite")
    told = plan(writer.table)
    assert deletes(told) == {"old": ["eq"], "high": [], "new": []}
    [file] = told["delete-files"]
    assert (file["content"], file["equality-ids"]) == ("equality-deletes", [1])
    # Rows that are asked for cannot be among those that are deleted.
    told = plan(writer.table, filter={"type": "eq", "term": "id", "value": 1})
    assert deletes(told) == {"old": [], "new": []}


def test_deletion_vectors(lake: Lake) -> None:
    table = lake.table("v3", schema={"type": "struct", "fields": FIELDS}, properties={"format-version": "3"})
    writer = Writer(table, version=3)
    data = writer.manifest([data_file("a"), data_file("b", record_count=3)], first_row_id=0)
    writer.commit([data], first_row_id=0, added_rows=13)
    vectors = [
        data_file(
            "v.puffin",
            content=1,
            file_format="PUFFIN",
            referenced_data_file=name,
            content_offset=at,
            content_size_in_bytes=40,
        )
        for name, at in (("a", 4), ("b", 44))
    ]
    old = data_file("old-deletes", content=1, referenced_data_file="a")
    writer.commit(
        [data, writer.manifest([*vectors, old], content=1)],
        "delete",
        first_row_id=13,
        added_rows=0,
    )
    told = plan(table)
    assert deletes(told) == {"a": ["v.puffin"], "b": ["v.puffin"]}
    assert [each["content-offset"] for each in told["delete-files"]] == [4, 44]
    assert {each["file-format"] for each in told["delete-files"]} == {"puffin"}
    assert [task["data-file"]["first-row-id"] for task in told["file-scan-tasks"]] == [0, 10]
    assert {task["data-file"]["data-sequence-number"] for task in told["file-scan-tasks"]} == {1}


# --- which snapshot ---


def test_a_snapshot_by_its_id(writer: Writer) -> None:
    first = writer.commit([writer.manifest([data_file("a")])])
    second = writer.commit([writer.manifest([data_file("b")])])
    branch = writer.commit([writer.manifest([data_file("c")])], ref="other")
    assert paths(plan(writer.table, snapshot_id=first)) == ["a"]
    assert paths(plan(writer.table, snapshot_id=branch)) == ["c"]
    assert paths(plan(writer.table)) == paths(plan(writer.table, snapshot_id=second)) == ["b"]
    answer = ask(writer.table, snapshot_id=7)
    assert kind(answer) == BAD
    assert "snapshot-id" in error(answer)[2]


def test_the_schema_of_a_snapshot(writer: Writer) -> None:
    first = writer.commit([writer.manifest([data_file("a", **ids(0, 9))])])
    renamed = [{**FIELDS[0], "name": "number"}, *FIELDS[1:]]
    update = [
        {"action": "add-schema", "schema": {"type": "struct", "fields": renamed}},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    assert writer.table.commit({"requirements": [], "updates": update}).status_code == 200
    old, new = ({"type": "gt", "term": name, "value": 5} for name in ("id", "number"))
    assert paths(plan(writer.table, snapshot_id=first, use_snapshot_schema=True, filter=old)) == ["a"]
    assert paths(plan(writer.table, snapshot_id=first, filter=new)) == ["a"]
    assert kind(ask(writer.table, snapshot_id=first, filter=old)) == BAD
    assert kind(ask(writer.table, snapshot_id=first, use_snapshot_schema=True, filter=new)) == BAD


def test_what_was_appended_between_two_snapshots(writer: Writer) -> None:
    a = writer.manifest([data_file("a")])
    first = writer.commit([a])
    b = writer.manifest([data_file("b", **ids(0, 9))])
    second = writer.commit([a, b])
    rewritten = writer.manifest([data_file("ab", status=1), data_file("a", status=DELETED)])
    replaced = writer.commit([rewritten], "replace")
    # A merged manifest brings what was there before along.
    merged = writer.manifest([data_file("ab", status=EXISTING, by=replaced, sequence=3), data_file("c")])
    last = writer.commit([merged])

    def between(start: int, end: int, **more: Any) -> list[str]:
        return paths(plan(writer.table, start_snapshot_id=start, end_snapshot_id=end, **more))

    assert between(first, last) == ["b", "c"]
    assert between(first, second) == ["b"]
    assert between(second, last) == ["c"]
    assert between(last, last) == []
    assert between(first, last, filter={"type": "gt", "term": "id", "value": 50}) == ["c"]
    requests: tuple[dict[str, Any], ...] = (
        {"start_snapshot_id": last, "end_snapshot_id": first},
        {"start_snapshot_id": 7, "end_snapshot_id": last},
        {"start_snapshot_id": first, "end_snapshot_id": 7},
        {"start_snapshot_id": first},
        {"end_snapshot_id": last},
        {"start_snapshot_id": first, "end_snapshot_id": last, "snapshot_id": last},
    )
    for request in requests:
        assert kind(ask(writer.table, **request)) == BAD


def test_manifests_that_the_metadata_names_itself(lake: Lake) -> None:
    """As tables of the first format version may."""
    table = lake.table("v1", schema={"type": "struct", "fields": FIELDS}, properties={"format-version": "1"})
    writer = Writer(table, version=1)
    one = writer.manifest([data_file("a", by=5), data_file("b", by=5)])
    snapshot = {
        "snapshot-id": 5,
        "timestamp-ms": table.metadata["last-updated-ms"] + 1,
        "manifests": [one.path],
        "summary": {"operation": "append"},
    }
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5},
    ]
    assert table.commit({"requirements": [], "updates": updates}).status_code == 200
    assert paths(plan(table)) == ["a", "b"]


# --- many files ---


def test_pages(writer: Writer) -> None:
    """The first page comes at once, the others for tokens, and together they are everything, once."""
    large = [data_file(f"f{n:05}", **ids(n, n)) for n in range(2 * PAGE + 500)]
    small = [writer.manifest([data_file(f"s{n}", **ids(n, n))]) for n in range(3)]
    snapshot = writer.commit([writer.manifest(large), *small])
    writer.commit([*small, writer.manifest([data_file("later")])], "overwrite")
    told = plan(writer.table, snapshot_id=snapshot)
    assert len(told["file-scan-tasks"]) == PAGE
    assert len(told["plan-tasks"]) == 2
    found = sorted(task["data-file"]["file-path"] for task in everything(writer.table, told))
    assert found == sorted([*(f"f{n:05}" for n in range(2 * PAGE + 500)), "s0", "s1", "s2"])
    some = {"type": "gt-eq", "term": "id", "value": 3990}
    told = plan(writer.table, snapshot_id=snapshot, filter=some)
    assert told["file-scan-tasks"] == []
    found = sorted(task["data-file"]["file-path"] for task in everything(writer.table, told))
    assert found == [f"f{n:05}" for n in range(3990, 2 * PAGE + 500)]


def test_a_token_means_what_was_asked_when_it_was_given(writer: Writer) -> None:
    files = [data_file(f"f{n:05}") for n in range(PAGE + 1)]
    writer.commit([writer.manifest(files)])
    [token] = plan(writer.table)["plan-tasks"]
    writer.commit([writer.manifest([data_file("new")])], "overwrite")
    renamed = [{**FIELDS[0], "name": "number"}, *FIELDS[1:]]
    update = [
        {"action": "add-schema", "schema": {"type": "struct", "fields": renamed}},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    assert writer.table.commit({"requirements": [], "updates": update}).status_code == 200
    assert paths(fetch(writer.table, token).json()) == [f"f{PAGE:05}"]


def test_deletes_on_every_page(writer: Writer) -> None:
    first = writer.manifest([data_file(f"f{n:05}") for n in range(PAGE + 10)])
    writer.commit([first])
    writer.commit([first, writer.manifest([data_file("del", content=1)], content=1)], "delete")
    told = plan(writer.table)
    assert set(map(tuple, deletes(told).values())) == {("del",)}
    [token] = told["plan-tasks"]
    assert set(map(tuple, deletes(fetch(writer.table, token).json()).values())) == {("del",)}


def test_no_more_files_than_the_rows_that_are_wanted(writer: Writer) -> None:
    writer.commit([writer.manifest([data_file(f"f{n:05}") for n in range(PAGE + 10)])])
    assert "plan-tasks" not in plan(writer.table, min_rows_requested=100)
    assert "plan-tasks" in plan(writer.table, min_rows_requested=10 * PAGE + 1)
    # Nobody knows how many rows the filter leaves.
    some = {"type": "not-null", "term": "name"}
    assert "plan-tasks" in plan(writer.table, min_rows_requested=100, filter=some)


def test_plan_tasks_that_do_not_exist(writer: Writer, by_day: Writer) -> None:
    writer.commit([writer.manifest([data_file(f"f{n:05}") for n in range(PAGE + 1)])])
    told = plan(writer.table)
    [token] = told["plan-tasks"]
    changed = ("A" if token[0] != "A" else "B") + token[1:]
    for wrong in ("nonsense", token[:-4], changed, told["plan-id"], "\N{SNOWMAN}"):
        assert kind(fetch(writer.table, wrong)) == NO_TASK
    assert kind(fetch(by_day.table, token)) == NO_TASK
    first = writer.table.metadata["current-snapshot-id"]
    writer.commit([writer.manifest([data_file("a")])])
    gone = [{"action": "remove-snapshots", "snapshot-ids": [first]}]
    assert writer.table.commit({"requirements": [], "updates": gone}).status_code == 200
    assert kind(fetch(writer.table, token)) == NO_TASK
    answer = writer.table.lake.admin.post(f"{writer.table.url}/tasks", json={})
    assert kind(answer) == BAD


# --- the plan's own life ---


def test_plans_are_fetched_and_cancelled_by_their_id(writer: Writer, by_day: Writer) -> None:
    writer.commit([writer.manifest([data_file("a", **ids(0, 9)), data_file("b", **ids(20, 29))])])
    told = plan(writer.table, filter={"type": "lt", "term": "id", "value": 15})
    one = f"{writer.table.url}/plan/{told['plan-id']}"
    admin = writer.table.lake.admin
    writer.commit([writer.manifest([data_file("new")])], "overwrite")
    again = admin.get(one).json()
    assert (again["status"], paths(again)) == ("completed", ["a"])
    assert "plan-id" not in again
    for url in (f"{writer.table.url}/plan/nonsense", f"{by_day.table.url}/plan/{told['plan-id']}"):
        assert kind(admin.get(url)) == NO_PLAN
        assert kind(admin.delete(url)) == NO_PLAN
    assert kind(admin.delete(f"/namespaces/ns/tables/nobody/plan/{told['plan-id']}")) == NO_TABLE


def test_a_cancelled_plan_and_its_tasks_are_gone(writer: Writer) -> None:
    writer.commit([writer.manifest([data_file(f"f{n:05}") for n in range(2 * PAGE + 1)])])
    admin, url = writer.table.lake.admin, writer.table.url
    told, kept = plan(writer.table), plan(writer.table)
    one = f"{url}/plan/{told['plan-id']}"
    assert len(told["plan-tasks"]) == 2
    again = admin.get(one).json()
    for _ in range(2):
        assert admin.delete(one).status_code == 204
    answer = admin.get(one)
    assert (answer.status_code, answer.json()) == (200, {"status": "cancelled"})
    for task in told["plan-tasks"] + again["plan-tasks"]:
        assert kind(fetch(writer.table, task)) == NO_TASK
    # The same scan that somebody else asked for is another plan.
    assert len(everything(writer.table, kept)) == 2 * PAGE + 1
    assert admin.get(f"{url}/plan/{kept['plan-id']}").json()["status"] == "completed"


def test_a_plan_whose_request_is_too_long_for_a_url(writer: Writer) -> None:
    writer.commit([writer.manifest([data_file("a")])])
    many = {"type": "in", "term": "name", "values": [str(uuid.uuid4()) for _ in range(500)]}
    told = plan(writer.table, filter=many)
    assert paths(told) == ["a"]
    assert len(told["plan-id"]) < 1500
    one = f"{writer.table.url}/plan/{told['plan-id']}"
    assert kind(writer.table.lake.admin.get(one)) == NO_PLAN
    assert writer.table.lake.admin.delete(one).status_code == 204
    assert writer.table.lake.admin.get(one).json() == {"status": "cancelled"}


# --- refusals ---


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"filter": {"type": "eq", "term": "nobody", "value": 1}}, "filter.term"),
        ({"filter": {"type": "eq", "term": "ID", "value": 1}}, "filter.term"),
        ({"filter": {"type": "eq", "term": "id", "value": "x"}}, "filter.value"),
        ({"filter": {"type": "like", "term": "id", "value": 1}}, "filter.type"),
        ({"filter": "id = 5"}, "filter"),
        ({"filter": []}, "filter"),
    ],
)
def test_bad_filters(table: Table, request_: dict[str, Any], field: str) -> None:
    answer = ask(table, **request_)
    assert kind(answer) == BAD
    assert error(answer)[2].startswith(f"{field}:")


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"snapshot-id":"x"}', b'{"select":"id"}', b'{"min-rows-requested":-1}',
     b'{"case-sensitive":1}', b'{"snapshot-id":99999999999999999999}'],
)  # fmt: skip
def test_bad_requests(table: Table, body: bytes) -> None:
    answer = table.lake.admin.post(
        f"{table.url}/plan", content=body, headers={"Content-Type": "application/json"}
    )
    assert kind(answer) == BAD


def test_names_without_regard_to_case(writer: Writer) -> None:
    writer.commit([writer.manifest([data_file("a", **ids(0, 9)), data_file("b", **ids(20, 29))])])
    told = plan(writer.table, filter={"type": "lt", "term": "ID", "value": 15}, case_sensitive=False)
    assert paths(told) == ["a"]


def test_manifests_that_are_not_there(writer: Writer) -> None:
    lost = writer.manifest([data_file("a")])
    writer.commit([lost])
    file = writer.folder / lost.path.rpartition("/")[2]
    data = file.read_bytes()
    file.unlink()
    status, type_, message = error(ask(writer.table))
    assert (status, type_) == (404, "NotFoundException")
    assert message == f"Failed to open input stream for file: {lost.path}"
    file.write_bytes(data[: len(data) // 2])
    assert kind(ask(writer.table)) == BAD


def test_manifests_of_others_are_not_read(writer: Writer, by_day: Writer, lake: Lake) -> None:
    """What a manifest list names is what a client wrote there."""
    secret = by_day.manifest([data_file("secret", partition={"d": 1})])
    by_day.commit([secret])
    writer.commit([secret])
    assert kind(ask(writer.table)) == (406, "UnsupportedOperationException")
    outside = writer.manifest([data_file("a")])
    for place in ("/etc/passwd", "s3://bucket/m.avro", f"{by_day.location}/../x", "https://host/m.avro"):
        outside.line["manifest_path"] = place
        writer.commit([outside])
        answer = ask(writer.table)
        assert answer.status_code in (400, 406)
        assert "secret" not in answer.text


def test_who_may_plan(writer: Writer) -> None:
    writer.commit([writer.manifest([data_file(f"f{n:05}") for n in range(PAGE + 1)])])
    told = plan(writer.table)
    lake, url = writer.table.lake, writer.table.url
    reader, stranger, nobody = lake.visitor("SELECT"), lake.visitor(), lake.person()
    assert ask(writer.table, reader).status_code == 200
    assert fetch(writer.table, told["plan-tasks"][0], reader).status_code == 200
    for client in (stranger, nobody):
        for answer in (
            ask(writer.table, client),
            fetch(writer.table, told["plan-tasks"][0], client),
            client.get(f"{url}/plan/{told['plan-id']}"),
            client.delete(f"{url}/plan/{told['plan-id']}"),
        ):
            assert answer.status_code in (403, 404)
            assert "f0" not in answer.text


def test_keys_of_requests(writer: Writer) -> None:
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    admin, url = writer.table.lake.admin, f"{writer.table.url}/plan"
    for _ in range(2):
        assert admin.post(url, json={}, headers=headers).status_code == 200
    assert kind(admin.post(url, json={}, headers={"Idempotency-Key": "x"})) == BAD


def test_other_tables_and_views(lake: Lake) -> None:
    assert kind(lake.admin.post("/namespaces/ns/tables/nobody/plan", json={})) == NO_TABLE
    lake.view("v")
    assert kind(lake.admin.post("/namespaces/ns/tables/v/plan", json={})) == NO_TABLE


# --- who plans ---


def test_clients_are_told_who_plans(lake: Lake, table: Table) -> None:
    endpoints = httpx.get(
        f"{lake.base}/config",
        params={"warehouse": lake.catalog},
        headers={"Authorization": f"Bearer {lake.server.token}"},
    ).json()["endpoints"]
    for route in ("POST {}/plan", "GET {}/plan/{{plan-id}}", "DELETE {}/plan/{{plan-id}}", "POST {}/tasks"):
        assert route.format("/v1/{prefix}/namespaces/{namespace}/tables/{table}") in endpoints
    assert "scan-planning-mode" not in table.load()["config"]
    before = lake.admin.get(table.url).headers["ETag"]
    assert table.commit(table.set(**{"scan-planning-mode": "server"})).status_code == 200
    loaded = lake.admin.get(table.url, headers={"If-None-Match": before})
    assert loaded.status_code == 200
    assert loaded.json()["config"]["scan-planning-mode"] == "server"
    assert table.commit(table.set(**{"scan-planning-mode": "whoever"})).status_code == 200
    assert "scan-planning-mode" not in table.load()["config"]


def test_a_catalog_says_who_plans(lake: Lake) -> None:
    def defaults() -> Any:
        headers = {"Authorization": f"Bearer {lake.server.token}"}
        answer = httpx.get(f"{lake.base}/config", params={"warehouse": lake.catalog}, headers=headers)
        return answer.json()["defaults"]

    assert defaults() == {}
    lake.management("PATCH", f"/catalogs/{lake.catalog}", {"properties": {"scan-planning-mode": "server"}})
    assert defaults() == {"scan-planning-mode": "server"}
