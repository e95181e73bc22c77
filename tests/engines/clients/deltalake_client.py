"""delta-rs: works on a table in a folder, and describes each version by what it reads back.

In: `folder` and `steps`, each one of `["append", first, count]`, `["overwrite", first, count]`,
`["delete", predicate]`, `["update", predicate]`, `["compact"]`; or `open`, a table to open by name.
Out: for each version its rows, files and bytes; or the error that opening raised.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import deltalake
import pyarrow


def rows(first: int, count: int) -> Any:
    return pyarrow.table({"id": pyarrow.array(range(first, first + count), pyarrow.int64())})


def step(folder: str, kind: str, *given: Any) -> None:
    if kind in ("append", "overwrite"):
        deltalake.write_deltalake(folder, rows(*given), mode=kind)
    elif kind == "delete":
        deltalake.DeltaTable(folder).delete(*given)
    elif kind == "update":
        deltalake.DeltaTable(folder).update(updates={"id": "id + 1000"}, predicate=given[0])
    elif kind == "compact":
        deltalake.DeltaTable(folder).optimize.compact()
    else:
        raise ValueError(kind)


def describe(folder: str, version: int) -> dict[str, int]:
    table = deltalake.DeltaTable(folder, version=version)
    files = pyarrow.table(table.get_add_actions(flatten=True))
    sizes = files.column("size_bytes").to_pylist()
    return {"rows": table.to_pyarrow_table().num_rows, "files": len(sizes), "bytes": sum(sizes)}


def main() -> None:
    given = json.loads(sys.stdin.readline())
    if "open" in given:
        try:
            table = deltalake.DeltaTable(given["open"], storage_options=given.get("options"))
            print(json.dumps({"version": table.version()}))
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return
    for given_step in given["steps"]:
        step(given["folder"], *given_step)
    last = deltalake.DeltaTable(given["folder"]).version()
    print(json.dumps([describe(given["folder"], version) for version in range(last + 1)]))


main()
