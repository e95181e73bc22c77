"""`inver schema`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, add_description, changes, noun, open_client, verb

if TYPE_CHECKING:
    from inver.client.types import Schema

NAME = "catalog.schema, deeper for a nested one"


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "schema", "list, show and change schemas", "inver schema list main")
    list_parser = verb(
        verbs,
        "list",
        list_,
        "list the schemas directly below a catalog or a schema",
        "inver schema list main",
        "inver schema list main.sales",
    )
    list_parser.add_argument("parent", help="catalog, or catalog.schema")
    show_ = verb(verbs, "show", show, "show a schema", "inver schema show main.sales -o yaml")
    show_.add_argument("schema", help=NAME)
    create_ = verb(
        verbs,
        "create",
        create,
        "make a schema",
        "inver schema create main.hr",
        "inver schema create main.sales.emea --comment 'one region'",
        'inver schema create "main.`v1.0`"',
        about="What is above it must exist. A part that holds a dot stands in backticks.",
    )
    create_.add_argument("schema", help=NAME)
    add_description(create_, creating=True)
    create_.add_argument(
        "--storage-root", metavar="URI", help="where its managed tables lie, if not with the catalog's"
    )
    alter_ = verb(
        verbs,
        "alter",
        alter,
        "change a schema's comment, properties or owner",
        "inver schema alter main.hr --set region=emea",
    )
    alter_.add_argument("schema", help=NAME)
    add_description(alter_, creating=False)
    rename_ = verb(
        verbs,
        "rename",
        rename,
        "give a schema another name in the same place; everything inside stays",
        "inver schema rename main.hr people",
    )
    rename_.add_argument("schema", help=NAME)
    rename_.add_argument("new_name", metavar="new-name", help="its new last name")
    delete_ = verb(verbs, "delete", delete, "delete an empty schema", "inver schema delete main.people")
    delete_.add_argument("schema", help=NAME)


def list_(arguments: Namespace) -> int:
    from inver.client import dotted

    with open_client(arguments) as client:
        found = list(client.schemas(arguments.parent))
    columns: list[output.Column[Schema]] = [
        ("NAME", lambda item: dotted(item.path)),
        ("OWNER", lambda item: item.owner),
        ("CREATED", lambda item: output.moment(item.created_at)),
        ("COMMENT", lambda item: item.comment),
    ]
    output.show_list(arguments, found, columns, lambda item: dotted(item.path))
    return 0


def show(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.schema(arguments.schema)
    output.show_one(arguments, found, arguments.schema)
    return 0


def create(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        made = client.create_schema(
            arguments.schema,
            comment=arguments.comment,
            properties=dict(arguments.set),
            storage_root=arguments.storage_root,
        )
    output.show_one(arguments, made, arguments.schema)
    return 0


def alter(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        before = client.schema(arguments.schema)
        given = changes(arguments, before.properties)
        changed = client.alter_schema(arguments.schema, **given, if_match=before.etag)
    output.show_one(arguments, changed, arguments.schema)
    return 0


def rename(arguments: Namespace) -> int:
    from inver.client import dotted

    with open_client(arguments) as client:
        changed = client.alter_schema(arguments.schema, new_name=arguments.new_name)
    output.show_one(arguments, changed, dotted(changed.path))
    return 0


def delete(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        client.delete_schema(arguments.schema)
    output.show_done(arguments, "deleted", arguments.schema)
    return 0
