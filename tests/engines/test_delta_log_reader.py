"""Logs that other writers wrote, read as those writers read them themselves."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from inver.domain.delta_actions import Add, Cdc, DeletionVector, Remove, decoded
from inver.domain.delta_schema import columns
from inver.domain.locations import Location
from inver.formats import deletion_vectors
from inver.formats.delta_log.changes import changes, plan_changes
from inver.formats.delta_log.reader import LogReader
from inver.formats.delta_log.snapshot import Snapshot
from inver.formats.delta_log.source import Log
from inver.formats.roaring import RowSet
from inver.storage.local import LocalStore
from tests.fixtures.clients import Client
from tests.fixtures.jvm import JvmMissing, jars
from tests.fixtures.spark import DELTA, Spark, spark_session


def open_log(folder: Path) -> Log:
    return Log(LocalStore(Location.parse(str(folder))), str(folder))


def snapshot(folder: Path, cache: Path, version: int | None = None) -> Snapshot:
    return asyncio.run(LogReader(cache).snapshot(open_log(folder), version))


def files(found: Snapshot) -> dict[str, list[int]]:
    """Size and records of each file, as delta-rs tells them."""
    return {
        row["path"]: [row["size"], json.loads(row["stats"])["numRecords"]]
        for batch in found.batches()
        for row in batch.rows.to_pylist()
    }


STEPS: list[list[Any]] = [
    ["append", 0, 30],
    ["append", 30, 12],
    ["delete", "id < 4"],
    ["checkpoint"],
    ["append", 50, 6],
    ["compact"],
    ["append", 60, 9],
    ["delete", "id > 65"],
]


def test_delta_rs(deltalake: Client, tmp_path: Path):
    folder = tmp_path / "table"
    told = deltalake.run("delta_log_client.py", {"folder": str(folder), "steps": STEPS})
    assert list(told["versions"]) == [str(version) for version in range(7)]
    assert (folder / "_delta_log" / "_last_checkpoint").exists()
    for version, expected in told["versions"].items():
        clear = {decoded(path): value for path, value in expected.items()}
        assert files(snapshot(folder, tmp_path / "cache", int(version))) == clear
    latest = snapshot(folder, tmp_path / "cache")
    assert latest.base_version == 2
    for path in files(latest):
        assert (folder / path).exists(), path


def test_delta_rs_reads_our_deletion_vectors(deltalake: Client, tmp_path: Path):
    """Rows that vectors of ours delete are gone for another reader: in a file, and inline."""
    folder = tmp_path / "table"
    deltalake.run("delta_log_client.py", {"folder": str(folder), "steps": [["append", 0, 30]]})
    gone = {number: RowSet(range(number, 9, 2)) for number in range(2)}
    path, data, (stored,) = deletion_vectors.file_of([gone[0]], uuid.uuid4())
    (folder / path).write_bytes(data)
    vectors = [stored, deletion_vectors.inline(gone[1])]
    commit = (folder / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    adds = [json.loads(line)["add"] for line in commit if '"add"' in line]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    lines: list[Any] = [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}]
    expected = set(range(30))
    for number, (add, vector) in enumerate(zip(adds, vectors, strict=False)):
        ids = pq.read_table(folder / decoded(add["path"]), partitioning=None).column("id").to_pylist()
        expected -= {ids[row] for row in gone[number]}
        lines.append({"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}})
        lines.append({"add": {**add, "deletionVector": _builtins(vector)}})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "_delta_log" / f"{1:020d}.json").write_text(text)
    told = deltalake.run("delta_log_client.py", {"folder": str(folder), "rows": True, "versions": []})
    assert told["rows"] == sorted(expected)
    assert len(expected) == 30 - 9


def _builtins(vector: DeletionVector) -> Any:
    import msgspec

    return msgspec.to_builtins(vector)


@pytest.fixture(scope="module")
def session(spark: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.checkpoint.partSize": "3",
        "spark.databricks.delta.deletionVectors.deltaFileSizeForPackingThreshold": "1",
    }
    try:
        files = sorted(jars("delta-spark", DELTA, transitive=False).glob("*.jar"))
        with spark_session(spark, tmp_path_factory.mktemp("spark"), files, settings) as session:
            yield session
    except JvmMissing as missing:
        pytest.skip(str(missing))


# By name: properties of a table, and what is special about it.
TABLES = {
    "plain": {"delta.checkpointInterval": "3", "delta.enableDeletionVectors": "false"},
    "vectors": {"delta.checkpointInterval": "100", "delta.enableDeletionVectors": "true"},
    "mapped": {
        "delta.columnMapping.mode": "name",
        "delta.enableDeletionVectors": "true",
        "delta.checkpointInterval": "2",
    },
    "v2": {
        "delta.checkpointPolicy": "v2",
        "delta.checkpointInterval": "3",
        "delta.enableInCommitTimestamps": "true",
        "delta.enableRowTracking": "true",
        "delta.enableDeletionVectors": "true",
    },
}


@pytest.fixture(scope="module", params=TABLES)
def table(request, session: Spark, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with partitions, whose history has every kind of change."""
    folder: Path = tmp_path_factory.mktemp("tables") / request.param
    name = f"delta.`{folder}`"
    given = {"delta.enableChangeDataFeed": "true", **TABLES[request.param]}
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    session.sql(
        f"CREATE TABLE {name} (id LONG, part STRING) USING delta PARTITIONED BY (part) "
        f"TBLPROPERTIES ({properties})"
    )
    insert = (
        "INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, concat('a b%', id % 3) AS part "
        "FROM range({first}, {last})"
    )
    for first in (0, 100, 200):
        session.sql(insert.format(name=name, first=first, last=first + 100))
    session.sql(f"DELETE FROM {name} WHERE id IN (3, 4, 150)")
    session.sql(f"UPDATE {name} SET id = id + 1000 WHERE id = 10")
    session.sql(
        f"MERGE INTO {name} t USING (SELECT 20L AS id, 'a b%2' AS part UNION SELECT 5000L, 'new') s "
        "ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    )
    session.sql(f"MERGE INTO {name} t USING (SELECT 99999L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    session.sql(f"OPTIMIZE {name}")
    session.sql(insert.format(name=name, first=300, last=310))
    session.sql(f"DELETE FROM {name} WHERE part = 'new'")
    session.sql(f"DELETE FROM {name} WHERE id IN (7, 301, 305)")
    return folder


def vector_of(folder: Path, row: dict[str, Any] | DeletionVector | None) -> RowSet:
    import msgspec

    if row is None:
        return RowSet()
    vector = row if isinstance(row, DeletionVector) else msgspec.convert(row, DeletionVector)
    where = deletion_vectors.place(vector)
    if where is None:
        return deletion_vectors.parse_inline(vector)
    data = (folder / where.path).read_bytes()
    deletion_vectors.check_file(data)
    return deletion_vectors.parse_stored(vector, data[where.offset : where.offset + where.length])


def ids(path: Path, physical: str) -> list[int]:
    found: list[int] = pq.read_table(path, columns=[physical], partitioning=None).column(physical).to_pylist()
    return found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
class TestSpark:
    def test_every_version_has_its_rows(self, session: Spark, table: Path, tmp_path: Path):
        versions = [row["version"] for row in session.sql(f"DESCRIBE HISTORY delta.`{table}`")]
        assert len(versions) >= 10
        for version in sorted(versions):
            found = snapshot(table, tmp_path / "cache", version)
            physical = next(each.physical for each in columns(found.metadata) if each.name == "id")
            live: Counter[tuple[int, str]] = Counter()
            for batch in found.batches():
                for row in batch.rows.to_pylist():
                    gone = vector_of(table, row["deletionVector"])
                    (part,) = batch.partitions[row["partition"]].values()
                    rows = ids(table / row["path"], physical)
                    assert json.loads(row["stats"])["numRecords"] == len(rows)
                    live.update((each, str(part)) for at, each in enumerate(rows) if at not in gone)
            expected = session.values(f"SELECT id, part FROM delta.`{table}` VERSION AS OF {version}")
            assert live == Counter(expected), version

    def test_totals(self, session: Spark, table: Path, tmp_path: Path):
        found = snapshot(table, tmp_path / "cache")
        (detail,) = session.sql(f"DESCRIBE DETAIL delta.`{table}`")
        assert (found.files, found.bytes) == (detail["numFiles"], detail["sizeInBytes"])
        assert (found.vectors > 0) is (table.name != "plain")

    def test_every_checkpoint_says_what_the_commits_say(self, table: Path, tmp_path: Path):
        """Without its checkpoints, the log has the same files."""
        bare = tmp_path / "bare"
        shutil.copytree(table, bare)
        made = list((bare / "_delta_log").glob("*.checkpoint*"))
        for path in made:
            path.unlink()
        assert bool(made) is (table.name != "vectors")
        with_them, without = snapshot(table, tmp_path / "cache"), snapshot(bare, tmp_path / "cache")
        assert (with_them.base_version, without.base_version == -1) != (-1, False)
        assert files(with_them) == files(without)
        assert (with_them.protocol, with_them.metadata) == (without.protocol, without.metadata)
        assert with_them.domains == without.domains

    def test_changes_are_sparks(self, session: Spark, table: Path, tmp_path: Path):
        latest = snapshot(table, tmp_path / "cache")
        physical = next(each.physical for each in columns(latest.metadata) if each.name == "id")
        expected = Counter(
            session.values(
                "SELECT _commit_version, _change_type, id, CAST(_commit_timestamp AS DOUBLE) "
                f"FROM table_changes('delta.`{table}`', 0)"
            )
        )
        assert asyncio.run(_changed_rows(table, tmp_path / "cache", physical)) == expected


async def _changed_rows(folder: Path, cache: Path, physical: str) -> Counter[tuple[Any, ...]]:
    reader, log = LogReader(cache), open_log(folder)
    listed = await reader.listing(log)
    found: Counter[tuple[Any, ...]] = Counter()
    async for commit in changes(reader, await plan_changes(reader, log, listed, 0, listed.latest)):
        when = commit.timestamp / 1000
        vectors: dict[str, dict[type, RowSet | None]] = {}
        for file in commit.files:
            path = decoded(file.path)
            if isinstance(file, Cdc):
                rows = pq.read_table(folder / path, partitioning=None)
                for each, kind in zip(
                    *(rows.column(name).to_pylist() for name in (physical, "_change_type")), strict=True
                ):
                    found[commit.version, kind, each, when] += 1
            else:
                vectors.setdefault(path, {})[type(file)] = vector_of(folder, file.deletion_vector)
        for path, sides in vectors.items():
            rows = ids(folder / path, physical)
            everything = RowSet(range(len(rows)))
            # A file that is not there is one whose rows are all deleted.
            lost, back = deletion_vectors.changed_rows(
                sides.get(Remove, everything), sides.get(Add, everything)
            )
            for kind, changed in (("delete", lost), ("insert", back)):
                found.update((commit.version, kind, rows[row], when) for row in changed)
    return found
