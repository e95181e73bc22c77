"""`inver table`: the commands; `table_actions` does what they ask."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from inver.cli import table_actions as do
from inver.cli.options import Subparsers, add_description, noun, verb

NAME = "catalog.schema.table"
FORMATS = ("delta", "iceberg", "lance")


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "table", "list, show and change tables", "inver table list main.sales")
    list_ = verb(
        verbs,
        "list",
        do.list_,
        "list the tables of a schema",
        "inver table list main.sales",
        "inver table list main.sales --dropped",
    )
    list_.add_argument("schema", help="catalog.schema")
    list_.add_argument("--dropped", action="store_true", help="the dropped tables that can still come back")
    show = verb(verbs, "show", do.show, "show a table", "inver table show main.sales.orders -o json")
    show.add_argument("table", help=NAME)
    _add_making(verbs)
    alter = verb(
        verbs,
        "alter",
        do.alter,
        "change a table's comment, properties or owner",
        "inver table alter main.sales.orders --comment 'one row an order' --set team=sales",
    )
    alter.add_argument("table", help=NAME)
    add_description(alter, creating=False)
    rename = verb(
        verbs,
        "rename",
        do.rename,
        "give a table another name, or move it to another schema",
        "inver table rename main.sales.returns main.sales.sent_back",
        about="Its grants, versions and files stay as they are.",
    )
    rename.add_argument("table", help=NAME)
    rename.add_argument("to", help=NAME)
    drop = verb(
        verbs,
        "drop",
        do.drop,
        "drop a table; it can come back until its hold time is over",
        "inver table drop main.sales.sent_back",
    )
    drop.add_argument("table", help=NAME)
    undrop = verb(
        verbs,
        "undrop",
        do.undrop,
        "bring a dropped table back",
        'inver table undrop "$(inver table list main.sales --dropped --quiet)"',
        about="By id, which `inver table list --dropped` shows: its name may be taken by now.",
    )
    undrop.add_argument("id", help="of the dropped table")
    undrop.add_argument("--to", metavar="NAME", help=f"under another name: {NAME}")
    _add_reading(verbs)


def _add_reading(verbs: Subparsers) -> None:
    history = verb(
        verbs,
        "history",
        do.history,
        "show the versions of a table, newest first",
        "inver table history main.sales.orders",
        "inver table history main.sales.orders --first 1 --limit 10 -o json",
    )
    history.add_argument("table", help=NAME)
    history.add_argument("--first", type=int, metavar="VERSION", help="not before this version")
    history.add_argument("--last", type=int, metavar="VERSION", help="not after this version")
    history.add_argument(
        "--limit", type=int, default=100, metavar="N", help="at most so many (default: %(default)s)"
    )
    history.add_argument("--branch", help="versions of a branch (default: those of the table itself)")
    metrics = verb(
        verbs,
        "metrics",
        do.metrics,
        "show what clients measured of their commits",
        "inver table metrics main.sales.orders",
        "inver table metrics main.sales.orders --limit 10 -o json",
    )
    metrics.add_argument("table", help=NAME)
    metrics.add_argument(
        "--limit", type=int, default=100, metavar="N", help="at most so many (default: %(default)s)"
    )


def _add_making(verbs: Subparsers) -> None:
    create = verb(
        verbs,
        "create",
        do.create,
        "make a managed table; the server chooses where it lies",
        "inver table create main.sales.returns --format iceberg --comment 'what came back'",
        "inver table create main.sales.visits --format delta --schema 'id BIGINT, city STRING'",
    )
    _add_definition(create)
    create.add_argument(
        "--schema",
        metavar="COLUMNS",
        help="columns as in CREATE TABLE; the server writes version 0 of a Delta table with them",
    )
    create.add_argument(
        "--partition-by", action="append", default=[], metavar="COLUMN", help="with --schema; may be repeated"
    )
    register = verb(
        verbs,
        "register",
        do.register,
        "make an external table of files that lie somewhere already",
        'inver table register main.sales.logs --format delta --location "$PWD/lake/logs" --version 3',
        about="Its location must lie below one of storage.external_roots, and its files are never deleted.",
    )
    _add_definition(register)
    register.add_argument("--location", required=True, metavar="URI", help="where the files are")
    register.add_argument(
        "--version", type=int, default=0, metavar="N", help="version at which it stands (default: 0)"
    )


def _add_definition(parser: ArgumentParser) -> None:
    parser.add_argument("table", help=NAME)
    parser.add_argument(
        "--format", required=True, choices=FORMATS, type=str.lower, help="who writes its files, and how"
    )
    add_description(parser, creating=True)
    parser.add_argument(
        "--columns",
        type=Path,
        metavar="FILE",
        help="JSON list of columns, each with name and type; - reads from input",
    )
