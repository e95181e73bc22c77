"""Care of Iceberg tables: what real clients read is what they read before."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inver.domain.care import HOUR_MS, Job, Outcome
from inver.pipeline.iceberg.procedures import ProcedureFailed
from tests.fixtures.care_iceberg import House, running_house
from tests.fixtures.care_jobs import Care
from tests.fixtures.iceberg_clients import CATALOG

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

AT_ONCE: dict[str, Any] = {"snapshot_hours": 0.0, "allow_short_retention": True}
SMALL: dict[str, Any] = {"min_small_files": 4}


@pytest.fixture(scope="module")
def house(spark: Any, connectors: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    if not connectors:
        pytest.skip("Iceberg's runtime cannot be had here")
    with running_house(spark, tmp_path_factory.mktemp("iceberg")) as house:
        yield house


def age(path: Path, hours: float) -> Path:
    then = time.time() - hours * HOUR_MS / 1000
    os.utime(path, (then, then))
    return path


# --- rewriting ---


@pytest.mark.parametrize(("version", "partitioned"), [(2, True), (3, False)])
def test_all_clients_read_the_same_rows_after_every_rewrite(house: House, version: int, partitioned: bool):
    table = house.new(version, partitioned).fill(12)
    table.sql("DELETE FROM {t} WHERE id % 5 = 0")
    table.sql("UPDATE {t} SET name = 'bnew' WHERE id = 7")
    lineage = ", _row_id, _last_updated_sequence_number" if version == 3 else ""

    def read() -> list[Any]:
        found: list[Any] = [
            table.sql(f"SELECT id, name{lineage} FROM {{t}} ORDER BY id"),
            house.duckdb(f"SELECT id, name FROM lake.s.{table.name} ORDER BY id"),
        ]
        if version == 2:
            found.append(house.pyiceberg("scan", table.path))
        return found

    was = read()
    tag = {"action": "set-snapshot-ref", "ref-name": "before", "type": "tag"}
    table.update(tag | {"snapshot-id": table.load()["current-snapshot-id"]})
    compacted = table.care(Job.COMPACT, **SMALL)
    assert compacted.outcome is Outcome.DONE
    assert compacted.before["files"] > compacted.after["files"] == (3 if partitioned else 1)
    assert compacted.after["rows"] == len(was[0])
    assert read() == was
    table.sql("DELETE FROM {t} WHERE id IN (1, 2, 3)")
    left = read()
    assert len(left[0]) == len(was[0]) - 3
    purged = table.care(Job.PURGE, deleted_ratio=0.01)
    assert (purged.outcome, purged.after["delete_files"]) == (Outcome.DONE, 0)
    assert purged.before["delete_files"] > 0
    listed = table.care(Job.MANIFESTS, min_manifests=3)
    assert listed.outcome is Outcome.DONE
    assert listed.after["manifests"] < listed.before["manifests"]
    counted = table.care(Job.STATISTICS)
    assert (counted.outcome, counted.after["statistics"]) == (Outcome.DONE, counted.before["statistics"] + 1)
    assert read() == left
    seen = table.sql("SELECT id, name FROM {t} VERSION AS OF 'before' ORDER BY id")
    assert seen == [row[:2] for row in was[0]]
    for job, options in (
        (Job.COMPACT, SMALL),
        (Job.PURGE, {"deleted_ratio": 0.01}),
        (Job.MANIFESTS, {"min_manifests": 3}),
        (Job.STATISTICS, {}),
    ):
        assert table.care(job, **options).outcome is Outcome.NOTHING, job


def test_one_commit_replaces_no_more_than_the_policy_says(house: House):
    table = house.new().fill(12)
    size = table.sql("SELECT sum(file_size_in_bytes) FROM {t}.files")[0][0]
    done = table.care(Job.COMPACT, min_small_files=2, commit_bytes=size // 2)
    assert done.outcome is Outcome.DONE
    assert done.measured["commits"] >= 2
    assert table.ids() == list(range(48))
    assert table.care(Job.COMPACT, min_small_files=2, commit_bytes=size // 2).outcome is Outcome.NOTHING


def test_deletes_of_files_that_are_gone_go_too(house: House):
    """Position deletes stay behind when the table's files are replaced by who does not look for them."""
    table = house.new(2).fill(6)
    table.sql("DELETE FROM {t} WHERE id % 4 = 1")
    table.sql(
        f"CALL {house.name}.system.rewrite_data_files(table => 's.{table.name}',"
        " options => map('min-input-files', '2'))"
    )
    assert table.sql("SELECT count(*) > 0 FROM {t}.delete_files") == [(True,)]
    ids = table.ids()
    purged = table.care(Job.PURGE)
    assert (purged.outcome, purged.after["delete_files"]) == (Outcome.DONE, 0)
    assert table.ids() == ids


