"""Polars' catalog client, driven by lines: the first has its `url` and `token` as JSON.

Each further line is a method and its arguments; `scan` reads the table that it names.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import polars as pl


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(each) for each in value]
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]


def call(catalog: Any, method: str, *arguments: Any) -> Any:
    if method == "scan":
        return catalog.scan_table(*arguments).collect().to_dicts()
    return plain(getattr(catalog, method)(*arguments))


def main() -> None:
    given = json.loads(sys.stdin.readline())
    catalog = pl.Catalog(given["url"], bearer_token=given["token"], require_https=False)
    for line in sys.stdin:
        try:
            answer = {"answer": call(catalog, *json.loads(line))}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer, default=str), flush=True)


main()
