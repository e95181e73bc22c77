"""The environments of the clients are pinned to the last file, and say nothing of where it comes from."""

from __future__ import annotations

import re

import pytest

from tests.fixtures.clients import ENGINES

NAMES = sorted(path.stem for path in (ENGINES / "requirements").glob("*.in"))


def test_there_are_clients():
    assert {"duckdb", "deltalake", "polars", "spark", "unitycatalog"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_package_is_pinned_by_hash(name):
    wanted = (ENGINES / "requirements" / f"{name}.in").read_text().split()
    lock = re.sub(r"^ *#.*\n", "", (ENGINES / "requirements" / f"{name}.txt").read_text(), flags=re.MULTILINE)
    pinned = [entry for entry in re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE) if entry]
    assert [entry for entry in pinned if "==" not in entry or "--hash=sha256:" not in entry] == []
    assert set(wanted) <= {entry.split()[0] for entry in pinned}
    assert not re.search(r"://|--(extra-)?index-url|--find-links", lock)
