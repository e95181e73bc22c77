"""Iceberg tables on the endpoints of Delta Sharing: PyIceberg judges what the official client reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.clients import Client, ClientMissing, client
from tests.fixtures.iceberg_clients import catalog_of, spark_catalog
from tests.fixtures.server import InverServer
from tests.fixtures.sharing import DELTA, Guest, Provider
from tests.fixtures.spark import Spark

PARQUET: dict[str, Any] = {}
KERNEL: dict[str, Any] = {"use_delta_format": True}
FORMATS = [pytest.param(PARQUET, id="parquet"), pytest.param(KERNEL, id="delta")]
ORDERS = [("id", "long"), ("region", "string"), ("amount", "double")]
WAIT = 120

_numbers = count(1)


@pytest.fixture(scope="module")
def official() -> Client:
    try:
        return client("delta_sharing")
    except ClientMissing as missing:
        pytest.skip(str(missing))


class House:
    """A provider whose schema Iceberg's clients see as the namespace `sales`, and PyIceberg in it."""

    def __init__(self, server: InverServer, pyiceberg: Client, official: Client, folder: Path) -> None:
        self.provider = Provider(server)
        self._official = official
        self._folder = folder
        self.catalog = catalog_of(server, self.provider.catalog)
        self._session = pyiceberg.session("pyiceberg_rows_client.py", self.catalog, folder / "errors")

    def __enter__(self) -> House:
        self._lines = self._session.__enter__()
        self._lines.answer(WAIT)
        return self

    def __exit__(self, *error: Any) -> None:
        self._session.__exit__(*error)

    def ice(self, do: str, name: str, **options: Any) -> Any:
        return self._lines.ask({"do": do, "table": ["sales", name], **options}, WAIT)

    def table(self, columns: list[tuple[str, Any]], *partition: tuple[str, str], **options: Any) -> str:
        name = f"t{next(_numbers)}"
        fields = [
            {"id": at, "name": column, "type": kind, "required": column == "id"}
            for at, (column, kind) in enumerate(columns, 1)
        ]
        self.ice("create", name, fields=fields, partition=partition, **options)
        return name

    def append(self, name: str, *rows: dict[str, Any]) -> None:
        self.ice("append", name, rows=rows)

    def share(self, *names: str, **options: Any) -> Guest:
        self.shared = self.provider.share(dict.fromkeys(names, options))
        guest = self.provider.recipient(self.shared)
        (self._folder / "profile.share").write_text(json.dumps(guest.profile))
        return guest

    def name(self, table: str) -> str:
        return f"{self.shared}.sales.{table}"

    def tried(self, *steps: dict[str, Any]) -> list[dict[str, Any]]:
        """What the official client makes of each step."""
        asked = {"profile": str(self._folder / "profile.share"), "steps": list(steps)}
        found: list[dict[str, Any]] = self._official.run("delta_sharing_client.py", asked)
        return found

    def do(self, *steps: dict[str, Any]) -> list[Any]:
        answers = self.tried(*steps)
        assert not any("error" in answer for answer in answers), answers
        return [answer["value"] for answer in answers]

    def load(self, table: str, **options: Any) -> dict[str, Any]:
        return {"do": "load", "table": self.name(table), **options}

    def changes(self, table: str, start: int, **options: Any) -> dict[str, Any]:
        return {"do": "changes", "table": self.name(table), "starting_version": start, **options}


