"""`inver doctor`."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, open_client, verb

if TYPE_CHECKING:
    from inver.client.types import Check


def add(commands: Subparsers) -> None:
    parser = verb(
        commands,
        "doctor",
        doctor,
        "examine the server's database, storage and clock",
        "inver doctor",
        "inver doctor -o json",
        "inver doctor --retry",
        about="Exit status 1 says that a check failed; a warning does not count.",
    )
    parser.add_argument(
        "--retry", action="store_true", help="first let work be tried again that was given up"
    )


def doctor(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        if arguments.retry:
            count = client.retry_work()
            if not arguments.quiet:
                sys.stderr.write(f"follow-up work that is tried again: {count}\n")
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
