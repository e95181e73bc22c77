"""Spark with Lance's own connector, on tables whose versions the catalog decides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.clients import Client
from tests.fixtures.jvm import JvmMissing, connector_jars
from tests.fixtures.lance import Namespace
from tests.fixtures.server import InverServer
from tests.fixtures.spark import Spark, spark_session

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

CONNECTOR = ("org.lance:lance-spark-4.1_2.13:0.5.0",)


def connector() -> list[Path]:
    """The connector and what it needs."""
    return connector_jars("lance-spark", CONNECTOR, "*lance*.jar", transitive=True)


@pytest.fixture(scope="module")
def space(server: InverServer) -> Iterator[Namespace]:
    space = Namespace(server)
    yield space
    space.close()


@pytest.fixture(scope="module")
def session(spark: Client, space: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    settings = {
        "spark.sql.extensions": "org.lance.spark.extensions.LanceSparkSessionExtensions",
        "spark.sql.catalog.lance": "org.lance.spark.LanceNamespaceSparkCatalog",
        "spark.sql.catalog.lance.impl": "rest",
        "spark.sql.catalog.lance.uri": space.server.url + "/lance",
        "spark.sql.catalog.lance.headers.Authorization": f"Bearer {space.server.token}",
        "spark.sql.catalog.lance.parent": space.catalog,
    }
    try:
        files = connector()
        with spark_session(spark, tmp_path_factory.mktemp("spark"), files, settings) as session:
            yield session
    except JvmMissing as missing:
        pytest.skip(str(missing))


def test_a_table_from_its_creation_to_its_cleaning(session: Spark, space: Namespace):
    table = "lance.s.things"
    session.sql(f"CREATE TABLE {table} (id BIGINT NOT NULL, word STRING)")
    session.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    session.sql(f"INSERT INTO {table} VALUES (3, 'c')")
    session.sql(
        f"""MERGE INTO {table} t USING (SELECT 2L AS id, 'x' AS word UNION ALL SELECT 4L, 'd') s
            ON t.id = s.id WHEN MATCHED THEN UPDATE SET word = s.word
            WHEN NOT MATCHED THEN INSERT (id, word) VALUES (s.id, s.word)"""
    )
    expected = [(1, "a"), (2, "x"), (3, "c"), (4, "d")]
    assert session.values(f"SELECT id, word FROM {table} ORDER BY id") == expected
    before = space.versions("things")
    assert before == list(range(1, len(before) + 1))
    session.sql(f"OPTIMIZE {table}")
    optimized = space.versions("things")
    assert optimized[-1] > before[-1], "the files are joined in a version of their own"
    session.sql(f"VACUUM {table} WITH (before_version = {len(before)})")
    assert session.values(f"SELECT id, word FROM {table} ORDER BY id") == expected
    assert space.of("things", "stats")["num_rows"] == 4
    assert space.versions("things") == optimized[len(before) - 1 :], "what was cleaned up leaves the list"
