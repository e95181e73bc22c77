"""Compaction of a Delta table beside two other ways to the same files, in one Spark, each of them warm.

`python -m bench.care_rewrite` measures and prints. A table of many small files, part of which have
deletion vectors, with row tracking, is written again:

    ours       the care job on a managed table, committed through the server
    optimize   delta-spark's own OPTIMIZE, on an equal table that no catalog manages
    scan       a scan of the files, an anti-join with the deleted rows, and Spark's own writer

Rows, row ids and the columns that have statistics must be the same after the first two; the third writes
no log at all. Of several rounds the fastest counts, after one that warms up.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from inver.client import Client
from inver.domain.care import Job, Outcome
from inver.formats.deletion_vectors import file_of
from inver.formats.roaring import RowSet
from inver.pipeline.session import open_session
from tests.fixtures.delta import DeltaTable, new_schema, unity
from tests.fixtures.jvm import jars
from tests.fixtures.managed import Made, live, published_copy, run_job
from tests.fixtures.server import running_inver
from tests.fixtures.spark import DELTA

FILES = 200
ROWS = 25_000
DELETED = 500
WITH_VECTORS = 80
TARGET = 16 << 20
ROUNDS = 3
BOUNDS = {"optimize": 2.0, "scan": 3.0}
IDS = ("_row-id-col-bench", "_row-commit-version-col-bench")


def run(files: int = FILES, rows: int = ROWS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Seconds of each way, and how much longer than ours the others take."""
    with tempfile.TemporaryDirectory(prefix="inver-bench-") as name:
        folder = Path(name)
        write_table(folder / "table", files, rows)
        spark = _session(folder)
        try:
            figures = _measure(spark, folder, rounds)
        finally:
            spark.stop()
    return {"files": files, "rows": files * rows, "bounds": BOUNDS, **figures}


def _measure(spark: Any, folder: Path, rounds: int) -> dict[str, Any]:
    ours, optimized, scanned = Ours(spark, folder), Optimize(spark, folder), Scan(spark, folder)
    with ours:
        ways: dict[str, Any] = {"ours": ours, "optimize": optimized, "scan": scanned}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            for name, way in ways.items():
                prepared = way.prepare(number)
                started = time.perf_counter()
                prepared()
                if number:
                    seconds[name].append(time.perf_counter() - started)
        same = {name: ways[name].found() for name in ("ours", "optimize")}
    assert same["ours"] == same["optimize"], same
    best = {name: min(found) for name, found in seconds.items()}
    return {
        **{f"{name}_s": round(found, 3) for name, found in best.items()},
        **{f"{name}_median_s": round(statistics.median(found), 3) for name, found in seconds.items()},
        "times_optimize": round(best["optimize"] / best["ours"], 2),
        "times_scan": round(best["scan"] / best["ours"], 2),
    }


class Ours:
    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.table: DeltaTable | None = None

    def __enter__(self) -> Ours:
        self._running = running_inver(self.folder / "home")
        server = self._running.__enter__()
        self.http = unity(server)
        new_schema(self.http, "lake.bench")
        self.client = Client(server.url, server.token)
        return self

    def __exit__(self, *_: Any) -> None:
        self.client.close()
        self.http.close()
        self._running.__exit__(None, None, None)

    def prepare(self, number: int) -> Callable[[], None]:
        table = self.table = Made(self.spark, self.folder / "table").adopt(self.http, "lake.bench")

        def compact() -> None:
            result = run_job(self.client, self.spark, table, Job.COMPACT, target_file_size=TARGET)
            assert result.outcome is Outcome.DONE, result

        return compact

    def found(self) -> Any:
        assert self.table is not None
        return _found(self.spark, published_copy(self.table, self.folder / "ours"), live(self.table))


class Optimize:
    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.copy = folder

    def prepare(self, number: int) -> Callable[[], None]:
        self.copy = self.folder / f"optimize-{number}"
        shutil.copytree(self.folder / "table", self.copy)

        def optimize() -> None:
            self.spark.sql(f"OPTIMIZE delta.`{self.copy}`").collect()

        return optimize

    def found(self) -> Any:
        table = DeltaTable(None, "", "", str(self.copy), ())  # type: ignore[arg-type]
        return _found(self.spark, self.copy, live(table))


