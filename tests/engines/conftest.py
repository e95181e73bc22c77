"""The real clients. One that cannot be installed here skips its tests, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fixtures.clients import Client, ClientMissing, client
from tests.fixtures.delta import new_schema, unity
from tests.fixtures.iceberg_clients import CATALOGS, running_catalog, running_iceberg_spark
from tests.fixtures.jvm import JvmMissing
from tests.fixtures.server import InverServer, running_inver
from tests.fixtures.spark import Spark, running_spark


def _client(name: str) -> Client:
    try:
        return client(name)
    except ClientMissing as missing:
        pytest.skip(str(missing))


def lance_extra() -> dict[str, str]:
    """The environment of a server with the extra `lance`, whose packages are those of the client."""
    [packages] = _client("lance").home.glob("lib/python3*/site-packages")
    return {"PYTHONPATH": str(packages)}


@pytest.fixture(scope="module")
def data_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    """A server that can work on the data of Lance tables."""
    with running_inver(tmp_path_factory.mktemp("data") / "home", env=lance_extra()) as server:
        yield server


@pytest.fixture(scope="session")
def duckdb() -> Client:
    return _client("duckdb")


@pytest.fixture(scope="session")
def deltalake() -> Client:
    return _client("deltalake")


@pytest.fixture(scope="session")
def polars() -> Client:
    return _client("polars")


@pytest.fixture(scope="session")
def unitycatalog() -> Client:
    return _client("unitycatalog")


@pytest.fixture(scope="session")
def spark() -> Client:
    return _client("spark")


@pytest.fixture(scope="session")
def pyiceberg() -> Client:
    return _client("pyiceberg")


@pytest.fixture(scope="session")
def duckdb_iceberg() -> Client:
    return _client("duckdb_iceberg")


@pytest.fixture(scope="session")
def iceberg_spark(spark: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """One Java machine for all modules; what works on a catalog opens a session of its own."""
    try:
        with running_iceberg_spark(spark, tmp_path_factory.mktemp("spark")) as running:
            yield running
    except JvmMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module", params=["v1", "legacy"])
def dialect(request: pytest.FixtureRequest) -> str:
    """Of Delta's clients of Unity Catalog: the one that they choose, and the one that they can be told."""
    given: str = request.param
    return given


@pytest.fixture(scope="module")
def dialect_confs(dialect: str) -> dict[str, str]:
    """What Spark must be told for the dialect."""
    return {"spark.sql.catalog.lake.deltaRestApi.enabled": "false"} if dialect == "legacy" else {}


@pytest.fixture(scope="module")
def unity_spark(
    spark: Client,
    server: InverServer,
    dialect_confs: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Spark]:
    """A session with Unity Catalog's connector, whose catalog is `lake`."""
    try:
        with running_spark(spark, server, tmp_path_factory.mktemp("spark"), "lake", dialect_confs) as session:
            yield session
    except JvmMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module", params=CATALOGS)
def iceberg_catalog(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """What a client of Iceberg REST must be told: of ours on each store, and of the reference."""
    with running_catalog(request, tmp_path_factory.mktemp("catalog")) as catalog:
        yield catalog


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    """A server of all tests of a module; each test works in a schema of its own."""
    home = tmp_path_factory.mktemp("engines") / "home"
    external = home.with_name("external")
    external.mkdir()
    with running_inver(home, arguments=["--external-root", str(external)]) as server:
        yield server


@pytest.fixture(scope="module")
def external(server: InverServer) -> Path:
    """A folder outside the warehouse in which tables may lie."""
    return server.home.with_name("external")


@pytest.fixture(scope="module")
def http(server: InverServer) -> Iterator[httpx.Client]:
    with unity(server) as http:
        yield http


@pytest.fixture
def schema(http: httpx.Client, request: pytest.FixtureRequest) -> str:
    """The full name of a new schema, named after the test."""
    name: str = request.node.name
    return new_schema(http, "lake." + "".join(c if c.isalnum() else "_" for c in name).strip("_").lower())
