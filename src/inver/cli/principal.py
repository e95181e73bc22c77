"""`inver principal`: users and services, and the secrets of services."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, noun, open_client, seconds, verb

if TYPE_CHECKING:
    from inver.client.types import ClientSecret, Principal


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "principal", "list and change users and services", "inver principal list")
    list_parser = verb(
        verbs,
        "list",
        list_,
        "list users, services and groups",
        "inver principal list",
        "inver principal list --kind service -o json",
    )
    list_parser.add_argument("--kind", choices=("user", "service", "group"), help="only these")
    show_ = verb(verbs, "show", show, "show a principal and its groups", "inver principal show ana")
    show_.add_argument("name", help="of the principal")
    verb(verbs, "whoami", whoami, "show whose token this is", "inver principal whoami")
    create_ = verb(
        verbs,
        "create",
        create,
        "make a user or a service",
        "inver principal create bo --comment 'sales, Oslo'",
        "inver principal create nightly --kind service",
    )
    create_.add_argument("name", help="of the principal")
    create_.add_argument("--kind", choices=("user", "service"), default="user", help="(default: %(default)s)")
    create_.add_argument("--comment", metavar="TEXT", help="who or what it is")
    disable_ = verb(
        verbs,
        "disable",
        disable,
        "take every access from a principal, for now",
        "inver principal disable bo",
    )
    disable_.add_argument("name", help="of the principal")
    enable_ = verb(
        verbs, "enable", enable, "give a disabled principal its access back", "inver principal enable bo"
    )
    enable_.add_argument("name", help="of the principal")
    delete_ = verb(
        verbs,
        "delete",
        delete,
        "delete a principal that owns nothing",
        "inver principal delete bo",
    )
    delete_.add_argument("name", help="of the principal")
    _add_secret(verbs)


def _add_secret(verbs: Subparsers) -> None:
    secrets = noun(
        verbs,
        "secret",
        "client ids and secrets, for OAuth 2.0 client credentials",
        "inver principal secret list etl",
    )
    create_ = verb(
        secrets,
        "create",
        create_secret,
        "make a secret; it is shown this once",
        "inver principal secret create etl --label airflow --expires 90d -o json",
    )
    create_.add_argument("name", help="of the principal")
    create_.add_argument("--label", help="what it is used for")
    create_.add_argument("--expires", type=seconds, metavar="DURATION", help="such as 90d; without it, never")
    list_parser = verb(
        secrets, "list", list_secrets, "list the secrets of a principal", "inver principal secret list etl"
    )
    list_parser.add_argument("name", help="of the principal")
    revoke_ = verb(
        secrets,
        "revoke",
        revoke_secret,
        "end a secret",
        'inver principal secret revoke etl "$(inver principal secret list etl --quiet | tail -1)"',
    )
    revoke_.add_argument("name", help="of the principal")
    revoke_.add_argument("id", help="as `inver principal secret list` shows it")


def list_(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = list(client.principals(kind=arguments.kind))
    columns: list[output.Column[Principal]] = [
        ("NAME", lambda item: item.name),
        ("KIND", lambda item: item.kind),
        ("DISABLED", lambda item: item.disabled),
        ("CREATED", lambda item: output.moment(item.created_at)),
        ("COMMENT", lambda item: item.comment),
    ]
    output.show_list(arguments, found, columns, lambda item: item.name)
    return 0


def show(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.principal(arguments.name)
    output.show_one(arguments, found, found.name)
    return 0


def whoami(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.whoami()
    output.show_one(arguments, found, found.name)
    return 0


def create(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        made = client.create_principal(arguments.name, arguments.kind, comment=arguments.comment)
    output.show_one(arguments, made, made.name)
    return 0


def disable(arguments: Namespace) -> int:
    return _set_disabled(arguments, True)


def enable(arguments: Namespace) -> int:
    return _set_disabled(arguments, False)


def delete(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        client.delete_principal(arguments.name)
    output.show_done(arguments, "deleted", arguments.name)
    return 0


def create_secret(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        made = client.create_secret(arguments.name, label=arguments.label, expires_in_s=arguments.expires)
    output.show_one(arguments, made, f"{made.client_id}:{made.client_secret}")
    return 0


def list_secrets(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = list(client.secrets(arguments.name))
    columns: list[output.Column[ClientSecret]] = [
        ("ID", lambda item: item.id),
        ("LABEL", lambda item: item.label),
        ("CREATED", lambda item: output.moment(item.created_at)),
        ("EXPIRES", lambda item: output.moment(item.expires_at)),
        ("REVOKED", lambda item: output.moment(item.revoked_at)),
    ]
    output.show_list(arguments, found, columns, lambda item: item.id)
    return 0


def revoke_secret(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        client.revoke_secret(arguments.name, arguments.id)
    output.show_done(arguments, "revoked", arguments.id)
    return 0


def _set_disabled(arguments: Namespace, disabled: bool) -> int:
    with open_client(arguments) as client:
        changed = client.alter_principal(arguments.name, disabled=disabled)
    output.show_one(arguments, changed, changed.name)
    return 0
