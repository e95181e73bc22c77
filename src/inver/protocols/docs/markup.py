"""HTML that is safe by construction: text is escaped unless it is markup already."""

from __future__ import annotations

import re
from html import escape

_CODE = re.compile(r"`([^`\n]+)`")
_EMPTY = frozenset({"meta", "br"})


class Html(str):
    """Text that is markup; everything else is escaped where it is put into an element."""

    __slots__ = ()


def el(name: str, /, *children: str, **attributes: str) -> Html:
    """An element. An attribute whose name is one of Python's words gets an underscore: `class_`."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
    if name in _EMPTY:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{join(*children)}</{name}>")


def join(*children: str) -> Html:
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


def inline(text: str) -> Html:
    """One run of text, in which backticks mark code."""
    parts = _CODE.split(text)
    return join(*(el("code", part) if index % 2 else part for index, part in enumerate(parts)))


def paragraphs(text: str) -> Html:
    return join(*(el("p", inline(part.strip())) for part in text.split("\n\n") if part.strip()))
