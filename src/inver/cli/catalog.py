"""`inver catalog`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, add_description, changes, noun, open_client, verb

if TYPE_CHECKING:
    from inver.client.types import Catalog


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "catalog", "list, show and change catalogs", "inver catalog list")
    verb(
        verbs,
        "list",
        list_,
        "list the catalogs that you may see",
        "inver catalog list",
        "inver catalog list -o json",
    )
    show_ = verb(verbs, "show", show, "show a catalog", "inver catalog show main")
    show_.add_argument("catalog", help="its name")
    create_ = verb(
        verbs,
        "create",
        create,
        "make a catalog",
        "inver catalog create research",
        "inver catalog create archive --comment 'closed years' --set tier=cold",
    )
    create_.add_argument("catalog", help="its name")
    add_description(create_, creating=True)
    create_.add_argument(
        "--storage-root", metavar="URI", help="where its managed tables lie, if not in the warehouse"
    )
    alter_ = verb(
        verbs,
        "alter",
        alter,
        "change a catalog's comment, properties or owner",
        "inver catalog alter archive --comment 'all closed years' --unset tier",
    )
    alter_.add_argument("catalog", help="its name")
    add_description(alter_, creating=False)
    rename_ = verb(
        verbs,
        "rename",
        rename,
        "give a catalog another name; everything inside stays",
        "inver catalog rename archive closed_years",
    )
    rename_.add_argument("catalog", help="its name")
    rename_.add_argument("new_name", metavar="new-name", help="its new name")
    delete_ = verb(
        verbs,
        "delete",
        delete,
        "delete an empty catalog",
        "inver catalog delete closed_years",
    )
    delete_.add_argument("catalog", help="its name")


def list_(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = list(client.catalogs())
    columns: list[output.Column[Catalog]] = [
        ("NAME", lambda item: item.name),
        ("OWNER", lambda item: item.owner),
        ("CREATED", lambda item: output.moment(item.created_at)),
        ("COMMENT", lambda item: item.comment),
    ]
    output.show_list(arguments, found, columns, lambda item: item.name)
    return 0


def show(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.catalog(arguments.catalog)
    output.show_one(arguments, found, found.name)
    return 0


def create(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        made = client.create_catalog(
            arguments.catalog,
            comment=arguments.comment,
            properties=dict(arguments.set),
            storage_root=arguments.storage_root,
        )
    output.show_one(arguments, made, made.name)
    return 0


def alter(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        before = client.catalog(arguments.catalog)
        given = changes(arguments, before.properties)
        changed = client.alter_catalog(arguments.catalog, **given, if_match=before.etag)
    output.show_one(arguments, changed, changed.name)
    return 0


def rename(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        changed = client.alter_catalog(arguments.catalog, new_name=arguments.new_name)
    output.show_one(arguments, changed, changed.name)
    return 0


def delete(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        client.delete_catalog(arguments.catalog)
    output.show_done(arguments, "deleted", arguments.catalog)
    return 0
