"""`inver token`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, noun, open_client, seconds, verb

if TYPE_CHECKING:
    from inver.client.types import Token


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "token", "make, list and end tokens", "inver token list")
    create_ = verb(
        verbs,
        "create",
        create,
        "make a token; it is shown this once",
        "inver token create --expires 12h",
        "inver token create --principal ana --expires 30d --scope read --label laptop -o json",
        'INVER_TOKEN="$(inver token create --principal ana --quiet)" inver catalog list',
    )
    create_.add_argument("--principal", metavar="NAME", help="whose token it is (default: yours)")
    create_.add_argument("--expires", type=seconds, metavar="DURATION", help="such as 30d; without it, never")
    create_.add_argument("--scope", choices=("all", "read"), default="all", help="(default: %(default)s)")
    create_.add_argument("--label", help="what it is used for")
    list_parser = verb(
        verbs,
        "list",
        list_,
        "list tokens, never their secrets",
        "inver token list",
        "inver token list --principal ana",
    )
    list_parser.add_argument("--principal", metavar="NAME", help="whose tokens (default: yours)")
    revoke_ = verb(
        verbs,
        "revoke",
        revoke,
        "end a token",
        'inver token revoke "$(inver token list --principal ana --quiet | tail -1)"',
    )
    revoke_.add_argument("id", help="as `inver token list` shows it")


def create(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        made = client.create_token(
            arguments.principal,
            label=arguments.label,
            scope=arguments.scope,
            expires_in_s=arguments.expires,
        )
    output.show_one(arguments, made, made.token)
    return 0


def list_(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = list(client.tokens(arguments.principal))
    columns: list[output.Column[Token]] = [
        ("ID", lambda item: item.id),
        ("PRINCIPAL", lambda item: item.principal),
        ("LABEL", lambda item: item.label),
        ("SCOPE", lambda item: item.scope),
        ("CREATED", lambda item: output.moment(item.created_at)),
        ("EXPIRES", lambda item: output.moment(item.expires_at)),
        ("LAST USED", lambda item: output.moment(item.last_used_at)),
        ("REVOKED", lambda item: output.moment(item.revoked_at)),
    ]
    output.show_list(arguments, found, columns, lambda item: item.id)
    return 0


def revoke(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        client.revoke_token(arguments.id)
    output.show_done(arguments, "revoked", arguments.id)
    return 0
