"""Spark with Delta Sharing's own connector: batches and changes in both response formats.

The connector's jars are those of the folder INVER_CONNECTOR_JARS, or resolved by their coordinates.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.clients import ClientMissing, client
from tests.fixtures.jvm import JvmMissing, jars
from tests.fixtures.server import InverServer, running_inver
from tests.fixtures.sharing import Provider
from tests.fixtures.spark import DELTA, Spark, spark_session

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

CONNECTOR = (
    "io.delta:delta-sharing-spark_4.1_2.13:4.4.0",
    "io.delta:delta-sharing-client_2.13:1.4.1",
)
FORMATS = ["parquet", "delta"]


def connector() -> list[Path]:
    folder = os.environ.get("INVER_CONNECTOR_JARS")
    if folder:
        found = sorted(Path(folder).glob("delta-sharing-*.jar"))
        if not found:
            raise JvmMissing(f"INVER_CONNECTOR_JARS names {folder}, which has no delta-sharing jars")
        return found
    try:
        return sorted(jars("delta-sharing-spark", CONNECTOR, transitive=False).glob("*.jar"))
    except JvmMissing as missing:
        raise JvmMissing(f"{missing}; INVER_CONNECTOR_JARS can name a folder that has it") from missing


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    settings = {
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    try:
        files = [*connector(), *sorted(jars("delta-spark", DELTA, transitive=False).glob("*.jar"))]
        with spark_session(client("spark"), tmp_path_factory.mktemp("spark"), files, settings) as session:
            yield session
    except (JvmMissing, ClientMissing) as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    home = tmp_path_factory.mktemp("sharing") / "home"
    lake = home.with_name("external")
    lake.mkdir()
    with running_inver(home, None, ["--external-root", str(lake)]) as started:
        yield started


@pytest.fixture(scope="module")
def shared(spark: Spark, server: InverServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A table that Spark itself wrote, by its folder and by its address in the share."""
    provider = Provider(server)
    folder = provider.lake / "orders"
    path = f"delta.`{folder}`"
    feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'false')"
    spark.sql(f"CREATE TABLE {path} (id BIGINT, region STRING) USING delta PARTITIONED BY (region) {feed}")
    spark.sql(f"INSERT INTO {path} VALUES (1, 'EU'), (2, 'US'), (3, 'EU')")
    spark.sql(f"UPDATE {path} SET id = 30 WHERE id = 3")
    spark.sql(f"DELETE FROM {path} WHERE id = 1")
    provider.register("orders", folder)
    share = provider.share({"orders": {}})
    profile = tmp_path_factory.mktemp("profile") / "acme.share"
    profile.write_text(json.dumps(provider.recipient(share).profile))
    return path, f"{profile}#{share}.sales.orders"


def read(spark: Spark, name: str, address: str, **options: str) -> list[tuple[Any, ...]]:
    given = ", ".join(f"{key} '{value}'" for key, value in {"path": address, **options}.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING deltaSharing OPTIONS ({given})")
    return sorted(spark.values(f"SELECT * FROM {name}"), key=str)


@pytest.mark.parametrize("format", FORMATS)
def test_batches(spark: Spark, shared: tuple[str, str], format: str):
    path, address = shared
    expected = sorted(spark.values(f"SELECT * FROM {path}"), key=str)
    assert read(spark, "latest", address, responseFormat=format) == expected
    before = sorted(spark.values(f"SELECT * FROM {path} VERSION AS OF 1"), key=str)
    assert read(spark, "earlier", address, responseFormat=format, versionAsOf="1") == before
    assert spark.values("SELECT count(*) FROM latest WHERE region = 'EU'") == [(1,)]


@pytest.mark.parametrize("format", FORMATS)
def test_changes(spark: Spark, shared: tuple[str, str], format: str):
    path, address = shared
    folder = path.removeprefix("delta.`").removesuffix("`")
    columns = "id, region, _change_type, _commit_version"
    expected = spark.values(f"SELECT {columns} FROM table_changes_by_path('{folder}', 0)")
    options = {"responseFormat": format, "readChangeFeed": "true", "startingVersion": "0"}
    read(spark, "changed", address, **options)
    assert sorted(spark.values(f"SELECT {columns} FROM changed"), key=str) == sorted(expected, key=str)