class Scan:
    """Plain Spark, told by us which rows of which files are deleted."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        lines = (folder / "table" / "_delta_log" / f"{1:020d}.json").open()
        self.adds = [json.loads(line)["add"] for line in lines if '"add"' in line]
        self.deleted = json.loads((folder / "deleted.json").read_text())

    def prepare(self, number: int) -> Callable[[], None]:
        target = self.folder / f"scan-{number}"
        return lambda: self._rewrite(target)

    def _rewrite(self, target: Path) -> None:
        from pyspark.sql import functions as f

        paths = {add["path"]: f"file:{self.folder / 'table' / add['path']}" for add in self.adds}
        bins = max(1, round(sum(add["size"] for add in self.adds) / TARGET))
        facts = [
            (paths[add["path"]], add["baseRowId"], add["defaultRowCommitVersion"], at % bins)
            for at, add in enumerate(self.adds)
        ]
        known = self.spark.createDataFrame(facts, "_f string, _b long, _v long, _bin int")
        gone = pa.table(
            {
                "_f": [paths[path] for path, rows in self.deleted.items() for _ in rows],
                "_p": pa.array([row for rows in self.deleted.values() for row in rows], pa.int64()),
            }
        )
        frame = self.spark.read.parquet(*paths.values()).select(
            "*", f.col("_metadata.file_path").alias("_f"), f.col("_metadata.row_index").alias("_p")
        )
        frame = frame.join(f.broadcast(self.spark.createDataFrame(gone)), ["_f", "_p"], "left_anti")
        frame = frame.join(f.broadcast(known), "_f")
        frame = frame.withColumn(IDS[0], f.col("_b") + f.col("_p")).withColumn(IDS[1], f.col("_v"))
        frame = frame.repartition(bins, "_bin").drop("_f", "_p", "_b", "_v", "_bin")
        frame.write.parquet(str(target))


def _found(spark: Any, folder: Path, adds: list[dict[str, Any]]) -> Any:
    """What a reader finds: rows and their ids, and by which columns files can be skipped."""
    sums = "count(*), sum(id), sum(i), round(sum(d), 3), count(DISTINCT s), "
    row = spark.sql(
        f"SELECT {sums} sum(_metadata.row_id), sum(_metadata.row_commit_version) FROM delta.`{folder}`"
    ).collect()[0]
    known = [json.loads(add["stats"]) for add in adds]
    columns = {key: sorted(known[0][key]) for key in ("minValues", "maxValues", "nullCount")}
    assert all(sorted(each[key]) == names for each in known for key, names in columns.items())
    assert sum(each["numRecords"] for each in known) == row[0]
    return [*row, columns]


def write_table(folder: Path, files: int, rows: int) -> None:
    """Small files with deletion vectors, as a table that no catalog manages."""
    random = np.random.default_rng(2)
    (folder / "_delta_log").mkdir(parents=True)
    adds: list[dict[str, Any]] = []
    deleted: dict[str, list[int]] = {}
    for number in range(files):
        path = folder / f"part-{number:05d}.parquet"
        pq.write_table(_rows(random, number, rows), path, compression="zstd")
        add: dict[str, Any] = {
            "path": path.name,
            "partitionValues": {},
            "size": path.stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows}),
            "baseRowId": number * rows,
            "defaultRowCommitVersion": 1,
        }
        if number % FILES % 5 < WITH_VECTORS * 5 // FILES:
            gone = sorted(random.choice(rows, min(DELETED, rows // 2), replace=False).tolist())
            name, data, [vector] = file_of([RowSet(gone)], uuid.uuid4())
            (folder / name).write_bytes(data)
            deleted[path.name] = gone
            add["deletionVector"] = {
                "storageType": vector.storage_type,
                "pathOrInlineDv": vector.path_or_inline_dv,
                "offset": vector.offset,
                "sizeInBytes": vector.size_in_bytes,
                "cardinality": vector.cardinality,
            }
            # A client that adds a vector says that bounds are not tight any more.
            add["stats"] = json.dumps({"numRecords": rows, "tightBounds": False})
        adds.append(add)
    (folder.parent / "deleted.json").write_text(json.dumps(deleted))
    mark = json.dumps({"rowIdHighWaterMark": files * rows - 1})
    domain = {"domain": "delta.rowTracking", "configuration": mark, "removed": False}
    _commit(
        folder, 0, [*_head(), {"domainMetadata": {**domain, "configuration": '{"rowIdHighWaterMark":-1}'}}]
    )
    _commit(folder, 1, [{"domainMetadata": domain}, *({"add": add} for add in adds)])


def _rows(random: Any, number: int, rows: int) -> pa.Table:
    ids = np.arange(number * rows, (number + 1) * rows)
    return pa.table(
        {
            "id": ids,
            "ts": pa.array(
                (1_700_000_000_000_000 + ids * 1000).astype("datetime64[us]"), pa.timestamp("us", "UTC")
            ),
            "k": np.char.add("key_", random.integers(0, 100_000, rows).astype(str)),
            "d": random.random(rows),
            "i": random.integers(0, 1000, rows).astype(np.int32),
            "s": np.char.add("payload_", random.integers(0, 10_000_000, rows).astype(str)),
        }
    )


def _head() -> list[dict[str, Any]]:
    types = {"id": "long", "ts": "timestamp", "k": "string", "d": "double", "i": "integer", "s": "string"}
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in types.items()]
    configuration = {
        "delta.enableDeletionVectors": "true",
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": IDS[0],
        "delta.rowTracking.materializedRowCommitVersionColumnName": IDS[1],
    }
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": configuration,
        "createdTime": 1,
    }
    features = ["deletionVectors", "rowTracking", "domainMetadata"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features[:1],
        "writerFeatures": features,
    }
    return [{"protocol": protocol}, {"metaData": metadata}]


def _commit(folder: Path, version: int, actions: list[dict[str, Any]]) -> None:
    info = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationParameters": {}}}
    lines = [json.dumps(action) + "\n" for action in [info, *actions]]
    (folder / "_delta_log" / f"{version:020d}.json").write_text("".join(lines))


def _session(folder: Path) -> Any:
    conf = {
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.optimize.minFileSize": str(TARGET),
        "spark.databricks.delta.optimize.maxFileSize": str(TARGET),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    files = sorted(jars("delta-spark", DELTA, transitive=False).glob("*.jar"))
    return open_session(f"local[{os.cpu_count()}]", conf=conf, jars=files)


if __name__ == "__main__":
    few = len(sys.argv) > 1 and sys.argv[1] == "--quick"
    print(json.dumps(run(20, 5_000, 1) if few else run(), indent=2))