def test_deletes_that_name_no_file(house: House):
    """They are of a whole partition, and nobody knows how much each of its files has lost."""
    table = house.new(2, True, **{"write.delete.granularity": "partition"}).fill(12)
    table.sql("DELETE FROM {t} WHERE id % 4 = 1")
    assert table.sql(
        "SELECT delete_file_path FROM {t}.position_deletes GROUP BY delete_file_path"
        " HAVING count(DISTINCT file_path) > 1"
    )
    ids = table.ids()
    purged = table.care(Job.PURGE, deleted_ratio=0.9)
    assert (purged.outcome, purged.after["delete_files"]) == (Outcome.DONE, 0)
    assert table.ids() == table.scan() == ids
    assert table.care(Job.PURGE, deleted_ratio=0.9).outcome is Outcome.NOTHING


@pytest.mark.parametrize(("version", "job"), [(2, Job.COMPACT), (3, Job.PURGE)])
def test_equality_deletes(house: House, version: int, job: Job):
    """They are about rows that were there before: one that was written again since then stays."""
    table = house.new(version).fill(6)
    table.delete_equal(1, 9, 17)
    table.sql("INSERT INTO {t} VALUES (9, 'again')")
    expected = sorted({*range(24)} - {1, 17})
    assert table.ids() == expected
    done = table.care(job, **SMALL)
    assert done.outcome is Outcome.DONE
    assert done.before["delete_files"] == 1
    assert table.ids() == expected
    assert table.sql("SELECT name FROM {t} WHERE id = 9") == [("again",)]
    # Whichever came first, the other leaves nothing of them.
    table.care(Job.PURGE, **SMALL)
    assert table.sql("SELECT count(*) FROM {t}.delete_files") == [(0,)]
    assert table.ids() == expected
    assert [row[0] for row in house.duckdb(f"SELECT id FROM lake.s.{table.name} ORDER BY id")] == expected
    if version == 2:
        assert table.scan() == expected
    assert table.care(Job.PURGE, **SMALL).outcome is Outcome.NOTHING
    expired = table.care(Job.EXPIRE, **AT_ONCE)
    assert expired.measured["deleted_equality_delete_files_count"] == 1
    assert table.ids() == expected


def test_a_dry_run_changes_nothing(house: House):
    table = house.new().fill(6)
    table.sql("DELETE FROM {t} WHERE id = 1")
    version = table.version
    for job in (Job.COMPACT, Job.PURGE, Job.MANIFESTS, Job.STATISTICS, Job.EXPIRE):
        told = table.care(job, dry_run=True, min_manifests=2, **SMALL, **AT_ONCE)
        assert told.outcome is Outcome.DONE, job
        assert told.after == told.before
    assert table.version == version


def test_an_empty_table_has_nothing_to_care_for(house: House):
    table = house.new()
    for job in (Job.COMPACT, Job.PURGE, Job.MANIFESTS, Job.STATISTICS, Job.EXPIRE, Job.ORPHANS):
        assert table.care(job).outcome is Outcome.NOTHING, job


def test_names_of_any_kind(house: House):
    """In nested namespaces, and with what SQL gives a meaning to."""
    namespace, name = f"{house.name}.s.`in ner`", "it's `odd` \\\\ \u00e9"
    house.spark.sql(f"CREATE NAMESPACE {namespace}")
    full = f"{namespace}.`{name.replace('`', '``')}`"
    house.spark.sql(f"CREATE TABLE {full} (id BIGINT) USING iceberg")
    for id in range(4):
        house.spark.sql(f"INSERT INTO {full} VALUES ({id})")
    care = Care(house.client, lambda: house.spark, (CATALOG, "s", "in ner", name))
    for job in (Job.COMPACT, Job.MANIFESTS, Job.STATISTICS, Job.EXPIRE):
        assert care(job, min_manifests=2, **SMALL, **AT_ONCE).outcome is Outcome.DONE, job
    assert [row[0] for row in house.spark.sql(f"SELECT id FROM {full} ORDER BY id").collect()] == [0, 1, 2, 3]


# --- snapshots ---


def test_snapshots_that_somebody_needs_stay(house: House):
    table = house.new().fill(8)
    ids = table.snapshots()
    house.pyiceberg("refs", table.path, changes=[["create_tag", ids[1], "kept"]])
    house.pyiceberg("refs", table.path, changes=[["create_branch", ids[2], "dev"]])
    # The first version has no snapshot.
    pinned = table.care(Job.EXPIRE, pins=(6,), **AT_ONCE)
    assert (pinned.outcome, pinned.measured["snapshots"]) == (Outcome.DONE, 3)
    assert table.snapshots() == [ids[1], ids[2], *ids[5:]]
    assert table.care(Job.EXPIRE, min_snapshots=3, **AT_ONCE).outcome is Outcome.NOTHING
    rest = table.care(Job.EXPIRE, min_snapshots=2, **AT_ONCE)
    assert rest.measured["snapshots"] == 1
    assert table.snapshots() == [ids[1], ids[2], *ids[6:]]
    assert table.care(Job.EXPIRE, min_snapshots=2, **AT_ONCE).outcome is Outcome.NOTHING
    assert table.scan(ref="kept") == list(range(8))
    assert table.scan(ref="dev") == list(range(12))
    assert table.scan(snapshot=ids[6]) == list(range(28))
    assert table.ids() == list(range(32))


