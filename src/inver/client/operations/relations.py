"""Tables, and the transactions that change them. Each change is sent under an idempotency key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from inver.client.core import Call, Page, Response, json_answer, json_body, no_answer, query_of
from inver.client.naming import Name, parts_of, segment
from inver.client.operations.containers import schema_path
from inver.client.operations.listing import listing
from inver.client.types import Commit, Receipt, Report, Table, TransactionInfo


def tables(schema: Name, *, page_size: int | None = None) -> Call[Page[Table]]:
    return listing(schema_path(schema) + "/tables", "tables", Table, query_of(max_results=page_size))


def dropped_tables(schema: Name, *, page_size: int | None = None) -> Call[Page[Table]]:
    """Tables that can still come back, last dropped first."""
    return listing(schema_path(schema) + "/dropped", "tables", Table, query_of(max_results=page_size))


def table(name: Name) -> Call[Table]:
    return Call(method="GET", path=table_path(name), read=json_answer(Table))


def table_by_id(table_id: str) -> Call[Table]:
    return Call(method="GET", path=f"/tables/{segment(table_id)}", read=json_answer(Table))


def create_table(
    name: Name,
    format: str,
    *,
    location: str | None = None,
    version: int = 0,
    comment: str | None = None,
    properties: dict[str, str] | None = None,
    columns: Sequence[dict[str, Any]] = (),
    schema: str | None = None,
    partition_by: Sequence[str] = (),
    key: str | None = None,
) -> Call[Table]:
    """A managed table; with a `location`, an external one that stands at `version`.

    With a `schema`, which is columns as in `CREATE TABLE`, the server writes version 0 of a Delta table.
    """
    parts = parts_of(name, least=3, what="table")
    body = {
        "name": parts[-1],
        "format": format.upper(),
        "kind": "MANAGED" if location is None else "EXTERNAL",
        "location": location,
        "version": version,
        "comment": comment,
        "properties": properties or {},
        "columns": list(columns),
        "schema": schema,
        "partition_by": list(partition_by),
    }
    path = schema_path(parts[:-1]) + "/tables"
    return Call(method="POST", path=path, body=json_body(body), keyed=True, key=key, read=json_answer(Table))


def alter_table(
    name: Name,
    *,
    comment: str | None | UnsetType = UNSET,
    properties: dict[str, str] | UnsetType = UNSET,
    columns: Sequence[dict[str, Any]] | UnsetType = UNSET,
    owner: str | UnsetType = UNSET,
    if_match: str | None = None,
    key: str | None = None,
) -> Call[Table]:
    """What is not given stays. `properties` and `columns` replace all of them."""
    body = {"comment": comment, "properties": properties, "columns": columns, "owner": owner}
    return Call(
        method="PATCH",
        path=table_path(name),
        body=json_body(body),
        if_match=if_match,
        keyed=True,
        key=key,
        read=json_answer(Table),
    )


def rename_table(name: Name, to: Name, *, key: str | None = None) -> Call[Table]:
    body = json_body({"to": parts_of(to, least=3, what="table")})
    path = table_path(name) + "/rename"
    return Call(method="POST", path=path, body=body, keyed=True, key=key, read=json_answer(Table))


def drop_table(name: Name, *, if_match: str | None = None, key: str | None = None) -> Call[None]:
    """The table can come back until its hold time is over."""
    path = table_path(name)
    return Call(method="DELETE", path=path, if_match=if_match, keyed=True, key=key, read=no_answer)


def undrop_table(table_id: str, to: Name | None = None, *, key: str | None = None) -> Call[Table]:
    """By id, since a dropped table has no name; under its old name, or as `to`."""
    body = json_body({"to": UNSET if to is None else parts_of(to, least=3, what="table")})
    path = f"/tables/{segment(table_id)}/undrop"
    return Call(method="POST", path=path, body=body, keyed=True, key=key, read=json_answer(Table))


def history(
    name: Name,
    *,
    branch: str | None = None,
    first: int | None = None,
    last: int | None = None,
    limit: int | None = None,
) -> Call[list[Commit]]:
    """Versions from `first` to `last`, newest first."""
    query = query_of(branch=branch, first=first, last=last, max_results=limit)

    def read(response: Response) -> list[Commit]:
        return json_answer(_History)(response).commits

    return Call(method="GET", path=table_path(name) + "/commits", query=query, read=read)


def metrics(name: Name, *, limit: int | None = None) -> Call[list[Report]]:
    """What clients measured of their commits, newest version first."""

    def read(response: Response) -> list[Report]:
        return json_answer(_Reports)(response).reports

    return Call(
        method="GET", path=table_path(name) + "/metrics", query=query_of(max_results=limit), read=read
    )


def transact(operations: Sequence[dict[str, Any]], *, key: str | None = None) -> Call[Receipt]:
    """All operations or none; each is an object with its kind as `op`."""
    body = json_body({"operations": list(operations)})
    return Call(
        method="POST", path="/transactions", body=body, keyed=True, key=key, read=json_answer(Receipt)
    )


def transaction(number: str | int) -> Call[TransactionInfo]:
    path = f"/transactions/{segment(str(number))}"
    return Call(method="GET", path=path, read=json_answer(TransactionInfo))


def table_path(name: Name) -> str:
    parts = parts_of(name, least=3, what="table")
    return f"{schema_path(parts[:-1])}/tables/{segment(parts[-1])}"


class _History(msgspec.Struct):
    commits: list[Commit]


class _Reports(msgspec.Struct):
    reports: list[Report]
