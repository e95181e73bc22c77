"""VACUUM and orphans of managed Delta tables: exactly what nobody needs is deleted."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import httpx
import pytest

from inver.client import Client
from inver.domain.care import Job, Outcome, Pin, Result, Ticket
from inver.errors import Refused
from inver.formats.deletion_vectors import relative_path
from inver.pipeline.jobs import delta_vacuum
from inver.pipeline.places import Place
from inver.pipeline.work import LeaseLost, Work
from tests.fixtures.aged import Aged, care, remove
from tests.fixtures.server import InverServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MODES = pytest.mark.parametrize("full", [False, True], ids=["lite", "full"])


def no_spark() -> Any:
    raise AssertionError("the driver does this by itself")


@pytest.fixture
def client(lake: InverServer) -> Iterator[Client]:
    with Client(lake.url, lake.token) as client:
        yield client


@pytest.fixture
def vacuum(client: Client) -> Any:
    return partial(care, client, job=Job.VACUUM)


@pytest.fixture
def orphans(client: Client) -> Any:
    return partial(care, client, job=Job.ORPHANS)


def table_of(http: httpx.Client, **options: Any) -> Aged:
    return Aged(http, "lake.care", **options)


@pytest.fixture
def table(http: httpx.Client) -> Aged:
    """Files removed long ago, lately, and never; vectors replaced; change data old and new."""
    table = table_of(http)
    table.commit(
        900, table.add("long.parquet", 3), table.add("both.parquet", 5), table.add("kept.parquet", 2)
    )
    first, second = table.vector(0), table.vector(0, 1)
    added = table.add("masked.parquet", 4)
    table.commit(800, added)
    masked = {**added["add"]}
    table.commit(700, remove("masked.parquet"), {"add": {**masked, **first}}, table.change_data("old", 1))
    table.commit(
        600, remove("masked.parquet", **first), {"add": {**masked, **second}}, remove("long.parquet")
    )
    table.commit(100, remove("both.parquet", size=77), table.change_data("new", 1))
    table.age(950)
    return table


def vectors(table: Aged) -> set[str]:
    return {path for path in table.files if path.startswith("deletion_vector_")}


@MODES
def test_exactly_what_no_retained_version_needs_is_deleted(table, vacuum, full):
    before = table.files
    planned = vacuum(table, full=full, dry_run=True)
    assert table.files == before
    result = vacuum(table, full=full)
    gone = before - table.files
    assert {path for path in gone if "vector" not in path} == {"long.parquet", "_change_data/old"}
    assert len(gone) == 3
    assert len(vectors(table)) == 1
    assert planned.files == tuple(sorted(gone))
    assert (planned.outcome, result.outcome) == (Outcome.DONE, Outcome.DONE)
    assert result.before["needless_files"] == result.measured["files_deleted"] == 3
    assert (result.after["needless_files"], planned.before) == (0, result.before)
    change_data = (table.folder / "_change_data" / "new").stat().st_size
    known = {name: result.after[name] for name in ("version", "files", "dead_bytes")}
    assert known == {"version": 5, "files": 2, "dead_bytes": 77 + change_data}
    again = vacuum(table, full=full)
    assert (again.outcome, table.files) == (Outcome.NOTHING, before - gone)


@MODES
def test_versions_within_a_longer_retention_stay_readable(table, vacuum, full):
    before = table.files
    assert vacuum(table, full=full, retention_hours=650).outcome is Outcome.DONE
    assert before - table.files == {"_change_data/old"}
    assert vacuum(table, full=full, retention_hours=750).outcome is Outcome.NOTHING


@MODES
def test_the_table_may_ask_for_more(http, vacuum, full):
    table = table_of(http, config={"delta.deletedFileRetentionDuration": "interval 30 days"})
    table.commit(900, table.add("a.parquet", 1), table.add("b.parquet", 1))
    table.commit(721, remove("a.parquet"))
    table.commit(719, remove("b.parquet"))
    table.age(950)
    vacuum(table, full=full)
    assert table.files == {"b.parquet"}


@MODES
@pytest.mark.parametrize(("pinned", "gone"), [(0, 0), (3, 0), (4, 1), (5, 3), (9, 3)])
def test_pins_hold_what_their_owners_need(table, vacuum, full, pinned, gone):
    """Commit 3 recorded changes, commit 4 removed a file and a vector."""
    before = table.files
    pins = (Pin(reason="share out", version=pinned), Pin(reason="tag x", version=0, alone=True))
    result = vacuum(table, pins=pins, full=full)
    assert len(before - table.files) == gone
    assert "kept from version" in result.message
    assert "share out" in result.message
    assert "tag x" not in result.message


@MODES
def test_below_the_floor_nothing_happens_without_a_word(table, vacuum, full):
    before = table.files
    with pytest.raises(Refused, match="below the floor"):
        vacuum(table, full=full, retention_hours=99)
    assert table.files == before
    assert vacuum(table, full=full, retention_hours=99, allow_short_retention=True).outcome is Outcome.DONE
    assert "both.parquet" not in table.files
    assert {"kept.parquet", "masked.parquet", "_change_data/new"} <= table.files | {"_change_data/new"}


@MODES
def test_young_files_stay_whatever_the_log_says(table, vacuum, full):
    """Somebody may have written it again, to add it once more."""
    table.age(1, "long.parquet")
    assert vacuum(table, full=full).outcome is Outcome.DONE
    assert "long.parquet" in table.files


def test_full_finds_what_the_log_never_knew(table, vacuum):
    before = table.files
    for path in ("stray.parquet", "p=1/stray.parquet", "young.parquet"):
        (table.folder / path).parent.mkdir(exist_ok=True)
        (table.folder / path).write_bytes(b"x")
    others = ["_temporary/x", ".hidden/x", "_x.parquet", "metadata/v1.metadata.json", "metadata/snap.avro"]
    nested = ["inner/_delta_log/00000000000000000000.json", "inner/data.parquet", "inner/deep/data.parquet"]
    nested += [
        "ice/metadata/v1.metadata.json",
        "ice/data/x.parquet",
        "lance/_versions/1.manifest",
        "lance/data/x",
    ]
    for path in [*others, *nested]:
        (table.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (table.folder / path).write_bytes(b"x")
    table.age(950)
    table.age(1, "young.parquet")
    assert vacuum(table, full=False).outcome is Outcome.DONE
    assert {"stray.parquet", "p=1/stray.parquet"} <= table.files
    assert vacuum(table, full=True).outcome is Outcome.DONE
    assert table.files - before == {"young.parquet", *others, *nested}
    assert not (table.folder / "p=1").exists()


@MODES
def test_paths_are_encoded_absolute_and_elsewhere(http, vacuum, full, tmp_path):
    table = table_of(http, partitions=["p"])
    elsewhere = tmp_path / "source.parquet"
    elsewhere.write_bytes(b"x")
    os.utime(elsewhere, (1, 1))
    inside = f"file://{table.folder}/abs.parquet"
    gone = [table.add("p=a%20b%2525/gone.parquet", 1), table.add("abs.parquet", 1), table.add("x.parquet", 1)]
    gone[1]["add"]["path"] = inside
    clone = {"add": {**gone[2]["add"], "path": f"file:{elsewhere}"}}
    kept = [table.add("p=a%20b%2525/kept.parquet", 1), table.add("abs2.parquet", 1)]
    kept[1]["add"]["path"] = f"{table.folder}/abs2.parquet"
    table.commit(900, *gone, clone, *kept)
    table.commit(800, *(remove(each["add"]["path"]) for each in [*gone, clone]))
    table.age(950)
    assert vacuum(table, full=full).measured["files_deleted"] == 3
    assert table.files == {"p=a b%25/kept.parquet", "abs2.parquet"}
    assert elsewhere.exists()


@MODES
def test_what_a_checkpoint_alone_remembers(table, client, vacuum, full):
    table.publish()
    table.age(950)
    assert care(client, table, Job.CHECKPOINT, retention_hours=1000).outcome is Outcome.DONE
    for version in range(5):
        (table.folder / "_delta_log" / f"{version:020d}.json").unlink()
    before = table.files
    assert vacuum(table, pins=(Pin(reason="share", version=4),), full=False).outcome is Outcome.NOTHING
    assert table.files == before
    vacuum(table, full=full)
    gone = {"long.parquet", "_change_data/old"} if full else {"long.parquet"}
    assert {path for path in before - table.files if "vector" not in path} == gone
    assert len(vectors(table)) == 1


@MODES
def test_files_that_come_back_meanwhile_stay(table, vacuum, full):
    """A RESTORE adds an old file again, after the job has read the log."""

    def restore(progress: float, message: str) -> None:
        if message.startswith("deleted 0") and table.version == 5:
            table.commit(
                0,
                {
                    "add": {
                        "path": "long.parquet",
                        "partitionValues": {},
                        "size": 1,
                        "modificationTime": 1,
                        "dataChange": True,
                    }
                },
            )

    result = vacuum(table, tell=restore, full=full)
    assert result.measured["files_deleted"] == 2
    assert "long.parquet" in table.files


def test_a_lost_lease_stops_it_between_batches(table, vacuum, monkeypatch):
    monkeypatch.setattr("inver.pipeline.delta.logs.BATCH", 1)
    before = table.files
    told: list[str] = []

    def tell(progress: float, message: str) -> None:
        told.append(message)
        if message == "deleted 1 of 3 files":
            raise LeaseLost

    with pytest.raises(LeaseLost):
        vacuum(table, tell=tell)
    assert len(before - table.files) == 1
    assert told[-2:] == ["deleted 0 of 3 files", "deleted 1 of 3 files"]
    assert vacuum(table).measured["files_deleted"] == 2
    assert vacuum(table).outcome is Outcome.NOTHING


@MODES
@pytest.mark.parametrize("seed", range(4))
def test_random_histories(http, client, vacuum, full, seed):
    """Every version that is retained or pinned has all of its files, and nothing else is left."""
    random = Random(seed)
    table = table_of(http)
    live: dict[str, Any] = {}
    lives: list[tuple[float, set[str]]] = [(1000, set())]
    kept_by: list[tuple[float, int, set[str]]] = []

    def paths(added: Any) -> set[str]:
        vector = added.get("deletionVector")
        return {added["path"]} | ({relative_path(vector["pathOrInlineDv"])} if vector else set())

    for number in range(1, 13):
        age = 960.0 - 75 * number
        actions: list[Any] = []
        leaving: set[str] = set()
        for path in random.sample(sorted(live), min(len(live), random.randrange(3))):
            added = live.pop(path)
            vector = {"deletionVector": added["deletionVector"]} if "deletionVector" in added else {}
            actions.append(remove(path, **vector))
            leaving |= paths(added)
            if random.random() < 0.5:
                live[path] = {**added, **table.vector(number)}
                actions.append({"add": live[path]})
        for new in range(random.randrange(3)):
            added = table.add(f"{number}-{new}.parquet", 1)
            live[added["add"]["path"]] = added["add"]
            actions.append(added)
        if random.random() < 0.3:
            actions.append(table.change_data(str(number), 1))
            leaving.add(f"_change_data/{number}")
        table.commit(age, *actions)
        kept_by.append((age, number, leaving))
        lives.append((age, {path for added in live.values() for path in paths(added)}))
        if number == 6 and random.random() < 0.5:
            table.publish()
            care(client, table, Job.CHECKPOINT, retention_hours=2000)
    table.age(990)
    hours, pin = random.choice([168, 300, 500]), random.choice([None, random.randrange(13)])
    wanted = set(lives[-1][1])
    for version, (_, files) in enumerate(lives[:-1]):
        if lives[version + 1][0] <= hours or (pin is not None and version >= pin):
            wanted |= files
    for age, version, files in kept_by:
        if age <= hours or (pin is not None and version >= pin):
            wanted |= files
    pins = () if pin is None else (Pin(reason="share", version=pin),)
    vacuum(table, full=full, retention_hours=hours, pins=pins)
    assert table.files == wanted


def test_the_catalog_knows_who_looks_back(table, client, lake):
    """A share and a cursor hold what they need, through the tickets that the server gives out."""
    share = table.delta.name.rpartition(".")[2]
    name = table.delta.name.split(".")
    item = {"name": name, "history": True, "start_version": 4}
    cursor = {"op": "move-cursor", "cursor": f"flow/{table.delta.id}", "expect": None, "value": "3"}
    for path, body in (
        ("/shares", {"name": share}),
        (f"/shares/{share}/items", item),
        ("/transactions", {"operations": [cursor]}),
    ):
        answer = lake.call("POST", path, json=body)
        assert answer.is_success, answer.text
    before = table.files

    def run() -> tuple[Ticket, Result]:
        ticket = client.start_care(name, Job.VACUUM, worker="test", options={"full": True})
        work = Work(
            ticket, client, no_spark, Place(ticket.location), partial(client.care_heartbeat, ticket.run_id)
        )
        result = delta_vacuum.vacuum(work)
        client.finish_care(ticket.run_id, result)
        return ticket, result

    ticket, result = run()
    assert set(ticket.pins) == {
        Pin(reason=f"share {share}", version=4),
        Pin(reason=f"cursor flow/{table.delta.id}", version=3),
    }
    assert (result.outcome, table.files) == (Outcome.NOTHING, before)
    moved = {**cursor, "expect": "3", "value": "5"}
    assert lake.call("POST", "/transactions", json={"operations": [moved]}).is_success
    assert run()[1].measured["files_deleted"] == 1
    assert before - table.files == {"_change_data/old"}
    assert lake.call("DELETE", f"/shares/{share}").is_success
    assert run()[1].measured["files_deleted"] == 2


class TestRefusals:
    """Whatever is not understood is left as it is, with the reason."""

    @pytest.mark.parametrize("job", [Job.VACUUM, Job.ORPHANS, Job.CHECKPOINT, Job.LOG])
    def test_an_unknown_feature(self, http, client, job):
        table = table_of(http)
        features = {"readerFeatures": ["catalogManaged", "vacuumProtocolCheck"]}
        features["writerFeatures"] = [*features["readerFeatures"], "inCommitTimestamp", "newsOfTomorrow"]
        table.commit(900, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
        table.publish()
        (table.folder / "stray.parquet").write_bytes(b"x")
        table.age(950)
        before = table.files | table.log
        with pytest.raises(Refused, match="newsOfTomorrow"):
            care(client, table, job, full=True)
        assert table.files | table.log == before

    @pytest.mark.parametrize("job", [Job.VACUUM, Job.ORPHANS, Job.CHECKPOINT])
    def test_a_damaged_log(self, table, client, job):
        table.publish()
        (table.folder / "_delta_log" / f"{4:020d}.json").write_text('{"remove":')
        table.age(950)
        before = table.files | table.log
        with pytest.raises(Refused, match="damaged"):
            care(client, table, job)
        assert table.files | table.log == before

    def test_a_missing_commit(self, table, vacuum):
        table.publish()
        (table.folder / "_delta_log" / f"{2:020d}.json").unlink()
        before = table.files
        with pytest.raises(Refused, match="version 2 is missing"):
            vacuum(table)
        assert table.files == before

    @MODES
    def test_a_file_whose_place_cannot_be_told(self, table, vacuum, full):
        table.commit(
            50,
            {
                "add": {
                    "path": "../x.parquet",
                    "partitionValues": {},
                    "size": 1,
                    "modificationTime": 1,
                    "dataChange": True,
                }
            },
        )
        before = table.files
        with pytest.raises(Refused, match="spelled like that"):
            vacuum(table, full=full)
        assert table.files == before

    def test_a_retention_that_is_none(self, http, vacuum):
        table = table_of(http, config={"delta.deletedFileRetentionDuration": "forever"})
        with pytest.raises(Refused, match="'forever' is no interval"):
            vacuum(table)

    def test_a_deletion_vector_that_names_no_file(self, table, vacuum):
        bad = {"storageType": "u", "pathOrInlineDv": "short", "sizeInBytes": 1, "cardinality": 1}
        table.commit(50, table.add("bad.parquet", 1, deletionVector=bad))
        before = table.files
        with pytest.raises(Refused, match="names no file"):
            vacuum(table)
        assert table.files == before


# --- orphans ---


def test_staged_commits_that_nobody_needs(table, orphans):
    lost = f"_staged_commits/{table.delta.stage(3, [])['file-name']}"
    early = f"_staged_commits/{table.delta.stage(9, [])['file-name']}"
    table.publish()
    staged = {path for path in table.log if path.startswith("_staged_commits/")}
    assert len(staged) == 7
    table.age(23)
    assert orphans(table).outcome is Outcome.NOTHING
    table.age(25)
    planned = orphans(table, dry_run=True)
    assert {path.removeprefix("_delta_log/") for path in planned.files} == staged - {early}
    assert lost in staged - {early}
    assert orphans(table).measured["files_deleted"] == 6
    # Somebody may still propose the one that is left.
    assert {path for path in table.log if path.startswith("_staged_commits/")} == {early}
    assert orphans(table).outcome is Outcome.NOTHING
    assert table.delta.load()["latest-table-version"] == 5


def test_the_folder_of_staged_commits_stays_when_it_is_empty(table, orphans):
    """Spark writes into it without making it."""
    table.publish()
    table.age(25)
    assert orphans(table).measured["files_deleted"] == 5
    folder = table.delta.folder / "_delta_log" / "_staged_commits"
    assert list(folder.iterdir()) == []


def test_what_a_stopped_rewrite_left(table, orphans):
    name = f"care-{uuid.uuid4()}.zstd.parquet"
    known = f"care-{uuid.uuid4()}.zstd.parquet"
    table.commit(90, table.add(known, 1))
    table.commit(80, remove(known))
    for path in (name, f"p=1/{name}", "part-0.parquet"):
        (table.folder / path).parent.mkdir(exist_ok=True)
        (table.folder / path).write_bytes(b"x")
    before = table.files
    assert orphans(table).outcome is Outcome.NOTHING
    table.age(25)
    orphans(table)
    assert before - table.files == {name, f"p=1/{name}"}


def test_a_rewrite_has_an_hour_to_hear_that_it_has_lost(table, orphans, vacuum):
    """However short a policy says: its commit may be on the way."""
    name, removed = (f"care-{uuid.uuid4()}.zstd.parquet" for _ in range(2))
    table.commit(90, table.add(removed, 1))
    table.commit(80, remove(removed))
    (table.folder / name).write_bytes(b"x")
    at_once = {"allow_short_retention": True}
    assert name not in orphans(table, dry_run=True, staged_hours=0, **at_once).files
    # Who was never committed may yet be; who was removed will not be again.
    vacuum(table, full=True, retention_hours=0, **at_once)
    assert name in table.files
    assert removed not in table.files
    table.age(1.1, name)
    assert orphans(table, staged_hours=0, **at_once).measured["files_deleted"] >= 1
    assert name not in table.files


# --- listing in tasks ---


@pytest.mark.spark
def test_tasks_find_what_the_driver_finds(table, client, spark, monkeypatch):
    """The same files, listed by a cluster."""
    for path in ("stray.parquet", "p=1/stray.parquet", "p=2/deep/stray.parquet", "young.parquet"):
        (table.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (table.folder / path).write_bytes(b"x")
    for path in ("inner/_delta_log/0.json", "inner/data.parquet", "_temporary/x", "p=1/_delta_log/0.json"):
        (table.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (table.folder / path).write_bytes(b"x")
    table.age(950)
    table.age(1, "young.parquet")
    planned = care(client, table, Job.VACUUM, full=True, dry_run=True)

    class Cluster:
        """The session, as one whose tasks run elsewhere."""

        conf = type("Conf", (), {"get": staticmethod(lambda *_: "spark://cluster:7077")})
        createDataFrame = spark.createDataFrame  # noqa: N815

    monkeypatch.setattr(delta_vacuum, "MANY_FILES", 0)
    found = care(client, table, Job.VACUUM, spark=Cluster(), full=True, dry_run=True)
    assert found.files == planned.files
    assert {"stray.parquet", "p=2/deep/stray.parquet"} <= set(found.files)
    assert "p=1/stray.parquet" not in found.files
    result = care(client, table, Job.VACUUM, spark=Cluster(), full=True)
    assert result.measured["files_deleted"] == len(planned.files)
