"""What one commit file of a Delta log says."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.delta import Protocol
from inver.domain.ledger import Counts
from inver.domain.sizes import bin_of, merged
from inver.errors import Invalid
from inver.formats.delta_commit import MAX_METADATA, summarize

INFO = {"commitInfo": {"inCommitTimestamp": 1_700_000_000_123, "operation": "WRITE", "engineInfo": "x"}}
PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["catalogManaged"],
        "writerFeatures": ["catalogManaged", "inCommitTimestamp"],
    }
}
SCHEMA = '{"type":"struct","fields":[]}'
METADATA = {
    "metaData": {
        "id": "5f1c",
        "name": "orders",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": ["day"],
        "configuration": {"delta.enableInCommitTimestamps": "true"},
        "createdTime": 1,
    }
}
NOTHING = Counts(0, 0, 0, 0, 0, 0)


def commit(*actions: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, actions)).encode()


def add(path: str = "a.parquet", records: int | None = 10, **fields: Any) -> dict[str, Any]:
    stats = {} if records is None else {"stats": json.dumps({"numRecords": records})}
    return {"add": {"path": path, "partitionValues": {}, "size": 100, "dataChange": True, **stats, **fields}}


def remove(path: str = "a.parquet", records: int | None = 10, **fields: Any) -> dict[str, Any]:
    stats = {} if records is None else {"stats": json.dumps({"numRecords": records})}
    return {"remove": {"path": path, "size": 100, "dataChange": True, **stats, **fields}}


def deleted(rows: int) -> dict[str, Any]:
    return {
        "deletionVector": {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 9, "cardinality": rows}
    }


def refusal(data: bytes) -> str | None:
    """Why it is refused; every other error is raised."""
    try:
        summarize(data)
    except Invalid as error:
        return error.message
    return None


def test_an_append():
    summary = summarize(commit(INFO, add("a", 10), add("b", 5)))
    assert (summary.timestamp, summary.operation) == (1_700_000_000_123, "WRITE")
    assert summary.counts == Counts(15, 0, 2, 0, 200, 0, ((bin_of(100), 2, 200),))
    assert (summary.protocol, summary.metadata, summary.domains) == (None, None, {})


def test_a_first_commit_tells_protocol_and_metadata():
    summary = summarize(commit(INFO, PROTOCOL, METADATA))
    assert summary.protocol == Protocol(3, 7, ("catalogManaged",), ("catalogManaged", "inCommitTimestamp"))
    assert summary.metadata is not None
    assert (summary.metadata.id, summary.metadata.name, summary.metadata.description) == (
        "5f1c",
        "orders",
        None,
    )
    assert (summary.metadata.schema, summary.metadata.partition_columns) == (SCHEMA.encode(), ("day",))
    assert summary.metadata.properties == {"delta.enableInCommitTimestamps": "true"}
    assert summary.counts == NOTHING


def test_a_protocol_without_features_has_none():
    for features in ({}, {"readerFeatures": None, "writerFeatures": None}):
        summary = summarize(commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, **features}}))
        assert summary.protocol == Protocol(1, 2, (), ())


def test_the_timestamp_counts_only_in_the_first_action():
    summary = summarize(commit(add(), INFO))
    assert (summary.timestamp, summary.operation) == (None, "WRITE")
    assert summarize(commit({"commitInfo": {"operation": "WRITE"}})).timestamp is None


def test_domains_are_set_and_removed():
    summary = summarize(
        commit(
            INFO,
            {
                "domainMetadata": {
                    "domain": "delta.rowTracking",
                    "configuration": '{"rowIdHighWaterMark":9}',
                    "removed": False,
                }
            },
            {"domainMetadata": {"domain": "delta.clustering", "configuration": "", "removed": True}},
        )
    )
    assert summary.domains == {"delta.rowTracking": '{"rowIdHighWaterMark":9}', "delta.clustering": None}


def test_a_rewrite_moves_files_and_no_rows():
    quiet = {"dataChange": False}
    summary = summarize(
        commit(INFO, remove("a", **quiet), remove("b", **quiet), add("c", 20, size=150, **quiet))
    )
    moved = ((bin_of(150), 1, 150), (bin_of(100), -2, -200))
    assert summary.counts == Counts(0, 0, 1, 2, 150, 200, moved)


def test_a_growing_deletion_vector_removes_rows():
    actions = [remove("a", **deleted(2)), add("a", **deleted(5))]
    grown = Counts(0, 3, 0, 0, 0, 0, deleted_rows=3)
    assert summarize(commit(INFO, *actions)).counts == grown
    assert summarize(commit(INFO, *reversed(actions))).counts == grown


def test_a_shrinking_deletion_vector_adds_rows():
    shrunk = Counts(5, 0, 0, 0, 0, 0, deletes=-1, deleted_rows=-5)
    assert summarize(commit(remove("a", **deleted(5)), add("a"))).counts == shrunk


def test_deleted_rows_of_a_file_do_not_count():
    assert summarize(commit(add("a", 10, **deleted(4)))).counts.rows_added == 6
    assert summarize(commit(remove("a", 10, **deleted(4)))).counts.rows_removed == 6


def test_what_is_not_said_is_not_known():
    three, two = ((bin_of(100), 3, 300),), ((bin_of(100), -2, -200),)
    told = summarize(commit(add("a"), add("b", None), add("c"))).counts
    assert told == Counts(None, 0, 3, 0, 300, 0, three)
    assert summarize(commit(remove("a", None), remove("b"))).counts == Counts(0, None, 0, 2, 0, 200, two)
    unsized = summarize(commit(remove("a", size=None), remove("b"))).counts
    assert (unsized.bytes_removed, unsized.sizes) == (None, None)
    assert summarize(commit(add(stats="{"))).counts.rows_added is None
    assert summarize(commit(add(stats='{"numRecords":-1}'))).counts.rows_added is None
    assert summarize(commit(add("a", 3, **deleted(4)))).counts.rows_added is None


@pytest.mark.parametrize(
    "stats",
    [
        '{"numRecords":7,"minValues":{"numRecords":1}}',
        '{"minValues":{"numRecords":1},"numRecords":7}',
        ' { "numRecords" : 7 } ',
        '{"nullCount":{"a":0},"tightBounds":true,"numRecords":7}',
    ],
)
def test_records_are_found_wherever_they_stand(stats):
    assert summarize(commit(add(stats=stats))).counts.rows_added == 7


def test_change_files_transactions_and_unknown_actions_do_not_count():
    summary = summarize(
        commit(
            INFO,
            {"cdc": {"path": "_change_data/x", "size": 9, "dataChange": False, "partitionValues": {}}},
            {"txn": {"appId": "a", "version": 1}},
            {"checkpointMetadata": {"version": 1}},
            {},
        )
    )
    assert summary.counts == NOTHING


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n", b"\r\n"])
def test_ends_of_lines(ending):
    data = b"\n".join(line + ending.rstrip(b"\n") for line in commit(INFO, add()).split(b"\n")) + ending
    assert summarize(data).counts.files_added == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"add":', "truncated"),
        (b"[]", "Expected `object`"),
        (b"null", "Expected `object`"),
        (b'{"add":{"path":"a","dataChange":true}}', "size"),
        (b'{"add":{"path":"a","size":-1,"dataChange":true}}', ">= 0"),
        (b'{"add":{"path":"a","size":1}}', "dataChange"),
        (b'{"add":{"path":"a","size":"1","dataChange":true}}', "Expected `int`"),
        (b'{"remove":{"dataChange":true}}', "path"),
        (b'{"protocol":{"minReaderVersion":3}}', "minWriterVersion"),
        (b'{"metaData":{"id":"x"}}', "schemaString"),
        (b'{"metaData":{"id":"x","schemaString":"{}","format":{"provider":"csv"}}}', "format.provider"),
        (b'{"add":null} {"add":null}', "trailing"),
        (b'{"txn":{},"x":"\xff"}', "not UTF-8"),
        (b'{"x":' + b"[" * 100_000, "recursion"),
        (b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}', "second protocol"),
        (commit(METADATA), "second metaData"),
        (b'{"domainMetadata":{"domain":"d","configuration":"","removed":true}}', "domain 'd'"),
        (
            b'{"add":{"path":"a","size":1,"dataChange":true},"remove":{"path":"b","dataChange":true}}',
            "more than one",
        ),
    ],
)
def test_the_wrong_line_is_named(line, problem):
    before = commit(INFO, PROTOCOL, METADATA, {"domainMetadata": {"domain": "d", "configuration": "1"}})
    with pytest.raises(Invalid) as raised:
        summarize(before + b"\n\n" + line + b"\n" + commit(add()))
    assert raised.value.message.startswith("line 6 of the commit file has ")
    assert problem in raised.value.message


def test_numbers_are_those_that_readers_can_hold():
    for timestamp in (-1, 2**63, 2**70):
        assert "inCommitTimestamp" in (
            refusal(commit({"commitInfo": {"inCommitTimestamp": timestamp}})) or ""
        )
    for version in (-1, 2**31):
        odd = {"protocol": {**PROTOCOL["protocol"], "minWriterVersion": version}}
        assert "minWriterVersion" in (refusal(commit(INFO, odd)) or "")


NUL = "a\0b"
MORE = [
    {"id": NUL},
    {"name": NUL},
    {"description": NUL},
    {"partitionColumns": [NUL]},
    {"configuration": {NUL: "x"}},
    {"configuration": {"x": NUL}},
    {"schemaString": json.dumps({"type": "struct", "fields": [{"name": NUL, "type": "long"}]})},
    {"schemaString": " " * (MAX_METADATA + 1)},
    {"configuration": {"x": "y" * MAX_METADATA}},
]


@pytest.mark.parametrize("change", MORE)
def test_what_cannot_be_kept_of_metadata_is_refused(change):
    odd = {"metaData": {**METADATA["metaData"], **change}}
    message = refusal(commit(INFO, odd)) or ""
    assert "contains U+0000" in message or "more than" in message


def test_what_cannot_be_kept_of_the_rest_is_refused():
    odd = {"protocol": {**PROTOCOL["protocol"], "writerFeatures": [NUL]}}
    assert refusal(commit(INFO, odd)) == "the protocol in the commit file contains U+0000"
    odd = {"commitInfo": {"operation": NUL}}
    assert refusal(commit(odd)) == "the operation in the commit file contains U+0000"
    assert summarize(commit({"commitInfo": {"operation": "x" * 300}})).operation == "x" * 255


def test_values_of_a_table_may_have_what_is_not_kept():
    """A NUL is a character like any other in data, and so in partitions and statistics."""
    stats = json.dumps({"numRecords": 3, "minValues": {"s": NUL}})
    odd = add(stats=stats, partitionValues={"p": NUL})
    schema = json.dumps({"type": "struct", "fields": [{"name": "\\u0000", "type": "long"}]})
    metadata = {"metaData": {**METADATA["metaData"], "schemaString": schema}}
    assert summarize(commit(INFO, metadata, odd)).counts.rows_added == 3


def test_a_large_file_is_read_line_by_line():
    """What says nothing, however often, takes no more room than the file itself."""
    data = commit(INFO) + b"\n" + b"{}\n" * 400_000 + commit(add())
    tracemalloc.start()
    try:
        summary = summarize(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert summary.counts.files_added == 1
    assert peak < 3 * len(data)
    assert (refusal(data + b"\n[]") or "").startswith("line 400003 ")


@pytest.mark.parametrize("data", [b"", b"\n", b" \n\n"])
def test_a_commit_without_actions_is_refused(data):
    with pytest.raises(Invalid, match="has no action"):
        summarize(data)


def test_an_action_over_two_lines_is_refused():
    with pytest.raises(Invalid, match="line 1 "):
        summarize(b'{"commitInfo":\n{}}')


# A file as (records, deleted rows, bytes); None where the table has no such file.
FILE = st.none() | st.integers(0, 50).flatmap(
    lambda records: st.tuples(st.just(records), st.integers(0, records), st.integers(0, 10**12))
)


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.tuples(FILE, FILE), max_size=8), st.randoms())
def test_counts_are_the_difference_of_two_states_of_a_table(files, random):
    """Whatever changes between two states, the counts add up to the difference."""
    actions = []
    for path, (before, after) in files.items():
        if before and after:  # the same file keeps its records and its size
            after = (before[0], min(after[1], before[0]), before[2])
        if before and before != after:
            actions.append(remove(path, before[0], size=before[2], **deleted(before[1])))
        if after and before != after:
            actions.append(add(path, after[0], size=after[2], **deleted(after[1])))
        files[path] = before, after
    random.shuffle(actions)
    counts = summarize(commit(INFO, *actions)).counts

    def total(side: int, value: Any) -> int:
        return sum(value(state[side]) for state in files.values() if state[side])

    def difference(value: Any) -> int:
        return total(1, value) - total(0, value)

    values = msgspec.structs.astuple(counts)[:6]
    more_rows, fewer_rows, more_files, fewer_files, more_bytes, fewer_bytes = values
    assert more_rows - fewer_rows == difference(lambda file: file[0] - file[1])
    assert more_files - fewer_files == difference(lambda file: 1)
    assert more_bytes - fewer_bytes == difference(lambda file: file[2])
    new = [after for before, after in files.values() if after and not before]
    gone = [before for before, after in files.values() if before and not after]
    assert (more_files, fewer_files) == (len(new), len(gone))
    assert min(values) >= 0
    assert merged(_bins(files, 0), counts.sizes or ()) == _bins(files, 1)
    # Every file of this table has a deletion vector, be it an empty one.
    assert counts.deletes == difference(lambda file: 1)
    assert counts.deleted_rows == difference(lambda file: file[1])


def _bins(files: dict[str, Any], side: int) -> dict[int, tuple[int, int]]:
    bins: dict[int, tuple[int, int]] = {}
    for states in files.values():
        if states[side]:
            size = states[side][2]
            known = bins.get(bin_of(size), (0, 0))
            bins[bin_of(size)] = known[0] + 1, known[1] + size
    return bins


@given(st.binary(max_size=200))
def test_any_bytes_are_a_commit_or_invalid(data):
    assert "commit file has" in (refusal(data) or "commit file has")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(
    ["add", "remove", "commitInfo", "protocol", "metaData", "domainMetadata", "txn", "cdc"]
)


@given(st.lists(st.dictionaries(KINDS, JSON, min_size=1, max_size=2), min_size=1, max_size=4))
def test_any_json_is_a_commit_or_invalid(actions):
    assert "of the commit file has" in (refusal(commit(*actions)) or "of the commit file has")


@given(
    st.dictionaries(st.text(max_size=8).filter(lambda key: key not in {"add", "remove"}), JSON, max_size=3)
)
def test_fields_that_nobody_knows_change_nothing(extra):
    known = add("a", 3)
    known["add"] = {**extra, **known["add"]}
    assert summarize(commit(INFO, known)) == summarize(commit(INFO, add("a", 3)))
