"""What the verbs of `inver table` do."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from inver.cli import output
from inver.cli.options import changes, open_client, read_json

if TYPE_CHECKING:
    from inver.client.types import Commit, Report, Table


def list_(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = list((client.dropped_tables if arguments.dropped else client.tables)(arguments.schema))
    columns: list[output.Column[Table]] = [
        ("NAME", lambda item: item.name),
        ("FORMAT", lambda item: item.format),
        ("KIND", lambda item: item.kind),
        ("VERSION", lambda item: item.version),
        ("OWNER", lambda item: item.owner),
    ]
    if arguments.dropped:
        columns += [("ID", lambda item: item.id), ("DROPPED", lambda item: output.moment(item.dropped_at))]
    else:
        columns += [("UPDATED", lambda item: output.moment(item.updated_at))]
    output.show_list(arguments, found, columns, lambda item: item.id if arguments.dropped else item.name)
    return 0


def show(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.table(arguments.table)
    return _show(arguments, found)


def create(arguments: Namespace) -> int:
    definition = _definition(arguments) | {
        "schema": arguments.schema,
        "partition_by": arguments.partition_by,
    }
    with open_client(arguments) as client:
        made = client.create_table(arguments.table, arguments.format, **definition)
    return _show(arguments, made)


def register(arguments: Namespace) -> int:
    definition = _definition(arguments) | {"location": arguments.location, "version": arguments.version}
    with open_client(arguments) as client:
        made = client.create_table(arguments.table, arguments.format, **definition)
    return _show(arguments, made)


def alter(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        before = client.table(arguments.table)
        given = changes(arguments, before.properties)
        changed = client.alter_table(arguments.table, **given, if_match=before.etag)
    return _show(arguments, changed)


def rename(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        renamed = client.rename_table(arguments.table, arguments.to)
    return _show(arguments, renamed)


def drop(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        client.drop_table(arguments.table)
    output.show_done(arguments, "dropped", arguments.table)
    return 0


def undrop(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        back = client.undrop_table(arguments.id, arguments.to)
    return _show(arguments, back)


def history(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.history(
            arguments.table,
            branch=arguments.branch,
            first=arguments.first,
            last=arguments.last,
            limit=arguments.limit,
        )
    columns: list[output.Column[Commit]] = [
        ("VERSION", lambda item: item.version),
        ("AT", lambda item: output.moment(item.at)),
        ("BY", lambda item: item.by),
        ("OPERATION", lambda item: item.operation),
        ("ROWS", lambda item: _balance(item.counts, "rows")),
        ("FILES", lambda item: _balance(item.counts, "files")),
        ("TRANSACTION", lambda item: item.transaction),
    ]
    output.show_list(arguments, found, columns, lambda item: str(item.version))
    return 0


def metrics(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.metrics(arguments.table, limit=arguments.limit)
    columns: list[output.Column[Report]] = [
        ("VERSION", lambda item: item.version),
        ("AT", lambda item: output.moment(item.at)),
        ("FILES", lambda item: _balance(item.report, "files")),
        ("BYTES", lambda item: _balance(item.report, "bytes")),
        ("INSERTED", lambda item: item.report.get("rows_inserted")),
        ("REMOVED", lambda item: item.report.get("rows_removed")),
        ("UPDATED", lambda item: item.report.get("rows_updated")),
    ]
    output.show_list(arguments, found, columns, lambda item: str(item.version))
    return 0


def _show(arguments: Namespace, table: Table) -> int:
    from inver.client import dotted

    output.show_one(arguments, table, dotted(table.full_name))
    return 0


def _definition(arguments: Namespace) -> dict[str, Any]:
    columns: list[dict[str, Any]] = []
    if arguments.columns is not None:
        columns = read_json(arguments.columns, "--columns", list[dict[str, Any]])
    return {"comment": arguments.comment, "properties": dict(arguments.set), "columns": columns}


def _balance(counts: dict[str, int] | None, what: str) -> str | None:
    """`+100 -3`, with what is known of it."""
    if counts is None:
        return None
    signs = (("+", f"{what}_added"), ("-", f"{what}_removed"))
    return " ".join(f"{sign}{counts[name]}" for sign, name in signs if name in counts) or None
