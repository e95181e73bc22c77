"""Spark's streams of shared tables, and URLs that must be had anew, in both response formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.clients import Client
from tests.fixtures.jvm import JvmMissing
from tests.fixtures.lines import Failed
from tests.fixtures.server import InverServer
from tests.fixtures.sharing_spark import CHANGED, FEED, Market, Table, running_market

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

FORMATS = ["parquet", "delta"]
VECTORS = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
HOURS_MS = 3_600_000
# The connector takes URLs that end sooner than this for old, and asks for new ones before it reads.
OLD_URLS = {
    "spark.delta.sharing.driver.refreshThresholdMs": str(3 * HOURS_MS),
    "spark.delta.sharing.preSignedUrl.expirationMs": str(2 * HOURS_MS),
}


@pytest.fixture(scope="module")
def market(spark: Client, server: InverServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    try:
        with running_market(spark, server, tmp_path_factory.mktemp("spark"), OLD_URLS) as market:
            yield market
    except JvmMissing as missing:
        pytest.skip(str(missing))


def begun(market: Market, properties: dict[str, str] = FEED) -> Table:
    table = market.table("id BIGINT, region STRING", properties)
    market.insert(table, "VALUES (1, 'EU'), (2, 'US')")
    market.insert(table, "VALUES (3, 'EU')")
    return table


def ids(rows: list[tuple[Any, ...]]) -> list[int]:
    return [row[0] for row in rows]


@pytest.mark.parametrize("form", FORMATS)
def test_a_snapshot_and_then_what_is_added(market: Market, form: str):
    table = begun(market)
    given: dict[str, Any] = {"responseFormat": form}
    assert ids(market.follow(table.name, f"all-{form}", **given)) == [1, 2, 3]
    market.insert(table, "VALUES (4, NULL)")
    market.insert(table, "VALUES (5, 'US'), (6, 'EU')")
    assert ids(market.follow(table.name, f"all-{form}", **given)) == [1, 2, 3, 4, 5, 6]
    # Nothing is new, and nothing is brought twice.
    found = market.follow(table.name, f"all-{form}", **given)
    assert found == market.rows(f"SELECT * FROM {table.path}")


@pytest.mark.parametrize("form", FORMATS)
def test_from_a_version_or_a_moment_in_small_steps(market: Market, form: str):
    table = begun(market)
    market.insert(table, "VALUES (4, 'EU')")
    market.insert(table, "VALUES (5, 'EU')")
    given: dict[str, Any] = {"responseFormat": form, "maxFilesPerTrigger": 1, "maxVersionsPerRpc": 1}
    since = {**given, "startingVersion": 2}
    assert ids(market.follow(table.name, f"since-{form}", **since)) == [3, 4, 5]
    moment = market.moment(table, 3)
    assert ids(market.follow(table.name, f"moment-{form}", **given, startingTimestamp=moment)) == [4, 5]
    market.insert(table, "VALUES (6, 'EU')")
    assert ids(market.follow(table.name, f"since-{form}", **since)) == [3, 4, 5, 6]


@pytest.mark.parametrize("form", FORMATS)
def test_commits_that_are_no_appends(market: Market, form: str):
    """The connector refuses them unless it is told to pass over them."""
    table = begun(market)
    given: dict[str, Any] = {"responseFormat": form}
    market.follow(table.name, f"strict-{form}", **given)
    market.spark.sql(f"DELETE FROM {table.path} WHERE id = 1")
    market.insert(table, "VALUES (4, 'EU')")
    with pytest.raises(Failed, match=r"(?i)delete|data update"):
        market.follow(table.name, f"strict-{form}", **given)
    assert ids(market.follow(table.name, f"strict-{form}", **given, skipChangeCommits=True)) == [1, 2, 3, 4]


@pytest.mark.parametrize(("form", "properties"), [("parquet", FEED), ("delta", FEED), ("delta", VECTORS)])
def test_changes(market: Market, form: str, properties: dict[str, str]):
    table = begun(market, properties)
    stream = f"changes-{table.name}"
    given: dict[str, Any] = {"responseFormat": form, "readChangeFeed": True, "startingVersion": 0}
    columns = f"id, region, {CHANGED}"
    assert market.follow(table.name, stream, columns, **given) == market.changes(table, "id, region", 0)
    market.spark.sql(f"UPDATE {table.path} SET region = 'x' WHERE id = 2")
    market.spark.sql(f"DELETE FROM {table.path} WHERE id = 1")
    market.insert(table, "VALUES (7, 'EU')")
    expected = market.changes(table, "id, region", 0)
    assert len(expected) == 7
    assert market.follow(table.name, stream, columns, **given) == expected


def test_vectors_and_mapped_columns(market: Market):
    table = begun(market, {**VECTORS, "delta.columnMapping.mode": "name"})
    market.spark.sql(f"DELETE FROM {table.path} WHERE id = 2")
    given: dict[str, Any] = {"responseFormat": "delta"}
    assert ids(market.follow(table.name, "mapped", **given)) == [1, 3]
    market.insert(table, "VALUES (4, 'EU')")
    assert ids(market.follow(table.name, "mapped", **given)) == [1, 3, 4]
    with pytest.raises(Failed, match="responseformat=delta"):
        market.follow(table.name, "mapped-parquet", responseFormat="parquet")


def test_the_format_is_chosen_by_what_the_table_uses(market: Market):
    """The connector then asks for ids that do not depend on the format, and insists on them."""
    chosen = {
        "spark.sql.delta.sharing.streamingAutoResolveResponseFormat": "true",
        "spark.sql.delta.sharing.cdfStreamingAutoResolveResponseFormat": "true",
        "spark.sql.delta.sharing.streamingEnableHistoricalProtocol": "true",
        "spark.sql.delta.sharing.cdfEnableHistoricalProtocol": "true",
    }
    plain, vectors = begun(market), begun(market, VECTORS)
    with market.conf(chosen):
        for table in (plain, vectors):
            assert ids(market.follow(table.name, f"chosen-{table.name}")) == [1, 2, 3]
        market.insert(plain, "VALUES (4, 'EU')")
        market.spark.sql(
            f"ALTER TABLE {plain.path} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
        market.insert(plain, "VALUES (5, 'EU')")
        assert ids(market.follow(plain.name, f"chosen-{plain.name}")) == [1, 2, 3, 4, 5]
        given = {"readChangeFeed": True, "startingVersion": 0}
        found = market.follow(vectors.name, "chosen-changes", f"id, region, {CHANGED}", **given)
        assert found == market.changes(vectors, "id, region", 0)


def test_pages(market: Market):
    table = market.table("id BIGINT", FEED)
    market.insert(table, "SELECT /*+ REPARTITION(8) */ id FROM range(80)")
    paged = {
        "spark.delta.sharing.queryPagination.enabled": "true",
        "spark.delta.sharing.maxFilesPerQueryRequest": "3",
    }
    with market.conf(paged):
        for form in FORMATS:
            found = market.follow(table.name, f"paged-{form}", responseFormat=form)
            assert ids(found) == sorted(range(80), key=lambda n: str((n,)))


@pytest.mark.parametrize("form", FORMATS)
def test_old_urls_are_had_anew(market: Market, form: str):
    """By a refresh token for the latest version, and by asking again for others."""
    table = begun(market)
    cases: list[tuple[dict[str, Any], list[int]]] = [({}, [1, 2, 3]), ({"versionAsOf": 1}, [1, 2])]
    for options, expected in cases:
        view = market.view(table.name, responseFormat=form, **options)
        with market.asked() as asked:
            assert ids(market.rows(f"SELECT id FROM {view}")) == expected
        assert asked.count("query") >= 2


@pytest.mark.parametrize("form", FORMATS)
def test_iceberg_tables(market: Market, form: str):
    name = f"ice_stream_{form}"
    full = f"lake.sales.{name}"
    market.spark.sql(f"CREATE TABLE {full} (id BIGINT, region STRING) USING iceberg")
    market.spark.sql(f"INSERT INTO {full} VALUES (1, 'EU'), (2, 'US')")
    market.add(name)
    given: dict[str, Any] = {"responseFormat": form}
    assert ids(market.follow(name, name, **given)) == [1, 2]
    market.spark.sql(f"INSERT INTO {full} VALUES (3, 'EU')")
    assert ids(market.follow(name, name, **given)) == [1, 2, 3]
