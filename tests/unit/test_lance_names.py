"""Names of manifests and branches, and what a version changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.lance import (
    LAST_VERSION,
    V1,
    V2,
    DataFile,
    Fragment,
    Manifest,
    check_branch,
    counts_of,
    folder_of,
    staged_path,
    totals_of,
    version_of,
)
from inver.errors import Invalid

KEY = "wh/0a1b"


@given(st.integers(1, LAST_VERSION))
def test_a_final_name_tells_its_version(version):
    assert version_of(V2.file(version)) == (version, True)
    assert version_of(V1.file(version)) == (version, False)
    assert len(V2.file(version)) == 29


@given(st.integers(1, LAST_VERSION - 1))
def test_newer_versions_sort_first(version):
    assert V2.file(version + 1) < V2.file(version)


@pytest.mark.parametrize(
    "name", ["x.manifest", "1.manifest-abc", "latest_version_hint.json", "1", "-1.manifest"]
)
def test_other_files_are_no_versions(name):
    assert version_of(name) is None


@pytest.mark.parametrize("prefix", [f"{KEY}/", f"/{KEY}/", ""])
@pytest.mark.parametrize(("naming", "v2"), [(V2, True), (V1, False)])
def test_a_manifest_is_found_by_what_clients_call_it(prefix, naming, v2):
    name = f"_versions/{naming.file(5)}-abc"
    assert staged_path(prefix + name, KEY, "", 5) == (name, v2)
    inner = f"tree/dev/x/_versions/{naming.file(5)}"
    assert staged_path(prefix + inner, KEY, "dev/x", 5) == (inner, v2)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        f"{KEY}/_versions/",
        f"{KEY}2/_versions/{V2.file(5)}",
        f"{KEY}/_versions/../{V2.file(5)}",
        f"{KEY}/_versions/a/{V2.file(5)}",
        f"{KEY}/data/{V2.file(5)}",
        f"{KEY}/_versions/{V2.file(6)}-abc",
        f"{KEY}/_versions/{V2.file(5)}x",
        f"{KEY}/_versions/{V2.file(5)}-%2e%2e",
        f"{KEY}/_versions/{V2.file(5)}-\x00",
        f"{KEY}/tree/dev/_versions/{V2.file(5)}",
        f"s3://bucket/{KEY}/_versions/{V2.file(5)}",
    ],
)
def test_what_lies_elsewhere_is_refused(path):
    with pytest.raises(Invalid) as refused:
        staged_path(path, KEY, "", 5)
    assert refused.value.field == "manifest_path"


@pytest.mark.parametrize("name", [None, "", "main"])
def test_the_main_branch_has_no_name(name):
    assert check_branch(name) == ""
    assert folder_of("") == "_versions/"


@pytest.mark.parametrize("name", ["dev", "dev/x", "a.b-c_d", "x" * 200])
def test_names_of_branches(name):
    assert check_branch(name) == name
    assert folder_of(name) == f"tree/{name}/_versions/"


@pytest.mark.parametrize(
    "name",
    [
        "/a",
        "a/",
        "a//b",
        "..",
        "a/../b",
        "a b",
        "a\\b",
        "é",
        "x" * 201,
        ".a",
        "a/_versions",
        "a.lock",
        "a..b",
    ],
)
def test_what_is_no_name_of_a_branch(name):
    with pytest.raises(Invalid):
        check_branch(name)


def at(version: int, *fragments: Fragment) -> Manifest:
    return Manifest(version=version, fragments=fragments)


def part(number: int, rows: int, deleted: int = 0, size: int | None = 10) -> Fragment:
    return Fragment(number, rows, deleted, (DataFile(f"{number}.lance", size),))


def test_rows_come_and_go():
    first = at(1, part(0, 10))
    added = counts_of(None, first)
    assert added is not None
    assert (added.rows_added, added.rows_removed, added.files_added) == (10, 0, 1)
    both = counts_of(first, at(2, part(0, 10, 4), part(1, 4)))
    assert both is not None
    assert (both.rows_added, both.rows_removed) == (4, 4)
    compacted = counts_of(at(2, part(0, 10, 4), part(1, 4)), at(3, part(2, 10)))
    assert compacted is not None
    assert (compacted.rows_added, compacted.rows_removed) == (10, 10)
    assert (compacted.files_added, compacted.files_removed) == (1, 2)


def test_sizes_that_nobody_wrote_down_are_not_guessed():
    counts = counts_of(None, at(1, part(0, 10, size=None)))
    assert counts is not None
    assert (counts.files_added, counts.bytes_added) == (1, None)
    assert totals_of(at(1, part(0, 10, size=None))).bytes is None


def test_totals():
    totals = totals_of(at(1, part(0, 10, 4), part(1, 4), part(2, 200_000)))
    assert (totals.rows, totals.deleted, totals.fragments, totals.small_fragments) == (200_010, 4, 3, 2)
    assert (totals.lengths["min"], totals.lengths["p50"], totals.lengths["max"]) == (4, 6, 200_000)
    assert totals_of(at(1)).lengths["max"] == 0