def test_what_only_old_snapshots_needed_is_deleted(house: House):
    table = house.new().fill(6)
    assert table.care(Job.COMPACT, **SMALL).outcome is Outcome.DONE
    # It was current until now, however old it is.
    assert table.care(Job.EXPIRE, snapshot_hours=24).outcome is Outcome.NOTHING
    expired = table.care(Job.EXPIRE, **AT_ONCE)
    assert (expired.outcome, expired.after["snapshots"]) == (Outcome.DONE, 1)
    assert expired.measured["deleted_data_files_count"] == 6
    assert len(list((table.folder / "data").rglob("*.parquet"))) == 1
    assert table.ids() == list(range(24))


def test_retention_has_a_floor(house: House):
    table = house.new().fill(2)
    refused = table.care(Job.EXPIRE, snapshot_hours=1)
    assert (refused.outcome, "below the floor" in refused.message) == (Outcome.REFUSED, True)


def test_a_branch_that_gives_up_what_is_pinned(house: House):
    table = house.new().fill(3)
    first, *_, last = table.snapshots()
    short = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "max-snapshot-age-ms": 1}
    table.update(short | {"snapshot-id": last})
    refused = table.care(Job.EXPIRE, pins=(1,))
    assert (refused.outcome, str(first) in refused.message) == (Outcome.REFUSED, True)
    assert first in table.snapshots()


def test_files_that_others_may_share_are_not_deleted(house: House):
    table = house.new(2, False, **{"gc.enabled": "false"}).fill(3)
    for job in (Job.EXPIRE, Job.ORPHANS):
        refused = table.care(job, **AT_ONCE)
        assert (refused.outcome, "gc.enabled" in refused.message) == (Outcome.REFUSED, True)
    assert len(table.snapshots()) == 3


# --- files that nobody needs ---


def test_care_does_not_touch_what_is_somebody_elses(house: House):
    """Who may commit to one table can name the files of another in it."""
    victim, bad = house.new(2).fill(1), house.new(2)
    files = sorted((victim.folder / "data").rglob("*.parquet"))
    assert files
    house.spark.sql(
        f"CALL {house.name}.system.add_files(table => 's.{bad.name}', "
        f"source_table => '`parquet`.`{victim.folder}/data`', check_duplicate_files => false)"
    ).collect()
    for job in (Job.COMPACT, Job.PURGE, Job.STATISTICS):
        refused = bad.care(job)
        assert (refused.outcome, "outside of its location" in refused.message) == (Outcome.REFUSED, True)
    bad.sql("DELETE FROM {t}")
    refused = bad.care(Job.EXPIRE, **AT_ONCE)
    assert (refused.outcome, "outside of its location" in refused.message) == (Outcome.REFUSED, True)
    assert all(file.exists() for file in files)


def test_orphans_are_deleted_and_nothing_else(house: House):
    table = house.new().fill(5)
    table.care(Job.COMPACT, **SMALL)
    for path in table.folder.rglob("*.*"):
        age(path, 30)
    orphan = age(_file(table.folder / "data" / "left behind.parquet"), 30)
    young = age(_file(table.folder / "data" / "young.parquet"), 20)
    foreign = age(_file(table.folder / "data" / "other" / "part.parquet"), 30)
    age(_file(table.folder / "data" / "other" / "_delta_log" / "00000000000000000000.json"), 30)
    shown = table.care(Job.ORPHANS, dry_run=True)
    assert (shown.outcome, shown.measured["files"]) == (Outcome.DONE, 1)
    assert [Path(name).name for name in shown.files] == [orphan.name]
    assert orphan.exists()
    assert table.care(Job.ORPHANS, staged_hours=48).outcome is Outcome.NOTHING
    deleted = table.care(Job.ORPHANS)
    assert (deleted.outcome, deleted.measured) == (Outcome.DONE, {"files": 1.0, "bytes": 4.0})
    assert not orphan.exists()
    assert young.exists()
    assert foreign.exists()
    assert table.ids() == list(range(20))
    assert table.scan(snapshot=table.snapshots()[0]) == list(range(4))
    assert table.care(Job.ORPHANS).outcome is Outcome.NOTHING


def _file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"left")
    return path


# --- what is broken ---


def test_a_missing_file_leaves_the_table_as_it_is(house: House):
    table, other = house.new().fill(6), house.new().fill(6)
    version = table.version
    next((table.folder / "data").rglob("*.parquet")).unlink()
    with pytest.raises(ProcedureFailed, match=r"FileNotFound|NotFoundException|does not exist"):
        table.care(Job.COMPACT, **SMALL)
    assert table.version == version
    assert other.care(Job.COMPACT, **SMALL).outcome is Outcome.DONE


def test_a_corrupt_file_leaves_the_table_as_it_is(house: House):
    table = house.new().fill(6)
    version = table.version
    broken = next((table.folder / "data").rglob("*.parquet"))
    broken.write_bytes(broken.read_bytes()[:-20])
    with pytest.raises(ProcedureFailed, match=r"Parquet|corrupt"):
        table.care(Job.COMPACT, **SMALL)
    assert table.version == version
