"""From flags to settings, for the commands that run on a configuration."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inver.config import Settings

PREFIX = "setting:"
"""Marks the arguments that are settings, among all those of a command."""


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML file with settings; also INVER_CONFIG (default: inver.toml, if it is there)",
    )


def add_setting(
    parser: argparse.ArgumentParser, flag: str, key: str, metavar: str | None = None, many: bool = False
) -> None:
    """A flag that is worth having for a setting; its help is the setting's own description."""
    from inver.config import settings_table

    setting = settings_table()[key]
    text = setting.doc.rstrip(".")
    text = text[0].lower() + text[1:] if not text[1].isupper() else text
    default = f" (default: {setting.default_text})" if setting.default_text else ""
    parser.add_argument(
        flag,
        dest=PREFIX + key,
        default=argparse.SUPPRESS,
        metavar=metavar or setting.kind.name.upper().replace(" ", "_"),
        type=str if many else _reader(setting.kind.from_text),
        action="append" if many else "store",
        help=text.replace("%", "%%") + ("; may be repeated" if many else default.replace("%", "%%")),
    )


def settings_of(arguments: argparse.Namespace) -> Settings:
    from inver.config.sources import load

    flags: dict[str, Any] = {}
    for name, value in vars(arguments).items():
        if name.startswith(PREFIX):
            flags[name.removeprefix(PREFIX)] = tuple(value) if isinstance(value, list) else value
    return load(flags, config=arguments.config)


def _reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} must be {error}") from None

    return parse
