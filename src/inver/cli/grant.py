"""`inver grant`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, noun, open_client, verb
from inver.errors import Invalid

if TYPE_CHECKING:
    from inver.client.types import Grant, Securable

ON = "main, main.sales, main.sales.orders, metastore; or with its kind: schema:main.sales.emea"


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "grant", "see and change who may do what", "inver grant list --principal analysts")
    list_parser = verb(
        verbs,
        "list",
        list_,
        "list grants on a securable, of a principal, or both",
        "inver grant list main.sales",
        "inver grant list --principal analysts -o json",
    )
    list_parser.add_argument("securable", nargs="?", help=ON)
    list_parser.add_argument("--principal", metavar="NAME", help="only what this principal was granted")
    add_ = verb(
        verbs,
        "add",
        add_grant,
        "grant a privilege",
        "inver grant add analysts 'USE CATALOG' main",
        "inver grant add analysts 'USE SCHEMA,SELECT' main.sales",
        "inver grant add ana 'CREATE CATALOG' metastore",
        about="What is granted on a catalog or schema holds for everything in it.",
    )
    _add_change(add_)
    remove_ = verb(
        verbs,
        "remove",
        remove,
        "take a granted privilege back",
        "inver grant remove ana 'CREATE CATALOG' metastore",
    )
    _add_change(remove_)
    explain_ = verb(
        verbs,
        "explain",
        explain,
        "say whether a principal may do something, and why",
        "inver grant explain ana read main.sales.orders",
        about="Exit status 0 says that it may, 1 that it may not.",
    )
    explain_.add_argument("principal", help="user, service or group")
    explain_.add_argument("action", help="such as read, commit, drop, create-table")
    explain_.add_argument("securable", help=ON)


def _add_change(parser: ArgumentParser) -> None:
    parser.add_argument("principal", help="user, service or group")
    parser.add_argument("privilege", help="such as 'USE CATALOG', SELECT; several with commas between them")
    parser.add_argument("securable", help=ON)


def list_(arguments: Namespace) -> int:
    if arguments.securable is None and arguments.principal is None:
        raise Invalid("grants are listed for a securable or a principal", fix="name one, or give --principal")
    on = None if arguments.securable is None else parse(arguments.securable)
    with open_client(arguments) as client:
        found = list(client.grants(on, principal=arguments.principal))
    return _show(arguments, found)


def add_grant(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.grant(arguments.principal, _privileges(arguments), parse(arguments.securable))
    return _show(arguments, found)


def remove(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.revoke(arguments.principal, _privileges(arguments), parse(arguments.securable))
    return _show(arguments, found)


def explain(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.explain(arguments.principal, arguments.action, parse(arguments.securable))
    if arguments.quiet or arguments.output != "table":
        output.show_one(arguments, found, "yes" if found.allowed else "no")
    else:
        verdict = "may" if found.allowed else "may not"
        lines = [f"{found.principal} {verdict} {found.action} {show_securable(found.securable)}"]
        lines += [f"  because {reason}" for reason in found.because]
        lines += [f"  missing {reason}" for reason in found.missing]
        output.write("".join(f"{output.visible(line)}\n" for line in lines))
    return 0 if found.allowed else 1


def parse(text: str) -> Securable:
    from inver.client import securable
    from inver.client.operations.privileges import KINDS, METASTORE

    kind, colon, name = text.partition(":")
    if text == METASTORE:
        return securable()
    if colon and kind in KINDS:
        return securable(name, kind)
    return securable(text)


def show_securable(item: Securable) -> str:
    from inver.client import dotted

    return f"{item.kind} {dotted(item.name)}".strip()


def _privileges(arguments: Namespace) -> list[str]:
    return [" ".join(part.upper().split()) for part in arguments.privilege.split(",") if part.strip()]


def _show(arguments: Namespace, found: list[Grant]) -> int:
    columns: list[output.Column[Grant]] = [
        ("PRINCIPAL", lambda item: item.principal),
        ("PRIVILEGE", lambda item: item.privilege),
        ("SECURABLE", lambda item: show_securable(item.securable)),
        ("GRANTED", lambda item: output.moment(item.granted_at)),
        ("BY", lambda item: item.granted_by),
    ]
    output.show_list(arguments, found, columns, lambda item: item.privilege)
    return 0
