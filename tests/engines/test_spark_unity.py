"""Spark with Delta and Unity Catalog's own connector, in both dialects that they speak."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from inver.domain.locations import Location
from inver.formats.delta_commit import summarize
from tests.fixtures.clients import Client
from tests.fixtures.delta import UNITY, new_table
from tests.fixtures.duckdb import Duck
from tests.fixtures.lines import Failed
from tests.fixtures.server import InverServer
from tests.fixtures.spark import Spark, running_spark

# The first test also starts the session.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS = 6


@pytest.fixture
def session(unity_spark: Spark) -> Spark:
    return unity_spark


@pytest.fixture(scope="module")
def other(
    spark: Client,
    unity_spark: Spark,
    server: InverServer,
    dialect_confs: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Spark]:
    """A second Spark, in a Java machine of its own."""
    with running_spark(spark, server, tmp_path_factory.mktemp("other"), "lake", dialect_confs) as session:
        yield session


@pytest.fixture
def table(session: Spark, schema: str) -> str:
    """The full name of an empty table."""
    session.sql(f"CREATE TABLE {schema}.things (id BIGINT, name STRING)")
    return f"{schema}.things"


@pytest.fixture
def load(http: httpx.Client) -> Any:
    """What the catalog says of a table."""

    def load(name: str) -> Any:
        catalog, schema, table = name.split(".")
        return http.get(f"/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}").json()

    return load


def answered(server: InverServer, method: str, route: str) -> int:
    """How many requests of this kind have succeeded."""
    start = f'inver_http_requests_total{{method="{method}",route="{UNITY}{route}",status="20'
    lines = httpx.get(server.management_url + "/metrics").text.splitlines()
    return sum(int(line.split()[-1]) for line in lines if line.startswith(start))


def log(loaded: Any) -> Path:
    return Path(Location.parse(loaded["metadata"]["location"]).local_path) / "_delta_log"


def commit(loaded: Any, version: int) -> bytes:
    """A version's file, wherever it is by now."""
    published = log(loaded) / f"{version:020d}.json"
    if published.exists():
        return published.read_bytes()
    [staged] = (log(loaded) / "_staged_commits").glob(f"{version:020d}.*.json")
    return staged.read_bytes()


def test_the_dialect_is_spoken(session, table, server, dialect):
    """Without this, all others could pass in one dialect and say that they have tried both."""

    def commits() -> dict[str, int]:
        return {
            "v1": answered(server, "POST", "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"),
            "legacy": answered(server, "POST", "/delta/preview/commits"),
        }

    before = commits()
    session.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    assert {name: count - before[name] for name, count in commits().items()} == {
        "v1": int(dialect == "v1"),
        "legacy": int(dialect == "legacy"),
    }


def test_create(session, table, load):
    loaded = load(table)
    assert loaded["latest-table-version"] == 0
    assert loaded["metadata"]["table-type"] == "MANAGED"
    assert loaded["metadata"]["properties"]["delta.feature.catalogManaged"] == "supported"
    assert [field["name"] for field in loaded["metadata"]["columns"]["fields"]] == ["id", "name"]
    assert session.values(f"SELECT * FROM {table}") == []
    assert session.values(f"SHOW TABLES IN {table.rpartition('.')[0]}")[0][1] == "things"


