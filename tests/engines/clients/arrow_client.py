"""PyArrow: writes one Parquet file with the ids `first .. first + count - 1` and says how large it is."""

from __future__ import annotations

import json
import os
import sys

import pyarrow
import pyarrow.parquet


def main() -> None:
    given = json.loads(sys.stdin.readline())
    ids = pyarrow.array(range(given["first"], given["first"] + given["count"]), pyarrow.int64())
    pyarrow.parquet.write_table(pyarrow.table({"id": ids}), given["parquet"])
    print(json.dumps({"size": os.stat(given["parquet"]).st_size}))


main()
