"""Checkpoint, log, VACUUM and orphans of a managed Delta table in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from inver.client import Client
from inver.domain.care import Job, Outcome
from inver.pipeline.places import Place
from inver.pipeline.tasks.listing import folders
from inver.storage.options import StorageOptions
from tests.fixtures.aged import Aged, care, remove
from tests.fixtures.delta import new_schema, unity
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import InverServer, running_inver

pytestmark = [pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def storage(s3_server: S3Server) -> StorageOptions:
    return s3_server.options


@pytest.fixture(scope="module")
def server(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    env = {**s3_server.settings, "INVER_STORAGE__WAREHOUSE": f"s3://{s3_server.create_bucket()}/lake"}
    with running_inver(tmp_path_factory.mktemp("s3") / "home", env=env) as server:
        yield server


def test_the_same_in_an_object_store(server: InverServer, s3_server: S3Server, storage: StorageOptions):
    with unity(server) as http, Client(server.url, server.token) as client:
        new_schema(http, "lake.care")
        table = Aged(http, "lake.care", partitions=["p"], buckets=s3_server.folder, storage=storage)
        assert table.delta.location.startswith("s3://")
        run: Any = partial(care, client, table)
        table.commit(900, table.add("p=a%20b/old.parquet", 1), table.add("p=a%20b/kept.parquet", 1))
        table.commit(800, remove("p=a%20b/old.parquet"), table.add("late.parquet", 1, **table.vector(0)))
        table.publish()
        assert run(Job.CHECKPOINT).outcome is Outcome.DONE
        for number in range(3, 16):
            table.commit(100 - number, table.add(f"{number}.parquet", 1))
        table.publish()
        (table.folder / "p=a b" / "stray.parquet").write_bytes(b"x")
        table.age(850)
        before = table.files
        assert run(Job.LOG, log_retention_hours=200, dry_run=True).measured["files_deleted"] == 2
        assert run(Job.LOG, log_retention_hours=200).outcome is Outcome.DONE
        assert sorted(name for name in table.log if name.endswith(".json") and len(name) == 25)[0].startswith(
            f"{2:020d}"
        )
        assert f"{3:020d}.{14:020d}.compacted.json" in table.log
        assert run(Job.VACUUM).measured["files_deleted"] == 1
        assert before - table.files == {"p=a b/old.parquet"}
        assert run(Job.VACUUM).outcome is Outcome.NOTHING
        assert run(Job.VACUUM, full=True, dry_run=True).files == ("p=a b/stray.parquet",)
        assert run(Job.VACUUM, full=True).measured["files_deleted"] == 1
        assert run(Job.ORPHANS).measured["files_deleted"] == 15
        assert run(Job.CHECKPOINT).outcome is Outcome.DONE
        for job in (Job.LOG, Job.ORPHANS, Job.CHECKPOINT):
            assert run(job, log_retention_hours=200).outcome is Outcome.NOTHING
        found = folders(Place(table.delta.location, storage))
        assert {"_delta_log", "p=a b", "late.parquet"} < set(found)
        assert len(found) == 2 + len([path for path in table.files if "/" not in path])
