"""Which files a rewrite takes together."""

from __future__ import annotations

import json
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.care import Options
from inver.domain.delta_actions import Add, DeletionVector
from inver.domain.delta_bins import (
    CUBE_TAG,
    TARGET_TAG,
    Bin,
    batches,
    compaction,
    deleted_ratio,
    is_small,
    partition_of,
    purge,
    purges,
    records,
)

OPTIONS = Options(target_file_size=1000, small_file_ratio=0.75, deleted_ratio=0.1)


def file(path: str, size: int, rows: int | None = 100, deleted: int = 0, **more) -> Add:
    return Add(
        path=path,
        partition_values=more.pop("partition", {}),
        size=size,
        stats=None if rows is None else json.dumps({"numRecords": rows}),
        deletion_vector=DeletionVector("u", "x" * 20, 40, deleted, 1) if deleted else None,
        **more,
    )


def paths(bins: list[Bin]) -> list[list[str]]:
    return [[each.path for each in bin.files] for bin in bins]


def test_small_files_share_a_bin_up_to_the_target():
    files = [file(f"f{i}", 300) for i in range(7)]
    bins = compaction(files, OPTIONS)
    assert paths(bins) == [["f0", "f1", "f2"], ["f3", "f4", "f5"]]
    assert [bin.full for bin in bins] == [True, True]


def test_the_last_bin_is_not_full():
    bins = compaction([file(f"f{i}", 300) for i in range(5)], OPTIONS)
    assert [(len(bin.files), bin.full) for bin in bins] == [(3, True), (2, False)]


def test_a_lone_small_file_stays():
    assert compaction([file("a", 10), file("b", 800)], OPTIONS) == []


def test_a_lone_file_with_many_deleted_rows_is_written_again():
    assert paths(compaction([file("a", 5000, deleted=11), file("b", 5000, deleted=10)], OPTIONS)) == [["a"]]


def test_partitions_are_not_mixed():
    files = [file(f"{p}{i}", 10, partition={"p": p}) for p in "ab" for i in range(2)]
    assert sorted(paths(compaction(files, OPTIONS))) == [["a0", "a1"], ["b0", "b1"]]


def test_an_empty_text_is_the_partition_of_null():
    assert partition_of(file("a", 1, partition={"p": ""})) == partition_of(
        file("b", 1, partition={"p": None})
    )


def test_rows_keep_the_order_in_which_they_were_written():
    files = [file("z", 20, base_row_id=0), file("a", 10, base_row_id=100)]
    assert paths(compaction(files, OPTIONS)) == [["z", "a"]]


def test_what_was_filled_to_the_target_is_not_small_again():
    merged = file("a", 500, tags={TARGET_TAG: "1000"})
    assert not is_small(merged, OPTIONS)
    assert is_small(merged, Options(target_file_size=4000))
    assert is_small(file("a", 500, tags={TARGET_TAG: "a lot"}), OPTIONS)


def test_what_a_curve_laid_out_is_not_mixed_with_others():
    def cube(path: str, name: str, deleted: int = 0) -> Add:
        return file(path, 10, deleted=deleted, tags={CUBE_TAG: name, "ZCUBE_ZORDER_BY": "[]", "x": "y"})

    files = [
        file("a", 10),
        file("b", 10),
        cube("c", "1"),
        cube("d", "1", 50),
        cube("e", "1", 50),
        cube("f", "2", 50),
    ]
    assert not is_small(files[2], OPTIONS)
    assert sorted(paths(compaction(files, OPTIONS))) == [["a", "b"], ["d", "e"], ["f"]]
    [plain, first, second] = sorted(compaction(files, OPTIONS), key=lambda bin: bin.files[0].path)
    assert (plain.cube_tags, second.cube_tags[CUBE_TAG]) == ({}, "2")
    assert first.cube_tags == {CUBE_TAG: "1", "ZCUBE_ZORDER_BY": "[]"}


def test_purge_takes_only_files_with_many_deleted_rows():
    files = [file("a", 10), file("b", 10, deleted=50), file("c", 5000, deleted=50), file("d", 10, deleted=1)]
    assert sorted(chain(*paths(purge(files, OPTIONS)))) == ["b", "c"]


@pytest.mark.parametrize(
    ("stats", "wanted"),
    [
        (None, None),
        ('{"numRecords":7}', 7),
        ('{"minValues":{},"numRecords": 8}', 8),
        ("{}", None),
        ("no json", None),
    ],
)
def test_records(stats, wanted):
    assert records(Add(path="a", partition_values={}, size=1, stats=stats)) == wanted


def test_deleted_rows_of_who_knows_how_many_count_as_all():
    assert deleted_ratio(file("a", 1, rows=None, deleted=1)) == 1.0
    assert deleted_ratio(file("a", 1, rows=None)) == 0.0


def test_batches_hold_at_least_one_bin():
    bins = [Bin((file(str(i), size),)) for i, size in enumerate([50, 60, 500, 1])]
    assert [[bin.bytes for bin in batch] for batch in batches(bins, 110)] == [[50, 60], [500], [1]]


files_strategy = st.lists(
    st.builds(
        lambda size, rows, deleted, partition: (size, rows, min(deleted, rows), partition),
        st.integers(1, 3000),
        st.integers(1, 1000),
        st.integers(0, 1000),
        st.sampled_from(["a", "b", None]),
    ),
    max_size=60,
)


@given(files_strategy)
def test_every_plan_is_sound(given_files):
    files = [
        file(f"f{i}", size, rows, deleted, partition={"p": partition})
        for i, (size, rows, deleted, partition) in enumerate(given_files)
    ]
    for plan in (compaction, purge):
        bins = plan(files, OPTIONS)
        taken = [each.path for bin in bins for each in bin.files]
        assert len(taken) == len(set(taken))
        assert all(len({partition_of(each) for each in bin.files}) == 1 for bin in bins)
        for bin in bins:
            live = sum(each.size * (1 - deleted_ratio(each)) for each in bin.files)
            assert live <= OPTIONS.target_file_size + len(bin.files) or len(bin.files) == 1
            assert len(bin.files) > 1 or purges(bin.files[0], OPTIONS)
        assert list(chain(*batches(bins, 2000))) == bins


@given(files_strategy, st.floats(0.3, 1.0))
def test_a_second_run_finds_nothing(given_files, shrinks):
    """Whatever compression makes of a bin."""
    live = [
        file(f"f{i}", size, rows, deleted, partition={"p": partition})
        for i, (size, rows, deleted, partition) in enumerate(given_files)
    ]
    bins = compaction(live, OPTIONS)
    gone = {each.path for bin in bins for each in bin.files}
    made = [
        file(
            f"new{i}",
            max(1, int(bin.bytes * shrinks)),
            partition=bin.files[0].partition_values,
            tags={TARGET_TAG: "1000"} if bin.full else None,
        )
        for i, bin in enumerate(bins)
    ]
    assert compaction([each for each in live if each.path not in gone] + made, OPTIONS) == []
