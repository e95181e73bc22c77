"""Unmodified pylance and PyIceberg in one transaction of the Python client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

import inver
from tests.engines.conftest import _client
from tests.fixtures.clients import Client
from tests.fixtures.delta import DeltaTable, new_table
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import InverServer, running_inver

SRC = str(Path(inver.__file__).resolve().parents[1])

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def crossing() -> Client:
    return _client("crossing")


@pytest.fixture
def table(http: httpx.Client, schema: str) -> DeltaTable:
    return new_table(http, f"{schema}.d")


def run(crossing: Client, server: InverServer, schema: str, scenario: str, **more: Any) -> Any:
    catalog, name = schema.split(".")
    asked = {"src": SRC, "url": server.url, "token": server.token, "catalog": catalog, "schema": name}
    env = more.pop("env", None)
    return crossing.run("crossing_client.py", {**asked, "scenario": scenario, **more}, env=env)


def staged(table: DeltaTable, version: int) -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in table.stage(version, []).items()}


def test_what_they_commit_waits_and_comes_together(
    crossing: Client, server: InverServer, schema: str, table: DeltaTable
):
    told = run(crossing, server, schema, "together", commit_info=staged(table, 1))
    assert told["before"] == {"lance": [1, 3], "iceberg": [1, 3], "delta": 0}
    assert told["after"] == {"lance": [2, 5], "iceberg": [2, 5], "delta": 1}
    assert told["kinds"] == ["committed", "committed", "committed", "moved"]
    assert told["results"] == 4
    cursor = server.call("GET", f"/cursors/flow%2F{schema.split('.')[1]}").json()
    assert cursor["value"] == "7"


def test_several_commits_of_one_table_see_each_other(
    crossing: Client, server: InverServer, schema: str, table: DeltaTable
):
    told = run(crossing, server, schema, "several")
    ids = [1, 2, 10, 11, 20, 21]
    opened, refused, (version, lance_ids), at_two, (columns, iceberg_ids) = told["inside"]
    assert opened == [3, 7]
    assert refused is True
    assert lance_ids == [*ids, 30]
    assert at_two == 5
    assert (columns, iceberg_ids) == (["id", "word"], ids)
    assert told["before"] == {"lance": [1, 3], "iceberg": [1, 3], "delta": 0}
    assert told["after"]["lance"] == [version, 7]
    assert told["after"]["iceberg"][1] == 6
    assert told["indices"] == ["id_idx"]


def test_tables_come_to_be_with_their_rows_or_not_at_all(
    crossing: Client, server: InverServer, schema: str, table: DeltaTable
):
    told = run(crossing, server, schema, "creates")
    assert (told["none"]["lance"], told["none"]["iceberg"]) == (None, None)
    assert told["inside"] == [2, 6, 6, True]
    assert (told["between"]["lance"], told["between"]["iceberg"]) == (None, None)
    assert told["after"] == {"lance": [2, 6], "iceberg": [2, 6], "delta": 0}
    # Nothing is left of the block that was given up, nor of the names that stood in for others.
    assert told["tables"] == ["d", "i", "l", "new_i", "new_l"]


def test_a_conflict_says_which_table_lost_to_what(
    crossing: Client, server: InverServer, schema: str, table: DeltaTable
):
    told = run(crossing, server, schema, "conflict")
    assert set(told) == {"lance", "iceberg"}
    for loser, (kind, message, unchanged) in told.items():
        assert kind == "Conflict"
        assert unchanged, loser
        assert f"{schema}.{loser[0]}: " in message
        assert "transaction" in message.partition(f"{schema}.{loser[0]}: ")[2]
        other = {"lance": "i", "iceberg": "l"}[loser]
        assert f"{schema}.{other}: " not in message


def test_an_exception_in_the_block_sends_nothing(
    crossing: Client, server: InverServer, schema: str, table: DeltaTable
):
    told = run(crossing, server, schema, "exception")
    assert told == {
        "raised": "in the block",
        "same": True,
        "late": "the transaction has ended",
        "sent": None,
    }
    assert list(table.folder.parent.rglob("_inver")) == []


def test_renames_and_drops_are_part_of_it(
    crossing: Client, server: InverServer, schema: str, table: DeltaTable
):
    told = run(crossing, server, schema, "moves")
    name = schema.split(".")[1]
    assert told["inside"] == [[[name, "moved_i"]], False, True]
    assert told["refused"] == ["NotImplementedError", "UnsupportedOperationError"]
    assert told["between"] == {"lance": [1, 3], "iceberg": [1, 3], "delta": 0}
    assert (told["old"]["lance"], told["old"]["iceberg"]) == (None, None)
    assert told["new"] == {"lance": [2, 4], "iceberg": [2, 4], "delta": 0}
    assert told["gone"] is False


def test_on_an_event_loop(crossing: Client, server: InverServer, schema: str, table: DeltaTable):
    told = run(crossing, server, schema, "on_a_loop")
    results, message = told["told"]
    assert results == 2
    assert f"{schema}.i: " in message
    assert told["seen"] == {"lance": [3, 7], "iceberg": [3, 7], "delta": 0}


@pytest.mark.s3
def test_on_an_object_store(crossing: Client, tmp_path: Path, s3_server: S3Server):
    """The catalog tells where the store is; the keys are the client's own."""
    keys = {"AWS_ACCESS_KEY_ID": s3_server.access_key, "AWS_SECRET_ACCESS_KEY": s3_server.secret_key}
    env = {"INVER_STORAGE__WAREHOUSE": f"s3://{s3_server.create_bucket()}/wh", **s3_server.settings}
    with running_inver(tmp_path / "home", env=env) as server:
        for path, body in (("/catalogs", {"name": "lake"}), ("/catalogs/lake/schemas", {"path": ["s"]})):
            assert server.call("POST", path, json=body).status_code == 201
        told = run(crossing, server, "lake.s", "creates", env=keys)
    assert (told["none"]["lance"], told["none"]["iceberg"]) == (None, None)
    assert told["inside"] == [2, 6, 6, True]
    assert told["after"] == {"lance": [2, 6], "iceberg": [2, 6], "delta": None}
    assert told["tables"] == ["i", "l", "new_i", "new_l"]
