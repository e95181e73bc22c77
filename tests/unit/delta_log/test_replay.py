"""Checkpoints and compactions that are written, and what a log knows to have been removed."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from inver.errors import Broken, Invalid
from inver.formats.delta_checkpoint import Made, make, pointed_at, write_classic, write_v2
from inver.formats.delta_compaction import compacted
from inver.formats.delta_log.reader import LogReader
from inver.formats.delta_log.removals import Removal, removals
from inver.formats.delta_log.replay import replay
from inver.formats.delta_log.snapshot import Snapshot
from tests.fixtures.delta_log import (
    KINDS,
    METADATA,
    PROTOCOL,
    LogFolder,
    Model,
    add,
    files_of,
    metadata,
    protocol,
    remove,
    vector,
)

pytestmark = pytest.mark.anyio

VECTORS = ("^-aqEH.-t@S}K{vb[*k^", "ab^-aqEH.-t@S}K{vb[*k^")
INFO = {"commitInfo": {"inCommitTimestamp": 50, "operation": "WRITE"}}


@pytest.fixture
def log(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path / "table")


async def written(log: LogFolder, scratch: Path, *, v2: bool, rows: int = 3, expire_before: int = 0) -> Made:
    """A checkpoint of the last version, written by us."""
    opened = log.open()
    listed = await LogReader(scratch / "cache").listing(opened)
    folder = scratch / "making"
    folder.mkdir(parents=True)
    told = await replay(opened, next(listed.segments()), folder, expire_before)
    made = make(told, listed.latest, folder, sidecar_rows=rows if v2 else None)
    if v2:
        await write_v2(opened.store, made, 99)
    else:
        await write_classic(opened.store, made)
    return made


async def known(log: LogFolder) -> list[Removal]:
    opened = log.open()
    listed = await LogReader(log.folder.parent / "known").listing(opened)
    return [each async for some in removals(opened, listed) for each in some]


def rows_of(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Everything that is known of the live files."""
    found = [
        {**row, "partition": batch.partitions[row["partition"]]}
        for batch in snapshot.batches()
        for row in batch.rows.to_pylist()
    ]
    return sorted(found, key=lambda row: row["path"])


def without_commits(log: LogFolder) -> None:
    for path in log.log.glob("????????????????????.json"):
        path.unlink()


@pytest.mark.parametrize("v2", [True, False])
async def test_all_of_a_version_comes_back_from_its_checkpoint(log, tmp_path, v2):
    wide = metadata(partitions=["kind"], delta__logRetentionDuration="interval 3 days")
    odd = {"stats": '{"numRecords":3,"minValues":{"name":"\\u2028"}}', "tags": {"a": None, "b": "c"}}
    rows = {"baseRowId": 7, "defaultRowCommitVersion": 1, "clusteringProvider": "liquid"}
    log.commit(0, INFO, protocol(["deletionVectors", "v2Checkpoint"], ["domainMetadata"]), wide)
    log.commit(1, add("kind=a%2520b/x.parquet", 10, {"kind": "a%20b"}, **odd, **rows))
    log.commit(2, add("kind=%3A/y.parquet", 20, {"kind": None}, **vector(VECTORS[0])))
    log.commit(3, {"txn": {"appId": "app", "version": 4, "lastUpdated": 9}}, remove("kind=%3A/y.parquet"))
    log.commit(4, {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}})
    log.commit(5, {"domainMetadata": {"domain": "e", "configuration": "1", "removed": False}})
    log.commit(6, {"domainMetadata": {"domain": "e", "configuration": "1", "removed": True}})
    before = await LogReader(tmp_path / "one").snapshot(log.open())
    made = await written(log, tmp_path / "scratch", v2=v2)
    assert (made.files, made.bytes, made.vectors, made.tombstones) == (2, 30, 1, 1)
    without_commits(log)
    after = await LogReader(tmp_path / "two").snapshot(log.open())
    assert after.base_version == 6
    assert rows_of(after) == rows_of(before)
    for name in ("protocol", "metadata", "domains", "transactions"):
        assert getattr(after, name) == getattr(before, name)
    assert after.domains == {"d": "{}"}
    # Removed was the file without a vector, which is another one than that which is there.
    assert await known(log) == [Removal("kind=:/y.parquet", 7)]
    assert await pointed_at(log.open().store) == 6


@pytest.mark.parametrize("kind", KINDS)
async def test_a_checkpoint_of_a_checkpoint(log, tmp_path, kind):
    old = [add(f"old-{number}.parquet", number) for number in range(9)]
    gone = [remove("before.parquet"), remove("again.parquet")]
    log.checkpoint(3, [PROTOCOL, METADATA, *old, *gone], kind)
    log.commit(
        4, remove("old-1.parquet"), add("old-2.parquet", 2, **vector(VECTORS[0])), remove("old-2.parquet")
    )
    log.commit(5, add("again.parquet", 100), remove("old-3.parquet"), add("old-3.parquet", 33))
    made = await written(log, tmp_path / "scratch", v2=True)
    without_commits(log)
    after = await LogReader(tmp_path / "two").snapshot(log.open())
    expected: dict[tuple[str, str | None], int] = {
        (f"old-{number}.parquet", None): number for number in range(9) if number not in (1, 2)
    }
    expected |= {("old-2.parquet", VECTORS[0]): 2, ("again.parquet", None): 100, ("old-3.parquet", None): 33}
    assert files_of(after) == expected
    assert made.tombstones == 3
    assert {each.path for each in await known(log)} == {"before.parquet", "old-1.parquet", "old-2.parquet"}


