"""Compaction and purge of managed Delta tables, judged by Delta's own client for Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inver.domain.care import Job, Outcome
from inver.domain.tables import TableKind
from inver.pipeline.work import LeaseLost
from tests.fixtures.clients import ClientMissing, client
from tests.fixtures.delta import DeltaTable, new_schema
from tests.fixtures.duckdb import Duck
from tests.fixtures.managed import Made, commit, commits, live, published_copy, rows
from tests.fixtures.sharing import Provider

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

IDS = "*, _metadata.row_id, _metadata.row_commit_version"


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}


def stats(add: dict[str, Any]) -> Any:
    return json.loads(add["stats"])


def test_every_row_and_its_id_is_kept(made, http, run, delta, tmp_path):
    made.create(
        "id BIGINT, name STRING, at TIMESTAMP, d DECIMAL(20,3), s STRUCT<x: INT, y: ARRAY<STRING>>, "
        "m MAP<STRING, STRUCT<z: DATE>>, f DOUBLE, b BINARY, n TIMESTAMP_NTZ, long STRING",
        properties={"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true"},
    )
    for i in range(2):
        made.sql(
            f"INSERT INTO ?T SELECT id + {i * 100}, concat('n', id), "
            "timestamp_micros(1700000000123456 - id), id / 3, "
            "if(id = 7, null, named_struct('x', int(id), 'y', if(id = 8, null, array('a', null)))), "
            "map('k', named_struct('z', date'2024-02-29')), if(id = 3, double('NaN'), id), "
            "encode('x', 'utf-8'), timestamp_ntz'1969-12-31 23:59:59.999999', concat(repeat('é', 40), id) "
            "FROM range(100)"
        )
    made.sql("DELETE FROM ?T WHERE id % 10 = 4", "UPDATE ?T SET name = 'changed' WHERE id = 55")
    table = made.adopt(http)
    before = rows(delta, published_copy(table, tmp_path / "before"), IDS)
    result = run(table, Job.COMPACT)
    assert result.outcome is Outcome.DONE
    assert (result.before["files"], result.after["files"]) == (5, 1)
    assert result.after["deleted_rows"] == 0
    after = published_copy(table, tmp_path / "after")
    assert rows(delta, after, IDS) == before
    assert len(rows(delta, after, version=2)) == 200
    [add] = live(table)
    assert add["dataChange"] is False
    kept = stats(add)
    assert kept["numRecords"] == 180
    assert kept["minValues"]["at"] == "2023-11-14T22:13:20.123Z"
    assert kept["minValues"]["n"] == kept["maxValues"]["n"] == "1969-12-31T23:59:59.999"
    assert kept["minValues"]["long"] == "é" * 32
    assert kept["maxValues"]["long"] == "é" * 32 + "\U0010ffff"
    # Readers sort what is not a number behind all numbers, so there is no greatest one to name.
    assert "f" not in kept["maxValues"]
    assert kept["nullCount"]["s"] == {"x": 2, "y": 4}
    assert kept["minValues"]["s"] == {"x": 0}
    assert not {"m", "b"} & kept["minValues"].keys()
    assert run(table, Job.COMPACT).outcome is Outcome.NOTHING

    # The table goes on as if nothing had been: merges, and the feed of what changed.
    delta.sql(
        f"MERGE INTO delta.`{after}` t USING (SELECT 5 AS id UNION ALL SELECT 1000) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = 'merged' WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    changed = delta.sql(
        f"SELECT _change_type, id, _commit_version FROM table_changes_by_path('{after}', 3)"
    ).collect()
    kinds = sorted({(row._commit_version, row._change_type) for row in changed})
    assert kinds == [
        (3, "delete"),
        (4, "update_postimage"),
        (4, "update_preimage"),
        (6, "insert"),
        (6, "update_postimage"),
        (6, "update_preimage"),
    ]
    ids = {row[0]: row[-2] for row in before}
    after_merge = {row[0]: row[-2] for row in rows(delta, after, IDS)}
    assert {key: after_merge[key] for key in ids} == ids


def test_partitions_are_written_where_delta_writes_them(made, http, run, delta, tmp_path):
    made.create("id BIGINT, p STRING, d DATE", "PARTITIONED BY (p, d)")
    for i in range(2):
        made.sql(
            f"INSERT INTO ?T SELECT id + {i * 10}, "
            "element_at(array('a b/c=%', 'ü', null), int(id % 3) + 1), date'2024-01-01' FROM range(9)"
        )
    table = made.adopt(http)
    before = rows(delta, published_copy(table, tmp_path / "before"))
    assert run(table, Job.COMPACT).outcome is Outcome.DONE
    after = published_copy(table, tmp_path / "after")
    assert rows(delta, after) == before
    assert rows(delta, after, "count(*)") == [(18,)]
    assert len(live(table)) == 3
    written = {path.rpartition("/")[0] for path in files(table.folder)}
    assert written == {path.rpartition("/")[0] for path in files(made.folder)}
    assert run(table, Job.COMPACT).outcome is Outcome.NOTHING


def test_mapped_columns_and_widened_types(made, http, run, delta, tmp_path):
    made.create(
        "id INT, name STRING, s STRUCT<a: SMALLINT, b: STRING>, gone STRING",
        properties={
            "delta.columnMapping.mode": "name",
            "delta.enableTypeWidening": "true",
            "delta.minReaderVersion": "3",
            "delta.minWriterVersion": "7",
        },
    )
    made.sql(
        "INSERT INTO ?T SELECT int(id), concat('n', id), named_struct('a', id, 'b', 'x'), 'g' FROM range(10)",
        "ALTER TABLE ?T DROP COLUMN gone",
        "ALTER TABLE ?T RENAME COLUMN name TO label",
        "ALTER TABLE ?T ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE ?T ALTER COLUMN s.a TYPE INT",
        "ALTER TABLE ?T ADD COLUMN (s.c ARRAY<INT>, late STRING)",
        "INSERT INTO ?T SELECT 3000000000 + id, 'l', "
        "named_struct('a', 70000, 'b', 'y', 'c', array(1)), 'z' FROM range(10)",
    )
    table = made.adopt(http)
    before = rows(delta, published_copy(table, tmp_path / "before"))
    assert run(table, Job.COMPACT).outcome is Outcome.DONE
    after = published_copy(table, tmp_path / "after")
    assert rows(delta, after) == before
    assert rows(delta, after, version=1) == rows(delta, tmp_path / "before", version=1)
    [add] = live(table)
    assert len(add["path"].partition("/")[0]) == 2
    assert 3000000009 in stats(add)["maxValues"].values()
    assert rows(delta, after, "count(*)") == [(20,)]
    assert delta.sql(f"SELECT * FROM delta.`{after}` WHERE id > 3000000008").count() == 1
    assert delta.sql(f"SELECT * FROM delta.`{after}` WHERE s.a = 70000").count() == 10


def test_purge_rewrites_only_files_with_deleted_rows(made, http, run, delta, tmp_path):
    made.create("id BIGINT")
    made.sql("INSERT INTO ?T SELECT id FROM range(0, 100, 1, 1)")
    made.sql("INSERT INTO ?T SELECT id FROM range(100, 200, 1, 1)")
    made.sql("DELETE FROM ?T WHERE id IN (1, 150)", "DELETE FROM ?T WHERE id < 50 AND id % 2 = 1")
    table = made.adopt(http)
    before = rows(delta, published_copy(table, tmp_path / "before"))
    old = {add["path"]: add for add in live(table)}
    planned = run(table, Job.PURGE, dry_run=True)
    assert (planned.outcome, planned.measured["files"]) == (Outcome.DONE, 1)
    assert live(table) == list(old.values())
    result = run(table, Job.PURGE)
    assert (result.outcome, result.measured["files_removed"]) == (Outcome.DONE, 1)
    assert rows(delta, published_copy(table, tmp_path / "after")) == before
    assert {add["path"] for add in live(table)} & old.keys() == {
        path for path, add in old.items() if add["deletionVector"]["cardinality"] == 1
    }
    assert run(table, Job.PURGE).outcome is Outcome.NOTHING
    assert run(table, Job.PURGE, deleted_ratio=0.0).outcome is Outcome.DONE
    assert not any("deletionVector" in add for add in live(table))


@pytest.fixture(scope="module")
def small(spark, connectors, tmp_path_factory) -> Path:
    """A table of four files, one of them with deleted rows; tests take copies of it over."""
    if not connectors:
        pytest.skip("the jars of Delta cannot be had here")
    made = Made(spark, tmp_path_factory.mktemp("small") / "made")
    made.create("id BIGINT", properties={"delta.enableRowTracking": "true"})
    for i in range(4):
        made.sql(f"INSERT INTO ?T SELECT id FROM range({i * 10}, {i * 10 + 10}, 1, 1)")
    made.sql("DELETE FROM ?T WHERE id IN (31, 32, 33)")
    return made.folder


@pytest.fixture
def table(small, spark, http) -> DeltaTable:
    return Made(spark, small).adopt(http)


class Meanwhile:
    """Somebody who commits right before the job does, so often."""

    def __init__(self, table: DeltaTable, *commits: list[Any]) -> None:
        self.table = table
        self.commits = list(commits)

    def __call__(self, progress: float, message: str) -> None:
        if message == "committing" and self.commits:
            version = len(commits(self.table.folder))
            commit(self.table, self.table.stage(version, self.commits.pop(0)))


def appended(small: Path, table: DeltaTable, name: str, first_id: int) -> list[Any]:
    """The rows of some file once more, as new ones."""
    source = next(action["add"] for action in commits(small)[1] if "add" in action)
    (table.folder / name).write_bytes((table.folder / source["path"]).read_bytes())
    add = {**source, "path": name, "baseRowId": first_id, "defaultRowCommitVersion": 6}
    mark = json.dumps({"rowIdHighWaterMark": first_id + 9})
    domain = {"domain": "delta.rowTracking", "configuration": mark, "removed": False}
    return [{"add": add}, {"domainMetadata": domain}]


def test_an_append_costs_no_rewrite(small, table, run, delta, tmp_path):
    before = rows(delta, published_copy(table, tmp_path / "before"), "id, _metadata.row_id")
    meanwhile = Meanwhile(
        table, appended(small, table, "one.parquet", 40), appended(small, table, "two.parquet", 50)
    )
    result = run(table, Job.COMPACT, meanwhile)
    assert result.outcome is Outcome.DONE
    assert (result.measured["rebases"], result.measured["dropped"], result.measured["commits"]) == (2, 0, 1)
    after = rows(delta, published_copy(table, tmp_path / "after"), "id, _metadata.row_id")
    new = [(i, first + i) for first in (40, 50) for i in range(10)]
    assert after == sorted(before + new, key=repr)
    [rewrite] = [a["add"] for a in commits(table.folder)[-1] if "add" in a]
    assert (rewrite["baseRowId"], rewrite["defaultRowCommitVersion"]) == (60, 8)
    # What was staged for versions that others took is gone.
    assert len(list((table.folder / "_delta_log" / "_staged_commits").glob("*.json"))) <= 8


def test_a_touched_file_drops_only_its_bin(table, run, delta, tmp_path):
    adds = sorted(live(table), key=lambda add: stats(add)["minValues"]["id"])
    touched = adds[0]
    remove = {
        "path": touched["path"],
        "deletionTimestamp": 1,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": touched["size"],
    }
    # Bins of two files.
    size = max(add["size"] for add in adds)
    result = run(table, Job.COMPACT, Meanwhile(table, [{"remove": remove}]), target_file_size=int(size * 2.1))
    assert result.outcome is Outcome.DONE
    assert (result.measured["dropped"], result.measured["rebases"]) == (1, 1)
    found = rows(delta, published_copy(table, tmp_path / "after"), "id")
    assert sorted(row[0] for row in found) == [i for i in range(10, 40) if i not in (31, 32, 33)]
    # Of what was written for the bin that was dropped, nothing is left.
    assert files(table.folder) - {add["path"] for add in adds} == {
        add["path"] for add in live(table) if add["path"] not in {old["path"] for old in adds}
    }


def test_a_later_batch_respects_what_was_touched_during_an_earlier_one(table, run, delta, tmp_path):
    adds = sorted(live(table), key=lambda add: add["size"])
    last = max(adds, key=lambda add: stats(add)["minValues"]["id"])
    first = min(adds, key=lambda add: stats(add)["minValues"]["id"])
    gone = {"deletionTimestamp": 1, "dataChange": True, "partitionValues": {}}
    removes = [{"remove": {**gone, "path": last["path"], "deletionVector": last["deletionVector"]}}]
    size = max(add["size"] for add in adds)
    result = run(
        table,
        Job.COMPACT,
        Meanwhile(table, removes),
        target_file_size=int(size * 2.1),
        commit_bytes=int(size * 2.1),
    )
    found = sorted(row[0] for row in rows(delta, published_copy(table, tmp_path / "after"), "id"))
    assert found == list(range(30)), (result, first)
    assert result.measured["dropped"] == 1


def test_a_changed_schema_ends_the_rewrite(table, run):
    metadata = next(a["metaData"] for a in commits(table.folder)[0] if "metaData" in a)
    schema = json.loads(metadata["schemaString"])
    schema["fields"].append({"name": "more", "type": "string", "nullable": True, "metadata": {}})
    changed = {**metadata, "schemaString": json.dumps(schema)}
    before = files(table.folder)
    result = run(table, Job.COMPACT, Meanwhile(table, [{"metaData": changed}]))
    assert result.outcome is Outcome.LOST
    assert "schema" in result.message
    assert files(table.folder) == before
    assert run(table, Job.COMPACT).outcome is Outcome.DONE


def test_who_is_always_late_gives_up(small, table, run):
    winners = [appended(small, table, f"{i}.parquet", 40 + i * 10) for i in range(12)]
    result = run(table, Job.COMPACT, Meanwhile(table, *winners))
    assert (result.outcome, result.measured["commits"]) == (Outcome.LOST, 0)
    assert run(table, Job.COMPACT).outcome is Outcome.DONE


def test_a_lost_lease_leaves_nothing_but_orphans(table, run, delta, tmp_path):
    before, versions = live(table), len(commits(table.folder))

    def lost(progress: float, message: str) -> None:
        if message == "committing":
            raise LeaseLost

    with pytest.raises(LeaseLost):
        run(table, Job.COMPACT, lost)
    assert live(table) == before
    assert len(commits(table.folder)) == versions
    assert run(table, Job.COMPACT).outcome is Outcome.DONE
    assert rows(delta, published_copy(table, tmp_path / "after"), "count(*)") == [(37,)]


def test_a_missing_file_is_refused(table, run):
    path = live(table)[0]["path"]
    (table.folder / path).unlink()
    self_inflicted(table, run, path)


def test_a_corrupt_deletion_vector_is_refused(table, run):
    [vector] = table.folder.glob("*.bin")
    data = bytearray(vector.read_bytes())
    data[-1] ^= 1
    vector.write_bytes(data)
    self_inflicted(table, run, "checksum")


def test_an_unknown_writer_feature_is_refused(table, run):
    protocol = next(a["protocol"] for a in commits(table.folder)[0] if "protocol" in a)
    features = [*protocol["writerFeatures"], "blueRows"]
    changed = {"protocol": {**protocol, "writerFeatures": features}}
    commit(table, table.stage(len(commits(table.folder)), [changed]))
    self_inflicted(table, run, "blueRows")


def self_inflicted(table: DeltaTable, run: Any, reason: str) -> None:
    versions, standing = len(commits(table.folder)), live(table)
    result = run(table, Job.COMPACT)
    assert result.outcome is Outcome.REFUSED
    assert reason in result.message
    assert len(commits(table.folder)) == versions
    assert live(table) == standing


def test_every_client_reads_the_same_after_every_job(lake, small, spark, unity_spark, http, run, tmp_path):
    """DuckDB and, where its connector can be had, Spark through the catalog; and a recipient of a share
    with Delta's kernel for Rust."""
    # DuckDB looks at every table of a schema, and does not know all types.
    table = Made(spark, small).adopt(http, new_schema(http, "lake.clients"))
    ids = [i for i in range(40) if i not in (31, 32, 33)]
    catalog, schema, name = table.name.split(".")
    try:
        duck = Duck(client("duckdb"), lake, f"{catalog}.{schema}", tmp_path)
        recipient = client("delta_sharing")
    except ClientMissing as missing:
        pytest.skip(str(missing))
    provider = Provider(lake)
    provider.ok("POST", "/shares", json={"name": name})
    provider.ok("POST", f"/shares/{name}/items", json={"name": [catalog, schema, name]})
    profile = tmp_path / "profile.share"
    profile.write_text(json.dumps(provider.recipient(name).profile))

    with_ids = f"SELECT id, _metadata.row_id FROM {table.name} ORDER BY id"

    def read() -> list[Any]:
        step = {"do": "load", "table": f"{name}.{schema}.{name}", "use_delta_format": True}
        [shared] = recipient.run("delta_sharing_client.py", {"profile": str(profile), "steps": [step]})
        [by_name] = duck(f"SELECT id FROM {table.name} ORDER BY id")
        assert [row[0] for row in by_name] == sorted(row["id"] for row in shared["value"])
        if unity_spark is None:
            return [(row[0], None) for row in by_name]
        return [tuple(row) for row in unity_spark.sql(with_ids).collect()]

    before = read()
    assert [row[0] for row in before] == ids
    for job, options in (
        (Job.PURGE, {}),
        (Job.COMPACT, {}),
        (Job.CLUSTER, {"cluster_columns": ("id",)}),
        (Job.VACUUM, {"full": True, "retention_hours": 0, "allow_short_retention": True}),
    ):
        assert run(table, job, **options).outcome is Outcome.DONE, job
        assert read() == before, job
    assert len(files(table.folder)) == 1
    if unity_spark is not None:
        unity_spark.sql(
            f"MERGE INTO {table.name} t USING (SELECT 5L AS id UNION SELECT 100L) s ON t.id = s.id "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
        )
        assert [row[0] for row in read()] == sorted({*ids, 100} - {5})


def test_a_table_that_no_catalog_manages(made, run, delta):
    made.create("id BIGINT")
    made.sql(*(f"INSERT INTO ?T SELECT id FROM range({i * 10}, {i * 10 + 10}, 1, 1)" for i in range(3)))
    table = DeltaTable(None, "lake.care.external", "1", str(made.folder), ())  # type: ignore[arg-type]
    late = ["INSERT INTO ?T SELECT 100"]

    def meanwhile(progress: float, message: str) -> None:
        if message == "committing" and late:
            made.sql(late.pop())

    result = run(table, Job.COMPACT, meanwhile, kind=TableKind.EXTERNAL)
    assert (result.outcome, result.measured["rebases"]) == (Outcome.DONE, 1)
    assert len(live(table)) == 2
    assert sorted(row[0] for row in rows(delta, made.folder)) == [*range(30), 100]
