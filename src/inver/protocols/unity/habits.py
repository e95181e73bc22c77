"""What single clients cannot take, and what they are told instead."""

from __future__ import annotations

import re
from collections.abc import Iterable

from inver.protocols.http import Request
from inver.protocols.unity.columns import Column

_UNREAD = re.compile(r'[tT]ype": ?"(?:timestamp_ntz|variant|interval)')


def is_duckdb(request: Request) -> bool:
    return (request.header(b"user-agent") or b"").startswith(b"duckdb/")


def duckdb_reads(columns: Iterable[Column]) -> bool:
    """Whether DuckDB's extension knows the types of a table that is listed.

    For one column that it does not know it refuses every table of the schema. It opens the others
    when such a table is listed without columns.
    """
    return not any(
        column.type_name == "USER_DEFINED_TYPE"
        or "`" in column.type_text
        or "struct<>" in column.type_text
        or _UNREAD.search(column.type_json)
        for column in columns
    )
