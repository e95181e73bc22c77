"""`inver share`: what other organisations may read, and which of them."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, noun, open_client, pair, verb

if TYPE_CHECKING:
    from inver.client.types import Share


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "share", "share tables with other organisations", "inver share list")
    verb(verbs, "list", list_, "list shares", "inver share list", "inver share list -o json")
    create_ = verb(
        verbs,
        "create",
        create,
        "make a share, with nothing in it yet",
        "inver share create partners --comment 'what our partners may read'",
    )
    create_.add_argument("share", help="name of the share")
    create_.add_argument("--comment", metavar="TEXT", help="what it is for")
    _add_contents(verbs)
    _add_granting(verbs)
    show_ = verb(
        verbs,
        "show",
        show,
        "show what a share contains and who has it",
        "inver share show partners -o json",
    )
    show_.add_argument("share", help="name of the share")
    drop_ = verb(verbs, "drop", drop, "take a share from everybody who has it", "inver share drop partners")
    drop_.add_argument("share", help="name of the share")


def _add_contents(verbs: Subparsers) -> None:
    add_ = verb(
        verbs,
        "add",
        add_item,
        "put a table or a whole schema into a share",
        "inver share add partners main.sales.orders",
        "inver share add partners main.sales.orders --as sales.recent --start-version 1",
        "inver share add partners main.sales.orders --as sales.today --no-history",
        "inver share add partners main.sales --schema --as everything",
        about="Recipients see every version of a table and its changes, unless an option says less.",
    )
    add_.add_argument("share", help="name of the share")
    add_.add_argument("table", help="catalog.schema.table, or catalog.schema with --schema")
    add_.add_argument(
        "--as", dest="alias", metavar="SCHEMA.TABLE", help="names that recipients see (default: its own)"
    )
    add_.add_argument(
        "--start-version", type=int, default=0, metavar="N", help="no version before this one (default: 0)"
    )
    add_.add_argument(
        "--no-history", action="store_true", help="the latest version only: no time travel, no changes"
    )
    add_.add_argument("--schema", action="store_true", help="all tables of a schema, also those to come")
    remove_ = verb(
        verbs,
        "remove",
        remove,
        "take a table or a schema out of a share, at once",
        "inver share remove partners sales.today",
        "inver share remove partners everything",
    )
    remove_.add_argument("share", help="name of the share")
    remove_.add_argument("item", help="SCHEMA.TABLE, or SCHEMA, as the share names it")


def _add_granting(verbs: Subparsers) -> None:
    grant_ = verb(
        verbs,
        "grant",
        grant,
        "give a share to a recipient",
        "inver share grant partners acme",
        about="Granting again replaces the filters.",
    )
    grant_.add_argument("share", help="name of the share")
    grant_.add_argument("recipient", help="name of the recipient")
    grant_.add_argument(
        "--where",
        type=pair,
        action="append",
        default=[],
        metavar="SCHEMA.TABLE=FILTER",
        help="only these partitions of a table, such as \"sales.orders=region = 'EU'\"; may be repeated",
    )
    revoke_ = verb(
        verbs, "revoke", revoke, "take a share from a recipient, at once", "inver share revoke partners acme"
    )
    revoke_.add_argument("share", help="name of the share")
    revoke_.add_argument("recipient", help="name of the recipient")


def list_(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = list(client.shares())
    columns: list[output.Column[Share]] = [
        ("NAME", lambda item: item.name),
        ("CREATED", lambda item: output.moment(item.created_at)),
        ("COMMENT", lambda item: item.comment),
    ]
    output.show_list(arguments, found, columns, lambda item: item.name)
    return 0


def create(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        made = client.create_share(arguments.share, comment=arguments.comment)
    output.show_one(arguments, made, made.name)
    return 0


def show(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.share(arguments.share)
    output.show_one(arguments, found, found.name)
    return 0


def drop(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        client.drop_share(arguments.share)
    output.show_done(arguments, "dropped", arguments.share)
    return 0


def add_item(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        made = client.add_to_share(
            arguments.share,
            arguments.table,
            schema=arguments.schema,
            alias=arguments.alias,
            start_version=arguments.start_version,
            history=not arguments.no_history,
        )
    output.show_one(arguments, made, ".".join(filter(None, (made.schema, made.table))))
    return 0


def remove(arguments: Namespace) -> int:
    schema, _, table = arguments.item.partition(".")
    with open_client(arguments) as client:
        client.remove_from_share(arguments.share, schema, table or None)
    output.show_done(arguments, "removed", arguments.item)
    return 0


def grant(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        client.grant_share(arguments.share, arguments.recipient, filters=dict(arguments.where))
    output.show_done(arguments, "granted", f"{arguments.share} to {arguments.recipient}")
    return 0


def revoke(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        client.revoke_share(arguments.share, arguments.recipient)
    output.show_done(arguments, "revoked", f"{arguments.share} from {arguments.recipient}")
    return 0