def test_create_a_table_that_is_there(session, table):
    with pytest.raises(Failed, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        session.sql(f"CREATE TABLE {table} (other INT)")
    session.sql(f"CREATE TABLE IF NOT EXISTS {table} (other INT)")


def test_create_as_select(session, schema, load):
    session.sql(f"CREATE TABLE {schema}.made AS SELECT id, id * 2 AS double FROM range(5)")
    assert session.values(f"SELECT sum(id), sum(double) FROM {schema}.made") == [(10, 20)]
    assert load(f"{schema}.made")["latest-table-version"] == 0


def test_a_table_that_the_server_made(session, schema, server, load):
    catalog, name = schema.split(".")
    body = {
        "name": "served",
        "format": "DELTA",
        "schema": "id BIGINT NOT NULL COMMENT 'the key', day DATE, at TIMESTAMP_NTZ, tags MAP<STRING, INT>",
        "partition_by": ["day"],
        "properties": {"delta.enableChangeDataFeed": "true"},
    }
    made = server.call("POST", f"/catalogs/{catalog}/schemas/{name}/tables", json=body)
    assert made.status_code == 201, made.text
    table = f"{schema}.served"
    session.sql(
        f"INSERT INTO {table} SELECT id, DATE '2026-01-31', TIMESTAMP_NTZ '2026-01-31 12:00:00', map('a', 1) "
        "FROM range(3)"
    )
    session.sql(f"UPDATE {table} SET day = NULL WHERE id = 1")
    with pytest.raises(Failed, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
        session.sql(f"INSERT INTO {table} VALUES (NULL, NULL, NULL, NULL)")
    session.sql(f"ALTER TABLE {table} ADD COLUMN more STRING")
    assert session.values(f"SELECT count(*), count(day), count(more), max(tags['a']) FROM {table}") == [
        (3, 2, 0, 1)
    ]
    changes = f"SELECT count(*) FROM table_changes('{table}', 1) WHERE _change_type = 'insert'"
    assert session.values(changes) == [(3,)]
    assert load(table)["latest-table-version"] == 3


def test_insert_update_delete_merge(session, table, load):
    session.sql(f"INSERT INTO {table} SELECT id, 'new' FROM range(10)")
    session.sql(f"UPDATE {table} SET name = 'odd' WHERE id % 2 = 1")
    session.sql(f"DELETE FROM {table} WHERE id < 3")
    session.sql(
        f"MERGE INTO {table} t USING (SELECT 9 AS id, 'merged' AS name UNION ALL SELECT 10, 'added') s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    rows = session.values(f"SELECT id, name FROM {table} ORDER BY id")
    names = {3: "odd", 4: "new", 5: "odd", 6: "new", 7: "odd", 8: "new", 9: "merged", 10: "added"}
    assert dict(rows) == names
    assert len(rows) == len(names)
    loaded = load(table)
    assert loaded["latest-table-version"] == 4
    summaries = [summarize(commit(loaded, version)) for version in range(5)]
    operations = [summary.operation for summary in summaries]
    assert operations == ["CREATE TABLE", "WRITE", "UPDATE", "DELETE", "MERGE"]
    # Spark tells the records of what it removes, so the counts of all versions add up to the table.
    counts = [summary.counts for summary in summaries]
    assert (counts[1].rows_added, counts[3].rows_removed) == (10, 3)
    added = [each.rows_added for each in counts if each.rows_added is not None]
    removed = [each.rows_removed for each in counts if each.rows_removed is not None]
    assert len(added) == len(removed) == len(counts)
    assert sum(added) - sum(removed) == len(names)


def test_deletion_vectors_are_counted_and_read_by_others(
    session, table, load, duckdb, server, schema, tmp_path
):
    session.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id, 'x' FROM range(100)")
    session.sql(f"DELETE FROM {table} WHERE id < 7")
    session.sql(f"DELETE FROM {table} WHERE id < 10")
    loaded = load(table)
    counts = [summarize(commit(loaded, version)).counts for version in (2, 3)]
    assert b'"deletionVector":{' in commit(loaded, 3)
    assert [(each.rows_removed, each.files_removed, each.files_added) for each in counts] == [
        (7, 0, 0),
        (3, 0, 0),
    ]
    assert session.values(f"SELECT count(*), min(id) FROM {table}") == [(90, 10)]
    assert Duck(duckdb, server, schema, tmp_path)(f"SELECT count(*), min(id) FROM {table}") == [[[90, 10]]]


def test_alter(session, table, load):
    session.sql(f"ALTER TABLE {table} ADD COLUMN price DECIMAL(10, 2) COMMENT 'in euro'")
    session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('team' = 'blue', 'other' = '1')")
    session.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('other')")
    session.sql(f"COMMENT ON TABLE {table} IS 'all things'")
    metadata = load(table)["metadata"]
    assert metadata["columns"]["fields"][2]["type"] == "decimal(10,2)"
    assert metadata["properties"]["team"] == "blue"
    assert "other" not in metadata["properties"]
    assert metadata["last-commit-version"] == 4
    session.sql(f"INSERT INTO {table} VALUES (1, 'a', 2.5)")
    assert [str(value) for (value,) in session.values(f"SELECT price FROM {table}")] == ["2.50"]


def test_comments_are_set_and_cleared(session, table, http):
    def comment() -> str:
        return http.get(f"/tables/{table}").json().get("comment") or ""

    session.sql(f"COMMENT ON TABLE {table} IS 'all things'")
    assert comment() == "all things"
    session.sql(f"COMMENT ON TABLE {table} IS NULL")
    assert comment() == ""


def test_replace_keeps_the_table(session, table, load):
    before = load(table)["metadata"]
    session.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    session.sql(f"CREATE OR REPLACE TABLE {table} (number INT)")
    session.sql(f"REPLACE TABLE {table} AS SELECT 7 AS seven")
    assert session.sql(f"SELECT * FROM {table}") == [{"seven": 7}]
    after = load(table)["metadata"]
    assert (after["table-uuid"], after["location"]) == (before["table-uuid"], before["location"])
    assert [field["name"] for field in after["columns"]["fields"]] == ["seven"]
    session.sql(f"CREATE OR REPLACE TABLE {table} (id INT, day STRING) PARTITIONED BY (day)")
    assert load(table)["metadata"]["partition-columns"] == ["day"]


def test_partitions_and_clusters(session, schema, load):
    session.sql(f"CREATE TABLE {schema}.days (id INT, day STRING) PARTITIONED BY (day)")
    session.sql(f"INSERT INTO {schema}.days VALUES (1, 'monday')")
    assert load(f"{schema}.days")["metadata"]["partition-columns"] == ["day"]
    session.sql(f"CREATE TABLE {schema}.near (id INT, day STRING) CLUSTER BY (id)")
    assert load(f"{schema}.near")["metadata"]["properties"]["clusteringColumns"] == '[["id"]]'
    session.sql(f"ALTER TABLE {schema}.near CLUSTER BY (day)")
    assert load(f"{schema}.near")["metadata"]["properties"]["clusteringColumns"] == '[["day"]]'


def test_a_stream_appends_each_row_once(session, table, tmp_path, load):
    session.stream(tmp_path, table, {"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    session.stream(tmp_path, table, {"id": 3, "name": "c"})
    assert session.values(f"SELECT id FROM {table} ORDER BY id") == [(1,), (2,), (3,)]
    assert load(table)["latest-table-version"] == 2


def test_time_travel(session, table, load):
    session.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    session.sql(f"INSERT INTO {table} VALUES (2, 'b')")
    assert session.values(f"SELECT id FROM {table} VERSION AS OF 1") == [(1,)]
    history = {row["version"]: row["timestamp"] for row in session.sql(f"DESCRIBE HISTORY {table}")}
    assert sorted(history) == [0, 1, 2]
    assert session.values(f"SELECT id FROM {table} TIMESTAMP AS OF '{history[1]}'") == [(1,)]
    times = [summarize(commit(load(table), version)).timestamp or 0 for version in range(3)]
    assert times == sorted(set(times))


def test_changes_are_read(session, schema):
    name = f"{schema}.changing"
    session.sql(
        f"CREATE TABLE {name} (id BIGINT, name STRING) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    session.sql(f"INSERT INTO {name} SELECT id, 'new' FROM range(4)")
    session.sql(f"DELETE FROM {name} WHERE id = 1")
    session.sql(f"UPDATE {name} SET name = 'other' WHERE id = 2")
    session.sql(
        f"MERGE INTO {name} t USING (SELECT 3 AS id, 'merged' AS name UNION ALL SELECT 4, 'added') s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    changes = session.values(
        "SELECT _change_type, id, name, _commit_version "
        f"FROM table_changes('{name}', 1) ORDER BY _commit_version, id, _change_type DESC"
    )
    updated = [
        *(("update_preimage", 2, "new", 3), ("update_postimage", 2, "other", 3)),
        *(("update_preimage", 3, "new", 4), ("update_postimage", 3, "merged", 4)),
    ]
    assert changes == [
        *(("insert", id, "new", 1) for id in range(4)),
        ("delete", 1, "new", 2),
        *updated,
        ("insert", 4, "added", 4),
    ]
    between = f"SELECT id FROM table_changes('{name}', 2, 2)"
    assert session.values(between) == [(1,)]


def test_drop(session, table, http):
    session.sql(f"DROP TABLE {table}")
    assert session.values(f"SHOW TABLES IN {table.rpartition('.')[0]}") == []
    assert http.get(f"/tables/{table}").status_code == 404
    with pytest.raises(Failed, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.sql(f"SELECT * FROM {table}")
    session.sql(f"CREATE TABLE {table} (again INT)")
    assert session.values(f"SELECT * FROM {table}") == []


def test_schemas(session, dialect):
    name = f"lake.made_by_spark_{dialect}"
    session.sql(f"CREATE SCHEMA {name}")
    session.sql(f"CREATE SCHEMA IF NOT EXISTS {name}")
    with pytest.raises(Failed, match="SCHEMA_ALREADY_EXISTS"):
        session.sql(f"CREATE SCHEMA {name}")
    assert (name.split(".")[1],) in session.values("SHOW SCHEMAS IN lake")
    session.sql(f"DROP SCHEMA {name}")
    assert (name.split(".")[1],) not in session.values("SHOW SCHEMAS IN lake")


def test_an_external_table(session, schema, external, http):
    location = (external / schema).as_uri()
    session.sql(f"CREATE TABLE {schema}.outside (id INT) LOCATION '{location}'")
    session.sql(f"INSERT INTO {schema}.outside VALUES (1), (2)")
    assert session.values(f"SELECT sum(id) FROM {schema}.outside") == [(3,)]
    assert http.get(f"/tables/{schema}.outside").json()["table_type"] == "EXTERNAL"
    session.sql(f"DROP TABLE {schema}.outside")
    assert list((external / schema / "_delta_log").glob("*.json"))


def test_maintenance_is_left_to_the_catalog(session, table):
    with pytest.raises(Failed, match="DELTA_UNSUPPORTED_CATALOG_MANAGED_TABLE_OPERATION"):
        session.sql(f"OPTIMIZE {table}")


def test_writers_of_different_kinds_lose_and_double_nothing(
    session, other, duckdb, server, http, schema, tmp_path
):
    """Two Sparks and one DuckDB append to one table at once, DuckDB for as long as the others do."""
    table = new_table(http, f"{schema}.shared")
    duck = Duck(duckdb, server, schema, tmp_path)
    # The first statement of a session takes as long as all others, in which it would be alone. DuckDB makes
    # the folder of staged commits, which Spark does only for tables of its own.
    duck(f"INSERT INTO {table.name} VALUES (2000)")
    session.sql(f"INSERT INTO {table.name} VALUES (0)")
    other.sql(f"INSERT INTO {table.name} VALUES (1000)")
    rows = 1
    with duck.session() as third, ThreadPoolExecutor(2) as pool:
        session.start(f"INSERT INTO {table.name} VALUES (1 + {{i}})", ROUNDS)
        other.start(f"INSERT INTO {table.name} VALUES (1001 + {{i}})", ROUNDS)
        ends = [pool.submit(each.end) for each in (session, other)]
        while not all(end.done() for end in ends):
            third.start(f"INSERT INTO {table.name} VALUES ({2000 + rows})", 1)
            third.end()
            rows += 1
            version = table.load()["latest-table-version"]
            while table.load()["latest-table-version"] == version and not all(end.done() for end in ends):
                time.sleep(0.02)
        for end in ends:
            end.result()
    counts = {0: ROUNDS + 1, 1000: ROUNDS + 1, 2000: rows}
    expected = [first + i for first, count in counts.items() for i in range(count)]
    assert [id for (id,) in session.values(f"SELECT id FROM {table.name} ORDER BY id")] == expected
    [found] = duck(f"SELECT id FROM {table.name} ORDER BY id")
    assert [id for [id] in found] == expected
    loaded = table.load()
    assert loaded["latest-table-version"] == len(expected)
    # It was at once: when the last of them began, none had ended.
    writers = [writer(commit(loaded, version)) for version in range(4, len(expected) + 1)]
    begun = [writers.index(each) for each in (0, 1, 2)]
    ended = [len(writers) - writers[::-1].index(each) for each in (0, 1, 2)]
    assert max(begun) < min(ended), writers


def writer(data: bytes) -> int:
    """Who made a version: the thousands of the id in it, which DuckDB's statistics need not tell."""
    actions = [json.loads(line) for line in data.splitlines()]
    [info] = [action["commitInfo"] for action in actions if "commitInfo" in action]
    if "Spark" not in info["engineInfo"]:
        return 2
    [added] = [action["add"] for action in actions if "add" in action]
    return int(json.loads(added["stats"])["minValues"]["id"]) // 1000


def test_of_two_that_change_the_same_row_at_once_one_is_told_so(session, other, schema):
    name = f"{schema}.counter"
    session.sql(f"CREATE TABLE {name} AS SELECT 1 AS id, 0 AS n")
    merge = (
        f"MERGE INTO {name} t USING (SELECT 1 AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET n = t.n + 1"
    )
    done = 0
    for _ in range(ROUNDS):
        for each in (session, other):
            each.start(merge, 1)
        refused = []
        for each in (session, other):
            try:
                each.end()
            except Failed as failed:
                refused.append(failed.message)
        assert len(refused) < 2
        assert all("DELTA_CONCURRENT" in message for message in refused), refused
        done += 2 - len(refused)
    assert session.values(f"SELECT id, n FROM {name}") == [(1, done)]
    assert other.values(f"SELECT n FROM {name}") == [(done,)]
