"""One Spark for all tests of the pipeline: what they change in it must be their own."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from inver.client import Client
from inver.errors import Broken
from inver.pipeline.session import open_session
from tests.fixtures.delta import new_schema, unity
from tests.fixtures.iceberg_clients import SPARK_RUNTIME, SPARK_S3
from tests.fixtures.jvm import JvmMissing, jars
from tests.fixtures.managed import Made, run_job
from tests.fixtures.server import InverServer, running_inver
from tests.fixtures.spark import DELTA, connector

QUICK = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}
ENGINES = {
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@pytest.fixture(scope="session")
def connectors() -> list[Path]:
    """Delta and Iceberg, where they are to be had: a Java machine takes jars at its start alone."""
    try:
        folders = [
            jars("delta-spark", DELTA, transitive=False),
            jars("iceberg-spark", SPARK_RUNTIME, transitive=False),
        ]
    except JvmMissing:
        return []
    return sorted(path for folder in folders for path in folder.glob("*.jar"))


@pytest.fixture(scope="session")
def s3_connectors(connectors: list[Path]) -> list[Path]:
    """What Iceberg needs besides for tables on S3."""
    try:
        return sorted(jars("iceberg-aws", SPARK_S3, transitive=False).glob("*.jar")) if connectors else []
    except JvmMissing:
        return []


@pytest.fixture(scope="session")
def unity_connectors(connectors: list[Path]) -> list[Path]:
    """With which Spark finds Delta tables through the catalog."""
    try:
        return connector() if connectors else []
    except JvmMissing:
        return []


@pytest.fixture(scope="session")
def spark(
    connectors: list[Path],
    s3_connectors: list[Path],
    unity_connectors: list[Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Any]:
    own = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    conf = {**QUICK, **own, **(ENGINES if connectors else {})}
    try:
        found = [*connectors, *s3_connectors, *unity_connectors]
        session = open_session("local[2]", conf=conf, jars=found, short_lived=True)
    except Broken as missing:
        pytest.skip(str(missing))
    yield session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()
        gc.collect()


@pytest.fixture
def delta(spark: Any, connectors: list[Path]) -> Any:
    """The session, where it has Delta's own client."""
    if not connectors:
        pytest.skip("the jars of Delta cannot be had here")
    return spark


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    """A server of all tests of Delta tables; each has tables of its own.

    What `made` makes lies in a schema apart, since some clients look at every table of one, and do not
    know all types.
    """
    with running_inver(tmp_path_factory.mktemp("lake") / "home") as server:
        with unity(server) as http:
            new_schema(http, "lake.care")
            new_schema(http, "lake.rewrites")
        yield server


@pytest.fixture
def unity_spark(spark: Any, unity_connectors: list[Path], lake: InverServer) -> Any:
    """A session that knows the catalog `lake`; None where the connector cannot be had."""
    if not unity_connectors:
        return None
    session = spark.newSession()
    settings = {"": "io.unitycatalog.spark.UCSingleCatalog", ".uri": lake.url, ".token": lake.token}
    for key, value in settings.items():
        session.conf.set(f"spark.sql.catalog.lake{key}", value)
    return session


@pytest.fixture
def http(lake: InverServer) -> Iterator[httpx.Client]:
    with unity(lake) as http:
        yield http


@pytest.fixture
def run(lake: InverServer, spark: Any) -> Iterator[Any]:
    """Runs a job on a table; `run_job` says what it takes."""
    with Client(lake.url, lake.token) as client:
        yield partial(run_job, client, spark)


@pytest.fixture
def made(delta: Any, tmp_path: Path) -> Made:
    return Made(delta, tmp_path / "made")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Spark leaves it to the garbage collector to close the sockets to its workers."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
