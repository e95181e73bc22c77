"""Results on standard output: a table for people, JSON or YAML for programs.

Everything is put together before anything is printed, so a command that fails prints no half result.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Column = tuple[str, Callable[[T], object]]

# A comment or a property is somebody else's text: nothing in it may steer the reader's terminal.
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./ -]*")
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"})


def show_list(
    arguments: argparse.Namespace, items: Sequence[T], columns: Sequence[Column[T]], quiet: Callable[[T], str]
) -> None:
    if arguments.quiet:
        write("".join(f"{visible(quiet(item))}\n" for item in items))
    elif arguments.output == "table":
        rows = [[visible(text(value(item))) for _, value in columns] for item in items]
        _table(arguments, [title for title, _ in columns], rows)
    else:
        show_value(arguments, items)


def show_one(arguments: argparse.Namespace, item: Any, quiet: str) -> None:
    """All fields that have a value, one a line."""
    if arguments.quiet:
        write(visible(quiet) + "\n")
    elif arguments.output == "table":
        import msgspec

        fields = msgspec.to_builtins(item, str_keys=True)
        rows = [
            [name, visible(text(moment(value) if name.endswith("_at") or name == "at" else value))]
            for name, value in fields.items()
            if value is not None and value != [] and value != {}
        ]
        _table(arguments, [], rows)
    else:
        show_value(arguments, item)


def show_done(arguments: argparse.Namespace, what: str, name: str) -> None:
    """What happened, where there is nothing else to show: `dropped main.sales.orders`."""
    if arguments.quiet:
        return
    if arguments.output == "table":
        write(f"{what} {visible(name)}\n")
    else:
        show_value(arguments, {what: name})


def show_value(arguments: argparse.Namespace, value: Any) -> None:
    import msgspec

    if arguments.output == "yaml":
        write(yaml(msgspec.to_builtins(value, str_keys=True)))
    else:
        write(_harmless(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n")


def write(content: str) -> None:
    sys.stdout.write(content)


def text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list | tuple):
        import msgspec

        return msgspec.json.encode(value).decode()
    return str(value)


def moment(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


def visible(content: str) -> str:
    """The text with every character that is not seen written out."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", content)


def yaml(value: Any) -> str:
    """Enough of YAML 1.2 for what JSON can hold."""
    if isinstance(value, dict | list) and value:
        return "".join(f"{line}\n" for line in _yaml_lines(value))
    return _scalar(value) + "\n"


def _yaml_lines(value: Any) -> list[str]:
    lines: list[str] = []
    entries = value.items() if isinstance(value, dict) else (("-", item) for item in value)
    for key, item in entries:
        lead = f"{_scalar(key)}:" if isinstance(value, dict) else "-"
        if not (isinstance(item, dict | list) and item):
            lines.append(f"{lead} {_scalar(item)}")
            continue
        inner = [f"  {line}" for line in _yaml_lines(item)]
        if isinstance(value, dict):
            lines.append(lead)
        else:
            inner[0] = f"- {inner[0].lstrip()}"
        lines.extend(inner)
    return lines


def _scalar(value: Any) -> str:
    if (
        isinstance(value, str)
        and _PLAIN.fullmatch(value)
        and value.lower() not in _NOT_TEXT
        and value == value.strip()
    ):
        return value
    import msgspec

    return _harmless(msgspec.json.encode(value).decode())


def _harmless(content: str) -> str:
    """JSON escapes most control characters; the others are escaped here, where they mean the same."""
    return _UNSEEN.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", content)


def _table(arguments: argparse.Namespace, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if sys.stdout.isatty():
        _rich_table(arguments, titles, rows)
        return
    lines = [list(titles), *rows] if titles else list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    write("".join("  ".join(line).rstrip() + "\n" for line in padded))


def _rich_table(arguments: argparse.Namespace, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None, show_header=bool(titles), header_style="bold", pad_edge=False, padding=(0, 2, 0, 0)
    )
    for title in titles or ("", ""):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    plain = arguments.no_color or "NO_COLOR" in os.environ
    Console(no_color=plain, color_system=None if plain else "auto", highlight=False).print(table)
