"""Commits by fragments give what commits on whole documents give, and read nothing that they do not need."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inver.domain import iceberg
from inver.domain.iceberg.state import SNAPSHOT, SNAPSHOT_LOG
from inver.domain.ledger import Part
from inver.errors import Conflict, Invalid
from tests.fixtures import iceberg_naive
from tests.fixtures.iceberg_tables import document_of, new_table, registered
from tests.fixtures.iceberg_updates import (
    LOCATION,
    START_MS,
    UUID,
    add_snapshot,
    body,
    broken,
    set_ref,
    updates_for,
)

JUNK = b"\xff this is not JSON"


def append(number: Any, at: Any = START_MS) -> Any:
    parent = number - 1 or None
    require = [
        {"type": "assert-table-uuid", "uuid": UUID},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent},
    ]
    return body([add_snapshot(number, number, parent=parent, at=at), set_ref(number)], require)


def long_table(count: Any) -> Any:
    table = new_table()
    for number in range(1, count + 1):
        table.apply(append(number))
    return table


def of_junk(table: Any) -> Any:
    """The state with the same head and keys, and nothing in its parts that could be read."""
    parts = [Part(part.kind, part.key, part.position, JUNK) for part in table.stored.parts()]
    return iceberg.load(table.stored.head, parts)


class TestAppends:
    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_an_append_reads_the_head_and_the_request(self, version):
        table = new_table(version)
        rows = {"first-row-id": 0, "added-rows": 5} if version == 3 else {}
        table.commit(add_snapshot(1, 0 if version == 1 else 1, **rows), set_ref(1))
        rows = {"first-row-id": 5, "added-rows": 5} if version == 3 else {}
        update = add_snapshot(2, 0 if version == 1 else 2, parent=1, **rows)
        request = iceberg.decode_commit(body([update, set_ref(2)]))
        change = iceberg.commit(of_junk(table), [request], now_ms=START_MS, file_id="f")
        assert sorted((part.kind, part.key) for part in change.parts) == [
            ("metadata-log", "1"),
            ("snapshot", "2"),
            ("snapshot-log", "1:2"),
        ]
        assert change.state.parts(SNAPSHOT).bodies()[0] == JUNK

    def test_so_do_properties_branches_and_expiry(self):
        table = long_table(3)
        request = iceberg.decode_commit(
            body(
                [
                    {"action": "set-properties", "updates": {"write.metadata.previous-versions-max": "1"}},
                    set_ref(2, "audit"),
                    {"action": "remove-snapshots", "snapshot-ids": [1]},
                ]
            )
        )
        change = iceberg.commit(of_junk(table), [request], now_ms=START_MS, file_id="f")
        assert change.state.parts(SNAPSHOT).keys() == ["2", "3"]
        assert change.state.parts(SNAPSHOT_LOG).keys() == ["1:2", "2:3"]

    def test_a_commit_and_its_head_do_not_grow_with_the_table(self):
        small, large = long_table(150), long_table(1200)
        heads = [len(table.stored.head) for table in (small, large)]
        assert abs(heads[0] - heads[1]) < 20
        for table in (small, large):
            table.apply(append(len(table.state.parts(SNAPSHOT)) + 1))
        parts = [sum(len(part.body or b"") for part in table.change.parts) for table in (small, large)]
        assert abs(parts[0] - parts[1]) < 40

    def test_an_append_does_the_same_work_on_a_large_table(self):
        """Counted in steps of the interpreter, which no other load can disturb."""

        def steps(table: Any) -> Any:
            written = append(len(table.state.parts(SNAPSHOT)) + 1)
            count = 0

            def step(frame: Any, event: Any, argument: Any) -> Any:
                nonlocal count
                count += 1
                return step

            sys.settrace(step)
            try:
                iceberg.commit(table.state, [iceberg.decode_commit(written)], now_ms=table.now, file_id="f")
            finally:
                sys.settrace(None)
            return count

        # The log of metadata files is full in both.
        small, large = long_table(150), long_table(1500)
        assert steps(small) == steps(large)


class TestAgainstWholeDocuments:
    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_any_commits(self, data):
        table = new_table(data.draw(st.sampled_from([1, 2, 3])))
        for _ in range(data.draw(st.integers(1, 8))):
            before = table.document
            updates = data.draw(updates_for(before))
            file = table.head.metadata_location
            made = table.commit(*updates)
            assert made == iceberg_naive.apply(before, updates, table.now, file)
            assert document_of(table.stored.load()) == made
            assert registered(made).document == made

    @settings(max_examples=25, deadline=None)
    @given(st.data())
    def test_a_state_stays_what_it_was_while_others_come_of_it(self, data):
        table = new_table(2)
        states = [(table.state, table.document)]
        for _ in range(data.draw(st.integers(2, 8))):
            state, document = data.draw(st.sampled_from(states))
            updates = data.draw(updates_for(document))
            request = iceberg.decode_commit(body(updates))
            now = document["last-updated-ms"] + 5000
            change = iceberg.commit(state, [request], now_ms=now, file_id="f")
            states.append((change.state, document_of(change.state)))
        assert [document_of(state) for state, _ in states] == [document for _, document in states]


class TestBrokenUpdates:
    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def test_they_are_refused_by_name_or_applied(self, data):
        table = new_table(data.draw(st.sampled_from([1, 2, 3])))
        for _ in range(2):
            table.commit(*data.draw(updates_for(table.document)))
        before = table.document
        updates = data.draw(broken(data.draw(updates_for(before))))
        try:
            made = table.commit(*updates)
        except (Invalid, Conflict):
            assert table.document == before
        else:
            assert registered(made).document == made


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.text(min_size=1).map(lambda name: "x-" + name.replace("\0", "0"))


def clean(value: Any) -> Any:
    return json.loads(json.dumps(value).replace("\\u0000", "0"))


@settings(max_examples=50, deadline=None)
@given(
    unknown=st.dictionaries(names, json_values.map(clean), max_size=4),
    indent=st.sampled_from([None, 1, 2]),
    data=st.data(),
)
def test_unknown_fields_are_kept_byte_for_byte(unknown, indent, data):
    table = long_table(2)
    document = table.document | unknown
    places = [document["schemas"][0], document["snapshots"][0], document["partition-specs"][0]]
    for place in places:
        place.update(unknown)
    written = json.dumps(document, indent=indent, ensure_ascii=data.draw(st.booleans())).encode()
    again = registered(written)
    assert again.document == without_nulls(document)
    fields = msgspec.json.decode(written, type=dict[str, msgspec.Raw])
    again.commit({"action": "set-properties", "updates": {"a": "b"}})
    kept = msgspec.json.decode(b"".join(iceberg.document(again.stored.load())), type=dict[str, msgspec.Raw])
    for name in unknown:
        assert bytes(kept[name]) == bytes(fields[name])
    for name in ("schemas", "partition-specs"):
        before, after = (msgspec.json.decode(each[name], type=list[msgspec.Raw]) for each in (fields, kept))
        assert [bytes(raw) for raw in before] == [bytes(raw) for raw in after]


def without_nulls(document: Any) -> Any:
    """Snapshots have no fields that are null."""
    kept = [
        {name: value for name, value in each.items() if value is not None} for each in document["snapshots"]
    ]
    return document | {"snapshots": kept}


def test_the_file_of_a_commit_is_new():
    table = long_table(2)
    assert table.head.metadata_location == f"{LOCATION}/metadata/00002-file-{table.now}.metadata.json"
