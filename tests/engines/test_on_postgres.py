"""The clients of managed Delta tables once more, on a server whose database is PostgreSQL.

What each client can do is tested on the embedded database; here each makes one pass through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fixtures.clients import Client
from tests.fixtures.delta import UNITY, DeltaTable, new_schema, new_table
from tests.fixtures.duckdb import Duck
from tests.fixtures.jvm import JvmMissing, running_kernel
from tests.fixtures.lines import Failed
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.server import InverServer, migrate, running_inver

pytestmark = [pytest.mark.postgres]

ROUNDS = 8


@pytest.fixture(scope="module")
def server(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InverServer]:
    url = postgres_server.create_database()
    migrate(url)
    try:
        with running_inver(tmp_path_factory.mktemp("engines") / "home", url) as server:
            yield server
    finally:
        postgres_server.drop_database(url)


@pytest.fixture
def table(http: httpx.Client, schema: str) -> DeltaTable:
    return new_table(http, f"{schema}.numbers")


def test_duckdb(duckdb: Client, server: InverServer, schema: str, table: DeltaTable, tmp_path: Path) -> None:
    duck = Duck(duckdb, server, schema, tmp_path)
    with duck.session() as first, duck.session() as second:
        first.start(f"INSERT INTO {table.name} VALUES ({{i}})", ROUNDS)
        second.start(f"INSERT INTO {table.name} VALUES (1000 + {{i}})", ROUNDS)
        assert min(first.end(), second.end()) >= ROUNDS
    [found] = duck(f"SELECT id FROM {table.name} ORDER BY id")
    assert [number for [number] in found] == [*range(ROUNDS), *range(1000, 1000 + ROUNDS)]
    duck(f"SELECT count(*) FROM {table.name}", f"CALL unity_catalog_checkpoint_table('{table.name}')")
    assert duck(f"SELECT count(*) FROM {table.name}") == [[[2 * ROUNDS]]]
    assert table.load()["latest-table-version"] == 2 * ROUNDS


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["v1", "legacy"])
def test_kernel(server: InverServer, http: httpx.Client, tmp_path: Path, dialect: str) -> None:
    schema = f"kernel_{dialect}"
    new_schema(http, f"lake.{schema}")
    try:
        with running_kernel(tmp_path, server.url, server.token, "lake", schema, dialect) as kernel:
            made = kernel("create", "t")
            table = DeltaTable(http, f"lake.{schema}.t", made["id"], made["location"], ())
            assert kernel("open", "a", "t") == 0
            assert kernel("open", "b", "t") == 0
            assert kernel("insert", "a", 0, 3, 0) == 1
            with pytest.raises(Failed):
                kernel("insert", "b", 9, 1, 0)
            kernel("open", "a", "t")
            assert kernel("insert", "a", 3, 2, 0) == 2
            kernel("open", "a", "t")
            assert kernel("publish", "a") == 2
            assert table.published == [0, 1, 2]
            kernel("open", "c", "t")
            assert kernel("read", "c") == [0, 1, 2, 3, 4]
    except JvmMissing as missing:
        pytest.skip(str(missing))


def test_unitycatalog_client(
    unitycatalog: Client, server: InverServer, schema: str, table: DeltaTable, tmp_path: Path
) -> None:
    given = {"url": server.url + UNITY, "token": server.token}
    place = {"catalog_name": "lake", "schema_name": schema.split(".")[1]}
    with unitycatalog.session("unitycatalog_client.py", given, tmp_path / "stderr") as lines:
        found = lines.ask(("TablesApi", "get_table", {"full_name": table.name}))
        listed = lines.ask(("TablesApi", "list_tables", place))
        change = ["UpdateSchema", {"new_name": "renamed", "comment": "new"}]
        renamed = lines.ask(("SchemasApi", "update_schema", {"full_name": schema, "update_schema": change}))
        lines.ask(("TablesApi", "delete_table", {"full_name": "lake.renamed.numbers"}))
        gone = lines.ask(("TablesApi", "get_table", {"full_name": "lake.renamed.numbers"}))
    assert (found["table_id"], found["table_type"]) == (table.id, "MANAGED")
    assert [each["name"] for each in listed["tables"]] == ["numbers"]
    assert (renamed["full_name"], renamed["comment"]) == ("lake.renamed", "new")
    assert gone == {"status": 404, "error_code": "TABLE_DOES_NOT_EXIST"}
