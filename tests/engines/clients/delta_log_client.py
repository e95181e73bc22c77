"""delta-rs as a judge of logs: what it reads from a table's folder, version by version.

In: `folder`, and `steps` to do first, each one of `["append", first, count]`, `["delete", predicate]`,
`["compact"]`, `["checkpoint"]`. `rows` asks for the rows too.
Out: for each version that it can open `{path: [size, records]}`; with `rows` also the ids of the latest.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import deltalake
import pyarrow


def rows(first: int, count: int) -> Any:
    ids = range(first, first + count)
    columns = {"id": pyarrow.array(ids, pyarrow.int64()), "part": [f"a b%{each % 3}" for each in ids]}
    return pyarrow.table(columns)


def step(folder: str, kind: str, *given: Any) -> None:
    if kind == "append":
        deltalake.write_deltalake(folder, rows(*given), mode="append", partition_by=["part"])
        return
    table = deltalake.DeltaTable(folder)
    if kind == "delete":
        table.delete(*given)
    elif kind == "compact":
        table.optimize.compact()
    elif kind == "checkpoint":
        table.create_checkpoint()
    else:
        raise ValueError(kind)


def files(folder: str, version: int) -> dict[str, list[int]]:
    actions = deltalake.DeltaTable(folder, version=version).get_add_actions(flatten=True)
    columns = pyarrow.table(actions).select(["path", "size_bytes", "num_records"]).to_pydict()
    return {path: [size, records] for path, size, records in zip(*columns.values(), strict=True)}


def main() -> None:
    given = json.loads(sys.stdin.readline())
    folder = given["folder"]
    for each in given.get("steps", ()):
        step(folder, *each)
    table = deltalake.DeltaTable(folder)
    found: dict[str, Any] = {"latest": table.version(), "versions": {}}
    for version in given.get("versions", range(table.version() + 1)):
        found["versions"][version] = files(folder, version)
    if given.get("rows"):
        builder = deltalake.QueryBuilder().register("t", table)
        batch = pyarrow.table(builder.execute("SELECT id FROM t ORDER BY id").read_all())
        found["rows"] = batch.column("id").to_pylist()
    print(json.dumps(found))


main()