async def test_a_checkpoint_whose_statistics_are_columns(log, tmp_path):
    import pyarrow as pa

    path = log.checkpoint(2, [PROTOCOL, METADATA, add("a.parquet"), add("b.parquet")])[0]
    table = pq.read_table(path)
    added = table.column("add").combine_chunks()
    parsed = pa.array([None if not row else {"numRecords": 5} for row in added.is_valid().to_pylist()])
    fields = {field.name: added.field(field.name) for field in added.type if field.name != "stats"}
    fields["stats_parsed"] = parsed
    made = pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=added.is_null())
    pq.write_table(table.set_column(table.schema.get_field_index("add"), "add", made), path)
    log.commit(3, add("c.parquet", stats='{"numRecords":1}'))
    await written(log, tmp_path / "scratch", v2=True)
    [sidecar] = (log.log / "_sidecars").iterdir()
    stats = {row["add"]["path"]: row["add"]["stats"] for row in pq.read_table(sidecar).to_pylist()}
    wanted = {"a.parquet": '{"numRecords":5}', "b.parquet": '{"numRecords":5}'}
    assert stats == {**wanted, "c.parquet": '{"numRecords":1}'}


@pytest.mark.parametrize("expire_before", [0, 7, 8])
async def test_tombstones_stay_until_they_expire(log, tmp_path, expire_before):
    log.checkpoint(3, [PROTOCOL, METADATA, add("a.parquet"), remove("old.parquet")])
    log.commit(4, remove("a.parquet"))
    made = await written(log, tmp_path / "scratch", v2=True, expire_before=expire_before)
    assert made.tombstones == (0 if expire_before == 8 else 2)
    assert made.files == 0
    assert files_of(await LogReader(tmp_path / "two").snapshot(log.open())) == {}


async def test_paths_stay_as_the_log_spells_them(log, tmp_path):
    """Readers that compare them without decoding must find a file again that a later commit removes."""
    paths = ["p=a%20b/x.parquet", "p=%3a/x.parquet", "p=c:d/x.parquet", "s3://other/x%2Fy.parquet"]
    log.commit(0, PROTOCOL, METADATA, *(add(path) for path in paths))
    await written(log, tmp_path / "scratch", v2=True, rows=100)
    [sidecar] = (log.log / "_sidecars").iterdir()
    assert [row["add"]["path"] for row in pq.read_table(sidecar).to_pylist()] == paths


async def test_nothing_but_sidecars_is_there_before_the_checkpoint(log, tmp_path, monkeypatch):
    """Wherever it is stopped, readers see the old log or the new checkpoint."""
    log.commit(0, PROTOCOL, METADATA, add("a.parquet"), add("b.parquet"))
    store = log.open().store
    put: Any = type(store).put_if_absent
    puts: list[str] = []

    async def stopping(self: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        puts.append(path)
        if len(puts) > stop:
            raise KeyboardInterrupt
        return await put(self, path, *args, **kwargs)

    monkeypatch.setattr(type(store), "put_if_absent", stopping)
    for stop in range(2):
        puts.clear()
        with pytest.raises(KeyboardInterrupt):
            await written(log, tmp_path / f"scratch{stop}", v2=True)
        assert len(list(log.log.glob("*.checkpoint.*"))) == 0
        assert files_of(await LogReader(tmp_path / f"read{stop}").snapshot(log.open()))
    stop = 99
    await written(log, tmp_path / "scratch", v2=True)
    assert (await LogReader(tmp_path / "last").snapshot(log.open())).base_version == 0


async def test_a_newer_checkpoint_stays_the_one_that_readers_are_told_of(log, tmp_path):
    (log.log / "_last_checkpoint").write_text('{"version": 9, "size": 1}')
    log.commit(0, PROTOCOL, METADATA)
    await written(log, tmp_path / "scratch", v2=True)
    assert await pointed_at(log.open().store) == 9
    (log.log / "_last_checkpoint").write_text("{")
    assert await pointed_at(log.open().store) == -1


async def test_a_log_without_metadata_gets_no_checkpoint(log, tmp_path):
    log.commit(0, PROTOCOL, add("a.parquet"))
    with pytest.raises(Broken, match="no metadata"):
        await written(log, tmp_path / "scratch", v2=True)
    assert not list(log.log.glob("*.checkpoint.*"))


# --- removals ---


async def test_what_commits_and_checkpoints_say_was_removed(log):
    log.checkpoint(2, [PROTOCOL, METADATA, add("a.parquet"), remove("old.parquet", size=3)])
    log.commit(3, INFO, remove("p=a%20b/x.parquet", size=5, **vector(VECTORS[1])))
    log.commit(
        4, remove("late.parquet"), {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 2}}, at=9
    )
    found = await known(log)
    file = f"ab/deletion_vector_{'d2c639aa-8816-431a-aaf6-d3fe2512ff61'}.bin"
    assert found == [
        Removal("old.parquet", 7, None, 3),
        Removal("p=a b/x.parquet", 50, 3, 5, file),
        Removal("late.parquet", 9, 4),
        Removal("_change_data/c", 9, 4, 2, change_data=True),
    ]