@pytest.fixture(scope="module")
def house(
    server: InverServer, pyiceberg: Client, official: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[House]:
    with House(server, pyiceberg, official, tmp_path_factory.mktemp("house")) as made:
        yield made


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def order(number: int, region: str | None = "EU") -> dict[str, Any]:
    return {"id": number, "region": region, "amount": number + 0.5}


PLACE = {
    "type": "struct",
    "fields": [
        {"id": 30, "name": "city", "type": "string", "required": False},
        {"id": 31, "name": "zip", "type": "int", "required": False},
    ],
}
TAGS = {"type": "list", "element-id": 32, "element": "string", "element-required": False}
POINTS = {
    "type": "map",
    "key-id": 33,
    "key": "string",
    "value-id": 34,
    "value": "long",
    "value-required": False,
}
ROUTE = {
    "type": "list",
    "element-id": 35,
    "element": {
        **PLACE,
        "fields": [
            {"id": 36, "name": "stop", "type": "string", "required": False},
            {"id": 37, "name": "at", "type": "date", "required": False},
        ],
    },
    "element-required": False,
}
KINDS: list[tuple[str, Any, Any]] = [
    ("id", "long", 1),
    ("flag", "boolean", True),
    ("small", "int", -7),
    ("third", "float", 0.1),
    ("share", "double", 1.0e-300),
    ("price", "decimal(9, 2)", "-12.50"),
    ("huge", "decimal(38, 10)", "1234567890123456789012345678.0123456789"),
    ("day", "date", "1969-12-31"),
    ("moment", "timestamptz", "2024-02-29T23:59:59.123456+00:00"),
    ("name", "string", "ü\u2028 %2F"),
    ("raw", "binary", "00ff10"),
    ("place", PLACE, {"city": "Inver", "zip": None}),
    ("tags", TAGS, ["a", None, ""]),
    ("points", POINTS, [["x", 1], ["y", None]]),
    ("route", ROUTE, [{"stop": "s", "at": "2024-01-01"}]),
]


@pytest.mark.parametrize("how", FORMATS)
def test_every_type_is_what_pyiceberg_reads(house: House, how: dict[str, Any]):
    table = house.table([(name, kind) for name, kind, _ in KINDS])
    house.append(table, {name: value for name, _, value in KINDS}, {"id": 2})
    house.append(table, {"id": 3, "place": {"city": "x", "zip": 3}, "tags": [], "points": [], "route": []})
    house.share(table)
    (rows,) = house.do(house.load(table, **how))
    assert by_id(rows) == by_id(house.ice("rows", table))
    assert len(rows) == 3


def test_types_that_one_format_has(house: House):
    """A timestamp without zone is a feature of Delta, and the client knows it."""
    table = house.table([("id", "long"), ("local", "timestamp")])
    house.append(table, {"id": 1, "local": "2024-02-29T23:59:59.123456"}, {"id": 2})
    house.share(table)
    chosen, delta = house.do(house.load(table), house.load(table, **KERNEL))
    assert by_id(chosen) == by_id(delta) == by_id(house.ice("rows", table))
    (answer,) = house.tried(house.load(table, use_delta_format=False))
    assert "timestampNtz" in answer["error"]
    assert "responseformat=delta" in answer["error"]


def test_columns_are_found_by_id_when_names_have_changed(house: House):
    columns = [("id", "long"), ("name", "string"), ("old", "long"), ("place", PLACE), ("route", ROUTE)]
    table = house.table(columns)
    place, route = {"city": "Inver", "zip": 1}, [{"stop": "s", "at": "2024-01-01"}, None]
    first = {"id": 1, "name": "a", "old": 7, "place": place, "route": route}
    house.append(table, first, {"id": 2, "name": "b", "old": 8})
    house.ice(
        "alter",
        table,
        changes=[
            ["rename_column", "name", "full name"],
            ["rename_column", "place.city", "town"],
            ["rename_column", "route.element.stop", "halt"],
            ["delete_column", "old"],
        ],
    )
    house.ice("alter", table, changes=[["add_column", "old", "double"]])
    house.append(table, {"id": 3, "full name": "c", "old": 0.5, "place": {"town": "x", "zip": 3}})
    house.share(table)
    chosen, delta, before = house.do(
        house.load(table), house.load(table, **KERNEL), house.load(table, version=1, **KERNEL)
    )
    assert by_id(chosen) == by_id(delta) == by_id(house.ice("rows", table))
    # What was true at a version stays what is told of it.
    assert by_id(before)[0] == first
    refused, then = house.tried(
        house.load(table, use_delta_format=False), house.load(table, version=1, use_delta_format=False)
    )
    assert "columnMapping" in refused["error"]
    assert by_id(then["value"]) == by_id(before)


def test_files_without_field_ids_are_read_by_name(house: House):
    table = house.table(ORDERS)
    house.ice("add_file", table, file="old", rows=[order(1), order(2, "US")])
    house.append(table, order(3))
    house.share(table)
    parquet, delta = house.do(house.load(table, **PARQUET), house.load(table, **KERNEL))
    assert by_id(parquet) == by_id(delta) == by_id(house.ice("rows", table))
    house.ice("alter", table, changes=[["rename_column", "region", "where"]])
    (answer,) = house.tried(house.load(table, **KERNEL))
    assert "may have no field ids" in answer["error"]


def test_partitions_hints_limits_and_time_travel(house: House):
    table = house.table(ORDERS, ("region", "identity"), ("id", "bucket[2]"))
    house.append(
        table, *(order(n, region) for n, region in [(1, "EU"), (2, "US"), (3, "a b/c=%"), (4, None)])
    )
    ((moment),) = house.do({"do": "now", "pause": 0.05})
    house.ice("delete", table, where="region = 'US'")
    house.append(table, order(5, "US"))
    guest = house.share(table)
    snapshots = house.ice("snapshots", table)
    name = house.name(table)
    hint = {"predicateHints": ["region = 'US'"]}
    equal = [
        {"op": "column", "name": "id", "valueType": "long"},
        {"op": "literal", "value": "3", "valueType": "long"},
    ]
    told = json.dumps({"op": "equal", "children": equal})
    answers = house.do(
        {"do": "version", "table": name},
        {"do": "metadata", "table": name},
        *(house.load(table, version=version, **how) for how in (PARQUET, KERNEL) for version in (1, 2, 3)),
        house.load(table, timestamp=moment),
        {"do": "count", "table": name, "limit": 2},
        house.load(table, jsonPredicateHints=told),
    )
    assert answers[:2] == [3, {"id": answers[1]["id"], "partitions": ["region"]}]
    judged = [by_id(house.ice("rows", table, snapshot=snapshot)) for snapshot in snapshots]
    assert [len(rows) for rows in judged] == [4, 3, 4]
    assert [by_id(rows) for rows in answers[2:8]] == judged + judged
    assert by_id(answers[8]) == judged[0]
    assert answers[9] == 2
    # By the bounds of manifests, one file is left.
    assert [row["id"] for row in answers[10]] == [3]
    for form in ({}, DELTA):
        files = guest.lines("POST", f"{name}/query", json=hint, headers=form)[2:]
        assert len(files) == 1


@pytest.mark.parametrize("how", FORMATS)
def test_changes_are_what_was_appended(house: House, how: dict[str, Any]):
    table = house.table(ORDERS, ("region", "identity"))
    house.append(table, order(1), order(2, "US"))
    house.append(table, order(3, None))
    house.append(table, order(4))
    house.share(table)
    every, some, last = house.do(
        house.changes(table, 0, **how),
        house.changes(table, 2, ending_version=2, **how),
        house.changes(table, 3, **how),
    )
    ids = [(row["id"], row["_commit_version"], row["_change_type"]) for row in by_id(every)]
    assert ids == [(1, 1, "insert"), (2, 1, "insert"), (3, 2, "insert"), (4, 3, "insert")]
    plain = [{key: value for key, value in row.items() if not key.startswith("_")} for row in by_id(every)]
    assert plain == by_id(house.ice("rows", table))
    assert [row["id"] for row in some] == [3]
    assert [row["id"] for row in last] == [4]
    house.ice("overwrite", table, rows=[order(9)], where="id = 4")
    refused, until, since = house.tried(
        house.changes(table, 1, **how),
        house.changes(table, 1, ending_version=3, **how),
        house.changes(table, 4, **how),
    )
    assert "did more than append rows" in refused["error"]
    assert refused["retries"] == []
    assert len(until["value"]) == 4
    assert "did more than append rows" in since["error"]


def test_changes_in_a_range_in_which_a_column_was_added(house: House):
    table = house.table(ORDERS)
    house.append(table, order(1))
    house.ice("alter", table, changes=[["add_column", "note", "string"]])
    house.append(table, {**order(2), "note": "new"})
    house.share(table)
    (rows,) = house.do(house.changes(table, 1, **PARQUET))
    assert [(row["id"], row["note"], row["_commit_version"]) for row in by_id(rows)] == [
        (1, None, 1),
        (2, "new", 3),
    ]
    (later,) = house.do(house.changes(table, 2, **KERNEL))
    assert [(row["id"], row["note"]) for row in later] == [(2, "new")]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_row_deletes_of_spark_are_deletion_vectors(house: House, iceberg_spark: Spark):
    """Files of positions for one and for many data files, and vectors in Puffin files."""
    modes = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge"))
    tables = {
        "by_file": "'format-version' = '2', 'write.delete.granularity' = 'file'",
        "by_partition": "'format-version' = '2', 'write.delete.granularity' = 'partition'",
        "vectors": "'format-version' = '3'",
    }
    with iceberg_spark.session(spark_catalog(house.catalog)) as session:
        for name, properties in tables.items():
            full = f"lake.sales.{name}"
            session.sql(
                f"CREATE TABLE {full} (id BIGINT, region STRING) USING iceberg PARTITIONED BY (region) "
                f"TBLPROPERTIES ({properties}, {modes})"
            )
            for first in (0, 100_000):
                session.sql(
                    f"INSERT INTO {full} SELECT /*+ COALESCE(1) */ id, if(id % 2 = 0, 'EU', 'US') "
                    f"FROM range({first}, {first + 70_000})"
                )
            session.sql(f"DELETE FROM {full} WHERE id % 1000 = 3")
            session.sql(f"UPDATE {full} SET id = -id WHERE id = 100004")
            session.sql(f"DELETE FROM {full} WHERE id BETWEEN 100 AND 9000")
        kinds = {row[0] for row in session.values("SELECT file_format FROM lake.sales.vectors.delete_files")}
        assert kinds == {"PUFFIN"}
        judged = {
            name: sorted(row[0] for row in session.values(f"SELECT id FROM lake.sales.{name}"))
            for name in tables
        }
    guest = house.share(*tables)
    found = house.do(*(house.load(name) for name in tables))
    for (name, ids), rows in zip(judged.items(), found, strict=True):
        assert sorted(row["id"] for row in rows) == ids, name
        assert all(row["region"] == ("EU" if row["id"] % 2 == 0 else "US") for row in rows)
        *_, protocol, told = guest.lines("GET", f"{house.name(name)}/metadata", headers=DELTA)
        assert protocol["protocol"]["deltaProtocol"]["readerFeatures"] == ["deletionVectors"]
        assert told["metaData"]["deltaMetadata"]["partitionColumns"] == ["region"]
    assert sorted(house.ice("ids", "by_partition")) == judged["by_partition"]
    refused, before = house.tried(
        house.load("vectors", use_delta_format=False),
        {"do": "count", "table": house.name("vectors"), "version": 2, "use_delta_format": False},
    )
    assert "deletionVectors" in refused["error"]
    assert before["value"] == 140_000
