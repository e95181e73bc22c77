"""Random commits give the metadata that PyIceberg gives, where both know what they mean.

PyIceberg neither writes format version 3 nor reuses ids nor cuts the snapshot log at a gap: the
groups of updates that need it are left out, and Iceberg's Java answers for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.fixtures.clients import Client, ClientMissing, client
from tests.fixtures.iceberg_tables import new_table
from tests.fixtures.iceberg_updates import updates_for

Ask = Callable[[dict[str, Any]], dict[str, Any]]

NOT_KNOWN_THERE = frozenset(
    {
        "append-several",
        "encryption-key",
        "readd-schema",
        "readd-spec",
        "remove-ref",
        "remove-snapshots",
        "remove-unreferenced",
    }
)


@pytest.fixture(scope="module")
def pyiceberg_rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    try:
        pyiceberg: Client = client("pyiceberg")
    except ClientMissing as missing:
        pytest.skip(str(missing))
    errors = tmp_path_factory.mktemp("pyiceberg") / "stderr"
    with pyiceberg.session("pyiceberg_metadata_client.py", None, errors) as lines:
        yield lines.ask


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_random_commits(pyiceberg_rules: Ask, data: st.DataObject):
    table = new_table(data.draw(st.sampled_from([1, 2])))
    for _ in range(data.draw(st.integers(1, 6))):
        before, file = table.document, table.head.metadata_location
        leave_out = NOT_KNOWN_THERE | ({"upgrade"} if before["format-version"] == 2 else set())
        updates = as_written_there(before, data.draw(updates_for(before, leave_out)))
        # They log a snapshot that was current only within a commit.
        assume(sum(update.get("ref-name") == "main" for update in updates) <= 1)
        made = table.commit(*updates)
        if table.change.changed:
            theirs = pyiceberg_rules({"metadata": before, "file": file, "updates": updates})
            assert comparable(made, before) == comparable(theirs, before)


def as_written_there(document: dict[str, Any], updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the ids that a writer gives to what it adds, and without what would change nothing."""
    kept = []
    for update in json.loads(json.dumps(updates)):
        for action, name, field, id_ in (
            ("add-schema", "schema", "schemas", "schema-id"),
            ("add-spec", "spec", "partition-specs", "spec-id"),
            ("add-sort-order", "sort-order", "sort-orders", "order-id"),
        ):
            if update["action"] == action and (action != "add-sort-order" or update[name]["fields"]):
                update[name][id_] = max(each[id_] for each in document[field]) + 1
        if update["action"] == "set-location" and update["location"] == document["location"]:
            continue
        kept.append(update)
    return kept


def comparable(document: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Without what both write differently and mean alike."""
    document = json.loads(json.dumps(document))
    # They take the time of the snapshot, we the time of the commit.
    del document["last-updated-ms"]
    known = [(entry["timestamp-ms"], entry["snapshot-id"]) for entry in before["snapshot-log"]]
    made = {each["snapshot-id"]: each["timestamp-ms"] for each in document["snapshots"]}
    for entry in document["snapshot-log"]:
        time = entry["timestamp-ms"]
        if (time, entry["snapshot-id"]) not in known and time != made[entry["snapshot-id"]]:
            entry["timestamp-ms"] = "the time of the commit"
    # What version 1 says twice, they do not move along.
    for field in ("schema", "partition-spec"):
        document.pop(field, None)
    for snapshot in document["snapshots"]:
        if snapshot.get("sequence-number") == 0:
            del snapshot["sequence-number"]
    for schema in document["schemas"]:
        if not schema.get("identifier-field-ids"):
            schema.pop("identifier-field-ids", None)
    for field in ("statistics", "partition-statistics"):
        document[field].sort(key=lambda each: each["snapshot-id"])
    # They leave out what is none.
    if document.get("current-snapshot-id") == -1:
        del document["current-snapshot-id"]
    return document
