"""`inver recipient`: who of other organisations reads shares, and by what they prove it."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inver.cli import output
from inver.cli.options import Subparsers, noun, open_client, seconds, verb
from inver.errors import Broken, Invalid

if TYPE_CHECKING:
    from inver.client.types import NewRecipient, Recipient


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "recipient", "who gets shares, and their credentials", "inver recipient list")
    create_ = verb(
        verbs,
        "create",
        create,
        "make a recipient; its activation link is shown this once",
        "inver recipient create northwind",
        "inver recipient create tailspin --profile tailspin.share --expires 30d --from 192.0.2.0/24",
        "inver recipient create contoso --oauth --profile contoso.share",
        about="With --profile the profile file is written at once, and there is no link.",
        profile=False,
    )
    create_.add_argument("name", help="of the recipient")
    create_.add_argument("--comment", metavar="TEXT", help="who it is")
    create_.add_argument(
        "--oauth", action="store_true", help="OAuth client credentials in place of a bearer token"
    )
    create_.add_argument(
        "--from",
        dest="networks",
        action="append",
        default=[],
        metavar="NETWORK",
        help="network that it may call from (default: any); may be repeated",
    )
    _add_credential(create_)
    verb(verbs, "list", list_, "list recipients", "inver recipient list", "inver recipient list -o json")
    show_ = verb(
        verbs, "show", show, "show a recipient and its credentials", "inver recipient show tailspin -o json"
    )
    show_.add_argument("name", help="of the recipient")
    alter_ = verb(
        verbs,
        "alter",
        alter,
        "change the comment of a recipient, or where it may call from",
        "inver recipient alter tailspin --from 192.0.2.0/24 --from 2001:db8::/32",
        "inver recipient alter tailspin --from-anywhere --comment 'the toy maker'",
    )
    alter_.add_argument("name", help="of the recipient")
    alter_.add_argument("--comment", metavar="TEXT", help="who it is; empty removes it")
    where = alter_.add_mutually_exclusive_group()
    where.add_argument(
        "--from",
        dest="networks",
        action="append",
        metavar="NETWORK",
        help="network that it may call from, in place of those before; may be repeated",
    )
    where.add_argument("--from-anywhere", action="store_true", help="it may call from any network")
    _add_ending(verbs)


def _add_ending(verbs: Subparsers) -> None:
    rotate_ = verb(
        verbs,
        "rotate",
        rotate,
        "give a recipient new credentials",
        "inver recipient rotate tailspin --profile tailspin-new.share --grace 1d",
        about="What it has had ends when the grace is over, which by default is at once.",
        profile=False,
    )
    rotate_.add_argument("name", help="of the recipient")
    rotate_.add_argument(
        "--grace", type=seconds, default=0, metavar="DURATION", help="such as 1d; without it, none"
    )
    _add_credential(rotate_)
    revoke_ = verb(
        verbs,
        "revoke",
        revoke,
        "end every credential of a recipient, at once",
        "inver recipient revoke tailspin",
        about="It keeps its shares; `inver recipient rotate` lets it in again.",
    )
    revoke_.add_argument("name", help="of the recipient")
    drop_ = verb(
        verbs, "drop", drop, "forget a recipient and what it was given", "inver recipient drop tailspin"
    )
    drop_.add_argument("name", help="of the recipient")


def _add_credential(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--expires", type=seconds, metavar="DURATION", help="life of the credential (default: 90d)"
    )
    parser.add_argument(
        "--profile",
        dest="profile_file",
        type=Path,
        metavar="FILE",
        help="write the profile file here instead of making an activation link",
    )


def create(arguments: Namespace) -> int:
    _require_new(arguments)
    with open_client(arguments) as client:
        made = client.create_recipient(
            arguments.name,
            "oauth" if arguments.oauth else "token",
            comment=arguments.comment,
            networks=arguments.networks,
            expires_in_s=arguments.expires,
            activate=arguments.profile_file is None,
        )
    return _given(arguments, made)


def rotate(arguments: Namespace) -> int:
    _require_new(arguments)
    with open_client(arguments) as client:
        made = client.rotate_recipient(
            arguments.name,
            grace_s=arguments.grace,
            expires_in_s=arguments.expires,
            activate=arguments.profile_file is None,
        )
    return _given(arguments, made)


def list_(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = list(client.recipients())
    columns: list[output.Column[Recipient]] = [
        ("NAME", lambda item: item.name),
        ("KIND", lambda item: item.kind),
        ("FROM", lambda item: ", ".join(item.networks) or "anywhere"),
        ("CREATED", lambda item: output.moment(item.created_at)),
        ("REVOKED", lambda item: output.moment(item.revoked_at)),
        ("COMMENT", lambda item: item.comment),
    ]
    output.show_list(arguments, found, columns, lambda item: item.name)
    return 0


def show(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.recipient(arguments.name)
    output.show_one(arguments, found, found.name)
    return 0


def alter(arguments: Namespace) -> int:
    given: dict[str, Any] = {}
    if arguments.comment is not None:
        given["comment"] = arguments.comment or None
    if arguments.networks or arguments.from_anywhere:
        given["networks"] = arguments.networks or []
    if not given:
        raise Invalid("nothing to change is given", fix="add --comment, --from or --from-anywhere")
    with open_client(arguments) as client:
        changed = client.alter_recipient(arguments.name, **given)
    output.show_one(arguments, changed, changed.name)
    return 0


def revoke(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        client.revoke_recipient(arguments.name)
    output.show_done(arguments, "revoked", arguments.name)
    return 0


def drop(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        client.drop_recipient(arguments.name)
    output.show_done(arguments, "dropped", arguments.name)
    return 0


def _require_new(arguments: Namespace) -> None:
    """Before anything is made, since the secret could not be had a second time."""
    file = arguments.profile_file
    if file is not None and file.exists():
        raise Invalid(f"{file} exists already", field="--profile", fix="choose another name")
    if file is not None and not file.absolute().parent.is_dir():
        raise Invalid(f"there is no folder {file.absolute().parent}", field="--profile")


def _given(arguments: Namespace, made: NewRecipient) -> int:
    file = arguments.profile_file
    if made.profile is not None and file is not None:
        _write(file, made.profile)
        made.profile = None
        output.show_one(arguments, made.recipient, str(file))
        return 0
    output.show_one(arguments, made, made.activation_url or made.recipient.name)
    return 0


def _write(file: Path, profile: dict[str, object]) -> None:
    """Readable by its owner alone: it is as good as a password."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(json.dumps(profile, indent=2) + "\n")
    except OSError as error:
        raise Broken(
            f"{file} cannot be written: {error.strerror}", fix="rotate the recipient to get a new profile"
        ) from None