async def test_a_checkpoint_tells_only_what_no_commit_tells(log):
    log.commit(0, PROTOCOL, METADATA, add("a.parquet"))
    log.commit(1, remove("a.parquet"), at=9)
    log.checkpoint(1, [PROTOCOL, METADATA, remove("a.parquet")])
    assert await known(log) == [Removal("a.parquet", 9, 1)]
    (log.log / f"{0:020d}.json").unlink()
    assert await known(log) == [Removal("a.parquet", 7), Removal("a.parquet", 9, 1)]


async def test_a_large_commit_is_read_from_disk(log, monkeypatch):
    monkeypatch.setattr("inver.formats.delta_log.removals.LARGE", 10)
    monkeypatch.setattr("inver.formats.delta_log.source._WINDOW_BYTES", 10)
    log.commit(0, PROTOCOL, METADATA)
    log.commit(1, *(remove(f"{number}.parquet") for number in range(20_001)), at=9)
    assert len({each.path for each in await known(log)}) == 20_001


async def test_a_damaged_line_is_found(log):
    log.commit(0, PROTOCOL, METADATA)
    (log.log / f"{1:020d}.json").write_text('{"remove":{"path":')
    with pytest.raises(Invalid, match="line 1 of"):
        await known(log)


# --- compactions ---


def lines(*actions: Any) -> bytes:
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


def test_a_compaction_has_the_last_word_on_everything():
    unknown = {"add": {**add("new.parquet")["add"], "aFieldOfTomorrow": 1}}
    one = lines(INFO, PROTOCOL, add("a.parquet"), add("b.parquet"), {"txn": {"appId": "x", "version": 1}})
    two = lines(
        METADATA, remove("a.parquet"), {"txn": {"appId": "x", "version": 2}}, {"cdc": add("c")["add"]}
    )
    gone = {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}}
    three = lines(remove("b.parquet"), add("b.parquet", 5), unknown, gone)
    data = compacted([("one", one), ("two", two), ("three", three)])
    found = [json.loads(line) for line in data.splitlines()]
    wanted = [add("b.parquet", 5), unknown, gone, METADATA, remove("a.parquet"), PROTOCOL]
    assert [each for each in found if "txn" not in each] == wanted
    assert [each for each in found if "txn" in each] == [{"txn": {"appId": "x", "version": 2}}]


@pytest.mark.parametrize("seed", range(12))
async def test_checkpoints_and_compactions_of_random_histories(log, tmp_path, seed):
    """Read from any of them, every version is what the plainest replay of the commits says."""
    random = Random(seed)
    model = Model()
    commits: list[list[Any]] = [[PROTOCOL, METADATA]]
    for _ in range(random.randrange(1, 24)):
        actions: list[Any] = []
        for _ in range(random.randrange(5)):
            path = f"p={random.choice(['a%20b', 'c'])}/{random.randrange(6)}.parquet"
            more = random.choice([{}, vector(VECTORS[0]), vector(VECTORS[1])])
            chosen = (
                add(path, random.randrange(100), **more) if random.random() < 0.6 else remove(path, **more)
            )
            kind = next(iter(chosen))
            if not any(kind in each and each[kind]["path"] == path for each in actions):
                actions.append(chosen)
        commits.append(actions)
    start = random.randrange(len(commits))
    for version, actions in enumerate(commits):
        log.commit(version, *actions)
        model.apply(actions)
        if version == start:
            log.checkpoint(version, model.actions, random.choice(KINDS))
    for version in range(start + 1):
        if random.random() < 0.5:
            (log.log / f"{version:020d}.json").unlink(missing_ok=True)
    expected = files_of(await LogReader(tmp_path / "plain").snapshot(log.open()))
    assert expected == model.sizes
    if start + 2 < len(commits) - 1:
        paths = [log.log / f"{at:020d}.json" for at in range(start + 1, len(commits) - 1)]
        data = compacted([(path.name, path.read_bytes()) for path in paths])
        (log.log / f"{start + 1:020d}.{len(commits) - 2:020d}.compacted.json").write_bytes(data)
        segment = next((await LogReader(tmp_path / "x").listing(log.open())).segments())
        assert len(segment.files) == 2
        assert files_of(await LogReader(tmp_path / "compacted").snapshot(log.open())) == expected
    await written(log, tmp_path / "scratch", v2=random.random() < 0.7, rows=random.randrange(1, 9))
    without_commits(log)
    assert files_of(await LogReader(tmp_path / "read").snapshot(log.open())) == expected
