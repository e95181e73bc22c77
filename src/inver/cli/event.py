"""`inver event`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from itertools import islice
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, noun, open_client, verb

if TYPE_CHECKING:
    from inver.client.types import Event


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "event", "see what happened", "inver event list --after 0 --limit 20")
    list_parser = verb(
        verbs,
        "list",
        list_,
        "list events in the order in which they happened",
        "inver event list",
        "inver event list --after 2 --limit 1 -o json",
    )
    _add_place(list_parser, 100)
    follow_ = verb(
        verbs,
        "follow",
        follow,
        "print events as they happen, until interrupted",
        "inver event follow --after 0 --limit 3 -o json",
        about="With -o json, one object a line.",
    )
    _add_place(follow_, None)


def _add_place(parser: ArgumentParser, limit: int | None) -> None:
    parser.add_argument(
        "--after",
        metavar="SEQUENCE",
        help="only later ones (default: from the start or, to follow, from now)",
    )
    shown = "all" if limit is None else str(limit)
    parser.add_argument(
        "--limit", type=int, default=limit, metavar="N", help=f"at most so many (default: {shown})"
    )


def list_(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = list(islice(client.events(arguments.after or 0), arguments.limit))
    output.show_list(arguments, found, COLUMNS, lambda item: item.id)
    return 0


def follow(arguments: Namespace) -> int:
    """Each event is whole when it is printed; an interrupted stream ends with a status of its own."""
    with open_client(arguments) as client:
        after = arguments.after if arguments.after is not None else client.info().last_event
        for event in islice(client.events(after, follow=True), arguments.limit):
            output.write(_line(arguments, event))
            sys.stdout.flush()
    return 0


def _line(arguments: Namespace, event: Event) -> str:
    if arguments.quiet:
        return event.id + "\n"
    if arguments.output == "json":
        import msgspec

        return msgspec.json.encode(event).decode() + "\n"
    if arguments.output == "yaml":
        import msgspec

        return "---\n" + output.yaml(msgspec.to_builtins(event))
    return "  ".join(output.visible(output.text(value(event))) for _, value in COLUMNS) + "\n"


def _what(event: Event) -> str:
    """The part of the data that a reader wants to see first."""
    named = event.data.get("name") or event.data.get("operation") or ""
    return f"{named} v{event.data['version']}" if "version" in event.data else str(named)


COLUMNS: list[output.Column[Event]] = [
    ("SEQUENCE", lambda event: event.id),
    ("TIME", lambda event: event.time),
    ("TYPE", lambda event: event.type),
    ("SUBJECT", lambda event: event.subject),
    ("WHAT", _what),
    ("BY", lambda event: event.data.get("by")),
]
