"""Spark with the catalog, driven by lines: the first is the session's configuration as JSON.

Each further line is JSON: `{"sql": ...}` answers its rows; with `repeat` it is run so many times,
`{i}` being the number of the round. `{"plan": table, ...}` answers the files of a scan of an Iceberg
table, as Iceberg's own planner gives them. `{"stream": table, "rows": [...], "folder": ...}` appends the
rows as new input of one stream. `{"copy": table, "into": table, "folder": ...}` lets a stream append what is
new in one table to another. `{"follow": options, "folder": ...}` lets a stream of a shared table take
what is there now into files of the folder.

`{"open": settings}` answers the number of another session, with settings and catalogs of its own;
`{"close": number}` forgets it. A line with `in` is for the session of that number, others for the first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def run(spark: Any, given: dict[str, Any]) -> Any:
    if "stream" in given:
        return stream(spark, Path(given["folder"]), given["stream"], given["rows"])
    if "copy" in given:
        return copy(spark, Path(given["folder"]), given["copy"], given["into"], given["options"])
    if "follow" in given:
        return follow(spark, Path(given["folder"]), given["follow"])
    if "plan" in given:
        return plan(spark, **given)
    for i in range(given.get("repeat", 0)):
        spark.sql(given["sql"].replace("{i}", str(i)))
    return None if "repeat" in given else rows(spark.sql(given["sql"]))


def opened(spark: Any, settings: dict[str, str]) -> Any:
    session = spark.newSession()
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def stream(spark: Any, folder: Path, table: str, values: list[dict[str, Any]]) -> None:
    """Files of the folder's input are new rows, each of which the stream takes once."""
    source = folder / "input"
    source.mkdir(parents=True, exist_ok=True)
    number = len(list(source.glob("*.json")))
    (source / f"{number}.json").write_text("\n".join(map(json.dumps, values)))
    schema = spark.table(table).schema
    query = (
        spark.readStream.schema(schema)
        .json(str(source))
        .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .toTable(table)
    )
    query.awaitTermination()


def copy(spark: Any, folder: Path, source: str, target: str, options: dict[str, str]) -> None:
    query = (
        spark.readStream.options(**options)
        .table(source)
        .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .toTable(target)
    )
    query.awaitTermination()


def follow(spark: Any, folder: Path, options: dict[str, str]) -> None:
    query = (
        spark.readStream.format("deltaSharing")
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "rows"))
    )
    query.awaitTermination()


def plan(
    spark: Any,
    plan: str,
    filter: Any = None,
    snapshot: int | None = None,
    ref: str | None = None,
    between: list[int] | None = None,
    stats: list[str] | None = None,
) -> list[list[Any]]:
    """Path, rows, partition, deletes, bounds, row ids and residual of each file."""
    iceberg = spark._jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, plan)
    scan = table.newScan() if between is None else table.newIncrementalAppendScan()
    if snapshot is not None:
        scan = scan.useSnapshot(snapshot)
    if ref is not None:
        scan = scan.useRef(ref)
    if between is not None:
        scan = scan.fromSnapshotExclusive(between[0]).toSnapshot(between[1])
    if filter is not None:
        scan = scan.filter(iceberg.expressions.ExpressionParser.fromJson(json.dumps(filter)))
    if stats is not None:
        scan = scan.includeColumnStats(stats)
    files = scan.planFiles()
    found, tasks = [], files.iterator()
    while tasks.hasNext():
        task = tasks.next()
        file = task.file()
        try:
            # Without `not` and bound, since a filter has several spellings before.
            plain = iceberg.expressions.Expressions.rewriteNot(task.residual())
            residual = str(iceberg.expressions.Binder.bind(scan.schema().asStruct(), plain, True))
        except Exception as error:
            residual = type(error).__name__
        found.append(
            [
                file.location(),
                file.recordCount(),
                str(file.partition()),
                sorted(f"{each.location()}@{each.contentOffset()}" for each in task.deletes()),
                bounds(iceberg, file.lowerBounds()) if stats else None,
                file.firstRowId(),
                residual,
            ]
        )
    files.close()
    return sorted(found)


def bounds(iceberg: Any, known: Any) -> list[Any]:
    pairs = json.loads(iceberg.SingleValueParser.toJson(iceberg.DataFile.LOWER_BOUNDS.type(), known))
    return sorted(zip(pairs["keys"], pairs["values"], strict=True))


def main() -> None:
    builder = SparkSession.builder
    for key, value in json.loads(sys.stdin.readline()).items():
        builder = builder.config(key, value)
    first = builder.getOrCreate()
    first.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"answer": first.version}), flush=True)
    sessions = {0: first}
    for number, line in enumerate(sys.stdin, 1):
        given = json.loads(line)
        spark = sessions[given.pop("in", 0)]
        # A catalog is loaded with the settings of the active session, whichever asks for it.
        SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
        try:
            if "open" in given:
                sessions[number] = opened(spark, given["open"])
                answer: dict[str, Any] = {"answer": number}
            elif "close" in given:
                del sessions[given["close"]]
                answer = {"answer": None}
            else:
                answer = {"answer": run(spark, given)}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer, default=str), flush=True)
    first.stop()


main()
