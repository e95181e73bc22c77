"""Which files of a Delta table may be deleted, and which files of its log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.care import HOUR_MS, Job, Options, Pin, Ticket
from inver.domain.delta_actions import Protocol
from inver.domain.delta_logs import cleanable, compaction_range, cut_of
from inver.domain.delta_vacuum import (
    FEATURES,
    Keep,
    Listed,
    check_features,
    interval_ms,
    is_hidden,
    is_left_behind,
    is_rewritten,
    keep,
    log_retention_ms,
    nested_table,
    own_path,
    retention_ms,
    staged_ms,
    unneeded,
)
from inver.domain.locations import Location
from inver.domain.tables import Format, TableKind
from inver.errors import Invalid, Refused

DAY = 24 * HOUR_MS


class TestRetention:
    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("interval 1 week", 7 * DAY),
            ("INTERVAL 30 Days", 30 * DAY),
            ("30 days 12 hours", 30 * DAY + 12 * HOUR_MS),
            (" interval 2 weeks 1 day 3 minutes 4 seconds 5 milliseconds ", 15 * DAY + 184_005),
            ("interval 0 hours", 0),
        ],
    )
    def test_intervals(self, text, wanted):
        assert interval_ms(text) == wanted

    @pytest.mark.parametrize(
        "text", ["", "interval", "1 month", "week", "1 week x", "1.5 days", "-1 day", "7"]
    )
    def test_no_intervals(self, text):
        with pytest.raises(Invalid):
            interval_ms(text)

    def test_the_longest_of_policy_and_table_counts(self):
        table: dict[str, str | None] = {"delta.deletedFileRetentionDuration": "interval 10 days"}
        assert retention_ms(Options(), {}) == 7 * DAY
        assert retention_ms(Options(), table) == 10 * DAY
        assert retention_ms(Options(retention_hours=480), table) == 20 * DAY
        assert retention_ms(Options(retention_hours=0, allow_short_retention=True), table) == 10 * DAY
        assert retention_ms(Options(retention_hours=0, allow_short_retention=True), {}) == 0

    def test_below_the_floor_only_on_request(self):
        for options in (Options(retention_hours=167.9), Options(log_retention_hours=23)):
            with pytest.raises(Refused, match="below the floor"):
                log_retention_ms(options, {})
        with pytest.raises(Refused, match=r"staged_hours of 0\.5 is below the floor of 1"):
            staged_ms(Options(staged_hours=0.5))
        assert staged_ms(Options(staged_hours=0, allow_short_retention=True)) == 0

    def test_what_a_table_says_of_itself_must_be_understood(self):
        with pytest.raises(Refused, match=r"delta\.deletedFileRetentionDuration: 'soon' is no interval"):
            retention_ms(Options(), {"delta.deletedFileRetentionDuration": "soon"})

    def test_the_log_outlives_the_files(self):
        assert log_retention_ms(Options(), {}) == 30 * DAY
        long_files: dict[str, str | None] = {"delta.deletedFileRetentionDuration": "interval 50 days"}
        assert log_retention_ms(Options(), long_files) == 50 * DAY
        assert log_retention_ms(Options(), {"delta.logRetentionDuration": "interval 60 days"}) == 60 * DAY

    def test_pins_hold_what_time_would_let_go(self):
        assert keep(Options(), {}, 3, 8 * DAY) == Keep(since=DAY, version=3)
        assert keep(Options(), {}, None, 8 * DAY) == Keep(since=DAY)

    def test_the_lowest_pin_counts(self):
        pins = (
            Pin(reason="a", version=7),
            Pin(reason="b", version=3),
            Pin(reason="c", version=1, alone=True),
        )
        given: dict[str, Any] = {
            "run_id": "1",
            "table_id": "1",
            "name": ("t",),
            "location": "/t",
            "version": 9,
        }
        given |= {"format": Format.DELTA, "kind": TableKind.MANAGED, "job": Job.VACUUM}
        assert Ticket(**given, pins=pins).pinned_from == 3
        assert Ticket(**given, pins=pins[2:]).pinned_from is None


def test_what_a_checkpoint_remembers_is_held_by_every_pin():
    kept = Keep(since=100, version=5)
    assert kept.needs(99, None)
    assert kept.needs(99, 5)
    assert not kept.needs(99, 4)
    assert kept.needs(100, 0)
    assert not Keep(since=100).needs(99, None)


class TestFeatures:
    def test_known_ones(self):
        check_features(Protocol(1, 2))
        check_features(Protocol(3, 7, ("deletionVectors",), tuple(FEATURES)))

    @pytest.mark.parametrize(
        ("protocol", "named"),
        [
            (Protocol(4, 7), "reader version 4"),
            (Protocol(3, 8), "writer version 8"),
            (Protocol(3, 7, ("tomorrow",), ("tomorrow",)), "tomorrow"),
            (Protocol(3, 7, (), ("checkpointProtection", "appendOnly")), "known here: checkpointProtection"),
        ],
    )
    def test_others_are_refused(self, protocol, named):
        with pytest.raises(Refused, match=named):
            check_features(protocol)


class TestPaths:
    TABLE = Location.parse("s3://bucket/lake/t")

    @pytest.mark.parametrize(
        ("path", "own"),
        [
            ("x.parquet", "x.parquet"),
            ("p=a b%/x.parquet", "p=a b%/x.parquet"),
            ("p=10:30/x.parquet", "p=10:30/x.parquet"),
            ("s3://bucket/lake/t/p=1/x.parquet", "p=1/x.parquet"),
            ("s3a://bucket/lake/t/x.parquet", "x.parquet"),
            ("s3://bucket/lake/t2/x.parquet", None),
            ("s3://bucket/lake/t", None),
            ("s3://other/x.parquet", None),
            ("/lake/t/x.parquet", None),
        ],
    )
    def test_own(self, path, own):
        assert own_path(path, self.TABLE) == own

    def test_own_on_a_disk(self):
        table = Location.parse("/lake/t")
        for text in ("file:/lake/t/x", "file:///lake/t/x", "/lake/t/x"):
            assert own_path(text, table) == "x"

    @pytest.mark.parametrize("path", ["../x.parquet", "a//x.parquet", "./x", "hdfs://name/x", "s3://b/../x"])
    def test_what_may_be_any_file_stops_everything(self, path):
        with pytest.raises(Refused, match="spelled like that"):
            own_path(path, self.TABLE)

    @pytest.mark.parametrize(
        "path",
        [
            *("_delta_log/0.json", "_delta_log/_sidecars/x.parquet", ".part.crc", "a/.hidden/x.parquet"),
            *("_spark_metadata/0", "p=1/_temporary/x.parquet", "metadata/v1.metadata.json", "_SUCCESS"),
            *("_change_data/_x", "_p=1/x.parquet"),
        ],
    )
    def test_hidden(self, path):
        assert is_hidden(path, {"day"})

    @pytest.mark.parametrize(
        "path",
        [
            *("x.parquet", "p=1/x.parquet", "_change_data/x.parquet", "_change_data/p=1/x.parquet"),
            *("_day=1/x.parquet", "deletion_vector_x.bin", "ab/deletion_vector_x.bin", "metadata.parquet"),
        ],
    )
    def test_not_hidden(self, path):
        assert not is_hidden(path, {"_day"})

    @pytest.mark.parametrize(
        ("path", "table"),
        [
            ("a/b/_delta_log/0.json", "a/b"),
            ("a/_delta_log/_staged_commits/x.json", "a"),
            ("a/metadata/00001-x.metadata.json", "a"),
            ("a/_versions/1.manifest", "a"),
            ("_delta_log/0.json", None),
            ("metadata/00001-x.metadata.json", None),
            ("a/metadata/snap.avro", None),
            ("a/b/x.parquet", None),
        ],
    )
    def test_nested_tables(self, path, table):
        assert nested_table(path) == table

    def test_leftovers_are_known_by_their_names(self):
        name = "00000000000000000012.0f3c.json"
        assert is_left_behind(name, 12, {"00000000000000000012.0f3d.json"})
        assert is_left_behind(name, 13, ())
        assert not is_left_behind(name, 12, {name})
        assert not is_left_behind(name, 11, ())
        assert not is_left_behind("00000000000000000012.json", 13, ())
        assert not is_left_behind("x.json", 13, ())
        name = "care-0f3c2b1a-0000-4000-8000-000000000000-00001.zstd.parquet"
        assert is_rewritten(name)
        assert is_rewritten(f"p=1/{name}")
        assert not is_rewritten(f"{name}.tmp")
        assert not is_rewritten("part-00000-0f3c2b1a-0000-4000-8000-000000000000.parquet")


# --- the set of needed files, against what a version is ---


@dataclass
class Version:
    at: int
    live: frozenset[str]
    removed: frozenset[str]
    recorded: frozenset[str]


@dataclass
class Story:
    versions: list[Version] = field(default_factory=list)
    names: int = 0

    def commit(self, at: int, removes: list[int], adds: int, records: bool) -> None:
        live = self.versions[-1].live if self.versions else frozenset()
        order = sorted(live)
        removed = frozenset(order[index % len(order)] for index in removes) if order else frozenset()
        added = {f"{self.names + number}.parquet" for number in range(adds)}
        self.names += adds
        recorded = frozenset({f"_change_data/{len(self.versions)}"} if records else ())
        self.versions.append(Version(at, live - removed | added, removed, recorded))


commits = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(0, 20), max_size=3), st.integers(0, 3), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(commits, st.integers(-2, 30), st.none() | st.integers(0, 12))
def test_exactly_what_retained_versions_need_is_needed(steps, since, pin):
    story = Story()
    at = 0
    for wait, removes, adds, records in steps:
        at += wait
        story.commit(at, removes, adds, records)
    kept = Keep(since=since, version=pin)
    needed = set(story.versions[-1].live)
    for number, version in enumerate(story.versions):
        if kept.needs(version.at, number):
            needed |= version.removed | version.recorded
    wanted = set(story.versions[-1].live)
    for number, version in enumerate(story.versions):
        pinned = pin is not None and number >= pin
        ends = story.versions[number + 1].at if number + 1 < len(story.versions) else None
        if pinned or ends is None or ends >= since:
            wanted |= version.live
        if pinned or version.at >= since:
            # Changes from here on are told by what the commit recorded, or by what it removed.
            wanted |= version.recorded | version.removed
    assert needed == wanted


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), unique_by=lambda each: each[0]),
    st.sets(st.integers(0, 5)),
    st.integers(0, 10),
)
def test_the_old_and_unneeded_go(files, needed, since):
    listed = [Listed(f"{number}.parquet", 1, modified) for number, modified in files]
    found = {file.path for file in unneeded(listed, {f"{number}.parquet" for number in needed}, since)}
    assert found == {f"{n}.parquet" for n, modified in files if n not in needed and modified < since}


def test_nothing_of_others_goes():
    paths = ["a/x.parquet", "a/b/x.parquet", "ab/x.parquet", "_delta_log/0.json", "metadata/x.avro", "x"]
    listed = [Listed(path, 1, 0) for path in paths]
    assert [file.path for file in unneeded(listed, {"x"}, 1, (), {"a"})] == ["ab/x.parquet"]


# --- the log ---


def test_compactions_pay_off_from_a_number_of_files_on():
    assert compaction_range(-1, 20, 20) == (0, 19)
    assert compaction_range(4, 20, 16) == (5, 19)
    assert compaction_range(4, 13, 9) is None
    assert compaction_range(4, 20, 2) is None


def test_the_log_ends_at_a_checkpoint_that_nobody_looks_behind():
    assert cut_of({3, 6, 9}, 7, None) == 6
    assert cut_of({3, 6, 9}, 7, 5) == 3
    assert cut_of({3, 6, 9}, 7, 2) is None
    assert cut_of({3, 6, 9}, None, None) is None
    assert cut_of(set(), 7, None) is None


def test_what_a_checkpoint_makes_needless():
    def name(version: int, rest: str) -> str:
        return f"{version:020d}.{rest}"

    old = [
        *(name(1, "json"), name(1, "crc"), name(2, "checkpoint.parquet")),
        name(2, "checkpoint.0000000001.0000000002.parquet"),
        name(2, "checkpoint.0f3c2b1a-0000-4000-8000-000000000000.json"),
        *(name(1, f"{4:020d}.compacted.json"), name(3, f"{9:020d}.compacted.json")),
    ]
    kept = [
        *(name(3, "json"), name(3, "checkpoint.parquet"), name(4, "json"), name(9, "crc")),
        *(name(4, f"{9:020d}.compacted.json"), "_last_checkpoint", "_sidecars/x.parquet", "notes.json"),
        *(f"_staged_commits/{name(1, 'x.json')}", name(1, "json.tmp")),
    ]
    assert cleanable([*kept, *old], 3) == sorted(old)
