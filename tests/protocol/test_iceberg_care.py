"""Commits of care through real HTTP: they are known by a header, and give way to writers."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.fixtures.iceberg import Lake, Table, error, kind

CARE = {"Inver-Care": "run-1"}
REWRITE = {"operation": "replace", "added-data-files": "1", "deleted-data-files": "4", "added-records": "8"}


@pytest.fixture
def table(lake: Lake) -> Table:
    """With the snapshots 1 and 2 of a writer."""
    table = lake.table("t")
    for number in (1, 2):
        answer = table.commit(commit(table, number, {"operation": "append", "added-records": "4"}))
        assert answer.status_code == 200, answer.text
    return table


def commit(table: Table, id_: int, summary: dict[str, str]) -> dict[str, Any]:
    """A snapshot that follows the newest one, on the condition that it still is that."""
    seen = table.metadata
    parent = seen["refs"].get("main", {}).get("snapshot-id")
    snapshot = {
        "snapshot-id": id_,
        "sequence-number": seen["last-sequence-number"] + 1,
        "timestamp-ms": max(int(time.time() * 1000), seen["last-updated-ms"]),
        "manifest-list": f"{seen['location']}/metadata/snap-{id_}.avro",
        "summary": summary,
        "schema-id": 0,
        **({} if parent is None else {"parent-snapshot-id": parent}),
    }
    return {
        "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent}],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": id_},
        ],
    }


def snapshots(table: Table) -> dict[int, dict[str, str]]:
    return {each["snapshot-id"]: each["summary"] for each in table.metadata["snapshots"]}


def test_a_rewrite_is_marked(table: Table):
    answer = table.commit(commit(table, 3, REWRITE), headers=CARE)
    assert answer.status_code == 200, answer.text
    assert snapshots(table)[3] == REWRITE | {"inver.care": "run-1"}


def test_a_writer_wins_over_a_rewrite(lake: Lake, table: Table):
    late = commit(table, 4, {"operation": "append", "added-records": "2"})
    assert table.commit(commit(table, 3, REWRITE), headers=CARE).status_code == 200
    answer = table.commit(late)
    assert answer.status_code == 200, answer.text
    assert set(snapshots(table)) == {1, 2, 4}
    assert table.metadata["current-snapshot-id"] == 4
    assert [each["snapshot-id"] for each in table.metadata["snapshot-log"]] == [1, 2, 4]
    # What the rewrite had changed is counted back.
    path = f"/catalogs/{lake.catalog}/schemas/ns/tables/t/commits"
    newest, rewrite, *_ = lake.management("GET", path)["commits"]
    assert (rewrite["counts"]["files_added"], rewrite["counts"]["files_removed"]) == (1, 4)
    assert (newest["counts"]["files_added"], newest["counts"]["files_removed"]) == (4, 1)
    # And it is the same for a writer that did not hear the answer.
    assert table.commit(late).status_code == 200
    assert set(snapshots(table)) == {1, 2, 4}


def test_a_writer_wins_in_a_transaction_too(lake: Lake, table: Table):
    late = commit(table, 4, {"operation": "overwrite"})
    change = {"identifier": {"namespace": ["ns"], "name": "t"}}
    rewrite = {"table-changes": [change | commit(table, 3, REWRITE)]}
    assert lake.admin.post("/transactions/commit", json=rewrite, headers=CARE).status_code == 204
    assert snapshots(table)[3]["inver.care"] == "run-1"
    assert lake.admin.post("/transactions/commit", json={"table-changes": [change | late]}).status_code == 204
    assert set(snapshots(table)) == {1, 2, 4}


def test_care_loses_to_a_writer(table: Table):
    late = commit(table, 3, REWRITE)
    assert table.commit(commit(table, 4, {"operation": "append"})).status_code == 200
    assert kind(table.commit(late, headers=CARE)) == (409, "CommitFailedException")
    assert set(snapshots(table)) == {1, 2, 4}


def test_care_changes_no_rows(table: Table):
    status, _, message = error(table.commit(commit(table, 3, {"operation": "append"}), headers=CARE))
    assert (status, "changes no rows" in message) == (400, True)
    assert set(snapshots(table)) == {1, 2}


def test_care_gives_up_no_snapshot_that_has_a_name(table: Table):
    tag = {"action": "set-snapshot-ref", "ref-name": "kept", "type": "tag", "snapshot-id": 1}
    assert table.commit({"requirements": [], "updates": [tag]}).status_code == 200
    gone = {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": [1]}]}
    assert kind(table.commit(gone, headers=CARE)) == (409, "CommitFailedException")
    assert set(snapshots(table)) == {1, 2}


@pytest.mark.parametrize("run", ["", "x" * 201])
def test_a_header_that_names_no_run(table: Table, run: str):
    answer = table.commit(commit(table, 3, REWRITE), headers={"Inver-Care": run})
    assert answer.status_code == 400
    assert set(snapshots(table)) == {1, 2}
