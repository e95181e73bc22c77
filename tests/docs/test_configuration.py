"""The pages that are made from the code say what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from inver.config import Settings, settings_table
from inver.config.sources import load
from scripts.cli_docs import cli_page, configuration_page

DOCS = Path(__file__).resolve().parents[2] / "docs"
CONFIGURATION = (DOCS / "configuration.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.*?) \| `(INVER_\w+)` \| (.+) \|$", re.MULTILINE)


def documented() -> dict[str, tuple[str, str, str, str]]:
    """Key: kind, default, environment variable, meaning."""
    found: dict[str, tuple[str, str, str, str]] = {}
    for part in CONFIGURATION.split("\n## ")[1:]:
        section = re.match(r"\[(\w+)\]", part)
        if section:
            found |= {f"{section[1]}.{row[0]}": (row[1], row[2], row[3], row[4]) for row in ROW.findall(part)}
    return found


def test_the_page_is_current():
    assert configuration_page(CONFIGURATION) == CONFIGURATION, "run scripts/cli_docs.py"


def test_the_commands_are_current():
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == cli_page(), "run scripts/cli_docs.py"


def test_every_setting_is_documented_and_nothing_else():
    assert list(documented()) == list(settings_table())


@pytest.mark.parametrize("key", list(settings_table()))
def test_each_setting(key):
    setting = settings_table()[key]
    shown = (setting.kind.name, setting.default_text, setting.env, setting.doc)
    kind, default, env, meaning = documented()[key]
    assert (kind, default.strip("`"), env, meaning) == shown


def test_defaults_are_what_they_are_said_to_be():
    """What the page calls a default is read back as the default."""
    for key, (_, default, _, _) in documented().items():
        if default.startswith("`"):
            setting = settings_table()[key]
            assert setting.kind.from_text(default.strip("`")) == Settings().value(key)


def test_the_example_is_valid(tmp_path):
    example = re.search(r"For example:\n\n((?: {4}.*\n|\n)+)", CONFIGURATION)
    assert example is not None
    text = re.sub(r"^ {4}", "", example[1], flags=re.MULTILINE)
    (tmp_path / "inver.toml").write_text(text)
    settings = load(environ={}, folder=tmp_path)
    given = {f"{section}.{key}" for section, keys in tomllib.loads(text).items() for key in keys}
    assert {key for key in settings_table() if settings.origin(key) != "default"} == given
    assert settings.hold_ms == 14 * 86_400_000


def test_other_variables_are_not_taken_for_settings():
    named = re.findall(r"`(INVER_[A-Z]+)`", CONFIGURATION)
    assert {"INVER_CONFIG", "INVER_URL", "INVER_TOKEN", "INVER_PROFILE"} <= set(named)
    assert load(environ=dict.fromkeys(named, "")) == Settings()
