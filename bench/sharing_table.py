"""Large Delta logs without data: what a share of such a table has to list.

`python -m bench.sharing_table FOLDER [--files N]` writes a table whose checkpoint names N files and
whose tail adds and removes some more; `--commits N` writes one of N commits instead, with its change
data feed on and no checkpoint. The files that the log names do not exist: a listing never opens them.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILES = 1_000_000
DAYS = 1_000
TAIL = 10
COMMITS = 10_000
TOUCHED = 10

_START = datetime.date(2024, 1, 1)
_BATCH = 100_000
_FIELDS = [("id", "long"), ("name", "string"), ("amount", "double"), ("day", "date")]
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in _FIELDS],
    }
)
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 4}
METADATA = {
    "id": str(uuid.UUID(int=7)),
    "format": {"provider": "parquet", "options": {}},
    "schemaString": SCHEMA,
    "partitionColumns": ["day"],
    "configuration": {"delta.enableChangeDataFeed": "true"},
    "createdTime": 1,
}


def write_table(folder: Path, files: int = FILES, days: int = DAYS, tail: int = TAIL) -> None:
    """A checkpoint of version 100 and `tail` commits after it; each removes one file and adds two."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    _write_checkpoint(log / f"{100:020d}.checkpoint.parquet", files, days)
    (log / "_last_checkpoint").write_text(json.dumps({"version": 100, "size": files + 2}))
    for number in range(tail):
        actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": number, "operation": "WRITE"}}]
        actions.append(
            {"remove": {"path": path(number * 3, days), "deletionTimestamp": 1, "dataChange": True}}
        )
        actions += [{"add": add(files + number * 2 + each, days)} for each in range(2)]
        _write_commit(log, 101 + number, actions)


def write_commits(folder: Path, commits: int = COMMITS, touched: int = TOUCHED) -> None:
    """Each commit touches so many files: a fifth of them removed, from the second commit on."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    removed, number, oldest = touched // 5, 0, 0
    for version in range(commits):
        actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": version, "operation": "WRITE"}}]
        if version == 0:
            actions += [{"protocol": PROTOCOL}, {"metaData": METADATA}]
        for _ in range(removed if version else 0):
            gone = {"path": path(oldest, DAYS), "deletionTimestamp": 1, "dataChange": True, "size": 1000}
            actions.append({"remove": {**gone, "partitionValues": {"day": day(oldest, DAYS)}}})
            oldest += 1
        for _ in range(touched - (removed if version else 0)):
            actions.append({"add": add(number, DAYS)})
            number += 1
        _write_commit(log, version, actions)


def day(number: int, days: int) -> str:
    return (_START + datetime.timedelta(days=number % days)).isoformat()


def path(number: int, days: int) -> str:
    # As random as writers' names are, or the checkpoint would be smaller than a real one.
    name = uuid.UUID(bytes=hashlib.blake2b(str(number).encode(), digest_size=16).digest())
    return f"day={day(number, days)}/part-{number:05d}-{name}.c000.snappy.parquet"


def add(number: int, days: int) -> dict[str, Any]:
    return {
        "path": path(number, days),
        "partitionValues": {"day": day(number, days)},
        "size": 1_000 + number % 1_000_000,
        "modificationTime": 1_700_000_000_000 + number,
        "dataChange": True,
        "stats": _stats(number),
    }


def _stats(number: int) -> str:
    low, high = number * 100, number * 100 + 99
    return (
        f'{{"numRecords":100,"minValues":{{"id":{low},"name":"customer-{low:010d}","amount":{low}.25}},'
        f'"maxValues":{{"id":{high},"name":"customer-{high:010d}","amount":{high}.75}},'
        '"nullCount":{"id":0,"name":0,"amount":0}}'
    )


def _write_commit(log: Path, version: int, actions: list[dict[str, Any]]) -> None:
    lines = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    (log / f"{version:020d}.json").write_text(lines)


def _write_checkpoint(target: Path, files: int, days: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _checkpoint_schema()
    with pq.ParquetWriter(target, schema, compression="snappy") as writer:
        head = [{"protocol": {**PROTOCOL}}, {"metaData": {**METADATA, "configuration": [*_pairs()]}}]
        writer.write_table(pa.Table.from_pylist(head, schema=schema))
        for rows in _batches(files, days):
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _batches(files: int, days: int) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, files, _BATCH):
        rows = []
        for number in range(start, min(files, start + _BATCH)):
            action = add(number, days)
            rows.append({"add": {**action, "partitionValues": [*action["partitionValues"].items()]}})
        yield rows


def _pairs() -> Iterator[tuple[str, str]]:
    configuration: Any = METADATA["configuration"]
    yield from configuration.items()


def _checkpoint_schema() -> Any:
    import pyarrow as pa

    text, words = pa.string(), pa.map_(pa.string(), pa.string())
    vector = {"storageType": text, "pathOrInlineDv": text, "offset": pa.int32(), "sizeInBytes": pa.int32()}
    common = {"path": text, "partitionValues": words, "size": pa.int64(), "dataChange": pa.bool_()}
    return pa.schema(
        {
            "add": pa.struct(
                {
                    **common,
                    "modificationTime": pa.int64(),
                    "stats": text,
                    "tags": words,
                    "deletionVector": pa.struct({**vector, "cardinality": pa.int64()}),
                    "baseRowId": pa.int64(),
                    "defaultRowCommitVersion": pa.int64(),
                }
            ),
            "remove": pa.struct({**common, "deletionTimestamp": pa.int64()}),
            "metaData": pa.struct(
                {
                    "id": text,
                    "name": text,
                    "format": pa.struct({"provider": text, "options": words}),
                    "schemaString": text,
                    "partitionColumns": pa.list_(text),
                    "configuration": words,
                    "createdTime": pa.int64(),
                }
            ),
            "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a large Delta log.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--commits", type=int)
    arguments = parser.parse_args()
    if arguments.commits is None:
        write_table(arguments.folder, arguments.files)
    else:
        write_commits(arguments.folder, arguments.commits)


if __name__ == "__main__":
    main()
