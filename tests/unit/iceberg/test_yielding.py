"""What care has rewritten makes way for a writer who knows the table as it was before."""

from __future__ import annotations

from typing import Any

import pytest

from inver.domain import iceberg
from inver.domain.iceberg import RequirementFailed, decode_commit
from inver.domain.iceberg.yielding import MARK
from inver.errors import Invalid
from tests.fixtures.iceberg_tables import Table, document_of, new_table
from tests.fixtures.iceberg_updates import START_MS, add_snapshot, body, set_ref, statistics

LATER_MS = 300_000
"""Care works for minutes; a writer's clock may say less than its snapshot does."""


def main_is(id_: int) -> dict[str, Any]:
    return {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": id_}


def rows(version: int, first: int, added: int) -> dict[str, int]:
    """What a snapshot of this format version has besides: row ids, or no number."""
    if version == 1:
        return {"sequence-number": 0}
    return {"first-row-id": first, "added-rows": added} if version == 3 else {}


def care(table: Table, *updates: dict[str, Any], require: Any = ()) -> dict[str, Any]:
    """A commit of care, as the server takes one in."""
    request = iceberg.marked(decode_commit(body(updates, require)), "run-1")
    table.now += LATER_MS
    table.change = iceberg.commit(table.state, [request], now_ms=table.now, file_id=f"file-{table.now}")
    table.stored.write(table.change)
    return table.document


def rewrite(id_: int, sequence: int, parent: int, **more: Any) -> dict[str, Any]:
    summary = {"operation": "replace", "added-data-files": "1", "deleted-data-files": "4"}
    return add_snapshot(id_, sequence, parent=parent, at=START_MS + LATER_MS, summary=summary, **more)


@pytest.fixture(params=[1, 2, 3])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def table(version: int) -> Table:
    """With the snapshots 1 and 2 of writers, and 3 of care."""
    table = new_table(version)
    table.commit(add_snapshot(1, **rows(version, 0, 10)), set_ref(1))
    table.commit(add_snapshot(2, 2, parent=1, **rows(version, 10, 10)), set_ref(2))
    care(table, rewrite(3, 3, 2, **rows(version, 20, 20)), set_ref(3), require=[main_is(2)])
    return table


def ids(document: dict[str, Any]) -> list[int]:
    return [each["snapshot-id"] for each in document["snapshots"]]


def log(document: dict[str, Any]) -> list[int]:
    return [each["snapshot-id"] for each in document["snapshot-log"]]


def test_a_snapshot_of_care_says_so(table):
    summary = table.document["snapshots"][2]["summary"]
    assert summary[MARK] == "run-1"
    assert summary["deleted-data-files"] == "4"


def test_a_writer_who_knows_the_snapshot_before_it_wins(table, version):
    later = (add_snapshot(4, 3, parent=2, **rows(version, 20, 5)), set_ref(4))
    document = table.commit(*later, require=[main_is(2)])
    assert ids(document) == [1, 2, 4]
    assert log(document) == [1, 2, 4]
    assert document["refs"]["main"]["snapshot-id"] == document["current-snapshot-id"] == 4
    assert document.get("last-sequence-number", 3) == 3
    assert document.get("next-row-id", 25) == 25
    assert [each.snapshot_id for each in table.change.taken_back] == [3]
    # What a store holds is the same table.
    assert document_of(table.stored.load()) == document


def test_several_rewrites_make_way(table, version):
    care(table, rewrite(4, 4, 3, **rows(version, 40, 20)), set_ref(4), require=[main_is(3)])
    table.commit({"action": "set-statistics", "snapshot-id": 4, "statistics": statistics(4)})
    document = table.commit(
        add_snapshot(5, 3, parent=2, **rows(version, 20, 1)), set_ref(5), require=[main_is(2)]
    )
    assert ids(document) == log(document) == [1, 2, 5]
    assert document["statistics"] == []
    assert document.get("last-sequence-number", 3) == 3


def test_a_writer_who_builds_on_a_rewrite_keeps_it(table, version):
    document = table.commit(
        add_snapshot(4, 4, parent=3, at=START_MS + LATER_MS, **rows(version, 40, 1)),
        set_ref(4),
        require=[main_is(3)],
    )
    assert ids(document) == [1, 2, 3, 4]
    with pytest.raises(RequirementFailed, match="expected id 2 != 4"):
        table.commit(add_snapshot(5, 3, parent=2, **rows(version, 20, 1)), set_ref(5), require=[main_is(2)])


def test_who_knows_an_older_snapshot_has_lost_to_a_writer(table):
    with pytest.raises(RequirementFailed, match="expected id 1 != 3"):
        table.commit(add_snapshot(4, 2, parent=1), set_ref(4), require=[main_is(1)])


def test_a_rewrite_that_has_a_name_stays(table):
    table.commit(set_ref(3, "audit", "tag"))
    with pytest.raises(RequirementFailed, match="expected id 2 != 3"):
        table.commit(add_snapshot(4, 3, parent=2), set_ref(4), require=[main_is(2)])


def test_a_rewrite_before_the_commit_of_another_branch_stays(table, version):
    """Its numbers are not the last ones any more."""
    table.commit(set_ref(1, "dev"))
    table.commit(add_snapshot(9, 4, parent=1, **rows(version, 40, 1)), set_ref(9, "dev"))
    with pytest.raises(RequirementFailed, match="expected id 2 != 3"):
        table.commit(add_snapshot(4, 3, parent=2), set_ref(4), require=[main_is(2)])


def test_a_rewrite_by_others_does_not_make_way(version):
    table = new_table(version)
    table.commit(add_snapshot(1, **rows(version, 0, 1)), set_ref(1))
    table.now += LATER_MS
    table.commit(rewrite(2, 2, 1, **rows(version, 1, 1)), set_ref(2))
    with pytest.raises(RequirementFailed, match="expected id 1 != 2"):
        table.commit(add_snapshot(3, 2, parent=1), set_ref(3), require=[main_is(1)])


def test_a_table_may_say_that_rewrites_stay(table):
    table.commit({"action": "set-properties", "updates": {"inver.care.give-way": "false"}})
    with pytest.raises(RequirementFailed, match="expected id 2 != 3"):
        table.commit(add_snapshot(4, 3, parent=2), set_ref(4), require=[main_is(2)])


def test_care_does_not_take_back_care(table):
    with pytest.raises(RequirementFailed, match="expected id 2 != 3"):
        care(table, rewrite(4, 3, 2), set_ref(4), require=[main_is(2)])


def test_care_changes_no_rows():
    with pytest.raises(Invalid, match="changes no rows"):
        iceberg.marked(decode_commit(body([add_snapshot(1), set_ref(1)])), "run-1")


def test_care_gives_up_nothing_that_has_got_a_name(table):
    gone = {"action": "remove-snapshots", "snapshot-ids": [1]}
    table.commit(set_ref(1, "kept", "tag"))
    with pytest.raises(RequirementFailed, match="snapshot 1 is named by kept"):
        care(table, gone)
    document = care(table, {"action": "remove-snapshot-ref", "ref-name": "kept"}, gone)
    assert ids(document) == [2, 3]


def test_a_commit_of_care_that_is_sent_again_is_known(table, version):
    sent = body([rewrite(3, 3, 2, **rows(version, 20, 20)), set_ref(3)], [main_is(2)])
    assert iceberg.is_applied(table.state, iceberg.marked(decode_commit(sent), "run-1"))
