"""`inver group`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, noun, open_client, verb
from inver.errors import NotFound

if TYPE_CHECKING:
    from inver.client.types import Principal


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "group", "list and change groups of principals", "inver group list")
    verb(verbs, "list", list_, "list the groups", "inver group list")
    show_ = verb(verbs, "show", show, "show a group and its members", "inver group show analysts")
    show_.add_argument("group", help="its name")
    create_ = verb(
        verbs, "create", create, "make a group", "inver group create auditors --comment 'read everything'"
    )
    create_.add_argument("group", help="its name")
    create_.add_argument("--comment", metavar="TEXT", help="who belongs to it")
    add_ = verb(
        verbs,
        "add",
        add_members,
        "put principals into a group",
        "inver group add auditors ana etl",
        about="A group may be a member of another group.",
    )
    add_.add_argument("group", help="its name")
    add_.add_argument("principal", nargs="+", help="user, service or group")
    remove_ = verb(
        verbs, "remove", remove, "take principals out of a group", "inver group remove auditors etl"
    )
    remove_.add_argument("group", help="its name")
    remove_.add_argument("principal", nargs="+", help="user, service or group")
    delete_ = verb(verbs, "delete", delete, "delete a group", "inver group delete auditors")
    delete_.add_argument("group", help="its name")


def list_(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = list(client.principals(kind="group"))
    columns: list[output.Column[Principal]] = [
        ("NAME", lambda item: item.name),
        ("CREATED", lambda item: output.moment(item.created_at)),
        ("COMMENT", lambda item: item.comment),
    ]
    output.show_list(arguments, found, columns, lambda item: item.name)
    return 0


def show(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.principal(arguments.group)
    _require_group(found)
    output.show_one(arguments, found, found.name)
    return 0


def create(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        made = client.create_principal(arguments.group, "group", comment=arguments.comment)
    output.show_one(arguments, made, made.name)
    return 0


def add_members(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        for name in arguments.principal:
            client.add_member(arguments.group, name)
    output.show_done(arguments, "added", ", ".join(arguments.principal))
    return 0


def remove(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        for name in arguments.principal:
            client.remove_member(arguments.group, name)
    output.show_done(arguments, "removed", ", ".join(arguments.principal))
    return 0


def delete(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        _require_group(client.principal(arguments.group))
        client.delete_principal(arguments.group)
    output.show_done(arguments, "deleted", arguments.group)
    return 0


def _require_group(found: Principal) -> None:
    if found.kind != "group":
        raise NotFound(
            f"{found.name!r} is a {found.kind}, not a group", kind="group", fix="see `inver principal`"
        )
