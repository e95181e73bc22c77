"""Clustering of managed Delta tables, judged by Delta's own client for Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inver.domain.care import Curve, Job, Outcome
from tests.fixtures.delta import DeltaTable
from tests.fixtures.managed import live, published_copy, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

SCATTERED = (
    "SELECT id, (id * 7919) % 4000 AS x, concat('k', (id * 104729) % 4000) AS y FROM range({}, {}, 1, 1)"
)


def touched(table: DeltaTable, column: str, value: Any) -> int:
    """How many files a reader must open who looks for a value."""
    bounds = [json.loads(add["stats"]) for add in live(table)]
    return sum(each["minValues"][column] <= value <= each["maxValues"][column] for each in bounds)


def test_a_liquid_table(made, http, run, delta, tmp_path):
    made.create("id BIGINT, x BIGINT, y STRING", "CLUSTER BY (x, y)", {"delta.enableRowTracking": "true"})
    made.sql(*(f"INSERT INTO ?T {SCATTERED.format(i * 2000, i * 2000 + 2000)}" for i in range(2)))
    made.sql("DELETE FROM ?T WHERE id = 17")
    table = made.adopt(http)
    what = "*, _metadata.row_id, _metadata.row_commit_version"
    before = rows(delta, published_copy(table, tmp_path / "before"), what)
    result = run(table, Job.CLUSTER, target_file_size=8192)
    assert result.outcome is Outcome.DONE, result
    assert result.after["deleted_rows"] == 0
    after = published_copy(table, tmp_path / "after")
    assert rows(delta, after, what) == before
    adds = live(table)
    assert len(adds) >= 5
    assert len({add["tags"]["ZCUBE_ID"] for add in adds}) == 1
    assert all(add["clusteringProvider"] == "liquid" for add in adds)
    assert all(add["tags"]["ZCUBE_ZORDER_BY"] == '["x","y"]' for add in adds)
    # Whichever of the columns somebody asks for, a part of the files need not be read.
    assert touched(table, "x", 2000) <= len(adds) * 2 // 3
    assert touched(table, "y", "k2000") <= len(adds) * 2 // 3
    assert run(table, Job.CLUSTER, target_file_size=8192).outcome is Outcome.NOTHING
    # However small its files are: to merge them would undo the order.
    assert run(table, Job.COMPACT).outcome is Outcome.NOTHING
    # Delta finds the layout as it would have made it.
    [metrics] = delta.sql(f"OPTIMIZE delta.`{after}`").collect()
    assert metrics.metrics.numFilesRemoved == 0
    described = delta.sql(f"DESCRIBE DETAIL delta.`{after}`").collect()[0]
    assert described.clusteringColumns == ["x", "y"]


def test_by_one_column_of_the_policy(made, http, run, delta, tmp_path):
    made.create(
        "id BIGINT, x BIGINT, y STRING, at TIMESTAMP, n TIMESTAMP_NTZ, d DATE, dec DECIMAL(12,2), b BINARY, "
        "l ARRAY<STRUCT<a: INT>>, m MAP<STRING, FLOAT>, p STRING",
        "PARTITIONED BY (p)",
    )
    for i in range(2):
        made.sql(
            "INSERT INTO ?T SELECT *, timestamp_micros(id * 1000003), "
            "timestamp_ntz'2024-03-31 02:30:00.000001', "
            "date_add(date'1969-12-01', int(id)), id / 7, encode(y, 'utf-8'), "
            "array(named_struct('a', int(id)), null), map('k', float(id), 'z', null), "
            "if(id % 2 = 0, 'even', 'odd') "
            f"FROM ({SCATTERED.format(i * 2000, i * 2000 + 2000)})"
        )
    table = made.adopt(http)
    before = rows(delta, published_copy(table, tmp_path / "before"))
    options = {"cluster_columns": ("x",), "target_file_size": 16384}
    assert run(table, Job.CLUSTER, **options).outcome is Outcome.DONE
    assert rows(delta, published_copy(table, tmp_path / "after")) == before
    adds = live(table)
    assert {add["partitionValues"]["p"] for add in adds} == {"even", "odd"}
    assert len(adds) >= 4
    assert not any("clusteringProvider" in add for add in adds)
    assert touched(table, "x", 2000) <= 2
    assert run(table, Job.CLUSTER, **options).outcome is Outcome.NOTHING

    options |= {"cluster_columns": ("x", "id"), "cluster_curve": Curve.ZORDER}
    assert run(table, Job.CLUSTER, **options).outcome is Outcome.DONE
    assert rows(delta, published_copy(table, tmp_path / "zorder")) == before
    assert {add["tags"]["ZCUBE_ZORDER_CURVE"] for add in live(table)} == {"zorder"}
    assert run(table, Job.CLUSTER, **options).outcome is Outcome.NOTHING


def test_without_columns_nothing_is_done(made, http, run):
    made.create("id BIGINT")
    table = made.adopt(http)
    assert run(table, Job.CLUSTER).outcome is Outcome.NOTHING
    assert run(table, Job.CLUSTER, cluster_columns=("nope",)).outcome is Outcome.REFUSED
