"""Staged commits and version 0: their names, their times, their sizes."""

from __future__ import annotations

import json
import os
from typing import Any

import httpx
import pytest

from inver.services.delta.staged import MAX_COMMIT
from tests.fixtures.delta import DeltaTable, commit_file, unity
from tests.fixtures.server import InverServer
from tests.fixtures.unity import Place, code, first_actions, properties, proposal, version

INVALID = (400, "INVALID_PARAMETER_VALUE")


@pytest.fixture
def table(place: Place) -> DeltaTable:
    return place.table("t")


def refused(table: DeltaTable, word: str, answer: httpx.Response) -> None:
    """With a message that has the word in it; the table is what it was."""
    assert code(answer) == INVALID, answer.text
    assert word in answer.json()["message"]
    assert version(table) == 0


# --- names and times ---


def staged_as(table: DeltaTable, version: int, name: str) -> dict[str, Any]:
    body = proposal(table, version)
    staged = table.folder / "_delta_log" / "_staged_commits"
    (staged / body["commit_info"]["file_name"]).rename(staged / name)
    body["commit_info"]["file_name"] = name
    return body


@pytest.mark.parametrize(
    "name", ["0" * 19 + "7.0b1ce24c-64bf-4c4a-9d57-8d6e5d7a1c11.json", "9" * 20 + ".x.json"]
)
def test_a_file_is_named_for_the_version_that_it_becomes(table: DeltaTable, name: str) -> None:
    answer = table.http.post("/delta/commit", json=staged_as(table, 1, name))
    refused(table, "commit_info.file_name", answer)


@pytest.mark.parametrize("name", ["v.uuid1.json", "0b1ce24c-64bf-4c4a-9d57-8d6e5d7a1c11.json", "é.json"])
def test_a_file_name_may_say_nothing_of_the_version(table: DeltaTable, name: str) -> None:
    assert table.http.post("/delta/commit", json=staged_as(table, 1, name)).json() == {}


def test_a_file_name_is_no_longer_than_a_file_system_takes(table: DeltaTable) -> None:
    body = proposal(table, 1)
    body["commit_info"]["file_name"] = "é" * 126 + ".json"
    answer = table.http.post("/delta/commit", json=body)
    refused(table, "characters that no staged commit has", answer)


def dated(table: DeltaTable, version: int, timestamp: int) -> dict[str, Any]:
    table.clock, table.timestamp = (lambda: 0), timestamp - 1
    return proposal(table, version)


def test_time_does_not_go_back(inver: InverServer) -> None:
    """Whether or not this server has seen the version before."""
    place = Place(inver)
    table = place.table("t")
    created = table.timestamp

    def untimely(answer: httpx.Response) -> bool:
        return code(answer) == INVALID and "commit_info.timestamp" in answer.json()["message"]

    assert untimely(place.admin.post("/delta/commit", json=dated(table, 1, created - 1)))
    for number in (1, 2):
        assert place.post("/delta/commit", dated(table, number, created + 10 * number)) == {}
    early = dated(table, 3, created + 19)
    for _ in range(2):
        assert untimely(place.admin.post("/delta/commit", json=early))
    # Who is late is told that, whatever its time is.
    late = place.admin.post("/delta/commit", json=dated(table, 2, created))
    assert code(late) == (409, "ALREADY_EXISTS")
    place.close()
    inver.restart()
    with unity(inver) as http:
        assert untimely(http.post("/delta/commit", json=early))
        # Writers let a millisecond pass; who does not harms nobody.
        assert http.post("/delta/commit", json=dated(table, 3, created + 20)).json() == {}


def test_a_repetition_is_not_asked_for_its_time(table: DeltaTable) -> None:
    first, second = proposal(table, 1), proposal(table, 2)
    for body in (first, second, first, second):
        assert table.http.post("/delta/commit", json=body).json() == {}


# --- files ---


def sparse(table: DeltaTable, size: int) -> dict[str, Any]:
    """A commit whose file is much larger than what was written to it."""
    body = proposal(table, 1)
    os.truncate(table.folder / "_delta_log" / "_staged_commits" / body["commit_info"]["file_name"], size)
    return body


def test_no_more_of_a_file_is_read_than_the_request_says(table: DeltaTable) -> None:
    answer = table.http.post("/delta/commit", json=sparse(table, 2**36))
    refused(table, "more bytes", answer)


def test_a_file_that_is_too_large_is_not_read(table: DeltaTable) -> None:
    body = sparse(table, 2**36)
    body["commit_info"]["file_size"] = 2**36
    refused(table, str(MAX_COMMIT), table.http.post("/delta/commit", json=body))


def test_a_version_0_that_is_too_large_is_not_read(place: Place) -> None:
    table = place.staged("large")
    os.truncate(table.folder / "_delta_log" / f"{0:020d}.json", 2**36)
    answer = place.admin.post("/tables", json=place.creation(table))
    assert code(answer) == INVALID
    assert str(MAX_COMMIT) in answer.json()["message"]


def test_what_no_database_can_keep_is_refused(table: DeltaTable) -> None:
    """By a refusal that is certain: a 503 of the database would be tried again and again."""
    nul = "a\0b"
    named = json.dumps({"type": "struct", "fields": [{"name": nul, "type": "long"}]})
    [_, action] = first_actions(table)
    action["metaData"]["schemaString"] = named
    for actions, operation in (([], nul), ([action], "WRITE")):
        staged = table.stage(1, actions, operation)
        info = {name.replace("-", "_"): value for name, value in staged.items()}
        refused(
            table, "U+0000", table.http.post("/delta/commit", json={**proposal(table), "commit_info": info})
        )


# --- version 0 ---


@pytest.mark.parametrize("timestamp", [0, -5, 2**63, 2**70, 1.5, "1", None])
def test_version_0_has_a_time(place: Place, timestamp: Any) -> None:
    table = place.staged("t")
    table.put(f"_delta_log/{0:020d}.json", commit_file(timestamp, first_actions(table), "CREATE TABLE"))
    told = {key: value for key, value in properties(table).items() if key != "delta.lastCommitTimestamp"}
    assert code(place.admin.post("/tables", json=place.creation(table, properties=told))) == INVALID


@pytest.mark.parametrize("number", [2**31, 10**30])
def test_a_protocol_has_versions_that_readers_can_read(place: Place, number: int) -> None:
    table = place.staged("t")
    first = first_actions(table)
    first[0]["protocol"]["minReaderVersion"] = number
    table.put(f"_delta_log/{0:020d}.json", commit_file(table.timestamp, first, "CREATE TABLE"))
    assert code(place.admin.post("/tables", json=place.creation(table, properties={}))) == INVALID
