"""Spark with Iceberg's own runtime, on the catalog and on Iceberg's reference."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fixtures.clients import Client
from tests.fixtures.iceberg_clients import running_iceberg_spark, spark_catalog
from tests.fixtures.lines import Failed
from tests.fixtures.spark import Spark

# The first test also starts the session.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

MERGE_ON_READ = (
    "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read', "
    "'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read')"
)
EACH = 6

_numbers = count(1)


@pytest.fixture(scope="module")
def session(iceberg_spark: Spark, iceberg_catalog: dict[str, str]) -> Iterator[Spark]:
    with iceberg_spark.session(spark_catalog(iceberg_catalog)) as session:
        yield session


@pytest.fixture(scope="module")
def other_spark(spark: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """A Java machine of its own, which shares nothing with the first but the catalog."""
    with running_iceberg_spark(spark, tmp_path_factory.mktemp("other")) as running:
        yield running


@pytest.fixture
def schema(session: Spark) -> str:
    name = f"lake.s{next(_numbers)}"
    session.sql(f"CREATE NAMESPACE {name}")
    return name


@pytest.fixture
def table(session: Spark, schema: str) -> str:
    """An empty table."""
    session.sql(f"CREATE TABLE {schema}.t (id BIGINT, name STRING)")
    return f"{schema}.t"


def one(session: Spark, statement: str) -> Any:
    [[value]] = session.values(statement)
    return value


def views(session: Spark, schema: str) -> list[str]:
    """Without the session's own, which are listed everywhere."""
    return [name for _, name, temporary in session.values(f"SHOW VIEWS IN {schema}") if not temporary]


def call(session: Spark, procedure: str, **arguments: Any) -> Any:
    given = ", ".join(f"{name} => {value}" for name, value in arguments.items())
    return session.sql(f"CALL lake.system.{procedure}({given})")


# --- definitions ---


def test_namespaces(session, schema):
    with pytest.raises(Failed, match="SCHEMA_ALREADY_EXISTS"):
        session.sql(f"CREATE NAMESPACE {schema}")
    session.sql(f"CREATE NAMESPACE {schema}.inner COMMENT 'deep' WITH PROPERTIES ('team' = 'blue')")
    assert session.values(f"SHOW NAMESPACES IN {schema}") == [(f"{schema.partition('.')[2]}.inner",)]
    session.sql(f"CREATE TABLE {schema}.inner.t (id INT)")
    session.sql(f"INSERT INTO {schema}.inner.t VALUES (1)")
    assert session.values(f"SELECT * FROM {schema}.inner.t") == [(1,)]
    described = dict(session.values(f"DESCRIBE NAMESPACE EXTENDED {schema}.inner"))
    assert described["Comment"] == "deep"
    assert "(team,blue)" in described["Properties"]
    session.sql(f"ALTER NAMESPACE {schema}.inner SET PROPERTIES ('team' = 'red')")
    described = dict(session.values(f"DESCRIBE NAMESPACE EXTENDED {schema}.inner"))
    assert "(team,red)" in described["Properties"]
    with pytest.raises(Failed, match=r"SCHEMA_NOT_EMPTY|not empty"):
        session.sql(f"DROP NAMESPACE {schema}.inner")
    session.sql(f"DROP TABLE {schema}.inner.t")
    session.sql(f"DROP NAMESPACE {schema}.inner")
    assert session.values(f"SHOW NAMESPACES IN {schema}") == []


