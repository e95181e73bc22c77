"""Spark with the catalog, driven by lines: the first is the session's configuration as JSON.

Each further line is JSON: `{"sql": ...}` answers its rows; with `repeat` it is run so many times,
`{i}` being the number of the round. `{"stream": table, "rows": [...], "folder": ...}` appends the
rows as new input of one stream.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession  # type: ignore[import-not-found]


def rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def run(spark: Any, given: dict[str, Any]) -> Any:
    if "stream" in given:
        return stream(spark, Path(given["folder"]), given["stream"], given["rows"])
    for i in range(given.get("repeat", 0)):
        spark.sql(given["sql"].replace("{i}", str(i)))
    return None if "repeat" in given else rows(spark.sql(given["sql"]))


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


def main() -> None:
    builder = SparkSession.builder
    for key, value in json.loads(sys.stdin.readline()).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"answer": spark.version}), flush=True)
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"answer": run(spark, json.loads(line))}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer, default=str), flush=True)
    spark.stop()


main()
