"""Compaction and clustering of a managed Delta table in an object store, with keys that travel to tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest

from inver.client import Client
from inver.domain.care import Job, Outcome
from tests.fixtures.aged import Aged, care
from tests.fixtures.delta import new_schema, unity
from tests.fixtures.managed import live
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import InverServer, running_inver

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def server(s3_server: S3Server, tmp_path: Any) -> Iterator[InverServer]:
    env = {**s3_server.settings, "INVER_STORAGE__WAREHOUSE": f"s3://{s3_server.create_bucket()}/lake"}
    with running_inver(tmp_path / "home", env=env) as server:
        yield server


def ids(table: Aged) -> list[int]:
    found = [pq.read_table(table.folder / add["path"]) for add in live(table.delta)]
    return sorted(each for part in found for each in part["id"].to_pylist())


def test_the_same_in_an_object_store(server: InverServer, s3_server: S3Server, spark: Any) -> None:
    storage = s3_server.options
    with unity(server) as http, Client(server.url, server.token) as client:
        new_schema(http, "lake.care")
        table = Aged(http, "lake.care", partitions=["p"], buckets=s3_server.folder, storage=storage)
        inside = {"partitionValues": {"p": "x"}}
        table.commit(3, *(table.add(f"p=x/{number}.parquet", 10, **inside) for number in range(4)))
        table.commit(2, table.add("p=x/4.parquet", 10, **inside, **table.vector(0)))
        assert care(client, table, Job.COMPACT, spark=spark).outcome is Outcome.DONE
        [made] = live(table.delta)
        assert made["path"].startswith("p=x/care-")
        wanted = [i for i in range(50) if i != 40]
        assert ids(table) == wanted
        # No empty objects stand for folders.
        assert all((table.folder / path).stat().st_size for path in table.files)
        assert care(client, table, Job.COMPACT, spark=spark).outcome is Outcome.NOTHING
        result = care(client, table, Job.CLUSTER, spark=spark, cluster_columns=("id",))
        assert result.outcome is Outcome.DONE
        assert ids(table) == wanted
