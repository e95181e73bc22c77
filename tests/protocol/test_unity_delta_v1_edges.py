"""delta/v1 at its edges: requests that are nearly right, and what they must not leave behind."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fixtures.delta import DeltaTable, new_table
from tests.fixtures.unity import Place, kind

V1 = "/delta/v1"
INVALID = (400, "InvalidParameterValueException")


@pytest.fixture
def table(place: Place) -> DeltaTable:
    return new_table(place.admin, f"{place.schema}.t")


def update(table: DeltaTable, *updates: Any, **fields: Any) -> httpx.Response:
    body = {"requirements": [{"type": "assert-table-uuid", "uuid": table.id}], "updates": list(updates)}
    return table.http.post(table.url, json={**body, **fields})


def add_commit(table: DeltaTable, version: int, *actions: Any, **fields: Any) -> dict[str, Any]:
    return {"action": "add-commit", "commit": table.stage(version, actions), **fields}


def message(answer: httpx.Response) -> str:
    assert kind(answer) == INVALID, answer.text
    told: str = answer.json()["error"]["message"]
    return told


# --- commits ---


def test_a_staged_file_has_the_version_of_its_name(table: DeltaTable) -> None:
    """Readers that are told of a commit take its version from the name."""
    for version in (2, 10**19):
        staged = {**table.stage(version, []), "version": 1}
        assert f"version {version}" in message(table.commit(staged))
    assert table.load()["latest-table-version"] == 0
    data = (table.folder / "_delta_log/_staged_commits" / staged["file-name"]).read_bytes()
    table.put("_delta_log/_staged_commits/1.mine.json", data)
    assert table.commit({**staged, "file-name": "1.mine.json"}).status_code == 200
