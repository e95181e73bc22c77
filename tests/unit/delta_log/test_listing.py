"""Which files of a log make up a version."""

from __future__ import annotations

import pytest

from inver.errors import Invalid
from inver.formats.delta_log.listing import Listing, ListingsKept, Segment, listing
from inver.ports import ObjectInfo

UUID = "8f1c0c7e-0000-4000-8000-000000000001"


def info(name: str) -> ObjectInfo:
    return ObjectInfo(f"_delta_log/{name}", 10, 1)


def commits(*versions: int) -> list[ObjectInfo]:
    return [info(f"{version:020d}.json") for version in versions]


def log(*names: str, latest: int | None = None, tail: dict[int, ObjectInfo] | None = None) -> Listing:
    return listing([info(name) for name in names], tail, latest)


def best(found: Listing, version: int | None = None) -> Segment:
    return next(found.segments(version))


def paths(segment: Segment) -> list[str]:
    return [file.info.path.removeprefix("_delta_log/") for file in segment.files]


def commit(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def test_commits_alone():
    segment = best(log(*map(commit, range(3))))
    assert (segment.version, segment.checkpoint, paths(segment)) == (
        2,
        None,
        [commit(0), commit(1), commit(2)],
    )


def test_the_newest_checkpoint_that_is_not_newer_than_the_version():
    found = log(checkpoint(2), checkpoint(5), *map(commit, range(8)))
    assert best(found).base_version == 5
    assert paths(best(found)) == [commit(6), commit(7)]
    assert best(found, 4).base_version == 2
    assert best(found, 1).base_version == -1
    assert [segment.base_version for segment in found.segments(7)] == [5, 2, -1]


def test_a_checkpoint_with_a_missing_part_is_none():
    parts = [f"{5:020d}.checkpoint.{number:010d}.{3:010d}.parquet" for number in (1, 2, 3)]
    whole = best(log(*parts, commit(6)))
    assert whole.checkpoint is not None
    assert len(whole.checkpoint.files) == 3
    with pytest.raises(Invalid, match="version 0 is missing"):
        best(log(*parts[:2], commit(6)))


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_a_checkpoint_of_version_2(ending):
    assert best(log(f"{5:020d}.checkpoint.{UUID}.{ending}", commit(6))).base_version == 5


def test_other_files_do_not_count():
    names = [
        "_last_checkpoint",
        f"{1:020d}.crc",
        f"{1:020d}.json.tmp",
        "x.json",
        f"_staged_commits/{9:020d}.json",
    ]
    found = log(commit(0), *names, f"{3:020d}.checkpoint.parquet.crc")
    assert (found.latest, best(found).version) == (0, 0)


def test_a_gap_is_an_error_that_names_the_version():
    with pytest.raises(Invalid, match="version 2 is missing, and version 3 cannot be read"):
        best(log(*map(commit, (0, 1, 3))))
    with pytest.raises(Invalid, match="version 6 is missing"):
        best(log(checkpoint(4), commit(5), commit(7)))


def test_a_gap_below_a_checkpoint_does_not_matter():
    found = log(commit(0), checkpoint(4), commit(5))
    assert best(found).base_version == 4


def test_a_version_that_the_log_has_lost():
    found = log(checkpoint(10), *map(commit, range(9, 13)))
    assert (found.earliest, found.earliest_commit, found.latest) == (10, 9, 12)
    with pytest.raises(
        Invalid, match=r"version 4 .* no longer in its log; the earliest available version is 10"
    ):
        best(found, 4)


def test_a_version_that_does_not_exist_yet():
    with pytest.raises(Invalid, match="version 3 of the table does not exist; the latest is 1"):
        best(log(commit(0), commit(1)), 3)


def test_a_checkpoint_alone():
    found = log(checkpoint(7))
    assert (found.latest, found.earliest, found.earliest_commit) == (7, 7, None)
    assert paths(best(found)) == []


def test_compactions_replace_commits_where_they_fit():
    compacted = [f"{1:020d}.{4:020d}.compacted.json", f"{1:020d}.{2:020d}.compacted.json"]
    found = log(*compacted, *map(commit, range(6)))
    assert paths(best(found)) == [commit(0), compacted[0], commit(5)]
    assert paths(best(found, 3)) == [commit(0), compacted[1], commit(3)]
    assert paths(best(found, 1)) == [commit(0), commit(1)]


def test_the_catalogs_tail_counts_instead_of_published_files():
    staged = ObjectInfo("_delta_log/_staged_commits/x.json", 9, 1)
    found = log(*map(commit, range(3)), tail={2: staged, 3: staged}, latest=3)
    assert [file.info.path for file in best(found).files][2:] == [staged.path, staged.path]


def test_what_the_catalog_has_not_ratified_does_not_count():
    found = log(*map(commit, range(5)), checkpoint(4), latest=3)
    assert (found.latest, best(found).base_version) == (3, -1)
    with pytest.raises(Invalid, match="does not exist; the latest is 3"):
        best(found, 4)


def test_a_catalog_that_is_ahead_of_its_log():
    with pytest.raises(Invalid, match="the catalog is at version 3, and the log ends at 1"):
        log(commit(0), commit(1), latest=3)


def test_a_base_can_be_asked_for():
    found = log(checkpoint(2), checkpoint(5), *map(commit, range(8)))
    assert [segment.base_version for segment in found.segments(7, 2)] == [2]
    assert [segment.base_version for segment in found.segments(7, -1)] == [-1]


def test_a_listing_is_kept_until_something_is_different():
    kept = ListingsKept(100)
    first = kept.sorted_out("t", commits(0, 1), {}, None)
    assert kept.sorted_out("t", commits(0, 1), {}, None) is first
    for objects, tail, latest in (
        (commits(0, 1, 2), {}, None),
        (commits(0, 1, 2), {}, 1),
        (commits(0, 1, 2), {3: info("staged")}, 3),
        ([*commits(0), ObjectInfo(f"_delta_log/{1:020d}.json", 10, 2)], {}, None),
    ):
        found = kept.sorted_out("t", objects, tail, latest)
        assert (found.commits, found.latest) == (listing(objects, tail, latest).commits, found.latest)
        assert kept.sorted_out("t", objects, tail, latest) is found
    assert kept.sorted_out("t", commits(0, 1), {}, None) is not first


def test_logs_that_were_not_asked_for_longest_are_forgotten():
    kept = ListingsKept(5)
    first, second = (kept.sorted_out(table, commits(0, 1), {}, None) for table in "ab")
    assert kept.sorted_out("a", commits(0, 1), {}, None) is first
    kept.sorted_out("c", commits(0, 1), {}, None)
    assert kept.sorted_out("a", commits(0, 1), {}, None) is first
    assert kept.sorted_out("b", commits(0, 1), {}, None) is not second
    long = kept.sorted_out("d", commits(*range(6)), {}, None)
    assert kept.sorted_out("d", commits(*range(6)), {}, None) is not long
