"""Write the pages that are made from the code: docs/cli.md, and the tables of docs/configuration.md.

    .venv/bin/python scripts/cli_docs.py

A test says when they are no longer current.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from inver.cli.main import parser
from inver.cli.tree import Command, tree
from inver.config import Setting, settings_table

DOCS = Path(__file__).resolve().parent.parent / "docs"
TABLES = re.compile(r"(?<=<!-- settings -->\n).*(?=<!-- end of settings -->)", re.DOTALL)

HEAD = """\
# Commands

    inver NOUN VERB [ARGUMENTS]

A command talks to the server that `--url`, `--profile` or `--home` names; else to the one of `INVER_URL`,
`INVER_PROFILE` or the profile `default`; else to the one that runs on the home folder, `.inver` or
`INVER_SERVER__HOME`. Its token comes from `--token-file`, from the named profile, from `INVER_TOKEN`, or
from where the server was found. There is no option for the token itself, since other users of a machine can
see the options of a running program. Profiles lie in `~/.config/inver/profiles.toml`:

    [default]
    url = "https://catalog.example.com"
    token_file = "~/.config/inver/token"

A name is written with dots, `main.sales.orders`; a part that holds a dot itself stands in backticks.

| Exit status | Means |
|---|---|
| 0 | done |
| 1 | refused; the message on standard error says why, where and what to do |
| 2 | wrong usage |
| 3 | not found |
| 4 | conflict: it exists already, is not empty, or somebody else was first |
| 5 | the server cannot be reached, or the outcome is not known |

Results go to standard output, whole or not at all, as a table, as JSON (`-o json`) or as YAML (`-o yaml`).
"""


def cli_page() -> str:
    top = tree(parser())
    parts = [HEAD]
    for noun in top.children:
        parts.extend(_section(command) for command in noun.walk())
    return "\n".join([*parts, _common(top)])


def configuration_page(page: str) -> str:
    """The page with its tables as the code has them."""
    return TABLES.sub(lambda _: settings_tables(), page)


def settings_tables() -> str:
    sections: dict[str, list[Setting]] = {}
    for setting in settings_table().values():
        sections.setdefault(setting.section, []).append(setting)
    parts = []
    for section, settings in sections.items():
        parts += [
            f"\n## [{section}]\n",
            "| Key | Kind | Default | Environment | Meaning |",
            "|---|---|---|---|---|",
        ]
        parts += [_row(setting) for setting in settings]
    return "\n".join([*parts, "", ""])


def _row(setting: Setting) -> str:
    name = setting.key.partition(".")[2]
    shown = setting.default_text
    default = "" if not shown else shown if " " in shown else f"`{shown}`"
    return f"| `{name}` | {setting.kind.name} | {default} | `{setting.env}` | {setting.doc} |"


def _section(command: Command) -> str:
    name = " ".join(("inver", *command.path))
    lines = [f"{'#' * (1 + len(command.path))} {name}", "", command.parser.description or "", ""]
    if not command.children:
        lines += [f"    {_usage(name, command)}", ""]
        rows = [_argument(action) for action in command.positionals]
        rows += [_argument(action) for action in command.options if not _is_common(command, action)]
        if rows:
            lines += ["| Argument | Meaning |", "|---|---|", *rows, ""]
    lines += ["For example:", "", *(f"    {line}" for line in command.examples), ""]
    return "\n".join(lines)


def _usage(name: str, command: Command) -> str:
    words = [name, *(_placeholder(action) for action in command.positionals)]
    words += [_flag(action) for action in command.options if action.required]
    if any(not option.required and not _is_common(command, option) for option in command.options):
        words.append("[OPTIONS]")
    return " ".join(words)


def _placeholder(action: argparse.Action) -> str:
    shown = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return {"?": f"[{shown}]", "+": f"{shown}..."}.get(str(action.nargs), shown)


def _flag(action: argparse.Action) -> str:
    flags = ", ".join(action.option_strings)
    if action.nargs == 0:
        return flags
    values = "|".join(action.choices) if action.choices else action.metavar or action.dest.upper()
    return f"{flags} {values}"


def _argument(action: argparse.Action) -> str:
    shown = _flag(action) if action.option_strings else _placeholder(action)
    choices = ""
    if action.choices and not action.option_strings:
        choices = "one of " + ", ".join(action.choices)
    text = (action.help or choices).replace("%(default)s", str(action.default)).replace("%%", "%")
    # A bar separates cells, also inside of code.
    return f"| `{shown.replace('|', chr(92) + '|')}` | {text.replace('|', chr(92) + '|')} |"


def _is_common(command: Command, action: argparse.Action) -> bool:
    common = next((g for g in command.parser._action_groups if g.title == "common options"), None)
    return "--help" in action.option_strings or (common is not None and action in common._group_actions)


def _common(top: Command) -> str:
    """The options of a command that talks to a server, which all of them have."""
    listed = next(command for command in top.walk() if command.path == ("catalog", "list"))
    rows = [_argument(option) for option in listed.options if _is_common(listed, option)]
    head = ["## Common options", "", "Every command has those of these that mean something for it.", ""]
    return "\n".join([*head, "| Option | Meaning |", "|---|---|", *rows, ""])


def main() -> None:
    (DOCS / "cli.md").write_text(cli_page(), encoding="utf-8")
    page = DOCS / "configuration.md"
    page.write_text(configuration_page(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
