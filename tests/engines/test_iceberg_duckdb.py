"""DuckDB with its own extension for Iceberg, on the catalog and on Iceberg's reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from tests.fixtures.clients import Client
from tests.fixtures.duckdb import DuckSession
from tests.fixtures.iceberg_clients import (
    is_reference,
    running_duckdb,
)
from tests.fixtures.lines import Failed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WRITERS = 3
EACH = 6

_numbers = count(1)


@pytest.fixture(scope="module")
def duck(
    duckdb_iceberg: Client, iceberg_catalog: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DuckSession]:
    with running_duckdb(duckdb_iceberg, tmp_path_factory.mktemp("duckdb"), iceberg_catalog) as duck:
        yield duck


@pytest.fixture
def schema(duck: DuckSession) -> str:
    name = f"lake.s{next(_numbers)}"
    duck(f"CREATE SCHEMA {name}")
    return name


@pytest.fixture
def table(duck: DuckSession, schema: str) -> str:
    """An empty table."""
    duck(f"CREATE TABLE {schema}.t (id BIGINT, name VARCHAR)")
    return f"{schema}.t"


def test_schemas_and_tables_are_made_listed_and_dropped(duck, schema):
    with pytest.raises(Failed, match="already exists"):
        duck(f"CREATE SCHEMA {schema}")
    duck(f"CREATE TABLE {schema}.b (id BIGINT)")
    duck(f"CREATE TABLE {schema}.a (id BIGINT)")
    listed = (
        "SELECT table_name FROM information_schema.tables "
        f"WHERE table_schema = '{schema.partition('.')[2]}' ORDER BY ALL"
    )
    assert duck(listed) == [["a"], ["b"]]
    duck(f"DROP TABLE {schema}.b")
    assert duck(listed) == [["a"]]
    with pytest.raises(Failed):
        duck(f"DROP SCHEMA {schema}")
    duck(f"DROP TABLE {schema}.a")
    duck(f"DROP SCHEMA {schema}")
    found = duck(
        "SELECT schema_name FROM information_schema.schemata "
        f"WHERE catalog_name = 'lake' AND schema_name = '{schema.partition('.')[2]}'"
    )
    assert found == []


def test_insert_update_delete_merge(duck, table):
    assert duck(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')") == [[2]]
    duck(f"INSERT INTO {table} SELECT range, 'r' FROM range(10, 15)")
    duck(f"DELETE FROM {table} WHERE id > 12 OR id = 1")
    duck(f"UPDATE {table} SET name = 'z' WHERE id = 2")
    duck(
        f"MERGE INTO {table} USING (SELECT 10 AS id, 'm' AS name UNION ALL SELECT 20, 'n') s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.name)"
    )
    expected = [[2, "z"], [10, "m"], [11, "r"], [12, "r"], [20, "n"]]
    assert duck(f"SELECT * FROM {table} ORDER BY id") == expected
    snapshots = duck(f"SELECT sequence_number FROM iceberg_snapshots({table}) ORDER BY ALL")
    assert snapshots == [[number] for number in range(1, len(snapshots) + 1)]
    assert len(snapshots) >= 5


def test_time_travel(duck, table):
    duck(f"INSERT INTO {table} VALUES (1, 'a')")
    duck(f"INSERT INTO {table} VALUES (2, 'b')")
    [[first]] = duck(f"SELECT snapshot_id FROM iceberg_snapshots({table}) WHERE sequence_number = 1")
    assert duck(f"SELECT id FROM {table} AT (VERSION => {first})") == [[1]]


def test_the_schema_evolves(duck, table):
    duck(f"INSERT INTO {table} VALUES (1, 'a')")
    duck(f"ALTER TABLE {table} ADD COLUMN price DOUBLE")
    duck(f"INSERT INTO {table} VALUES (2, 'b', 2.5)")
    assert duck(f"SELECT * FROM {table} ORDER BY id") == [[1, "a", None], [2, "b", 2.5]]


def test_partitions(duck, schema):
    duck(f"CREATE TABLE {schema}.p (id BIGINT, day DATE) PARTITIONED BY (day)")
    duck(f"INSERT INTO {schema}.p VALUES (1, DATE '2026-01-01'), (2, DATE '2026-01-02')")
    assert duck(f"SELECT id FROM {schema}.p WHERE day = DATE '2026-01-02'") == [[2]]


def test_rename(duck, table, schema):
    duck(f"INSERT INTO {table} VALUES (1, 'a')")
    duck(f"ALTER TABLE {table} RENAME TO other")
    assert duck(f"SELECT id FROM {schema}.other") == [[1]]


def test_a_transaction_is_one_commit(duck, table):
    for statement in (
        "BEGIN",
        f"INSERT INTO {table} VALUES (1, 'a')",
        f"INSERT INTO {table} VALUES (2, 'b')",
        "COMMIT",
    ):
        duck(statement)
    assert duck(f"SELECT id FROM {table} ORDER BY id") == [[1], [2]]


def test_a_transaction_on_two_tables(duck, schema):
    for name in ("a", "b"):
        duck(f"CREATE TABLE {schema}.{name} (id BIGINT)")
    for statement in (
        "BEGIN",
        f"INSERT INTO {schema}.a VALUES (1)",
        f"INSERT INTO {schema}.b VALUES (2)",
        "COMMIT",
    ):
        duck(statement)
    assert duck(f"SELECT * FROM {schema}.a UNION ALL SELECT * FROM {schema}.b ORDER BY ALL") == [[1], [2]]
    for statement in ("BEGIN", f"INSERT INTO {schema}.a VALUES (3)", "ROLLBACK"):
        duck(statement)
    assert duck(f"SELECT * FROM {schema}.a") == [[1]]


def test_concurrent_writers_lose_and_double_nothing(duck, table, duckdb_iceberg, iceberg_catalog, tmp_path):
    if is_reference(iceberg_catalog):
        pytest.skip(
            "the reference loses rows: it checks transactions before it makes them, not as it makes them"
        )
    with ExitStack() as stack:
        writers = [
            stack.enter_context(running_duckdb(duckdb_iceberg, tmp_path, iceberg_catalog))
            for _ in range(WRITERS)
        ]
        for number, writer in enumerate(writers):
            writer.start(f"INSERT INTO {table} VALUES ({100 * number} + {{i}}, 'x')", EACH)
        sent = [writer.end() for writer in writers]
    assert sum(sent) >= WRITERS * EACH
    found = [id for [id] in duck(f"SELECT id FROM {table} ORDER BY id")]
    assert found == [100 * number + each for number in range(WRITERS) for each in range(EACH)]
