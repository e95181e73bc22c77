"""DuckDB with its own extensions reads and writes catalog-managed Delta tables."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.fixtures.clients import Client
from tests.fixtures.delta import DeltaTable, new_table, write_data
from tests.fixtures.duckdb import Duck
from tests.fixtures.lines import Failed
from tests.fixtures.server import InverServer

ROUNDS = 15


@pytest.fixture
def duck(duckdb: Client, server: InverServer, schema: str, tmp_path: Path) -> Duck:
    return Duck(duckdb, server, schema, tmp_path)


@pytest.fixture
def table(http: httpx.Client, schema: str) -> DeltaTable:
    """An empty table with the one column `id`."""
    return new_table(http, f"{schema}.numbers")


def test_tables_are_listed(duck, table, schema):
    found = duck(
        "SELECT table_catalog, table_schema, table_name FROM information_schema.tables "
        f"WHERE table_schema = '{schema.split('.')[1]}'"
    )
    assert found == [[table.name.split(".")]]


def test_more_tables_than_a_page_are_listed(duck, http, schema):
    names = [f"t{number:03}" for number in range(150)]
    for name in names:
        new_table(http, f"{schema}.{name}")
    [found] = duck(
        "SELECT table_name FROM information_schema.tables "
        f"WHERE table_schema = '{schema.split('.')[1]}' ORDER BY table_name"
    )
    assert [name for [name] in found] == names


def test_a_table_that_the_server_made_is_written_and_read(duck, server, schema):
    """DuckDB itself cannot create one."""
    catalog, name = schema.split(".")
    columns = (
        "id BIGINT NOT NULL COMMENT 'the key', city STRING, price DECIMAL(10,2), day DATE, tags ARRAY<STRING>"
    )
    body = {"name": "made", "format": "DELTA", "schema": columns}
    made = server.call("POST", f"/catalogs/{catalog}/schemas/{name}/tables", json=body)
    assert made.status_code == 201, made.text
    inserted, found = duck(
        f"INSERT INTO {schema}.made "
        "VALUES (1, 'Oban', 1.5, DATE '2026-01-31', ['a', 'b']), (2, 'Ayr', 2.5, NULL, [])",
        f"SELECT id, city, price::VARCHAR, day::VARCHAR, tags FROM {schema}.made ORDER BY id",
    )
    assert inserted == [[2]]
    assert found == [[1, "Oban", "1.50", "2026-01-31", ["a", "b"]], [2, "Ayr", "2.50", None, []]]


@pytest.mark.parametrize("kind", ["timestamp_ntz", "variant", {"type": "struct", "fields": []}])
def test_types_that_it_does_not_know_leave_the_other_tables_readable(duck, http, schema, table, kind):
    """It refuses a whole schema for one of their columns, so it is not told of them."""
    fields = [{"name": "odd", "type": kind, "nullable": True, "metadata": {}}]
    odd = new_table(http, f"{schema}.odd", fields)
    duck(f"INSERT INTO {table.name} VALUES (1)")
    assert duck(f"SELECT count(*) FROM {table.name}") == [[[1]]]
    with duck.session() as session, pytest.raises(Failed):
        session(f"SELECT * FROM {odd.name}")
    catalog, name = schema.split(".")
    listed = http.get("/tables", params={"catalog_name": catalog, "schema_name": name}).json()["tables"]
    told = {each["name"]: [column["name"] for column in each["columns"]] for each in listed}
    assert told == {"numbers": ["id"], "odd": ["odd"]}, "everybody else is told of them"


def test_staged_commits_are_read(duck, deltalake, table):
    table.append(1, write_data(deltalake, table, 0, 3))
    table.append(2, write_data(deltalake, table, 3, 2))
    assert duck(f"SELECT id FROM {table.name} ORDER BY id") == [[[0], [1], [2], [3], [4]]]


def test_inserts_are_ratified_by_the_catalog(duck, table):
    answers = duck(
        f"INSERT INTO {table.name} VALUES (1), (2)",
        f"INSERT INTO {table.name} SELECT range FROM range(10, 20)",
        f"SELECT count(*), sum(id) FROM {table.name}",
    )
    assert answers == [[[2]], [[10]], [[12, 148]]]
    assert table.load()["latest-table-version"] == 2


def test_another_session_sees_what_was_inserted(duck, table):
    duck(f"INSERT INTO {table.name} VALUES (7)")
    assert duck(f"SELECT id FROM {table.name}") == [[[7]]]


def test_a_transaction_is_one_version(duck, table):
    duck(
        "BEGIN",
        f"INSERT INTO {table.name} VALUES (1)",
        f"INSERT INTO {table.name} VALUES (2)",
        "COMMIT",
    )
    assert table.load()["latest-table-version"] == 1
    assert duck(f"SELECT id FROM {table.name} ORDER BY id") == [[[1], [2]]]


def test_a_transaction_that_is_rolled_back_leaves_no_version(duck, table):
    duck("BEGIN", f"INSERT INTO {table.name} VALUES (1)", "ROLLBACK")
    assert table.load()["latest-table-version"] == 0
    assert duck(f"SELECT count(*) FROM {table.name}") == [[[0]]]


def test_who_is_not_first_is_refused(duck, table):
    """A session that has read version 0 commits after somebody else made version 1."""
    with duck.session() as session:
        assert session(f"SELECT count(*) FROM {table.name}") == [[0]]
        table.append(1)
        with pytest.raises(Failed, match="CommitVersionConflictException"):
            session(f"INSERT INTO {table.name} VALUES (2)")
    assert table.load()["latest-table-version"] == 1
    assert duck(f"SELECT count(*) FROM {table.name}") == [[[0]]]


@pytest.mark.slow
def test_two_processes_insert_at_once_and_lose_nothing(duck, table):
    with duck.session() as first, duck.session() as second:
        first.start(f"INSERT INTO {table.name} VALUES ({{i}})", ROUNDS)
        second.start(f"INSERT INTO {table.name} VALUES (1000 + {{i}})", ROUNDS)
        assert min(first.end(), second.end()) >= ROUNDS
    [found] = duck(f"SELECT id FROM {table.name} ORDER BY id")
    assert [number for [number] in found] == [*range(ROUNDS), *range(1000, 1000 + ROUNDS)]
    assert table.load()["latest-table-version"] == 2 * ROUNDS


def test_a_checkpoint_is_written_and_read(duck, table):
    duck(*(f"INSERT INTO {table.name} VALUES ({number})" for number in range(5)))
    duck(f"SELECT count(*) FROM {table.name}", f"CALL unity_catalog_checkpoint_table('{table.name}')")
    assert list((table.folder / "_delta_log").glob("*.checkpoint*"))
    assert duck(f"SELECT count(*) FROM {table.name}") == [[[5]]]


def test_a_wrong_token_is_refused(duck, table):
    with duck.session("nobody") as session, pytest.raises(Failed, match="401"):
        session(f"SELECT * FROM {table.name}")
