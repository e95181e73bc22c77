"""The same job on every kind of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inver.domain.care import Job, Options, Outcome, Ticket
from inver.domain.tables import Format, TableKind
from inver.formats.deletion_vectors import inline
from tests.fixtures.delta import DeltaTable, add_file, new_table
from tests.fixtures.managed import live
from tests.fixtures.server import InverServer
from tests.fixtures.spark_modes import run_in_process, running_connect, running_standalone

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

FILES = 6


@pytest.fixture
def table(http: httpx.Client, request: pytest.FixtureRequest) -> DeltaTable:
    """Six small files, one of them with a deleted row."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    table = new_table(http, f"lake.care.{name}")
    adds: list[Any] = []
    for number in range(FILES):
        path = table.folder / f"{number}.parquet"
        pq.write_table(pa.table({"id": pa.array(range(number * 10, number * 10 + 10))}), path)
        adds.append(add_file(path.name, path.stat().st_size, 10))
    deleted = inline([3])
    adds[0]["add"]["deletionVector"] = {
        "storageType": deleted.storage_type,
        "pathOrInlineDv": deleted.path_or_inline_dv,
        "sizeInBytes": deleted.size_in_bytes,
        "cardinality": deleted.cardinality,
    }
    table.append(1, *adds)
    return table


def ids(table: DeltaTable) -> list[int]:
    """Of the files that are live, none of which has deleted rows any more."""
    adds = live(table)
    assert not any("deletionVector" in add for add in adds)
    return sorted(i for add in adds for i in pq.read_table(table.folder / add["path"])["id"].to_pylist())


def check(lake: InverServer, table: DeltaTable, session: dict[str, Any], places: int) -> None:
    # Files of this size share a bin in pairs, so there is work for several tasks.
    target = max(add["size"] for add in live(table)) * 2 + 10
    ticket = Ticket(
        run_id="1",
        table_id=table.id,
        name=tuple(table.name.split(".")),
        format=Format.DELTA,
        kind=TableKind.MANAGED,
        location=table.location,
        version=1,
        job=Job.COMPACT,
        options=Options(target_file_size=target),
    )
    server = {"url": lake.url, "token": lake.token}
    result, used = run_in_process(server, ticket, session)
    assert result.outcome is Outcome.DONE, result
    assert result.measured["files_removed"] == FILES
    assert result.measured["files_added"] == FILES // 2
    assert ids(table) == [i for i in range(FILES * 10) if i != 3]
    assert used >= places


def test_on_a_master_with_two_workers(lake: InverServer, table: DeltaTable, tmp_path: Path) -> None:
    with running_standalone(tmp_path) as address:
        check(lake, table, {"master": address, "conf": {"spark.executor.memory": "600m"}}, places=2)


def test_over_connect(lake: InverServer, table: DeltaTable, tmp_path: Path) -> None:
    with running_connect(tmp_path) as address:
        check(lake, table, {"remote": address}, places=1)


def test_over_a_connect_server_of_our_own(lake: InverServer, table: DeltaTable) -> None:
    check(lake, table, {"remote": "local[2]"}, places=1)
