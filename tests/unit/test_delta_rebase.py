"""What becomes of a rewrite when others were first, and what its commit says."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.delta_actions import Add, DeletionVector, Metadata, Protocol
from inver.domain.delta_bins import Bin
from inver.domain.delta_rebase import Standing, Winner, check_writer, follow, untouched
from inver.domain.delta_rewrites import NewFile, Operation, encoded, rewrite_commit
from inver.errors import Conflict, Unsupported
from inver.formats.delta_commit import summarize

FEATURES = ("catalogManaged", "inCommitTimestamp", "rowTracking", "domainMetadata", "deletionVectors")
METADATA = Metadata(id="t", configuration={"delta.enableRowTracking": "true"})
STANDING = Standing(
    7, 1000, Protocol(3, 7, (), FEATURES), METADATA, {"delta.rowTracking": '{"rowIdHighWaterMark":99}'}
)
OPERATION = Operation(engine="test", transaction="1")


def bin(*paths: str) -> Bin:
    return Bin(tuple(Add(path=path, partition_values={}, size=1) for path in paths))


def winner(version: int = 8, **fields) -> Winner:
    return Winner(version=version, timestamp=2000, **fields)


def test_an_append_costs_no_bin():
    bins = [bin("a", "b"), bin("c")]
    won = winner(touched=frozenset({"new"}), domains={"delta.rowTracking": '{"rowIdHighWaterMark":150}'})
    assert untouched(bins, won) == bins
    after = follow(STANDING, won)
    assert (after.version, after.timestamp, after.high_water_mark) == (8, 2000, 150)


def test_a_touched_file_drops_only_its_bin():
    bins = [bin("a", "b"), bin("c")]
    assert untouched(bins, winner(touched=frozenset({"b"}))) == [bins[1]]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"schema_string": '{"type":"struct","fields":[1]}'}, "the schema"),
        ({"partition_columns": ("p",)}, "the partitioning"),
        ({"id": "another"}, "the table itself"),
        ({"configuration": {}}, "delta.enableRowTracking"),
        (
            {"configuration": {**METADATA.configuration, "delta.columnMapping.mode": "name"}},
            "delta.columnMapping.mode",
        ),
    ],
)
def test_what_files_depend_on_must_stay(changed, says):
    with pytest.raises(Conflict, match=says):
        follow(STANDING, winner(metadata=msgspec.structs.replace(METADATA, **changed)))


@pytest.mark.parametrize(
    "key", ["delta.enableDeletionVectors", "delta.checkpointPolicy", "delta.logRetentionDuration", "owner"]
)
def test_other_properties_may_change(key):
    changed = msgspec.structs.replace(METADATA, configuration={**METADATA.configuration, key: "x"})
    assert follow(STANDING, winner(metadata=changed)).metadata == changed


def test_a_protocol_that_is_not_known_ends_the_rewrite():
    with pytest.raises(Conflict, match="blueRows"):
        follow(STANDING, winner(protocol=Protocol(3, 7, (), (*FEATURES, "blueRows"))))
    known = Protocol(3, 7, (), (*FEATURES, "checkConstraints"))
    assert follow(STANDING, winner(protocol=known)).protocol == known


def test_other_clustering_columns_end_the_rewrite():
    with pytest.raises(Conflict, match="clustering"):
        follow(STANDING, winner(domains={"delta.clustering": "{}"}))


def test_versions_come_one_by_one():
    with pytest.raises(ValueError, match="does not follow"):
        follow(STANDING, winner(9))


@pytest.mark.parametrize(
    ("protocol", "says"),
    [(Protocol(3, 7, (), ("blueRows",)), "blueRows"), (Protocol(3, 8), "writer version 8")],
)
def test_unknown_writer_features_are_refused(protocol, says):
    with pytest.raises(Unsupported, match=says):
        check_writer(protocol)


def new(path: str, rows: int = 10) -> NewFile:
    return NewFile(path=path, size=5, rows=rows, modification_time=1, stats=json.dumps({"numRecords": rows}))


def actions(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def test_a_commit_takes_up_ids_and_time_where_the_last_one_ended():
    old = Add(
        path="p=a%20b/x y",
        partition_values={"p": "a b"},
        size=9,
        deletion_vector=DeletionVector("u", "x" * 20, 40, 2, 1),
        base_row_id=3,
        default_row_commit_version=1,
    )
    commit = rewrite_commit(STANDING, [old], [new("n1", 10), new("n2", 5)], OPERATION, now=500)
    assert (commit.version, commit.timestamp) == (8, 1001)
    info, domain, remove, one, two = actions(commit.data)
    assert info["commitInfo"]["inCommitTimestamp"] == 1001
    assert info["commitInfo"]["operation"] == "OPTIMIZE"
    assert info["commitInfo"]["tags"] == {"delta.rowTracking.preserved": "true"}
    assert domain["domainMetadata"]["configuration"] == '{"rowIdHighWaterMark":114}'
    assert commit.after.high_water_mark == 114
    assert (commit.after.version, commit.after.timestamp) == (8, 1001)
    assert remove["remove"]["path"] == "p=a%2520b/x%20y"
    assert remove["remove"]["deletionVector"]["offset"] == 1
    assert remove["remove"]["dataChange"] is one["add"]["dataChange"] is False
    assert [each["add"]["baseRowId"] for each in (one, two)] == [100, 110]
    assert one["add"]["defaultRowCommitVersion"] == 8
    summary = summarize(commit.data)
    assert (summary.counts.files_added, summary.counts.files_removed) == (2, 1)
    assert (summary.counts.rows_added, summary.counts.rows_removed) == (0, 0)


def test_without_row_tracking_there_are_no_ids():
    plain = msgspec.structs.replace(STANDING, protocol=Protocol(1, 2), metadata=Metadata(id="t"), domains={})
    commit = rewrite_commit(plain, [], [new("n")], OPERATION, now=5000)
    info, add = actions(commit.data)
    assert "inCommitTimestamp" not in info["commitInfo"]
    assert "baseRowId" not in add["add"]


def test_the_spelling_of_the_log_is_kept_where_it_is_known():
    old = Add(path="a:b", partition_values={}, size=1)
    commit = rewrite_commit(STANDING, [old], [], OPERATION, 1, {"a:b": "a%3Ab"})
    assert actions(commit.data)[-1]["remove"]["path"] == "a%3Ab"
    assert encoded("ä b%") == "ä%20b%25"


moves = st.lists(
    st.tuples(st.sampled_from(["append", "touch", "property"]), st.integers(0, 5), st.integers(1, 50)),
    max_size=12,
)


@given(moves)
def test_after_any_winners_the_commit_is_of_the_next_version_and_ids_are_new(given_moves):
    standing, bins = STANDING, [bin(f"b{i}") for i in range(6)]
    mark, given_out = STANDING.high_water_mark, set(range(STANDING.high_water_mark + 1))
    touched_bins: set[int] = set()
    for step, (kind, place, rows) in enumerate(given_moves):
        fields: dict[str, Any] = {"touched": frozenset({f"new{step}"})}
        if kind == "touch":
            fields["touched"] = frozenset({f"b{place}"})
            touched_bins.add(place)
        elif kind == "property":
            fields["metadata"] = msgspec.structs.replace(
                standing.metadata, configuration={**standing.metadata.configuration, "k": str(step)}
            )
        else:
            given_out |= set(range(mark + 1, mark + 1 + rows))
            mark += rows
            fields["domains"] = {"delta.rowTracking": json.dumps({"rowIdHighWaterMark": mark})}
        won = Winner(version=standing.version + 1, timestamp=standing.timestamp + place, **fields)
        standing, bins = follow(standing, won), untouched(bins, won)
    assert {each.files[0].path for each in bins} == {f"b{i}" for i in range(6) if i not in touched_bins}
    commit = rewrite_commit(standing, [], [new("n", 7)], OPERATION, now=0)
    assert commit.version == STANDING.version + len(given_moves) + 1
    assert commit.timestamp > standing.timestamp
    first = actions(commit.data)[-1]["add"]["baseRowId"]
    assert given_out.isdisjoint(range(first, first + 7))
