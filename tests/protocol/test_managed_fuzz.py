"""Whatever a commit file says, the answer is certain, and the table can be shown after it."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.delta import DeltaTable, add_file, commit_file
from tests.fixtures.unity import ID, Place, code, commit_info, first_actions, properties, proposal

ROUNDS = 150
SCHEMAS = [
    '{"type":"struct","fields":[]}',
    '{"type":"struct","fields":[{"name":"id","type":"long"}]}',
    '{"type":"struct","fields":[{"name":"\\u0000","type":{"type":"array","elementType":"long"}}]}',
    '{"type":"struct","fields":[{"name":"a","type":{"type":"struct","fields":5}}]}',
    '{"type":"struct","fields":[{"name":"a","type":{"type":"struct","fields":[{"name":"b"}]}}]}',
    '{"type":"struct","fields":[{"name":"a","type":"long","metadata":5}]}',
    '{"type":"struct","fields":[{"name":"a","type":"long","nullable":"x"}]}',
    '{"type":"struct","fields":[{"name":"a","type":"no such type"}]}',
    "[" * 5_000,
]
DOMAINS = [
    '{"clusteringColumns":[["id"]]}',
    '{"clusteringColumns":[["\\u0000"]]}',
    '{"rowIdHighWaterMark":5}',
]
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**63,
    10**30,
    "",
    "x",
    "a\0b",
    "é\u202e",
    "\U0001f600",
    "a" * 3_000,
]
ODD += [[], ["a"], ["a\0b"], {}, {"a": "b"}, {"a\0": "b"}, [[]], [{}], *SCHEMAS, *DOMAINS, ...]


def actions(table: DeltaTable) -> list[Any]:
    vector = {"deletionVector": {"cardinality": 3}}
    return [
        *first_actions(table),
        add_file("a"),
        {"remove": {"path": "b", "dataChange": True, "size": 5, **vector}},
        *(
            {"domainMetadata": {"domain": domain, "configuration": DOMAINS[number], "removed": False}}
            for domain, number in (("delta.clustering", 0), ("delta.rowTracking", 2))
        ),
    ]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*at, key))


def spoiled(given: list[Any], chance: random.Random) -> list[Any]:
    """With other values in one place or a few; `...` takes what is there away."""
    made = copy.deepcopy(given)
    for _ in range(chance.choice((1, 1, 2, 3))):
        found = list(places(made))
        if not found:
            break
        *way, last = chance.choice(found)
        inside: Any = made
        for key in way:
            inside = inside[key]
        value = chance.choice(ODD)
        if value is ...:
            del inside[last]
        else:
            inside[last] = {} if not way and not isinstance(value, dict) else value
    return made


def shown(place: Place, name: str) -> None:
    """By every route that tells of a table."""
    place.get(f"/tables/{place.schema}.{name}")
    place.get(f"/delta/v1/catalogs/{place.catalog}/schemas/s/tables/{name}")
    place.get(f"/tables?catalog_name={place.catalog}&schema_name=s")


@pytest.mark.parametrize("number", range(2))
def test_any_commit_file(place: Place, number: int) -> None:
    chance, table, version = random.Random(number), place.table("t"), 0
    answers: Counter[int] = Counter()
    for _ in range(ROUNDS):
        written = spoiled(actions(table), chance)
        body = {**proposal(table), "commit_info": commit_info(table, version + 1, *written)}
        if chance.random() < 0.3:
            body["metadata"] = {"id": "x", "properties": properties(table)}
        answer = place.admin.post("/delta/commit", json=body)
        answers[answer.status_code] += 1
        if answer.is_success:
            version += 1
        else:
            assert code(answer) == (400, "INVALID_PARAMETER_VALUE"), json.dumps(written)[:2_000]
        shown(place, "t")
        assert place.get(table.url)["latest-table-version"] == version
    assert min(answers[200], answers[400]) > ROUNDS // 20, answers


def test_any_version_0(place: Place) -> None:
    chance = random.Random(2)
    answers: Counter[int] = Counter()
    for number in range(ROUNDS):
        table = place.staged(f"t{number}")
        written = spoiled(actions(table), chance)
        table.put(f"_delta_log/{0:020d}.json", commit_file(table.timestamp, written, "CREATE TABLE"))
        columns, told = chance.choice(([], [ID])), chance.choice((None, properties(table)))
        answer = place.admin.post("/tables", json=place.creation(table, columns=columns, properties=told))
        answers[answer.status_code] += 1
        if answer.is_success:
            shown(place, f"t{number}")
        else:
            assert code(answer) == (400, "INVALID_PARAMETER_VALUE"), json.dumps(written)[:2_000]
    assert min(answers[200], answers[400]) > ROUNDS // 20, answers
