"""The files around the code agree with each other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    return tomllib.loads(text("pyproject.toml"))


def package(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]


RUNTIME = [package(line) for line in project()["project"]["dependencies"]]
EXTRAS = project()["project"]["optional-dependencies"]
OPTIONAL = list(dict.fromkeys(package(line) for lines in EXTRAS.values() for line in lines))
DEVELOPMENT = [package(line) for line in project()["dependency-groups"]["dev"]]
TARGETS = dict(re.findall(r"^([a-z]+):.*?(?:## (.*))?$", text("Makefile"), re.MULTILINE))


def test_dependencies_are_explained():
    explained = re.findall(r"^\| `([^`]+)` \|", text("docs/dependencies.md"), re.MULTILINE)
    assert explained == [*RUNTIME, *OPTIONAL, *DEVELOPMENT]


def test_lock_file_pins_every_dependency_by_hash():
    lock = text("requirements.lock")
    entries = re.split(
        r"^(?=[a-z0-9])", re.sub(r"^ *#.*\n", "", lock, flags=re.MULTILINE), flags=re.MULTILINE
    )
    pinned = {entry.partition("==")[0]: entry for entry in entries if entry}
    assert {*RUNTIME, *OPTIONAL, *DEVELOPMENT} <= pinned.keys()
    assert [name for name, entry in pinned.items() if "--hash=sha256:" not in entry] == []


def test_lock_file_names_no_host():
    assert not re.search(r"://|--(extra-)?index-url|--find-links", text("requirements.lock"))


def test_readme_starts_with_the_two_commands():
    commands = re.findall(r"^    (\S.*?)(?: *#.*)?$", text("README.md"), re.MULTILINE)
    assert commands[:2] == ["make demo", "make test"]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_documented_make_targets_exist(name):
    documented = set(re.findall(r"(?:`|^    )make ([a-z]+)", text(name), re.MULTILINE))
    assert documented
    assert documented <= TARGETS.keys()


def test_public_make_targets_are_documented():
    public = {name for name, help_text in TARGETS.items() if help_text} - {"help"}
    documented = set(re.findall(r"make ([a-z]+)", text("CONTRIBUTING.md")))
    assert public <= documented


def test_changelog_collects_what_is_not_released():
    headings = re.findall(r"^## (.+)$", text("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "Unreleased"


def test_decisions_are_numbered_without_gaps():
    names = sorted(path.name for path in (ROOT / "docs" / "adr").glob("*.md"))
    assert [name[:5] for name in names] == [f"{number:04}-" for number in range(1, len(names) + 1)]
    for number, name in enumerate(names, start=1):
        assert text(f"docs/adr/{name}").startswith(f"# {number}. ")


def documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document):
    targets = [link for link in LINK.findall(document.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in targets if not (document.parent / link).exists()] == []