def test_create_describe_drop(session, table, schema):
    with pytest.raises(Failed, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        session.sql(f"CREATE TABLE {table} (other INT)")
    session.sql(f"CREATE TABLE IF NOT EXISTS {table} (other INT)")
    assert [row[:2] for row in session.values(f"DESCRIBE {table}")][:2] == [
        ("id", "bigint"),
        ("name", "string"),
    ]
    assert [name for _, name, _ in session.values(f"SHOW TABLES IN {schema}")] == ["t"]
    session.sql(f"DROP TABLE {table}")
    assert session.values(f"SHOW TABLES IN {schema}") == []
    with pytest.raises(Failed, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.sql(f"SELECT * FROM {table}")
    session.sql(f"CREATE TABLE {table} (again INT)")
    assert session.values(f"SELECT * FROM {table}") == []


def test_create_and_replace_as_select(session, schema):
    name = f"{schema}.made"
    session.sql(f"CREATE TABLE {name} AS SELECT id, id * 2 AS double FROM range(5)")
    assert session.values(f"SELECT sum(id), sum(double) FROM {name}") == [(10, 20)]
    session.sql(
        f"CREATE OR REPLACE TABLE {name} PARTITIONED BY (part) AS SELECT id, id % 2 AS part FROM range(4)"
    )
    assert session.values(f"SELECT part, count(*) FROM {name} GROUP BY part ORDER BY part") == [
        (0, 2),
        (1, 2),
    ]
    session.sql(f"REPLACE TABLE {name} AS SELECT 7 AS seven")
    assert session.values(f"SELECT * FROM {name}") == [(7,)]
    assert one(session, f"SELECT count(*) FROM {name}.snapshots") == 3
    first = one(session, f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at LIMIT 1")
    assert session.values(f"SELECT count(*) FROM {name} VERSION AS OF {first}") == [(5,)]


def test_alter(session, table):
    session.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    session.sql(
        f"ALTER TABLE {table} ADD COLUMNS (price DECIMAL(10, 2) COMMENT 'in euro', place STRUCT<x: INT>)"
    )
    session.sql(f"ALTER TABLE {table} ADD COLUMN place.y INT")
    session.sql(f"ALTER TABLE {table} RENAME COLUMN name TO label")
    session.sql(f"ALTER TABLE {table} ALTER COLUMN price TYPE DECIMAL(12, 2)")
    session.sql(f"ALTER TABLE {table} ALTER COLUMN price FIRST")
    session.sql(f"INSERT INTO {table} VALUES (2.5, 2, 'b', named_struct('x', 1, 'y', 2))")
    rows = session.values(f"SELECT id, label, place.y FROM {table} ORDER BY id")
    assert rows == [(1, "a", None), (2, "b", 2)]
    session.sql(f"ALTER TABLE {table} DROP COLUMN place")
    session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('team' = 'blue', 'other' = '1')")
    session.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('other')")
    properties = dict(session.values(f"SHOW TBLPROPERTIES {table}"))
    assert (properties["team"], properties.get("other")) == ("blue", None)
    assert [name for name, *_ in session.values(f"DESCRIBE {table}")][:3] == ["price", "id", "label"]


def test_partitions_and_order(session, table):
    session.sql(f"ALTER TABLE {table} ADD PARTITION FIELD bucket(4, id)")
    session.sql(f"INSERT INTO {table} SELECT id, 'x' FROM range(20)")
    session.sql(f"ALTER TABLE {table} REPLACE PARTITION FIELD bucket(4, id) WITH truncate(2, name)")
    session.sql(f"ALTER TABLE {table} WRITE ORDERED BY name DESC, id")
    session.sql(f"INSERT INTO {table} VALUES (100, 'abc'), (101, 'xyz')")
    assert one(session, f"SELECT count(*) FROM {table} WHERE name LIKE 'ab%'") == 1
    assert one(session, f"SELECT count(DISTINCT spec_id) FROM {table}.files") == 2
    session.sql(f"ALTER TABLE {table} DROP PARTITION FIELD truncate(2, name)")
    session.sql(f"INSERT INTO {table} VALUES (102, 'q')")
    assert one(session, f"SELECT count(*) FROM {table}") == 23


def test_rename(session, table, schema):
    session.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    session.sql(f"CREATE NAMESPACE {schema}_other")
    # The new name is one within the catalog.
    session.sql(f"ALTER TABLE {table} RENAME TO {schema.partition('.')[2]}_other.moved")
    assert session.values(f"SELECT id FROM {schema}_other.moved") == [(1,)]
    # A new table of the old name shares nothing with the one that has moved away.
    session.sql(f"CREATE TABLE {table} (id BIGINT, name STRING)")
    session.sql(f"INSERT INTO {table} VALUES (2, 'b')")
    session.sql(f"DROP TABLE {table} PURGE")
    assert session.values(f"SELECT id FROM {schema}_other.moved") == [(1,)]


# --- rows ---


def test_insert_overwrite_update_delete(session, table):
    session.sql(f"INSERT INTO {table} SELECT id, 'new' FROM range(10)")
    session.sql(f"UPDATE {table} SET name = 'odd' WHERE id % 2 = 1")
    session.sql(f"DELETE FROM {table} WHERE id < 3")
    rows = dict(session.values(f"SELECT id, name FROM {table}"))
    assert rows == {id: "odd" if id % 2 else "new" for id in range(3, 10)}
    session.sql(f"INSERT OVERWRITE {table} VALUES (1, 'only')")
    assert session.values(f"SELECT * FROM {table}") == [(1, "only")]
    operations = [
        row[0] for row in session.values(f"SELECT operation FROM {table}.snapshots ORDER BY committed_at")
    ]
    assert operations == ["append", "overwrite", "overwrite", "overwrite"]


def test_merge_on_read_v3(session, schema):
    """Deletion vectors, row lineage, and reads of both."""
    name = f"{schema}.lines"
    session.sql(f"CREATE TABLE {name} (id BIGINT, name STRING) {MERGE_ON_READ}")
    session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 'new' FROM range(10)")
    ids = dict(session.values(f"SELECT id, _row_id FROM {name}"))
    assert sorted(ids.values()) == list(range(10))
    session.sql(
        f"MERGE INTO {name} t USING (SELECT 9 AS id, 'merged' AS name UNION ALL SELECT 10, 'added' "
        "UNION ALL SELECT 0, 'gone') s ON t.id = s.id WHEN MATCHED AND s.name = 'gone' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    session.sql(f"DELETE FROM {name} WHERE id = 5")
    session.sql(f"UPDATE {name} SET name = 'four' WHERE id = 4")
    rows = dict(session.values(f"SELECT id, name FROM {name}"))
    assert rows == {**dict.fromkeys((1, 2, 3, 6, 7, 8), "new"), 4: "four", 9: "merged", 10: "added"}
    formats = {row[0] for row in session.values(f"SELECT file_format FROM {name}.delete_files")}
    assert formats == {"PUFFIN"}
    # A row that was changed keeps its id; a new one gets one that nobody had.
    now = dict(session.values(f"SELECT id, _row_id FROM {name}"))
    assert {id: now[id] for id in (1, 4, 9)} == {id: ids[id] for id in (1, 4, 9)}
    assert now[10] >= 10
    changed = dict(session.values(f"SELECT id, _last_updated_sequence_number FROM {name}"))
    assert (changed[1], changed[9], changed[4]) == (1, 2, 4)


def test_upgrade_to_v3(session, table):
    session.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')")
    session.sql(f"INSERT INTO {table} VALUES (2, 'b')")
    assert session.values(f"SELECT id FROM {table} ORDER BY id") == [(1,), (2,)]
    # The first commit of a table that is new to row ids gives one to every row.
    assert sorted(row[0] for row in session.values(f"SELECT _row_id FROM {table}")) == [0, 1]


def test_a_stream_appends_each_row_once(session, table, tmp_path):
    session.stream(tmp_path, table, {"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    session.stream(tmp_path, table, {"id": 3, "name": "c"})
    assert session.values(f"SELECT id FROM {table} ORDER BY id") == [(1,), (2,), (3,)]


# --- snapshots and procedures ---


def test_branches_tags_and_time_travel(session, table):
    session.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    session.sql(f"ALTER TABLE {table} CREATE TAG begin RETAIN 7 DAYS")
    session.sql(f"ALTER TABLE {table} CREATE BRANCH dev RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS")
    session.sql(f"INSERT INTO {table}.branch_dev VALUES (2, 'b')")
    session.sql(f"INSERT INTO {table} VALUES (3, 'c')")
    assert session.values(f"SELECT id FROM {table} VERSION AS OF 'begin'") == [(1,)]
    assert session.values(f"SELECT id FROM {table} VERSION AS OF 'dev' ORDER BY id") == [(1,), (2,)]
    assert session.values(f"SELECT id FROM {table} ORDER BY id") == [(1,), (3,)]
    refs = dict(session.values(f"SELECT name, type FROM {table}.refs"))
    assert refs == {"main": "BRANCH", "dev": "BRANCH", "begin": "TAG"}
    kept = session.values(f"SELECT min_snapshots_to_keep FROM {table}.refs WHERE name = 'dev'")
    assert kept == [(2,)]
    session.sql(f"ALTER TABLE {table} DROP TAG begin")
    session.sql(f"ALTER TABLE {table} DROP BRANCH dev")
    assert session.values(f"SELECT name FROM {table}.refs") == [("main",)]


def test_write_audit_publish(session, table):
    session.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    session.sql(f"ALTER TABLE {table} CREATE BRANCH audit")
    session.sql(f"INSERT INTO {table}.branch_audit VALUES (2, 'b')")
    call(session, "fast_forward", table=f"'{table}'", branch="'main'", to="'audit'")
    assert session.values(f"SELECT id FROM {table} ORDER BY id") == [(1,), (2,)]


def test_rollback_and_cherrypick(session, table):
    session.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    session.sql(f"INSERT INTO {table} VALUES (2, 'b')")
    first, second = (
        row[0] for row in session.values(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at")
    )
    call(session, "rollback_to_snapshot", table=f"'{table}'", snapshot_id=first)
    assert session.values(f"SELECT id FROM {table}") == [(1,)]
    session.sql(f"INSERT INTO {table} VALUES (3, 'c')")
    call(session, "cherrypick_snapshot", table=f"'{table}'", snapshot_id=second)
    assert session.values(f"SELECT id FROM {table} ORDER BY id") == [(1,), (2,), (3,)]
    call(session, "set_current_snapshot", table=f"'{table}'", snapshot_id=first)
    assert session.values(f"SELECT id FROM {table}") == [(1,)]


def test_maintenance(session, table):
    for id in range(5):
        session.sql(f"INSERT INTO {table} VALUES ({id}, 'x')")
    [rewritten] = call(
        session, "rewrite_data_files", table=f"'{table}'", options="map('min-input-files', '2')"
    )
    assert (rewritten["rewritten_data_files_count"], rewritten["added_data_files_count"]) == (5, 1)
    call(session, "rewrite_manifests", table=f"'{table}'")
    [expired] = call(
        session,
        "expire_snapshots",
        table=f"'{table}'",
        older_than="TIMESTAMP '2099-01-01 00:00:00'",
        retain_last=1,
    )
    assert expired["deleted_data_files_count"] == 5
    assert one(session, f"SELECT count(*) FROM {table}.snapshots") == 1
    assert one(session, f"SELECT count(*) FROM {table}") == 5
    call(session, "compute_table_stats", table=f"'{table}'")
    assert one(session, f"SELECT count(*) FROM {table}") == 5


def test_changes_are_read(session, table):
    session.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    session.sql(f"DELETE FROM {table} WHERE id = 1")
    call(session, "create_changelog_view", table=f"'{table}'", changelog_view="'changed'")
    changes = session.values("SELECT _change_type, id FROM changed ORDER BY _change_ordinal, id")
    assert changes == [("INSERT", 1), ("INSERT", 2), ("DELETE", 1)]


def test_register(session, table, schema):
    session.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    file = one(session, f"SELECT file FROM {table}.metadata_log_entries ORDER BY timestamp DESC LIMIT 1")
    session.sql(f"DROP TABLE {table}")
    call(session, "register_table", table=f"'{schema}.back'", metadata_file=f"'{file}'")
    assert session.values(f"SELECT * FROM {schema}.back") == [(1, "a")]
    session.sql(f"INSERT INTO {schema}.back VALUES (2, 'b')")
    assert one(session, f"SELECT count(*) FROM {schema}.back") == 2


def test_drop_with_purge(session, table):
    session.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    file = Path(urlsplit(one(session, f"SELECT file_path FROM {table}.files")).path)
    assert file.exists()
    session.sql(f"DROP TABLE {table} PURGE")
    assert not file.exists()


# --- views ---


def test_views(session, table, schema):
    session.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    view = f"{schema}.v"
    session.sql(f"CREATE VIEW {view} (number COMMENT 'the id') COMMENT 'some' AS SELECT id FROM {table}")
    assert session.values(f"SELECT number FROM {view} ORDER BY 1") == [(1,), (2,)]
    with pytest.raises(Failed, match=r"VIEW_ALREADY_EXISTS|already exists"):
        session.sql(f"CREATE VIEW {view} AS SELECT 1 AS one")
    session.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT id FROM {table} WHERE id > 1")
    assert session.values(f"SELECT * FROM {view}") == [(2,)]
    session.sql(f"ALTER VIEW {view} SET TBLPROPERTIES ('team' = 'blue')")
    assert dict(session.values(f"SHOW TBLPROPERTIES {view}"))["team"] == "blue"
    assert views(session, schema) == ["v"]
    assert [row[1] for row in session.values(f"SHOW TABLES IN {schema}")] == ["t"]
    session.sql(f"ALTER VIEW {view} RENAME TO {schema.partition('.')[2]}.w")
    assert session.values(f"SELECT * FROM {schema}.w") == [(2,)]
    session.sql(f"DROP VIEW {schema}.w")
    assert views(session, schema) == []


# --- many at once ---


def test_two_sparks_lose_and_double_nothing(session, other_spark, table, iceberg_catalog):
    session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('commit.retry.num-retries' = '50')")
    with other_spark.session(spark_catalog(iceberg_catalog)) as other:
        session.start(f"INSERT INTO {table} VALUES ({{i}}, 'x')", EACH)
        other.start(f"INSERT INTO {table} VALUES (100 + {{i}}, 'y')", EACH)
        session.end()
        other.end()
    found = [row[0] for row in session.values(f"SELECT id FROM {table} ORDER BY id")]
    assert found == [first + each for first in (0, 100) for each in range(EACH)]
    assert one(session, f"SELECT count(*) FROM {table}.snapshots") == 2 * EACH
