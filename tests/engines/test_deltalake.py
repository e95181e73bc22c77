"""Commit files that delta-rs wrote say what delta-rs itself reads from the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inver.domain.delta import CommitSummary
from inver.formats.delta_commit import summarize
from tests.fixtures.clients import Client

STEPS: list[list[Any]] = [
    ["append", 0, 10],
    ["append", 10, 5],
    ["delete", "id < 3"],
    ["update", "id > 12"],
    ["compact"],
    ["overwrite", 0, 7],
    ["delete", None],
]
EMPTY = {"rows": 0, "files": 0, "bytes": 0}


@pytest.fixture(scope="module")
def written(deltalake: Client, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("delta") / "table"
    versions = deltalake.run("deltalake_client.py", {"folder": str(folder), "steps": STEPS})
    assert len(versions) == len(STEPS)
    return versions, [_summary(folder, version) for version in range(len(versions))]


def _summary(folder: Path, version: int) -> CommitSummary:
    return summarize((folder / "_delta_log" / f"{version:020d}.json").read_bytes())


@pytest.mark.parametrize("version", range(len(STEPS)), ids=[step[0] for step in STEPS])
def test_counts_are_the_difference_between_versions(written, version):
    versions, summaries = written
    before = versions[version - 1] if version else EMPTY
    after, counts = versions[version], summaries[version].counts
    assert counts.files_added - counts.files_removed == after["files"] - before["files"]
    assert counts.bytes_added - counts.bytes_removed == after["bytes"] - before["bytes"]
    if counts.rows_removed is not None:
        assert counts.rows_added - counts.rows_removed == after["rows"] - before["rows"]


def test_operations_and_metadata(written):
    _, summaries = written
    assert [summary.operation for summary in summaries][:3] == ["WRITE", "WRITE", "DELETE"]
    first = summaries[0]
    assert first.protocol is not None
    assert first.metadata is not None
    assert b'"name":"id"' in first.metadata.schema
    assert [summary.metadata for summary in summaries[1:5]] == [None] * 4


def test_rows_that_the_log_does_not_tell_are_not_guessed(written):
    """delta-rs leaves statistics out of what it removes."""
    _, summaries = written
    assert [summary.counts.rows_removed for summary in summaries[:3]] == [0, 0, None]
    assert summaries[4].counts.rows_removed == 0
