"""`inver doctor`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, open_client, verb

if TYPE_CHECKING:
    from inver.client.types import Check


def add(commands: Subparsers) -> None:
    verb(
        commands,
        "doctor",
        doctor,
        "examine the server's database, storage and clock",
        "inver doctor",
        "inver doctor -o json",
        about="Exit status 1 says that a check failed; a warning does not count.",
    )


def doctor(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.doctor()
    if arguments.output != "table":
        output.show_value(arguments, found)
    else:
        shown = [check for check in found.checks if not arguments.quiet or check.status != "ok"]
        columns: list[output.Column[Check]] = [
            ("CHECK", lambda item: item.name),
            ("STATUS", lambda item: item.status),
            ("DETAIL", lambda item: item.detail),
            ("TO FIX", lambda item: item.fix),
        ]
        output.show_list(arguments, shown, columns, lambda item: f"{item.name}: {item.status}")
    return 0 if found.healthy else 1
