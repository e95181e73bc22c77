"""The command line: `inver <noun> <verb>`.

Exit status: 0 done, 1 refused, 2 wrong usage, 3 not found, 4 conflict, 5 unreachable or in doubt.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from inver import __version__
from inver.cli.options import examples
from inver.errors import (
    AlreadyExists,
    Conflict,
    InverError,
    NotEmpty,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Unavailable,
)

COMMANDS = (
    "serve",
    "migrate",
    "demo",
    "catalog",
    "schema",
    "table",
    "principal",
    "group",
    "token",
    "grant",
    "share",
    "recipient",
    "care",
    "spark",
    "transaction",
    "event",
    "search",
    "config",
    "doctor",
    "completion",
)
"""Each is a module of this package, in the order of the help."""

REFUSED = 1
_STATUS: tuple[tuple[tuple[type[InverError], ...], int], ...] = (
    ((NotFound,), 3),
    ((Conflict, AlreadyExists, NotEmpty, PreconditionFailed), 4),
    ((Unavailable, OutcomeUnknown), 5),
)


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """All commands; or the one that is asked for, since the others take their time to load."""
    top = argparse.ArgumentParser(
        prog="inver",
        description="One catalog for Delta, Iceberg and Lance tables.",
        epilog=examples("inver catalog list", "inver table show main.sales.orders"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"inver {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        if only in (None, name):
            import_module(f"inver.cli.{name}").add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    asked = words[0] if words and words[0] in COMMANDS else None
    arguments = parser(asked).parse_args(words)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except InverError as error:
        if arguments.debug:
            raise
        report(error)
        return status_of(error)
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing may be written when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if arguments.debug:
            raise
        print(f"inver: {type(error).__name__}: {error}\n  to see where: add --debug", file=sys.stderr)
        return REFUSED
    return code


def status_of(error: InverError) -> int:
    return next((status for kinds, status in _STATUS if isinstance(error, kinds)), REFUSED)


def report(error: InverError) -> None:
    """Cause, place and fix, for a person to read."""
    from inver.cli.output import visible

    lines = [f"inver: {error.message}"]
    field = getattr(error, "field", None)
    if field:
        lines.append(f"  field: {field}")
    for conflict in getattr(error, "conflicts", ()):
        winner = getattr(conflict, "winner", None)
        if winner is not None:
            lines.append(f"  won by transaction {winner.transaction}, version {winner.version}")
    if error.fix:
        lines.append(f"  to fix: {error.fix}")
    request_id = getattr(error, "request_id", None)
    if request_id:
        lines.append(f"  request: {request_id}")
    print("\n".join(visible(line) for line in lines), file=sys.stderr)
