"""Spark on S3 without any keys: the catalog signs its requests, those to a staged table too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.care_iceberg import configure
from tests.fixtures.iceberg_clients import make_catalog
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import running_inver

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(300)]

HERE = "signed"


def test_spark_lets_its_requests_be_signed(
    spark: Any, s3_connectors: list[Path], s3_server: S3Server, tmp_path: Path
):
    if not s3_connectors:
        pytest.skip("the jar with which Iceberg reads S3 cannot be had here")
    env = {"INVER_STORAGE__WAREHOUSE": f"s3://{s3_server.create_bucket()}/wh", **s3_server.settings}
    with running_inver(tmp_path / "home", env=env) as server:
        signing = {"header.X-Iceberg-Access-Delegation": "remote-signing"}
        configure(spark, HERE, {**make_catalog(server), **signing})
        spark.sql(f"CREATE NAMESPACE {HERE}.s")
        spark.sql(f"CREATE TABLE {HERE}.s.t (id BIGINT) USING iceberg")
        spark.sql(f"INSERT INTO {HERE}.s.t SELECT id FROM range(4)")
        spark.sql(f"DELETE FROM {HERE}.s.t WHERE id = 0")
        # Staged: its files are written before the catalog has the table.
        spark.sql(f"CREATE TABLE {HERE}.s.u USING iceberg AS SELECT * FROM {HERE}.s.t")
        assert [row.id for row in spark.sql(f"SELECT id FROM {HERE}.s.u ORDER BY id").collect()] == [1, 2, 3]
