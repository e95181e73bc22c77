"""Care of an Iceberg table in an object store, with the keys that the worker has."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from inver.client import Client
from inver.domain.care import Job, Outcome
from tests.fixtures.care_iceberg import MERGE_ON_READ, configure
from tests.fixtures.care_jobs import Care
from tests.fixtures.clients import ClientMissing, client
from tests.fixtures.iceberg_clients import make_catalog, running_pyiceberg
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import running_inver

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(300)]

HERE = "on_s3"
AT_ONCE: dict[str, Any] = {"snapshot_hours": 0.0, "allow_short_retention": True}


def test_the_same_in_an_object_store(
    spark: Any, s3_connectors: list[Path], s3_server: S3Server, tmp_path: Path
):
    if not s3_connectors:
        pytest.skip("the jar with which Iceberg reads S3 cannot be had here")
    try:
        python = client("pyiceberg")
    except ClientMissing as missing:
        pytest.skip(str(missing))
    bucket = s3_server.create_bucket()
    keys = {
        "s3.endpoint": s3_server.endpoint,
        "s3.access-key-id": s3_server.access_key,
        "s3.secret-access-key": s3_server.secret_key,
        "s3.region": s3_server.region,
    }
    storage = s3_server.options
    env = {**s3_server.settings, "INVER_STORAGE__WAREHOUSE": f"s3://{bucket}/wh"}
    with running_inver(tmp_path / "home", env=env) as server, Client(server.url, server.token) as management:
        catalog = {**make_catalog(server), **keys}
        with running_pyiceberg(python, tmp_path, catalog) as pyiceberg:
            pyiceberg("create_namespace", ["s"])
            pyiceberg("create", ["s", "t"], properties=MERGE_ON_READ)
            for start in range(0, 24, 4):
                pyiceberg("append", ["s", "t"], rows=[[id, f"n{id}"] for id in range(start, start + 4)])
            configure(
                spark,
                HERE,
                {**catalog, "s3.path-style-access": "true", "client.region": s3_server.region},
            )
            spark.sql(f"DELETE FROM {HERE}.s.t WHERE id % 5 = 0")
            expected = [id for id in range(24) if id % 5]
            location = management.table(("lake", "s", "t")).location or ""
            folder = s3_server.folder / location.removeprefix("s3://")
            stray = folder / "data" / "stray.parquet"
            stray.write_bytes(b"left")
            os.utime(stray, (time.time() - 30 * 3600,) * 2)

            care = Care(management, lambda: spark, ("lake", "s", "t"), storage)
            purged = care(Job.PURGE, deleted_ratio=0.01)
            assert (purged.outcome, purged.after["delete_files"]) == (Outcome.DONE, 0)
            compacted = care(Job.COMPACT, min_small_files=2)
            assert (compacted.outcome, compacted.after["files"]) == (Outcome.DONE, 1)
            assert care(Job.STATISTICS).outcome is Outcome.DONE
            expired = care(Job.EXPIRE, **AT_ONCE)
            assert (expired.outcome, expired.after["snapshots"]) == (Outcome.DONE, 1)
            assert care(Job.ORPHANS).measured["files"] == 1
            assert not stray.exists()
            assert len(list((folder / "data").rglob("*.parquet"))) == 1

            assert sorted(row[0] for row in pyiceberg("scan", ["s", "t"])) == expected
            found = spark.sql(f"SELECT id FROM {HERE}.s.t ORDER BY id").collect()
            assert [row.id for row in found] == expected
