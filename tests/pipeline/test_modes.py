"""The same jobs, of all formats, on every kind of Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inver.client import Client
from inver.domain.care import Job, Options, Outcome, Result, Ticket
from inver.domain.tables import Format
from inver.formats.deletion_vectors import inline
from tests.fixtures.care_jobs import ticket_of
from tests.fixtures.care_lance import Table as LanceTable
from tests.fixtures.clients import ClientMissing, client
from tests.fixtures.delta import DeltaTable, add_file, new_table
from tests.fixtures.iceberg_clients import PyIceberg, catalog_of, running_pyiceberg
from tests.fixtures.lance import Namespace
from tests.fixtures.managed import live
from tests.fixtures.server import InverServer
from tests.fixtures.spark_modes import QUICK, SMALL, run_in_process, running_connect, running_standalone

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

FILES = 6
ROWS = 10
DAYS_S = 48 * 3600
STRAY = "stray.parquet"
AT_ONCE = {"snapshot_hours": 0.0, "allow_short_retention": True}


@dataclass
class Tables:
    """One of each format, with six small files; a row of Delta's and one of Lance's are deleted."""

    lake: InverServer
    client: Client
    delta: DeltaTable
    lance: LanceTable
    pyiceberg: PyIceberg | None
    name: str

    def jobs(self, with_orphans: bool) -> list[Ticket]:
        small = max(add["size"] for add in live(self.delta)) * 2 + 10
        wanted: list[tuple[tuple[str, ...], Job, dict[str, Any]]] = [
            # Files of this size share a bin in pairs, so there is work for several tasks.
            (tuple(self.delta.name.split(".")), Job.COMPACT, {"target_file_size": small}),
            (tuple(self.delta.name.split(".")), Job.CLUSTER, {"cluster_columns": ("id",)}),
            (tuple(self.lance.space.id(self.lance.name)), Job.COMPACT, {"min_small_files": 4}),
        ]
        if self.pyiceberg is not None:
            iceberg = ("lake", "care", self.name)
            wanted += [
                (iceberg, Job.COMPACT, {"min_small_files": 4}),
                (iceberg, Job.EXPIRE, AT_ONCE),
            ]
            if with_orphans:
                wanted.append((iceberg, Job.ORPHANS, {}))
        return [self._ticket(*each) for each in wanted]

    def _ticket(self, name: tuple[str, ...], job: Job, options: dict[str, Any]) -> Ticket:
        return ticket_of(self.client, name, job, Options(**options))

    def delta_ids(self) -> list[int]:
        """Of the files that are live, none of which has deleted rows any more."""
        adds = live(self.delta)
        assert not any("deletionVector" in add for add in adds)
        return sorted(
            i for add in adds for i in pq.read_table(self.delta.folder / add["path"])["id"].to_pylist()
        )

    def iceberg_ids(self) -> list[int]:
        assert self.pyiceberg is not None
        return sorted(row[0] for row in self.pyiceberg("scan", ["care", self.name]))

    @property
    def iceberg_folder(self) -> Path:
        location = self.client.table(("lake", "care", self.name)).location or ""
        return Path(location.removeprefix("file://"))


@pytest.fixture(scope="module")
def pyiceberg(lake: InverServer, connectors: list[Path], tmp_path_factory: Any) -> Iterator[PyIceberg | None]:
    """None where Iceberg's jar or its client cannot be had; the other formats need neither."""
    try:
        python = client("pyiceberg") if connectors else None
    except ClientMissing:
        python = None
    if python is None:
        yield None
        return
    with running_pyiceberg(python, tmp_path_factory.mktemp("pyiceberg"), catalog_of(lake)) as session:
        yield session


@pytest.fixture
def tables(
    lake: InverServer, http: httpx.Client, pyiceberg: PyIceberg | None, request: pytest.FixtureRequest
) -> Iterator[Tables]:
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    space = Namespace(lake)
    with Client(lake.url, lake.token) as management:
        lance = LanceTable(space, management, None, "t").fill(FILES, ROWS)
        lance.open().delete("id = 3")
        made = Tables(lake, management, _delta(http, f"lake.care.{name}"), lance, pyiceberg, f"{name}_i")
        if pyiceberg is not None:
            _fill(pyiceberg, made)
        yield made
    space.close()


