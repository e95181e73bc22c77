"""Polars' catalog client: calls its methods by name; `scan` reads the table that it names."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import polars as pl  # type: ignore[import-not-found]


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(each) for each in value]
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]


def call(catalog: Any, method: str, *arguments: Any) -> Any:
    try:
        if method == "scan":
            frame: Any = catalog.scan_table(*arguments).collect()
            return frame.to_dicts()
        return plain(getattr(catalog, method)(*arguments))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    given = json.loads(sys.stdin.readline())
    catalog = pl.Catalog(given["url"], bearer_token=given["token"], require_https=False)
    print(json.dumps([call(catalog, *each) for each in given["calls"]], default=str))


main()
