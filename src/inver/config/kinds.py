"""The kinds of values that settings have: how each is read, and how it is shown.

A value comes as text (environment, flag) or as what a TOML file holds. Reading raises ValueError
with what is expected instead, as a phrase that follows "must be".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inver.secrets import Secret

_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+) ?(B|KiB|MiB|GiB|KB|MB|GB)?")
_PASSWORD = re.compile(r"(://[^:/@]*:)[^@]*@")
MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_BYTES = {"GiB": 2**30, "GB": 10**9, "MiB": 2**20, "MB": 10**6, "KiB": 2**10, "KB": 10**3, "B": 1}
_TRUTH = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """`expected` follows "must be". `typed` are the TOML types that are taken besides text."""

    name: str
    expected: str
    example: str
    from_text: Callable[[str], Any]
    show: Callable[[Any], str] = str
    from_typed: Callable[[Any], Any] | None = None
    secret: bool = False

    def read(self, value: object) -> Any:
        """What a TOML file holds; only kinds that are text there take text."""
        if self.from_typed is not None:
            return self.from_typed(value)
        if not isinstance(value, str):
            raise ValueError(self.expected)
        return self.from_text(value)

    def shown(self, value: Any) -> str:
        return "" if value is None else self.show(value)


def duration_ms(text: str) -> int:
    """`7d`, `30m`, `1.5h`, in milliseconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(DURATION.expected)
    return round(float(match[1]) * MILLISECONDS[match[2]])


def show_duration(milliseconds: int) -> str:
    for unit, size in MILLISECONDS.items():
        if milliseconds % size == 0 and (milliseconds or unit == "s"):
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def whole(least: int, most: int | None = None) -> Kind:
    expected = (
        f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
    )

    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(expected)
        if value < least or (most is not None and value > most):
            raise ValueError(expected)
        return value

    def from_text(text: str) -> int:
        if not text.strip().isdecimal():
            raise ValueError(expected)
        return check(int(text))

    return Kind("whole number", expected, str(max(least, 1)), from_text, from_typed=check)


def choice(*words: str) -> Kind:
    expected = " or ".join(words)

    def check(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(expected)
        return word

    return Kind(expected, expected, f'"{words[-1]}"', check)


def _flag(text: str) -> bool:
    value = _TRUTH.get(text.strip().lower())
    if value is None:
        raise ValueError(FLAG.expected)
    return value


def _typed_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(FLAG.expected)
    return value


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError(TEXT.expected)
    return text


def _path(text: str) -> Path:
    return Path(_text(text)).expanduser()


def _seconds(text: str) -> float:
    try:
        return float(text) if text.strip().replace(".", "", 1).isdecimal() else duration_ms(text) / 1000
    except ValueError:
        raise ValueError(SECONDS.expected) from None


def _typed_seconds(value: object) -> float:
    if isinstance(value, str):
        return _seconds(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise ValueError(SECONDS.expected)
    return float(value)


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(SIZE.expected)
    return int(match[1]) * _BYTES[match[2] or "B"]


def _typed_size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(SIZE.expected)
    return _size(str(value))


def _show_size(value: int) -> str:
    unit, size = next((unit, size) for unit, size in _BYTES.items() if value % size == 0 and unit[1:] != "B")
    return f"{value // size}{unit}" if size > 1 else str(value)


def _texts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _typed_texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError(TEXTS.expected)
    return tuple(value)


def _without_password(url: str) -> str:
    return _PASSWORD.sub(r"\1***@", url)


TEXT = Kind("text", "text that is not empty", '"text"', _text)
URL = Kind("URL", "text that is not empty", '"https://host"', _text, _without_password)
PATH = Kind("path", "a path", '"folder/file"', _path)
FLAG = Kind("true or false", "true or false", "true", _flag, lambda value: str(value).lower(), _typed_flag)
DURATION = Kind("duration", "a number with a unit: ms, s, m, h or d", '"7d"', duration_ms, show_duration)
SECONDS = Kind(
    "seconds",
    "a number of seconds, or a duration such as 30s",
    "30",
    _seconds,
    lambda value: f"{value:g}",
    _typed_seconds,
)
SIZE = Kind("size", "a number of bytes, or a size such as 32MiB", '"32MiB"', _size, _show_size, _typed_size)
TEXTS = Kind(
    "list of text", 'a list of text such as ["a", "b"]', '["a", "b"]', _texts, ", ".join, _typed_texts
)
SECRET = Kind(
    "secret",
    "text that is not empty",
    '"text"',
    lambda text: Secret(_text(text)),
    lambda _: "***",
    secret=True,
)
SWITCH = choice("off", "on")
PORT = whole(0, 65_535)
COUNT = whole(1)
