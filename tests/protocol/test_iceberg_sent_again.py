"""Iceberg REST through real HTTP: commits whose answer was lost, sent again when the table has moved on.

A refusal makes a client delete its files, so none is given for a commit that was applied.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.fixtures.iceberg import SCHEMA, Lake, Table, append, first_commit, kind

UNKNOWN = (500, "CommitStateUnknownException")


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.table()


def lost(table: Table, *updates: dict[str, Any]) -> dict[str, Any]:
    """A commit that was applied, though its client has not heard of it."""
    body = table.append()
    body["updates"] += updates
    assert table.commit(body).status_code == 200
    return body


def test_other_parts_of_it_were_changed_since(table: Table) -> None:
    body = lost(table, {"action": "set-properties", "updates": {"a": "1"}})
    assert table.commit(table.set(a="2")).status_code == 200
    assert kind(table.commit(body)) == UNKNOWN
    metadata = table.metadata
    assert (len(metadata["snapshots"]), metadata["properties"]["a"]) == (1, "2")


def test_the_branch_was_rolled_back_since(table: Table) -> None:
    """The snapshot is in the table still, and with it the files that a client would delete."""
    first = lost(table)["updates"][1]["snapshot-id"]
    body = lost(table)
    back = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": first}
    assert table.commit({"requirements": [], "updates": [back]}).status_code == 200
    assert kind(table.commit(body)) == UNKNOWN
    assert table.metadata["current-snapshot-id"] == first


def test_it_was_part_of_a_transaction(lake: Lake, table: Table) -> None:
    other = lake.table("other")
    body = lost(table)
    assert table.commit({"updates": [{"action": "remove-snapshot-ref", "ref-name": "main"}]}).is_success
    changes = [{"identifier": table.identifier, **body}, {"identifier": other.identifier, **other.append()}]
    answer = lake.admin.post("/transactions/commit", json={"table-changes": changes})
    assert kind(answer) == UNKNOWN
    assert other.metadata["snapshots"] == []


def test_a_snapshot_of_another_with_the_same_id_is_refused(table: Table) -> None:
    body = lost(table)
    body["updates"][0]["snapshot"]["manifest-list"] += "x"
    assert table.commit(body).status_code == 409
    body["requirements"] = []
    assert table.commit(body).status_code == 400


@pytest.mark.parametrize("registered", [False, True])
def test_its_table_has_another_name_by_now_or_is_dropped(lake: Lake, table: Table, registered: bool) -> None:
    """A dropped table can come back for a while, and needs its files then.

    One that was registered has another id in the catalog than in its metadata.
    """
    if registered:
        last = lake.post(f"{table.url}/unregister", None)["metadata-location"]
        lake.post("/namespaces/ns/register", {"name": "t", "metadata-location": last})
    body = lost(table)
    names = {"source": table.identifier, "destination": {"namespace": ["ns"], "name": "moved"}}
    lake.post("/tables/rename", names)
    assert kind(table.commit(body)) == UNKNOWN
    lake.send("DELETE", "/namespaces/ns/tables/moved")
    assert kind(table.commit(body)) == UNKNOWN
    lake.table("t")
    assert kind(table.commit(body)) == UNKNOWN, "what has the name now is another table"
    lake.send("DELETE", table.url)
    # Nobody has seen this one.
    body["updates"][0]["snapshot"]["snapshot-id"] += 1
    assert kind(table.commit(body)) == (404, "NoSuchTableException")


def test_its_table_was_purged(lake: Lake, table: Table) -> None:
    body = lost(table)
    lake.send("DELETE", table.url, params={"purgeRequested": "true"})
    assert kind(table.commit(body)) == (404, "NoSuchTableException")
    lake.table()
    assert kind(table.commit(body)) == (409, "CommitFailedException")


@pytest.mark.parametrize("place", ["nowhere", "s3://x", "s3:///", "gopher://a/b", "", "s3://x/../y", 5])
def test_a_snapshot_with_files_in_no_place(lake: Lake, table: Table, place: Any) -> None:
    body = table.append()
    body["updates"][0]["snapshot"]["manifest-list"] = place
    lake.send("DELETE", table.url)
    assert kind(table.commit(body)) == (404, "NoSuchTableException")


def test_a_creation_that_was_applied_shows_nothing_to_who_may_not_load(lake: Lake) -> None:
    """The id of a table is no secret, and does not open it."""
    staged = lake.post("/namespaces/ns/tables", {"name": "s", "schema": SCHEMA, "stage-create": True})
    body = first_commit(staged["metadata"])
    url = "/namespaces/ns/tables/s"
    assert lake.post(url, body) == lake.post(url, body)
    stranger = lake.visitor("CREATE TABLE")
    answer = stranger.post(url, json=body)
    assert kind(answer) == UNKNOWN
    assert staged["metadata"]["location"] not in answer.text


@pytest.mark.parametrize("snapshot", [{}, {"snapshot-id": "x"}, None, 5])
def test_a_creation_of_what_is_there_with_a_snapshot_that_is_none(table: Table, snapshot: Any) -> None:
    update = {"action": "add-snapshot", "snapshot": snapshot}
    body = {"requirements": [{"type": "assert-create"}], "updates": [update]}
    assert kind(table.commit(body)) == (409, "CommitFailedException")


@pytest.mark.parametrize("chosen", [False, True])
def test_a_table_that_was_made_and_renamed_is_not_made_again(lake: Lake, chosen: bool) -> None:
    """One in a folder that its client chose has another id in the catalog than in its metadata."""
    asked = {"name": "s", "schema": SCHEMA, "stage-create": True}
    if chosen:
        asked["location"] = f"file://{lake.server.home.with_name('external')}/{uuid.uuid4()}"
    staged = lake.post("/namespaces/ns/tables", asked)
    body, first = first_commit(staged["metadata"]), append(staged["metadata"])
    body["updates"] += first["updates"]
    lake.post("/namespaces/ns/tables/s", body)
    names = {
        "source": {"namespace": ["ns"], "name": "s"},
        "destination": {"namespace": ["ns"], "name": "moved"},
    }
    lake.post("/tables/rename", names)
    assert kind(lake.admin.post("/namespaces/ns/tables/s", json=body)) == UNKNOWN
    # With another snapshot it is another request, for which the id or the place is taken.
    first["updates"][0]["snapshot"]["snapshot-id"] += 1
    first["updates"][1]["snapshot-id"] += 1
    answer = lake.admin.post("/namespaces/ns/tables/s", json=body)
    assert kind(answer) == (409, "AlreadyExistsException")
    assert [each["name"] for each in lake.get("/namespaces/ns/tables")["identifiers"]] == ["moved"]
    assert len(Table(lake, ("ns",), "moved").files()) == 1
