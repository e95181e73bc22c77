"""Managed Delta tables in a catalog whose storage root is a bucket: every dialect commits to them, the server
publishes there, and DuckDB and a recipient of a share read the same rows.

The catalog gives out no keys to this store, so DuckDB has its own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import obstore
import pytest
from obstore.store import S3Store

from tests.engines.conftest import _client
from tests.engines.test_sharing_client import Shop
from tests.fixtures.clients import Client
from tests.fixtures.delta import DeltaTable, add_file, new_table, unity
from tests.fixtures.duckdb import Duck, DuckSession
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import InverServer, running_inver
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.s3

ROUTES = {"seed": "/delta/commit", "preview": "/delta/preview/commits", "v1": None}


@dataclass
class S3Table(DeltaTable):
    """A table whose folder is below a bucket."""

    store: S3Store | None = None

    @property
    def key(self) -> str:
        return self.location.removeprefix("s3://").partition("/")[2]

    def put(self, path: str, data: bytes) -> int:
        assert self.store is not None
        obstore.put(self.store, f"{self.key}/{path}", data)
        return self.modified(path)

    def modified(self, path: str) -> int:
        assert self.store is not None
        return int(obstore.head(self.store, f"{self.key}/{path}")["last_modified"].timestamp() * 1000)

    def read(self, path: str) -> bytes:
        assert self.store is not None
        return bytes(obstore.get(self.store, f"{self.key}/{path}").bytes())

    @property
    def published(self) -> list[int]:
        assert self.store is not None
        log = f"{self.key}/_delta_log/"
        listed = obstore.list_with_delimiter(self.store, log)["objects"]
        return sorted(int(each["path"].removeprefix(log).removesuffix(".json")) for each in listed)


class Warehouse:
    """A server, the bucket of one of its catalogs, and clients of both."""

    def __init__(self, server: InverServer, s3: S3Server, home: Path) -> None:
        self.s3 = s3
        self.http = unity(server)
        self.shop = Shop(server, _client("delta_sharing"), home)
        self.bucket = s3.create_bucket()
        self.store = s3.store(self.bucket)
        # The tables of the catalog that the shop has lie in the server's own warehouse.
        root = {"name": f"c{uuid.uuid4().hex}", "storage_root": f"s3://{self.bucket}/managed tables"}
        self.http.post("/catalogs", json=root).raise_for_status()
        self.shop.provider.catalog = root["name"]
        schema = {"name": "sales", "catalog_name": root["name"]}
        self.http.post("/schemas", json=schema).raise_for_status()
        self.schema = f"{root['name']}.sales"
        self.duck = Duck(_client("duckdb"), server, self.schema, home)

    def table(self, name: str) -> S3Table:
        made = new_table(self.http, f"{self.schema}.{name}", kind=partial(S3Table, store=self.store))
        assert isinstance(made, S3Table)
        return made

    @contextmanager
    def session(self, table: S3Table) -> Iterator[DuckSession]:
        """DuckDB with keys to the folder of the table, which go before those that the catalog has not."""
        secret = {
            "SCOPE": table.location,
            "KEY_ID": self.s3.access_key,
            "SECRET": self.s3.secret_key,
            "REGION": self.s3.region,
            "ENDPOINT": f"127.0.0.1:{self.s3.port}",
            "URL_STYLE": "path",
        }
        told = ", ".join(f"{name} '{value}'" for name, value in secret.items())
        with self.duck.session() as session:
            session(f'CREATE SECRET "0" (TYPE s3, {told}, USE_SSL false)')
            yield session


@pytest.fixture(scope="module")
def warehouse(
    s3_server: S3Server, duckdb: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Warehouse]:
    home = tmp_path_factory.mktemp("warehouse")
    with running_inver(home / "home", env=s3_server.settings) as server:
        warehouse = Warehouse(server, s3_server, home)
        yield warehouse
        warehouse.http.close()


def ids(client: Client, table: S3Table, tmp_path: Path, first: int, count: int) -> dict[str, Any]:
    """A real Parquet file in the bucket, and the action that adds it."""
    path = f"{uuid.uuid4()}.parquet"
    file = tmp_path / path
    client.run("arrow_client.py", {"parquet": str(file), "first": first, "count": count})
    table.put(path, file.read_bytes())
    return dict(add_file(path, file.stat().st_size, count))


def commit(table: S3Table, dialect: str, staged: dict[str, Any]) -> httpx.Response:
    route = ROUTES[dialect]
    if route is None:
        return table.commit(staged)
    info = {key.replace("-", "_"): value for key, value in staged.items()}
    return table.http.post(
        route, json={"table_id": table.id, "table_uri": table.location, "commit_info": info}
    )


def await_published(table: S3Table, version: int) -> None:
    eventually(
        lambda: table.published == [*range(version + 1)] and not table.load()["commits"],
        lambda: (table.published, table.load()["commits"]),
    )


def test_every_dialect_commits_and_everybody_reads(warehouse: Warehouse, deltalake: Client, tmp_path: Path):
    table = warehouse.table("numbers")
    assert table.location.startswith(f"s3://{warehouse.bucket}/managed tables/")
    with warehouse.session(table) as session:
        assert session(f"INSERT INTO {table.name} VALUES (100), (101)") == [[2]]
    staged = {}
    for version, dialect in enumerate(ROUTES, 2):
        added = ids(deltalake, table, tmp_path, 10 * version, 3)
        staged[version] = table.stage(version, [added])
        commit(table, dialect, staged[version]).raise_for_status()
        # What is decided stays so, whoever asks: the same file again, another file, and a version too many.
        assert commit(table, dialect, staged[version]).is_success
        other = table.stage(version, [added])
        assert [commit(table, each, other).status_code for each in ROUTES] == [409, 409, 409]
        ahead = table.stage(version + 2, [added])
        assert [commit(table, each, ahead).status_code for each in ROUTES] == [400, 400, 400]
    await_published(table, 4)
    for version, each in staged.items():
        assert table.read(f"_delta_log/{version:020d}.json") == table.read(
            f"_delta_log/_staged_commits/{each['file-name']}"
        )
    expected = sorted([100, 101, 20, 21, 22, 30, 31, 32, 40, 41, 42])
    with warehouse.session(table) as session:
        assert session(f"SELECT id FROM {table.name} ORDER BY id") == [[each] for each in expected]
        session(f"INSERT INTO {table.name} VALUES (1000)")
    shop = warehouse.shop
    shop.publish("numbers", register=False)
    for how in ({"use_delta_format": False}, {"use_delta_format": True}):
        loaded, earlier = shop.do(
            {"do": "load", "table": shop.name("numbers"), **how},
            {"do": "load", "table": shop.name("numbers"), "version": 1, **how},
        )
        assert sorted(row["id"] for row in loaded) == [*expected, 1000]
        assert sorted(row["id"] for row in earlier) == [100, 101]


def test_the_server_does_not_write_over_what_a_client_has_published(warehouse: Warehouse):
    table = warehouse.table("raced")
    staged = table.stage(1, [add_file("a.parquet")])
    path = f"_delta_log/{1:020d}.json"
    data = table.read(f"_delta_log/_staged_commits/{staged['file-name']}")
    assert table.store is not None
    made = obstore.put(table.store, f"{table.key}/{path}", data, mode="create")
    commit(table, "v1", staged).raise_for_status()
    commit(table, "seed", table.stage(2, [add_file("b.parquet")])).raise_for_status()
    await_published(table, 2)
    found = obstore.head(table.store, f"{table.key}/{path}")
    assert (found["e_tag"], table.read(path)) == (made["e_tag"], data)


def test_a_share_has_what_is_ratified_and_not_published(warehouse: Warehouse):
    """A log in which somebody has put something else is not published over, and not shown."""
    table = warehouse.table("blocked")
    path, foreign = f"_delta_log/{1:020d}.json", json.dumps({"commitInfo": {}}).encode()
    table.put(path, foreign)
    staged = table.stage(1, [add_file("a.parquet", 7)])
    assert commit(table, "preview", staged).is_success
    shop = warehouse.shop
    guest = shop.publish("blocked", register=False)
    lines = guest.lines("POST", f"{shop.name('blocked')}/query", json={})
    assert [line["file"]["size"] for line in lines[2:]] == [7]
    assert httpx.get(lines[2]["file"]["url"]).status_code == 404
    assert table.read(path) == foreign


def test_a_file_in_a_bucket_is_held_to_its_size_too(warehouse: Warehouse):
    table = warehouse.table("sizes")
    staged = table.stage(1, [add_file("a.parquet")])
    name, path = staged["file-name"], f"_delta_log/_staged_commits/{staged['file-name']}"
    data = table.read(path)
    for wrong in (b"", data[:-1], data + b"\n", data + b"\n" * 2**20):
        table.put(path, wrong)
        for dialect in ROUTES:
            answer = commit(table, dialect, staged)
            assert answer.status_code == 400, answer.text
            assert "bytes" in answer.text
    for dialect in ROUTES:
        missing = commit(table, dialect, {**staged, "file-name": name.replace(".json", "x.json")})
        assert missing.status_code == 400
        assert "does not exist" in missing.text
    assert table.load()["latest-table-version"] == 0
    table.put(path, data)
    commit(table, "seed", staged).raise_for_status()
