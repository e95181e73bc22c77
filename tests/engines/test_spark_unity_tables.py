"""What Spark does with tables beyond plain rows: their columns, rules, partitions, history and streams.

Each table is read again through the catalog, whose words are compared with those of Spark.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fixtures.lines import Failed
from tests.fixtures.spark import Spark

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def session(unity_spark: Spark) -> Spark:
    return unity_spark


@pytest.fixture
def info(http: httpx.Client) -> Any:
    """A table in the words of Unity's own dialect."""
    return lambda name: http.get(f"/tables/{name}").raise_for_status().json()


def names(info: Any) -> list[str]:
    return [column["name"] for column in info["columns"]]


def test_columns_are_dropped_and_added_anew(session, schema, info):
    name = f"{schema}.mapped"
    session.sql(
        f"CREATE TABLE {name} (id BIGINT, price INT, `odd name` STRING) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    session.sql(f"INSERT INTO {name} VALUES (1, 10, 'a')")
    session.sql(f"ALTER TABLE {name} DROP COLUMN price")
    session.sql(f"ALTER TABLE {name} ADD COLUMN price STRING COMMENT 'in words' AFTER id")
    session.sql(f"INSERT INTO {name} VALUES (2, 'ten', 'b')")
    assert session.values(f"SELECT * FROM {name} ORDER BY id") == [(1, None, "a"), (2, "ten", "b")]
    found = info(name)
    assert [(each["name"], each["type_text"], each.get("comment")) for each in found["columns"]] == [
        ("id", "bigint", None),
        ("price", "string", "in words"),
        ("odd name", "string", None),
    ]
    with pytest.raises(Failed, match="RENAME COLUMN is not supported for Unity Catalog tables"):
        session.sql(f"ALTER TABLE {name} RENAME COLUMN price TO words")


def test_columns_of_every_type(session, schema, info):
    name = f"{schema}.typed"
    types = {
        "flag": "boolean",
        "tiny": "tinyint",
        "small": "smallint",
        "whole": "int",
        "large": "bigint",
        "real": "float",
        "wide": "double",
        "exact": "decimal(38,10)",
        "words": "string",
        "raw": "binary",
        "day": "date",
        "moment": "timestamp",
        "local": "timestamp_ntz",
        "list": "array<int>",
        "pairs": "map<string,struct<x:array<bigint>>>",
        "parts": "struct<x:int,`y z`:string>",
        "any": "variant",
    }
    columns = ", ".join(f"{column} {kind}" for column, kind in types.items())
    session.sql(
        f"CREATE TABLE {name} ({columns}, short VARCHAR(10) NOT NULL) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    nothing = ", ".join(["NULL"] * len(types))
    session.sql(f"INSERT INTO {name} VALUES ({nothing}, 'a')")
    session.sql(f"INSERT INTO {name} (large, list, parts, short) VALUES (7, array(1), ('1', 'b'), 'b')")
    found = info(name)["columns"]
    assert {each["name"]: each["type_text"] for each in found[:-1]} == types
    assert (found[-1]["name"], found[-1]["nullable"]) == ("short", False)
    rows = session.sql(f"SELECT large, list, parts, short FROM {name} ORDER BY short")
    assert rows[1] == {"large": 7, "list": [1], "parts": {"x": 1, "y z": "b"}, "short": "b"}
    with pytest.raises(Failed, match="NOT_NULL"):
        session.sql(f"INSERT INTO {name} VALUES ({nothing}, NULL)")


def test_rules_and_defaults_are_kept(session, schema, info):
    name = f"{schema}.ruled"
    session.sql(
        f"CREATE TABLE {name} (id BIGINT GENERATED ALWAYS AS IDENTITY, n INT DEFAULT 7, "
        "twice INT GENERATED ALWAYS AS (n * 2)) "
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    session.sql(f"ALTER TABLE {name} ADD CONSTRAINT positive CHECK (n > 0)")
    assert info(name)["properties"]["delta.constraints.positive"] == "n > 0"
    session.sql(f"INSERT INTO {name} (n) VALUES (1)")
    session.sql(f"INSERT INTO {name} (n) VALUES (DEFAULT)")
    session.sql(f"ALTER TABLE {name} ALTER COLUMN n SET DEFAULT 8")
    session.sql(f"INSERT INTO {name} (n) VALUES (DEFAULT)")
    rows = session.values(f"SELECT id, n, twice FROM {name} ORDER BY id")
    assert [row[1:] for row in rows] == [(1, 2), (7, 14), (8, 16)]
    assert len({row[0] for row in rows}) == 3
    with pytest.raises(Failed, match="CHECK constraint positive"):
        session.sql(f"INSERT INTO {name} (n) VALUES (-1)")
    session.sql(f"ALTER TABLE {name} DROP CONSTRAINT positive")
    assert "delta.constraints.positive" not in info(name)["properties"]
    session.sql(f"INSERT INTO {name} (n) VALUES (-1)")


def test_the_schema_grows_with_what_is_written(session, schema, info):
    name = f"{schema}.growing"
    session.sql(f"CREATE TABLE {name} AS SELECT 1 AS id")
    session.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO {name} t USING (SELECT 2 AS id, 'b' AS name) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    assert names(info(name)) == ["id", "name"]
    session.sql("SET spark.databricks.delta.schema.autoMerge.enabled = true")
    try:
        session.sql(f"INSERT INTO {name} SELECT 3 AS id, 'c' AS name, array(1) AS more")
    finally:
        session.sql("RESET spark.databricks.delta.schema.autoMerge.enabled")
    assert names(info(name)) == ["id", "name", "more"]
    rows = session.values(f"SELECT * FROM {name} ORDER BY id")
    assert rows == [(1, None, None), (2, "b", None), (3, "c", [1])]


def test_what_is_overwritten_is_gone_and_nothing_else(session, schema):
    name = f"{schema}.days"
    session.sql(f"CREATE TABLE {name} (id INT, day STRING) PARTITIONED BY (day)")

    def rows() -> Any:
        return session.values(f"SELECT * FROM {name} ORDER BY id")

    session.sql(f"INSERT INTO {name} VALUES (1, 'a/b=c %25 ü:'), (2, 'tue'), (3, NULL)")
    assert rows() == [(1, "a/b=c %25 ü:"), (2, "tue"), (3, None)]
    session.sql(f"INSERT OVERWRITE {name} PARTITION (day = 'tue') VALUES (4)")
    assert rows() == [(1, "a/b=c %25 ü:"), (3, None), (4, "tue")]
    session.sql("SET spark.sql.sources.partitionOverwriteMode = dynamic")
    try:
        session.sql(f"INSERT OVERWRITE {name} VALUES (5, NULL)")
    finally:
        session.sql("RESET spark.sql.sources.partitionOverwriteMode")
    assert rows() == [(1, "a/b=c %25 ü:"), (4, "tue"), (5, None)]
    session.sql(f"INSERT INTO {name} REPLACE WHERE id < 5 VALUES (0, 'mon')")
    assert rows() == [(0, "mon"), (5, None)]
    session.sql(f"INSERT OVERWRITE {name} VALUES (6, 'wed')")
    assert rows() == [(6, "wed")]
    session.sql(f"TRUNCATE TABLE {name}")
    assert rows() == []


def test_a_table_is_restored_with_its_columns(session, schema, info):
    name = f"{schema}.restored"
    session.sql(f"CREATE TABLE {name} AS SELECT 1 AS id")
    session.sql(f"ALTER TABLE {name} ADD COLUMN more INT")
    session.sql(f"INSERT INTO {name} VALUES (2, 3)")
    session.sql(f"RESTORE TABLE {name} TO VERSION AS OF 0")
    assert session.sql(f"SELECT * FROM {name}") == [{"id": 1}]
    assert names(info(name)) == ["id"]
    session.sql(f"RESTORE TABLE {name} TO VERSION AS OF 2")
    assert session.values(f"SELECT * FROM {name} ORDER BY id") == [(1, None), (2, 3)]
    assert names(info(name)) == ["id", "more"]
    [detail] = session.sql(f"DESCRIBE DETAIL {name}")
    assert (detail["name"], detail["numFiles"]) == (name, 2)
    shown = dict(session.values(f"SHOW TBLPROPERTIES {name}"))
    assert shown["io.unitycatalog.tableId"] == info(name)["table_id"]
    operations = [row["operation"] for row in session.sql(f"DESCRIBE HISTORY {name}")]
    assert operations[:2] == ["RESTORE", "RESTORE"]


def test_rows_keep_their_ids(session, schema):
    name = f"{schema}.tracked"
    session.sql(f"CREATE TABLE {name} (id BIGINT) TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    session.sql(f"INSERT INTO {name} SELECT id FROM range(0, 4, 1, 1)")
    session.sql(f"UPDATE {name} SET id = 100 WHERE id = 2")
    session.sql(f"INSERT INTO {name} VALUES (200)")
    rows = session.values(f"SELECT id, _metadata.row_id, _metadata.row_commit_version FROM {name} ORDER BY 2")
    assert [row[:2] for row in rows[:4]] == [(0, 0), (1, 1), (100, 2), (3, 3)]
    assert [row[2] for row in rows] == [1, 1, 2, 1, 3]
    assert rows[4][0] == 200
    assert rows[4][1] > 3


def test_a_stream_reads_what_is_new_once(session, schema, tmp_path):
    session.sql(f"CREATE TABLE {schema}.source AS SELECT 1 AS id")
    session.sql(f"CREATE TABLE {schema}.target (id INT)")

    def copied() -> list[int]:
        session.copy(tmp_path, f"{schema}.source", f"{schema}.target", maxFilesPerTrigger="1")
        return [id for (id,) in session.values(f"SELECT id FROM {schema}.target ORDER BY id")]

    assert copied() == [1]
    session.sql(f"INSERT INTO {schema}.source VALUES (2)")
    session.sql(f"INSERT INTO {schema}.source VALUES (3)")
    assert copied() == [1, 2, 3]
    assert copied() == [1, 2, 3]


def test_an_external_table_is_made_anew_where_it_was_dropped(session, schema, external, info):
    name, folder = f"{schema}.outside", external / schema / "v1.2"
    create = f"CREATE TABLE {name} (id INT, day STRING) PARTITIONED BY (day) LOCATION '{folder.as_uri()}'"
    session.sql(create)
    session.sql(f"INSERT INTO {name} VALUES (1, 'mon')")
    before = info(name)["table_id"]
    session.sql(f"DROP TABLE {name}")
    session.sql(create)
    assert info(name)["table_id"] != before
    assert session.values(f"SELECT * FROM {name}") == [(1, "mon")]
    # A path is no table, and is read as what it is.
    assert session.values(f"SELECT * FROM delta.`{folder}`") == [(1, "mon")]


@pytest.mark.parametrize("odd", ["with-dash", "with space", "ünï 日本", "a%b+c", "q?x=1&y#z", "s/l", "b``t"])
def test_tables_with_odd_names(session, schema, odd):
    session.sql(f"CREATE TABLE {schema}.`{odd}` AS SELECT 1 AS id")
    session.sql(f"INSERT INTO {schema}.`{odd}` VALUES (2)")
    assert session.values(f"SELECT sum(id) FROM {schema}.`{odd}`") == [(3,)]
    listed = [row[1] for row in session.values(f"SHOW TABLES IN {schema}")]
    assert listed == [odd.replace("``", "`")]
    session.sql(f"DROP TABLE {schema}.`{odd}`")
    assert session.values(f"SHOW TABLES IN {schema}") == []
