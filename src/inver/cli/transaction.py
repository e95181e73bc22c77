"""`inver transaction`."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inver.cli import output
from inver.cli.options import Subparsers, noun, open_client, read_json, verb

if TYPE_CHECKING:
    from inver.client.types import OperationResult

COMMIT = '{"op": "commit", "table": {"name": ["main", "sales", "orders"]}, "version": 3, "token": "load-7"}'


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "transaction", "show and run transactions", "inver transaction show 1")
    show_ = verb(verbs, "show", show, "show what a transaction changed", "inver transaction show 1")
    show_.add_argument("number", help="as a receipt or an event has it")
    run_ = verb(
        verbs,
        "run",
        run,
        "apply several changes as one",
        f"echo '{{\"operations\": [{COMMIT}]}}' | inver transaction run -",
        "inver transaction run changes.json --key 6f2c1a0e-5d0f-4d6e-9c57-1f0a8c7b2e11",
        about="Either all operations take effect or none. The file is the body of POST /transactions.",
    )
    run_.add_argument("file", type=Path, help="JSON with a list of operations; - reads from input")
    run_.add_argument("--key", metavar="UUID", help="idempotency key; the same key again takes effect once")


def show(arguments: Namespace) -> int:
    from inver.cli.event import COLUMNS

    with open_client(arguments) as client:
        found = client.transaction(arguments.number)
    if arguments.output == "table":
        output.show_list(arguments, found.events, COLUMNS, lambda item: item.id)
    else:
        output.show_one(arguments, found, found.transaction)
    return 0


def run(arguments: Namespace) -> int:
    content = read_json(arguments.file, "file", dict[str, Any])
    with open_client(arguments) as client:
        receipt = client.transact(content.get("operations", []), key=arguments.key)
    if arguments.output != "table" or arguments.quiet:
        output.show_one(arguments, receipt, receipt.transaction)
        return 0
    columns: list[output.Column[OperationResult]] = [
        ("TRANSACTION", lambda item: receipt.transaction),
        ("SUBJECT", lambda item: item.id),
        ("VERSION", lambda item: item.version),
        ("REPLAYED", lambda item: receipt.replayed),
    ]
    output.show_list(arguments, receipt.results, columns, lambda item: item.id)
    return 0