def _delta(http: httpx.Client, name: str) -> DeltaTable:
    table = new_table(http, name)
    adds: list[Any] = []
    for number in range(FILES):
        path = table.folder / f"{number}.parquet"
        pq.write_table(pa.table({"id": pa.array(range(number * ROWS, (number + 1) * ROWS))}), path)
        adds.append(add_file(path.name, path.stat().st_size, ROWS))
    deleted = inline([3])
    adds[0]["add"]["deletionVector"] = {
        "storageType": deleted.storage_type,
        "pathOrInlineDv": deleted.path_or_inline_dv,
        "sizeInBytes": deleted.size_in_bytes,
        "cardinality": deleted.cardinality,
    }
    table.append(1, *adds)
    return table


def _fill(pyiceberg: PyIceberg, made: Tables) -> None:
    pyiceberg("create", ["care", made.name])
    for start in range(0, FILES * ROWS, ROWS):
        pyiceberg("append", ["care", made.name], rows=[[id, f"n{id}"] for id in range(start, start + ROWS)])
    stray = made.iceberg_folder / "data" / STRAY
    stray.write_bytes(b"left")
    os.utime(stray, (time.time() - DAYS_S,) * 2)


def check(tables: Tables, session: dict[str, Any], jars: Sequence[Path], places: int) -> None:
    # Of the jobs on Iceberg, this one makes a view in its session, which Connect has on the server.
    tickets = tables.jobs(with_orphans="remote" in session)
    server = {"url": tables.lake.url, "token": tables.lake.token}
    results, used = run_in_process(server, tickets, {**session, "jars": [str(each) for each in jars]})
    found = dict(zip([(each.format, each.job) for each in tickets], results, strict=True))
    assert {key: result.outcome for key, result in found.items()} == dict.fromkeys(found, Outcome.DONE), found
    assert used >= places

    compacted = found[Format.DELTA, Job.COMPACT].measured
    assert (compacted["files_removed"], compacted["files_added"]) == (FILES, FILES // 2)
    ids = [i for i in range(FILES * ROWS) if i != 3]
    assert tables.delta_ids() == ids
    assert len(live(tables.delta)) == 1
    assert tables.lance.ids() == ids
    assert tables.lance.fragments == 1
    if tables.pyiceberg is not None:
        _check_iceberg(tables, found)


def _check_iceberg(tables: Tables, found: dict[tuple[Format, Job], Result]) -> None:
    compacted = found[Format.ICEBERG, Job.COMPACT].measured
    assert (compacted["rewritten"], compacted["added"]) == (FILES, 1)
    assert found[Format.ICEBERG, Job.EXPIRE].measured["snapshots"] == FILES
    orphans = found.get((Format.ICEBERG, Job.ORPHANS))
    assert orphans is None or orphans.measured["files"] == 1
    stray = tables.iceberg_folder / "data" / STRAY
    assert stray.exists() == (orphans is None)
    [left] = {*(tables.iceberg_folder / "data").rglob("*.parquet")} - {stray}
    assert pq.read_metadata(left).num_rows == FILES * ROWS
    assert tables.iceberg_ids() == list(range(FILES * ROWS))


def test_on_a_master_with_two_workers(tables: Tables, connectors: list[Path], tmp_path: Path) -> None:
    with running_standalone(tmp_path) as address:
        conf = {**QUICK, "spark.executor.memory": "600m", "spark.executor.extraJavaOptions": " ".join(SMALL)}
        check(tables, {"master": address, "conf": conf}, connectors, places=2)


def test_over_connect(tables: Tables, connectors: list[Path], tmp_path: Path) -> None:
    """The server has the jars: what a session brings along, tasks cannot load."""
    with running_connect(tmp_path, connectors) as address:
        check(tables, {"remote": address}, (), places=1)


def test_over_a_connect_server_of_our_own(tables: Tables) -> None:
    tables.pyiceberg = None
    check(tables, {"remote": "local[2]"}, (), places=1)
