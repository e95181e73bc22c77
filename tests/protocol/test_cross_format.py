"""Transactions that span formats: each operation in its protocol's own words, all of them or none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.fixtures.delta import metadata
from tests.fixtures.server import InverServer
from tests.fixtures.trio import Trio


@pytest.fixture
def trio(shared_inver: InverServer) -> Iterator[Trio]:
    made = Trio(shared_inver)
    yield made
    made.close()


def reasons(answer: Any) -> list[tuple[int, str]]:
    return [(each["operation"], each["reason"]) for each in answer.json()["conflicts"]]


def test_three_tables_move_together(trio: Trio) -> None:
    answer = trio.transact(*trio.step(1))
    assert answer.status_code == 200, answer.text
    assert trio.versions() == (1, 1, 1)
    told = answer.json()
    assert [each["version"] for each in told["results"]] == [1, 1, 1]
    events = trio.server.call("GET", f"/transactions/{told['transaction']}").json()["events"]
    assert [each["type"].split(".")[-2] for each in events] == ["committed"] * 3
    trio.transact(*trio.step(2)).raise_for_status()
    assert trio.versions() == (2, 2, 2)


@pytest.mark.parametrize("loser", [0, 1, 2])
def test_what_one_loses_none_wins(trio: Trio, loser: int) -> None:
    trio.transact(*trio.step(1)).raise_for_status()
    late = trio.step(2)
    # Somebody else is faster on one of the three tables.
    trio.transact(
        [trio.delta_commit(2), trio.iceberg_commit(), trio.lance_commit(2)][loser]
    ).raise_for_status()
    before, files = trio.versions(), trio.iceberg.files()
    answer = trio.transact(*late)
    assert answer.status_code == 409, answer.text
    assert trio.versions() == before
    assert trio.iceberg.files() == files
    if loser != 1:
        assert reasons(answer) == [(loser, "version-taken")]
    else:
        assert "Requirement failed" in answer.json()["detail"]


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_no_version_is_made_past_its_format(trio: Trio, refused: int) -> None:
    """It would be one of which readers find nothing; whatever goes with it is refused, too."""
    trio.transact(*trio.step(1)).raise_for_status()
    named = [
        trio.delta.name.split("."),
        [trio.lake.catalog, "ns", "t"],
        trio.lance.id("t"),
    ][refused]
    words = ["delta-commit", "iceberg-commit", "lance"][refused]
    catalog, schema, name = named
    table_id = trio.server.call("GET", f"/catalogs/{catalog}/schemas/{schema}/tables/{name}").json()["id"]
    others = trio.step(2)
    del others[refused]
    for table in ({"name": named}, {"id": table_id}):
        for past in (
            {"op": "commit", "table": table, "version": 2, "token": "x"},
            {"op": "create-branch", "table": table, "branch": "b", "version": 1},
        ):
            answer = trio.transact(*others, past)
            assert (answer.status_code, answer.json()["field"]) == (400, "operations[2].table"), answer.text
            assert answer.json()["fix"] == f"send {words} instead"
    assert trio.versions() == (1, 1, 1)
    trio.transact(*trio.step(2)).raise_for_status()
    assert trio.versions() == (2, 2, 2)


def test_time_does_not_go_back_inside_of_a_transaction(trio: Trio) -> None:
    second, first = trio.delta_commit(2), trio.delta_commit(1)
    answer = trio.transact(first, second)
    assert (answer.status_code, answer.json()["field"]) == (400, "operations[1].commit_info.timestamp")
    assert trio.versions()[0] == 0
    trio.transact(first, trio.delta_commit(2)).raise_for_status()
    assert trio.versions()[0] == 2


def test_the_metadata_of_a_table_changes_once_in_a_transaction(trio: Trio) -> None:
    def commit(version: int, *more: str) -> dict[str, Any]:
        fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in more]
        return trio.delta_commit(version, [metadata(trio.delta, *fields)])

    answer = trio.transact(commit(1, "a"), commit(2, "a", "b"))
    assert (answer.status_code, answer.json()["field"]) == (400, "operations[1].commit_info"), answer.text
    assert trio.versions()[0] == 0
    trio.transact(commit(1, "a"), trio.delta_commit(2)).raise_for_status()
    assert [each["name"] for each in trio.delta.load()["metadata"]["columns"]["fields"]] == ["id", "a"]


def test_what_a_format_keeps_is_not_changed_past_it(trio: Trio) -> None:
    trio.transact(*trio.step(1)).raise_for_status()
    for named, kept in (
        (trio.delta.name.split("."), ("columns",)),
        ([trio.lake.catalog, "ns", "t"], ("columns", "properties")),
        (trio.lance.id("t"), ("columns",)),
    ):
        catalog, schema, name = named
        path = f"/catalogs/{catalog}/schemas/{schema}/tables/{name}"
        before = trio.server.call("GET", path).json()
        for field in kept:
            body = {
                field: {"team": "sales"} if field == "properties" else [{"name": "zzz", "type": "string"}]
            }
            answer = trio.server.call("PATCH", path, json=body)
            assert (answer.status_code, answer.json()["field"]) == (400, field), answer.text
        assert trio.server.call("GET", path).json() == before
        assert trio.server.call("PATCH", path, json={"comment": "ours"}).json()["comment"] == "ours"
    assert trio.versions() == (1, 1, 1)


def test_properties_of_the_log_stay_when_those_of_the_catalog_change(trio: Trio) -> None:
    catalog, schema, name = trio.delta.name.split(".")
    path = f"/catalogs/{catalog}/schemas/{schema}/tables/{name}"
    before = trio.server.call("GET", path).json()["properties"]
    changed = trio.server.call("PATCH", path, json={"properties": {"team": "sales"}})
    assert changed.json()["properties"] == {**before, "team": "sales"}
    assert trio.server.call("PATCH", path, json={"properties": before}).json()["properties"] == before
    for key, value in {"delta.appendOnly": "true", "io.unitycatalog.tableId": "another"}.items():
        refused = trio.server.call("PATCH", path, json={"properties": {key: value}})
        assert (refused.status_code, refused.json()["field"]) == (400, key)
    trio.transact(trio.delta_commit(1)).raise_for_status()


def test_a_commit_that_requires_nothing_of_what_changed_is_made_again(trio: Trio) -> None:
    trio.transact(*trio.step(1)).raise_for_status()
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda number: trio.transact(
                    trio.iceberg_commit(trio.iceberg.set(**{f"by.{number}": "x"})),
                    {
                        "op": "move-cursor",
                        "cursor": f"{trio.delta.id}/{number}",
                        "expect": None,
                        "value": "1",
                    },
                ),
                range(8),
            )
        )
    assert [answer.status_code for answer in answers] == [200] * 8
    properties = trio.iceberg.metadata["properties"]
    assert {f"by.{number}" for number in range(8)} <= properties.keys()


def test_sent_again_it_takes_effect_once(trio: Trio) -> None:
    step = trio.step(1)
    first, again = trio.transact(*step), trio.transact(*step)
    assert (first.status_code, again.status_code) == (200, 200), again.text
    assert again.json()["replayed"] is True
    assert again.json()["transaction"] == first.json()["transaction"]
    assert again.json()["results"] == first.json()["results"]
    assert trio.versions() == (1, 1, 1)


def test_a_key_gives_the_same_answer_again(trio: Trio) -> None:
    step, key = trio.step(1), str(uuid.uuid4())
    first, again = trio.transact(*step, key=key), trio.transact(*step, key=key)
    assert again.json() == {**first.json(), "replayed": True}
    assert trio.transact(*trio.step(2), key=key).status_code == 422
    assert trio.versions() == (1, 1, 1)


def test_other_operations_go_with_them(trio: Trio) -> None:
    old = [trio.lake.catalog, "ns", "t"]
    answer = trio.transact(
        *trio.step(1),
        {"op": "rename-table", "table": {"name": old}, "to": [trio.lake.catalog, "ns", "renamed"]},
        {"op": "move-cursor", "cursor": f"flow/{trio.delta.id}", "expect": None, "value": "1"},
        {"op": "lance", "operation": {"declare_table": {"id": trio.lance.id("other")}}},
    )
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["results"]) == 6
    assert trio.lake.get("/namespaces/ns/tables")["identifiers"] == [{"namespace": ["ns"], "name": "renamed"}]
    assert trio.lance.of("other", "describe")["location"]
    cursor = trio.server.call("GET", f"/cursors/flow%2F{trio.delta.id}").json()
    assert cursor["value"] == "1"


def test_a_commit_may_follow_the_rename_of_its_table(trio: Trio) -> None:
    old, new = ([trio.lake.catalog, "ns", name] for name in ("t", "renamed"))
    rename = {"op": "rename-table", "table": {"name": old}, "to": new}
    answer = trio.transact(rename, *trio.step(1))
    assert answer.status_code == 200, answer.text
    renamed = trio.lake.get("/namespaces/ns/tables/renamed")["metadata"]
    assert len(renamed["snapshots"]) == 1
    assert trio.lake.admin.get("/namespaces/ns/tables/t").status_code == 404


def test_a_commit_to_a_name_that_two_tables_have_in_turn_is_refused(trio: Trio) -> None:
    old, new, other = ([trio.lake.catalog, "ns", name] for name in ("t", "renamed", "other"))
    trio.lake.table("other")
    answer = trio.transact(
        {"op": "rename-table", "table": {"name": old}, "to": new},
        {"op": "rename-table", "table": {"name": other}, "to": old},
        *trio.step(1),
    )
    assert answer.status_code == 409, answer.text
    assert answer.json()["detail"] == "the table has another name by now"
    assert trio.versions() == (0, 0, 0)
    found = [each["name"] for each in trio.lake.get("/namespaces/ns/tables")["identifiers"]]
    assert found == ["other", "t"]


def test_two_commits_of_one_iceberg_table_are_one_version(trio: Trio) -> None:
    answer = trio.transact(
        trio.iceberg_commit(trio.iceberg.set(a="1")), trio.iceberg_commit(trio.iceberg.set(b="2"))
    )
    results = answer.raise_for_status().json()["results"]
    assert [each["version"] for each in results] == [1, 1]
    assert {"a": "1", "b": "2"}.items() <= trio.iceberg.metadata["properties"].items()


@pytest.mark.parametrize(
    ("operation", "field"),
    [
        ({"op": "delta-commit", "commit": {}}, "operations[1].commit"),
        ({"op": "delta-commit", "commit": {"table_id": "x", "table_uri": "y"}}, "operations[1].commit_info"),
        ({"op": "delta-commit"}, "operations[1]"),
        ({"op": "iceberg-commit", "table": ["a"], "commit": {"updates": []}}, "operations[1].table"),
        (
            {"op": "iceberg-commit", "table": ["a", "b", "c"], "commit": {"updates": [{"action": "fly"}]}},
            "operations[1].commit.updates[0]",
        ),
        ({"op": "lance", "operation": {}}, "operations[1].operation"),
        ({"op": "lance", "operation": {"declare_table": {"id": ["a"]}}}, "operations[1].id"),
        ({"op": "lance", "operation": {"fly": {}}}, "operations[1].operation"),
        ({"op": "fly"}, "operations[1]"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_done(
    trio: Trio, operation: dict[str, Any], field: str
) -> None:
    answer = trio.transact(trio.delta_commit(1), operation)
    assert answer.status_code == 400, answer.text
    assert answer.json()["field"].startswith(field), answer.text
    assert trio.versions() == (0, 0, 0)


def test_rights_are_asked_for_each_table(trio: Trio) -> None:
    """C4: a transaction reaches no table that its caller could not commit to alone."""
    trio.lake.management("POST", "/principals", {"name": f"one-{trio.delta.id}"})
    token = trio.lake.management("POST", "/tokens", {"principal": f"one-{trio.delta.id}"})["token"]
    securable = {"kind": "catalog", "name": [trio.lake.catalog]}
    trio.lake.management(
        "POST",
        "/grants",
        {
            "principal": f"one-{trio.delta.id}",
            "privileges": ["USE CATALOG", "USE SCHEMA", "SELECT", "MODIFY"],
            "securable": securable,
        },
    )
    theirs = {"Authorization": f"Bearer {token}"}
    alone = trio.server.call(
        "POST", "/transactions", json={"operations": [trio.iceberg_commit()]}, headers=theirs
    )
    assert alone.status_code == 200, alone.text
    for other in (trio.delta_commit(1), trio.lance_commit(1)):
        both = {"operations": [trio.iceberg_commit(), other]}
        answer = trio.server.call("POST", "/transactions", json=both, headers=theirs)
        assert answer.status_code == 404, answer.text
    assert trio.versions() == (0, 1, 0)
