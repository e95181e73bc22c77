"""Dotted names: `main.sales.orders`, with backticks around a part that holds a dot itself."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from inver.errors import Invalid

SEPARATOR = "\x1f"
"""Joins the names of nested schemas in a URL; no name contains it."""

Name = str | Sequence[str]
"""`main.sales.orders`, or the parts themselves."""


def parts_of(name: Name, *, least: int = 1, most: int | None = None, what: str = "name") -> tuple[str, ...]:
    """The parts of a name. `least` and `most` say how many this kind of thing has."""
    parts = parse(name) if isinstance(name, str) else tuple(name)
    if len(parts) < least or (most is not None and len(parts) > most):
        shapes = {1: "catalog", 2: "catalog.schema", 3: "catalog.schema.table"}
        raise Invalid(
            f"{dotted(parts)!r} is not the name of a {what}", field=what, fix=f"write {shapes[least]}"
        )
    return parts


def parse(text: str) -> tuple[str, ...]:
    parts: list[str] = []
    rest = text
    while True:
        if rest.startswith("`"):
            part, rest = _quoted(rest, text)
        else:
            end = rest.find(".")
            part, rest = (rest, "") if end < 0 else (rest[:end], rest[end:])
        if not part:
            raise _bad(text, "has an empty part")
        parts.append(part)
        if not rest:
            return tuple(parts)
        if not rest.startswith("."):
            raise _bad(text, "goes on after a closing backtick")
        rest = rest[1:]


def dotted(parts: Sequence[str]) -> str:
    """The parts as people write them; `parse` reads it back."""
    return ".".join([_quote(part) if "." in part or "`" in part else part for part in parts])


def segment(part: str) -> str:
    """One segment of a URL's path."""
    return quote(part, safe="")


def schema_segment(path: Sequence[str]) -> str:
    return segment(SEPARATOR.join(path))


def _quoted(rest: str, text: str) -> tuple[str, str]:
    part = ""
    at = 1
    while True:
        end = rest.find("`", at)
        if end < 0:
            raise _bad(text, "has an opening backtick without a closing one")
        part += rest[at:end]
        if not rest.startswith("``", end):
            return part, rest[end + 1 :]
        part += "`"
        at = end + 2


def _quote(part: str) -> str:
    return "`" + part.replace("`", "``") + "`"


def _bad(text: str, problem: str) -> Invalid:
    return Invalid(
        f"the name {text!r} {problem}",
        field="name",
        fix="write names as main.sales.orders or main.`a.b`.orders",
    )
