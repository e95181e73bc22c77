"""What commands share: their shape, the options that all of them take, and the client they use."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inver.errors import Invalid

if TYPE_CHECKING:
    from inver.client import Client

Run = Callable[[argparse.Namespace], int]
Subparsers = Any
"""argparse's own type for this is private."""

FORMATS = ("table", "json", "yaml")


def examples(*lines: str) -> str:
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])


def noun(commands: Subparsers, name: str, text: str, *lines: str) -> Subparsers:
    """A command that is a group of verbs."""
    parser = commands.add_parser(
        name,
        help=text,
        description=_sentence(text),
        epilog=examples(*lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser.add_subparsers(dest=f"{name}_verb", metavar="COMMAND", required=True)


def verb(
    commands: Subparsers,
    name: str,
    run: Run,
    text: str,
    *lines: str,
    about: str = "",
    shows: bool = True,
    remote: bool = True,
    profile: bool = True,
) -> argparse.ArgumentParser:
    """A command that does something. `lines` are examples, `about` is what its help says besides.

    `shows` commands have a result to print, `remote` ones talk to a server. Without `profile` the
    option of that name is the command's own, and means something else.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=f"{_sentence(text)} {about}".strip(),
        epilog=examples(*lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    group = parser.add_argument_group("common options")
    if shows:
        _add_output(group)
    if remote:
        _add_server(group, profile)
        parser.set_defaults(profile=None)
    group.add_argument("--debug", action="store_true", help="show where an error came from")
    return parser


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-o", "--output", choices=FORMATS, default="table", help="form of the output (default: table)"
    )
    group.add_argument("-q", "--quiet", action="store_true", help="print the essential only, one a line")
    group.add_argument("--no-color", action="store_true", help="no colours on a terminal")


def _add_server(group: argparse._ArgumentGroup, profile: bool) -> None:
    group.add_argument("--url", help="server to talk to; also INVER_URL")
    if profile:
        group.add_argument(
            "--profile", metavar="NAME", help="entry of profiles.toml to use; also INVER_PROFILE"
        )
    group.add_argument("--home", type=Path, metavar="FOLDER", help="talk to the server of this home folder")
    group.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file that holds the token; also INVER_TOKEN"
    )


def open_client(arguments: argparse.Namespace) -> Client:
    """The server that the options, the environment, a profile or the home folder name."""
    from inver.client import Client, Policy, locate

    token = None
    if arguments.token_file is not None:
        token = read_text(arguments.token_file, "--token-file").strip()
    target = locate(arguments.url, token, profile=arguments.profile, home=arguments.home)
    return Client(target.url, target.token, policy=Policy(attempts=3))


def read_text(path: Path, field: str) -> str:
    """A file, or standard input for `-`."""
    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Invalid(f"{path} cannot be read: {reason}", field=field) from None


def read_json(path: Path, field: str, kind: Any) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(read_text(path, field), type=kind)
    except msgspec.DecodeError as error:
        raise Invalid(f"{path} does not hold what is needed: {error}", field=field) from None


def seconds(text: str) -> int:
    """`30d`, `12h`, in seconds."""
    from inver.config.kinds import duration_ms

    try:
        found = duration_ms(text) // 1000
    except ValueError:
        found = 0
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 30d, 12h or 90s")
    return found


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value


def add_description(parser: argparse.ArgumentParser, *, creating: bool) -> None:
    """Comment and properties; for an existing thing also its owner."""
    parser.add_argument(
        "--comment", metavar="TEXT", help="what it is for" + ("" if creating else "; empty removes it")
    )
    parser.add_argument(
        "--set",
        type=pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a property; may be repeated",
    )
    if not creating:
        parser.add_argument(
            "--unset",
            action="append",
            default=[],
            metavar="KEY",
            help="a property to remove; may be repeated",
        )
        parser.add_argument("--owner", metavar="PRINCIPAL", help="give it to another principal")


def changes(arguments: argparse.Namespace, properties: dict[str, str]) -> dict[str, Any]:
    """What `add_description` was given, as arguments of an operation that alters."""
    given: dict[str, Any] = {}
    if arguments.comment is not None:
        given["comment"] = arguments.comment or None
    if arguments.set or arguments.unset:
        kept = {key: value for key, value in properties.items() if key not in arguments.unset}
        given["properties"] = kept | dict(arguments.set)
    if arguments.owner is not None:
        given["owner"] = arguments.owner
    if not given:
        raise Invalid("nothing to change is given", fix="add --comment, --set, --unset or --owner")
    return given


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
