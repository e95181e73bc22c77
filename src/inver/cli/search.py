"""`inver search`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, open_client, verb

if TYPE_CHECKING:
    from inver.client.types import SearchResult

KINDS = ("catalog", "schema", "table", "view", "function", "volume")


def add(commands: Subparsers) -> None:
    parser = verb(
        commands,
        "search",
        search,
        "find catalogs, schemas, tables and columns by name",
        "inver search orders",
        "inver search id --kind table -o json",
    )
    parser.add_argument("query", help="part of a name")
    parser.add_argument("--kind", choices=KINDS, help="only these")


def search(arguments: Namespace) -> int:
    from inver.client import dotted

    with open_client(arguments) as client:
        found = list(client.search(arguments.query, kind=arguments.kind))
    columns: list[output.Column[SearchResult]] = [
        ("KIND", lambda item: item.kind),
        ("NAME", lambda item: dotted(item.name)),
        ("COLUMN", lambda item: item.column),
        ("ID", lambda item: item.id),
    ]
    output.show_list(arguments, found, columns, lambda item: dotted(item.name))
    return 0
