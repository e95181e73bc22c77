"""PyIceberg's own rules for table metadata, driven by lines.

The first line is anything. Each further one is the `metadata` of a table, the `file` it lies in,
and the `updates` of a commit; the answer is the metadata after it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import TypeAdapter
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import TableUpdate, update_table_metadata

UPDATES = TypeAdapter(tuple[TableUpdate, ...])


def apply(metadata: Any, file: str, updates: Any) -> Any:
    base = TableMetadataUtil.parse_raw(json.dumps(metadata))
    made = update_table_metadata(base, UPDATES.validate_python(updates), metadata_location=file)
    return json.loads(made.model_dump_json())


def main() -> None:
    sys.stdin.readline()
    for line in sys.stdin:
        try:
            answer = {"answer": apply(**json.loads(line))}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


main()
