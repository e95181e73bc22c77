"""`inver config`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from inver.cli import output
from inver.cli.options import Subparsers, noun, verb
from inver.cli.settings import add_config, settings_of

if TYPE_CHECKING:
    from inver.config import Setting


def add(commands: Subparsers) -> None:
    verbs = noun(commands, "config", "see the settings of a server", "inver config show --origin")
    show_ = verb(
        verbs,
        "show",
        show,
        "show every setting that a server started here would have",
        "inver config show",
        "inver config show --origin",
        "INVER_SERVER__PORT=9000 inver config show server -o json",
        about="Secrets are masked. docs/configuration.md explains each of them.",
        remote=False,
    )
    show_.add_argument("section", nargs="?", help="only this section, or the setting with this key")
    show_.add_argument("--origin", action="store_true", help="also where each value came from")
    add_config(show_)


def show(arguments: Namespace) -> int:
    import msgspec

    from inver.config import settings_table
    from inver.errors import NotFound

    settings = settings_of(arguments)
    chosen = [
        setting
        for setting in settings_table().values()
        if arguments.section in (None, setting.section, setting.key)
    ]
    if not chosen:
        raise NotFound(f"{arguments.section!r} is no section and no setting", kind="setting")
    shown = {setting.key: setting.kind.shown(settings.value(setting.key)) for setting in chosen}
    columns: list[output.Column[Setting]] = [
        ("KEY", lambda item: item.key),
        ("VALUE", lambda item: shown[item.key]),
    ]
    if arguments.origin:
        columns.append(("ORIGIN", lambda item: settings.origin(item.key)))
    if arguments.output == "table" or arguments.quiet:
        output.show_list(arguments, chosen, columns, lambda item: f"{item.key}={shown[item.key]}")
        return 0
    values = {
        setting.key: {
            "value": None
            if settings.value(setting.key) is None
            else _value(setting, settings.value(setting.key)),
            "origin": settings.origin(setting.key),
        }
        for setting in chosen
    }
    output.show_value(arguments, msgspec.to_builtins(values))
    return 0


def _value(setting: Setting, value: object) -> object:
    """As a program wants it: numbers, booleans and lists stay what they are."""
    return value if isinstance(value, bool | int | float | tuple) else setting.kind.shown(value)
