"""`inver migrate`: bring a PostgreSQL database to the schema that this version needs."""

from __future__ import annotations

from argparse import Namespace

from inver.cli.options import Subparsers, verb
from inver.cli.settings import add_config, add_setting, settings_of
from inver.errors import Invalid

PENDING = 3


def add(commands: Subparsers) -> None:
    parser = verb(
        commands,
        "migrate",
        run,
        "prepare or upgrade a PostgreSQL database",
        "inver migrate --database postgresql://inver@db/inver",
        "inver migrate --database postgresql://inver@db/inver --check",
        about="SQLite is migrated by the server when it starts.",
        shows=False,
        remote=False,
    )
    add_setting(parser, "--database", "database.url", "URL")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 3 when migrations are pending"
    )
    add_config(parser)


def run(arguments: Namespace) -> int:
    from inver.server.app import migrate
    from inver.server.listener import run as run_loop

    database = settings_of(arguments).database
    if database is None:
        raise Invalid("no database is given", field="database.url", fix="add --database postgresql://...")
    before, after = run_loop(migrate(database, arguments.check))
    if arguments.check:
        print(f"schema version {before}, newest {after}")
        return PENDING if before < after else 0
    print(f"schema version {after}" if before == after else f"schema version {before} -> {after}")
    return 0
