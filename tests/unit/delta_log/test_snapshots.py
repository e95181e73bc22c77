"""Versions of tables, read from logs of every shape."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from inver.domain.sharing import ResponseFormat
from inver.errors import Invalid, NotFound, Unavailable, Unsupported
from inver.formats.delta_log.reader import LogReader
from inver.formats.delta_log.threads import pulled
from inver.formats.sharing_lines import FileLines
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

VECTOR = "^-aqEH.-t@S}K{vb[*k^"


@pytest.fixture
def log(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path / "table")


@pytest.fixture
def reader(tmp_path: Path) -> LogReader:
    return LogReader(tmp_path / "cache")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_checkpoint_and_what_came_after_it(log, reader, kind):
    old = [add(f"old-{number}.parquet", 10 + number, stats='{"numRecords":3}') for number in range(7)]
    head = [PROTOCOL, METADATA, {"txn": {"appId": "app", "version": 4}}]
    head.append({"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}})
    log.checkpoint(9, [*head, *old, remove("gone.parquet")], kind)
    log.commit(10, remove("old-2.parquet"), add("new.parquet", 77))
    snapshot = await reader.snapshot(log.open())
    expected = {(f"old-{number}.parquet", None): 10 + number for number in range(7) if number != 2}
    assert files_of(snapshot) == {**expected, ("new.parquet", None): 77}
    assert (snapshot.version, snapshot.base_version) == (10, 9)
    assert snapshot.transactions["app"].version == 4
    assert snapshot.domains == {"d": "{}"}
    assert snapshot.metadata.format.provider == "parquet"


@pytest.mark.parametrize("text", ["", "{", '{"version": 900, "size": 1}', "\x00\xff"])
async def test_a_broken_last_checkpoint_does_not_matter(log, reader, text):
    (log.log / "_last_checkpoint").write_text(text)
    log.commit(0, PROTOCOL, METADATA, add("a.parquet"))
    assert files_of(await reader.snapshot(log.open())) == {("a.parquet", None): 100}


async def test_an_unreadable_checkpoint_gives_way_to_an_older_one(log, reader):
    log.checkpoint(1, [PROTOCOL, METADATA, add("a.parquet")])
    log.commit(2, add("b.parquet"))
    (log.log / f"{2:020d}.checkpoint.parquet").write_bytes(b"PAR1 no, it is not PAR1")
    snapshot = await reader.snapshot(log.open())
    assert (snapshot.base_version, len(files_of(snapshot))) == (1, 2)
    assert await reader.snapshot(log.open()) is snapshot
    listed = await reader.listing(log.open())
    assert (await reader.head(log.open(), listed, 2)).metadata == snapshot.metadata
    log.commit(3, add("c.parquet"))
    log.checkpoint(3, [PROTOCOL, METADATA, *(add(f"{name}.parquet") for name in "abc")])
    (log.log / f"{1:020d}.checkpoint.parquet").unlink()
    assert (await reader.snapshot(log.open())).base_version == 3


async def test_without_another_way_an_unreadable_checkpoint_is_refused(log, reader):
    (log.log / f"{2:020d}.checkpoint.parquet").write_bytes(b"nothing")
    for _ in range(2):
        with pytest.raises(Invalid, match=r"0002.checkpoint.parquet is no readable Parquet file"):
            await reader.snapshot(log.open())
        with pytest.raises(Invalid, match=r"0002.checkpoint.parquet is no readable Parquet file"):
            await reader.head(log.open(), await reader.listing(log.open()), 2)


@pytest.mark.parametrize(("head", "missing"), [([METADATA], "protocol"), ([PROTOCOL], "metadata")])
async def test_a_checkpoint_without_its_head_gives_way_to_the_commits(log, reader, head, missing):
    log.commit(0, PROTOCOL, METADATA, add("a"))
    log.checkpoint(0, [*head, add("a")])
    assert (await reader.snapshot(log.open())).base_version == -1
    (log.log / f"{0:020d}.json").unlink()
    with pytest.raises(Invalid, match=f"has no {missing}"):
        await reader.snapshot(log.open("again"))


@pytest.mark.parametrize("seed", range(40))
async def test_a_checkpoint_with_other_bytes_is_refused_or_read(log, reader, seed):
    """Never an error that nobody expects, and never the end of the process."""
    files = [add(f"{n}%20.parquet", n, {"day": str(n % 3)}, stats="{}", **vector(VECTOR)) for n in range(50)]
    (path,) = log.checkpoint(2, [protocol(["deletionVectors"]), metadata(["day"]), *files])
    random, data = Random(seed), bytearray(path.read_bytes())
    for _ in range(random.choice([1, 2, 20])):
        data[random.randrange(len(data))] = random.randrange(256)
    path.write_bytes(data)
    with suppress(Invalid, Unsupported):
        lines = FileLines(ResponseFormat.DELTA, list)
        assert all(map(lines.snapshot, (await reader.snapshot(log.open())).batches()))


async def test_a_lost_sidecar_is_named(log, reader):
    log.checkpoint(2, [PROTOCOL, METADATA, add("a.parquet"), add("b.parquet")], "v2-json")
    shutil.rmtree(log.log / "_sidecars")
    with pytest.raises(Invalid, match="the checkpoint of version 2 has lost its sidecar"):
        await reader.snapshot(log.open())


async def test_paths_are_decoded_once(log, reader):
    log.checkpoint(
        0, [PROTOCOL, METADATA, add("p=a%20b/x%2525.parquet"), add("p=a%20b/y.parquet"), add("z.parquet")]
    )
    log.commit(1, remove("p%3Da b/y.parquet"), add("p=%E2%80%A8/w.parquet"))
    found = files_of(await reader.snapshot(log.open()))
    assert {path for path, _ in found} == {"p=a b/x%25.parquet", "p=\u2028/w.parquet", "z.parquet"}


async def test_a_path_that_is_not_encoded_text_is_refused(log, reader):
    log.commit(0, PROTOCOL, METADATA, add("%ff.parquet"))
    with pytest.raises(Invalid, match="not percent-encoded UTF-8"):
        await reader.snapshot(log.open())


@pytest.mark.parametrize("kind", KINDS)
async def test_a_deletion_vector_makes_another_file(log, reader, kind):
    head = [protocol(["deletionVectors"]), METADATA]
    log.checkpoint(0, [*head, add("a.parquet", **vector("one")), add("b.parquet")], kind)
    log.commit(1, remove("a.parquet", **vector("one")), add("a.parquet", **vector("two")))
    log.commit(2, remove("b.parquet", **vector("never")), add("b.parquet", 101))
    found = await reader.snapshot(log.open())
    assert files_of(found) == {("a.parquet", "two"): 100, ("b.parquet", None): 101}
    assert files_of(await reader.snapshot(log.open(), 0)) == {
        ("a.parquet", "one"): 100,
        ("b.parquet", None): 100,
    }


async def test_the_offset_belongs_to_a_vectors_identity(log, reader):
    log.checkpoint(0, [protocol(["deletionVectors"]), METADATA, add("a.parquet", **vector("one", offset=1))])
    log.commit(1, remove("a.parquet", **vector("one", offset=38)))
    assert len(files_of(await reader.snapshot(log.open()))) == 1
    log.commit(2, remove("a.parquet", **vector("one", offset=1)))
    assert len(files_of(await reader.snapshot(log.open()))) == 0


async def test_a_file_that_one_commit_removes_and_adds_stays(log, reader):
    log.commit(0, PROTOCOL, METADATA, add("a.parquet"))
    log.commit(1, add("a.parquet", 7), remove("a.parquet"))
    assert files_of(await reader.snapshot(log.open())) == {("a.parquet", None): 7}


@pytest.mark.parametrize(
    ("actions", "missing"), [([METADATA, add("a")], "protocol"), ([PROTOCOL, add("a")], "metadata")]
)
async def test_a_log_without_its_head_is_refused(log, reader, actions, missing):
    log.commit(0, *actions)
    with pytest.raises(Invalid, match=f"it has no {missing}"):
        await reader.snapshot(log.open())


async def test_what_readers_must_know_and_we_do_not(log, reader):
    log.commit(0, protocol(["deletionVectors", "timeTravelToMars"]), METADATA)
    with pytest.raises(Unsupported, match="not known here: timeTravelToMars"):
        await reader.snapshot(log.open())
    log.commit(1, {"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}})
    with pytest.raises(Unsupported, match="reader version 99"):
        await reader.snapshot(log.open())


async def test_unknown_actions_fields_and_writer_features_do_not_matter(log, reader):
    log.commit(
        0, protocol([], ["somethingNew"]), METADATA, {"newAction": {"x": 1}}, add("a", newField={"y": []})
    )
    assert files_of(await reader.snapshot(log.open())) == {("a", None): 100}


@pytest.mark.parametrize("line", ['{"add":{"path":"a"}}', '{"add":', "[1]", '{"add":{"path":1,"size":-1}}'])
async def test_a_line_that_is_no_action_is_named(log, reader, line):
    path = log.commit(0, PROTOCOL, METADATA)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(Invalid, match=r"line 3 of _delta_log/00000000000000000000.json has no Delta action"):
        await reader.snapshot(log.open())


async def test_no_log_at_all(tmp_path, reader):
    (tmp_path / "table").mkdir()
    folder = LogFolder(tmp_path / "other")
    with pytest.raises(NotFound, match="no Delta log"):
        await reader.snapshot(folder.open())


async def test_ratified_commits_are_read_before_they_are_published(log, reader):
    log.commit(0, PROTOCOL, METADATA, add("a.parquet"))
    one, two = log.stage(1, add("b.parquet")), log.stage(2, remove("a.parquet"))
    log.stage(2, add("lost-the-race.parquet"))
    snapshot = await reader.snapshot(log.open("t", 2, one, two))
    assert files_of(snapshot) == {("b.parquet", None): 100}
    log.commit(1, add("b.parquet"))
    assert await reader.snapshot(log.open("t", 2, two)) is snapshot
    # Published under its name, but of a version that the catalog does not know.
    log.commit(3, add("rogue.parquet"))
    assert files_of(
        await reader.snapshot(log.open("t", 2, two), listed=await reader.listing(log.open("t", 2, two)))
    )
    assert (await reader.snapshot(log.open("t", 2, two))).version == 2


async def test_a_staged_commit_that_is_cleaned_away_is_read_where_it_was_published(log, reader):
    log.commit(0, PROTOCOL, METADATA, add("a.parquet"))
    staged = log.stage(1, add("b.parquet"))
    opened = log.open("t", 1, staged)
    listed = await reader.listing(opened)
    staged.rename(log.log / f"{1:020d}.json")
    assert len(files_of(await reader.snapshot(opened, listed=listed))) == 2


@pytest.mark.parametrize("name", [f"{3:020d}.json", f"{2:020d}.checkpoint.parquet"])
async def test_what_is_cleaned_away_while_it_is_read_may_be_asked_for_again(log, reader, name):
    log.checkpoint(2, [PROTOCOL, METADATA, add("a.parquet")])
    log.commit(3, add("b.parquet"))
    listed = await reader.listing(log.open())
    (log.log / name).unlink()
    with pytest.raises(Unavailable, match="was removed while the table's log was read"):
        await reader.snapshot(log.open(), listed=listed)


async def test_many_who_ask_at_once_read_it_once(log, reader, tmp_path):
    log.checkpoint(2, [PROTOCOL, METADATA, add("a.parquet")])
    log.commit(3, add("b.parquet"))
    found = await asyncio.gather(*(reader.snapshot(log.open()) for _ in range(20)))
    assert all(each is found[0] for each in found)
    assert len(list((tmp_path / "cache").iterdir())) == 1


async def test_files_come_one_batch_at_a_time(log, reader):
    log.checkpoint(2, [PROTOCOL, METADATA, *(add(f"{number}.parquet") for number in range(20_000))])
    snapshot = await reader.snapshot(log.open())
    batches = [batch async for batch in pulled(snapshot.batches())]
    assert sum(map(len, batches)) == 20_000
    assert max(map(len, batches)) == 8192
    assert [batch.first for batch in batches] == [sum(map(len, batches[:at])) for at in range(len(batches))]
    rest = [batch async for batch in pulled(snapshot.batches(skip=10_000))]
    assert (rest[0].first, sum(map(len, rest))) == (10_000, 10_000)


@pytest.mark.parametrize("page", [1, 3, 7, 100])
async def test_pages_of_chosen_files(log, reader, page):
    files = [add(f"{n}", n, {"day": str(n % 4), "kind": "1"}, stats=str(n % 3)) for n in range(60)]
    log.checkpoint(0, [PROTOCOL, metadata(["day", "kind"]), *files[:50]])
    log.commit(1, remove("9"), *files[50:])
    snapshot = await reader.snapshot(log.open())
    found: list[int] = []
    skip: int | None = 0
    while skip is not None:
        left, start, skip = page, skip, None
        for batch in snapshot.batches(lambda v: v["day"] != "2", lambda _, stats: stats != "0", skip=start):
            some = batch.head(left)
            found += some.rows.column("size").to_pylist()
            left -= len(some)
            if left == 0:
                skip = some.place(len(some) - 1) + 1
                break
    assert found == [n for n in range(60) if n % 4 != 2 and n % 3 != 0 and n != 9]


async def test_a_new_commit_needs_only_itself(log, reader):
    log.checkpoint(0, [PROTOCOL, METADATA, add("a.parquet")])
    first = await reader.snapshot(log.open())
    log.commit(1, add("b.parquet"), remove("a.parquet"))
    second = await reader.snapshot(log.open())
    assert files_of(second) == {("b.parquet", None): 100}
    assert files_of(first) == {("a.parquet", None): 100}


async def test_the_same_version_is_kept(log, reader):
    log.commit(0, PROTOCOL, METADATA, add("a.parquet"))
    assert await reader.snapshot(log.open()) is await reader.snapshot(log.open())


async def test_a_table_that_was_made_anew_in_its_place_is_read_anew(log, reader):
    log.checkpoint(0, [PROTOCOL, METADATA, add("a.parquet")])
    await reader.snapshot(log.open())
    shutil.rmtree(log.log)
    log.log.mkdir()
    log.checkpoint(0, [PROTOCOL, METADATA, add("b.parquet")])
    assert files_of(await reader.snapshot(log.open())) == {("b.parquet", None): 100}


async def test_what_another_process_made_is_used(log, reader, tmp_path):
    log.checkpoint(3, [PROTOCOL, METADATA, add("a.parquet")])
    await reader.snapshot(log.open())
    made = list((tmp_path / "cache").glob("*/files.arrow"))
    other = await LogReader(tmp_path / "cache").snapshot(log.open())
    assert files_of(other) == {("a.parquet", None): 100}
    assert list((tmp_path / "cache").glob("*/files.arrow")) == made


async def test_the_cache_keeps_its_bound(tmp_path):
    reader = LogReader(tmp_path / "cache", max_bytes=1, max_snapshots=1)
    for name in ("a", "b", "c"):
        log = LogFolder(tmp_path / name)
        log.checkpoint(0, [PROTOCOL, METADATA, add(f"{name}.parquet")])
        assert files_of(await reader.snapshot(log.open(name))) == {(f"{name}.parquet", None): 100}
    assert len(list((tmp_path / "cache").iterdir())) == 1


async def test_many_changes_become_a_new_base_and_keep_their_order(log, tmp_path):
    small, large = LogReader(tmp_path / "small", max_overlay=5), LogReader(tmp_path / "large")
    log.checkpoint(0, [PROTOCOL, METADATA, *(add(f"a{n}.parquet", n) for n in range(6))])
    for version in range(1, 30):
        log.commit(
            version, add(f"b{version}.parquet", version), remove(f"a{version}.parquet"), add("again.parquet")
        )
    one, two = await small.snapshot(log.open()), await large.snapshot(log.open())
    assert len(list((tmp_path / "small").glob("*/files.arrow"))) > 1
    assert list(files_of(one)) == list(files_of(two))
    assert one.base_version == two.base_version == 0
    log.commit(30, add("last.parquet"))
    assert list(files_of(await small.snapshot(log.open()))) == [*files_of(two), ("last.parquet", None)]


async def test_a_large_first_commit_is_read_like_any_other(log, reader, tmp_path):
    log.commit(
        0, PROTOCOL, metadata(["day"]), *(add(f"{n}%20", n, {"day": str(n % 3)}) for n in range(40_000))
    )
    log.commit(1, remove("7%20"), add("8%20", 1, {"day": "2"}), {"txn": {"appId": "x", "version": 1}})
    large = await LogReader(tmp_path / "large", large_commit=100).snapshot(log.open())
    plain = await reader.snapshot(log.open())
    assert list(files_of(large).items()) == list(files_of(plain).items())
    assert (large.base_version, large.metadata, large.protocol) == (-1, plain.metadata, plain.protocol)
    assert large.transactions == plain.transactions
    assert list((tmp_path / "large").glob("*/files.arrow"))
    zero = await LogReader(tmp_path / "large", large_commit=100).snapshot(log.open(), 0)
    assert zero.files == 40_000


async def test_a_damaged_line_of_a_large_commit_is_named(log, tmp_path):
    log.commit(0, PROTOCOL, METADATA, add("a"), {"add": {"path": "b"}})
    with pytest.raises(Invalid, match=r"line 4 of _delta_log/00000000000000000000.json"):
        await LogReader(tmp_path / "large", large_commit=100).snapshot(log.open())


async def test_pages_stay_what_they_were_when_a_checkpoint_appears(log, reader, tmp_path):
    for version in range(6):
        log.commit(version, *([PROTOCOL, METADATA] if version == 0 else []), add(f"{version}.parquet"))
    before = await reader.snapshot(log.open())
    log.checkpoint(5, [PROTOCOL, METADATA, *(add(f"{n}.parquet") for n in reversed(range(6)))])
    after = await LogReader(tmp_path / "new").snapshot(log.open(), 5, base=before.base_version)
    assert list(files_of(after)) == list(files_of(before))
    rest = [row["path"] for batch in after.batches(skip=4) for row in batch.rows.to_pylist()]
    assert rest == ["4.parquet", "5.parquet"]


PARTITIONS: list[dict[str, str | None]] = [
    {"day": "2024-01-01", "kind": "1"},
    {"day": "2024-01-01", "kind": None},
    {"day": None, "kind": "1"},
    {"day": "2024-01-02", "kind": "1"},
]


@pytest.mark.parametrize("kind", KINDS)
async def test_partition_values(log, reader, kind):
    files = [add(f"{n}.parquet", n, PARTITIONS[n % 4]) for n in range(12)]
    log.checkpoint(0, [PROTOCOL, metadata(["day", "kind"]), *files], kind)
    log.commit(1, add("new.parquet", 50, PARTITIONS[1]), add("other.parquet", 51, {"day": "x", "kind": "9"}))
    snapshot = await reader.snapshot(log.open())
    for batch in snapshot.batches():
        for row in batch.rows.to_pylist():
            expected = {50: PARTITIONS[1], 51: {"day": "x", "kind": "9"}}.get(
                row["size"], PARTITIONS[row["size"] % 4]
            )
            assert batch.partitions[row["partition"]] == expected
    asked = []

    def keep(values: Any) -> bool:
        asked.append(values)
        return bool(values["kind"] is None)

    chosen = [row["size"] for batch in snapshot.batches(keep) for row in batch.rows.to_pylist()]
    assert sorted(chosen) == [1, 5, 9, 50]
    assert len(asked) == 5


async def test_files_are_chosen_by_their_statistics(log, reader):
    log.checkpoint(0, [PROTOCOL, METADATA, add("a", stats="A"), add("b"), add("c", stats="C")])
    snapshot = await reader.snapshot(log.open())
    chosen = [
        row["path"]
        for batch in snapshot.batches(None, lambda values, stats: stats != "A")
        for row in batch.rows.to_pylist()
    ]
    assert sorted(chosen) == ["b", "c"]


@pytest.mark.parametrize("told", [{}, {"stats": pa.string()}], ids=["left out", "empty"])
async def test_statistics_that_are_only_there_as_columns(log, reader, told):
    """As a writer leaves them when its table says `delta.checkpoint.writeStatsAsJson = false`."""
    import pyarrow.parquet as pq

    log.checkpoint(0, [PROTOCOL, METADATA])
    stats = pa.struct(
        {
            "numRecords": pa.int64(),
            "minValues": pa.struct({"at": pa.timestamp("us", "UTC"), "amount": pa.decimal128(20, 2)}),
        }
    )
    words = pa.map_(pa.string(), pa.string())
    file = pa.struct(
        {"path": pa.string(), "partitionValues": words, "size": pa.int64(), "stats_parsed": stats, **told}
    )
    row = {"path": "a", "partitionValues": [], "size": 1}
    row["stats_parsed"] = {
        "numRecords": 2,
        "minValues": {"at": 1_700_000_000_123_000, "amount": "12345678901234567.89"},
    }
    values = pa.array([row["stats_parsed"]["minValues"]["amount"]]).cast(pa.decimal128(20, 2))  # type: ignore[index]
    row["stats_parsed"]["minValues"]["amount"] = values[0].as_py()  # type: ignore[index]
    table = pa.table({"add": pa.array([row], file)})
    parts = [log.log / f"{1:020d}.checkpoint.{n:010d}.{2:010d}.parquet" for n in (1, 2)]
    shutil.copy(log.log / f"{0:020d}.checkpoint.parquet", parts[0])
    pq.write_table(table, parts[1])
    (batch,) = (await reader.snapshot(log.open())).batches()
    found = batch.rows.column("stats")[0].as_py()
    assert (
        found
        == '{"numRecords":2,"minValues":{"at":"2023-11-14T22:13:20.123Z","amount":12345678901234567.89}}'
    )


async def test_every_field_of_a_file_survives(log, reader):
    more: dict[str, Any] = {"stats": '{"numRecords":9}', "tags": {"k": "v"}, "baseRowId": 40}
    files = [add("a", **more, **vector(VECTOR, 3, 4))]
    log.checkpoint(0, [protocol(["deletionVectors"]), METADATA, *files])
    log.commit(
        1, add("b", **more, **vector("i", 2, None), defaultRowCommitVersion=8, clusteringProvider="liquid")
    )
    a, b = [row for batch in (await reader.snapshot(log.open())).batches() for row in batch.rows.to_pylist()]
    assert (a["stats"], a["tags"], a["baseRowId"]) == (more["stats"], [("k", "v")], 40)
    assert a["deletionVector"] == {
        "storageType": "u",
        "pathOrInlineDv": VECTOR,
        "offset": 4,
        "sizeInBytes": 36,
        "cardinality": 3,
    }
    assert (b["defaultRowCommitVersion"], b["clusteringProvider"], b["deletionVector"]["offset"]) == (
        8,
        "liquid",
        None,
    )


async def test_compactions_mean_what_their_commits_mean(log, reader):
    log.commit(0, PROTOCOL, METADATA, add("a"), add("b"))
    log.commit(1, remove("a"), add("c"))
    log.commit(2, remove("c"), add("d"))
    log.compact(1, 2, remove("a"), remove("c"), add("d"))
    plain = files_of(await reader.snapshot(log.open()))
    assert plain == {("b", None): 100, ("d", None): 100}
    (log.log / f"{1:020d}.json").write_text("not read")
    assert files_of(await reader.snapshot(log.open("other"))) == plain


async def test_column_mapping_names_partitions_by_their_physical_names(log, reader):
    mapped = metadata(["day"], delta__columnMapping__mode="name")
    schema = json.loads(mapped["metaData"]["schemaString"])
    for field in schema["fields"]:
        field["metadata"] = {"delta.columnMapping.physicalName": f"col-{field['name']}"}
    mapped["metaData"]["schemaString"] = json.dumps(schema)
    log.checkpoint(0, [protocol(["columnMapping"]), mapped, add("a", 1, {"col-day": "2024-01-01"})])
    (batch,) = (await reader.snapshot(log.open())).batches()
    assert list(batch.partitions) == [{"col-day": "2024-01-01"}]


async def test_random_histories_mean_what_they_mean(tmp_path):
    """Every version, with checkpoints of every kind in between, read forwards and backwards."""
    for seed in range(12):
        random = Random(seed)
        log = LogFolder(tmp_path / f"table-{seed}")
        model, expected = Model(), []
        for version in range(25):
            actions = [protocol(["deletionVectors"]), METADATA] if version == 0 else []
            live = list(model.files.items())
            for (path, _), action in random.sample(live, min(len(live), random.randrange(3))):
                gone = action["add"]
                told = {"deletionVector": gone["deletionVector"]} if "deletionVector" in gone else {}
                actions.append(remove(gone["path"], **told))
                if random.random() < 0.5:
                    actions.append(add(path.replace(" ", "%20"), version, **vector(f"dv-{version}")))
            actions += [add(f"f%20{version}-{n}", version) for n in range(random.randrange(4))]
            log.commit(version, *actions)
            model.apply(actions)
            expected.append(model.sizes)
            if random.random() < 0.25:
                log.checkpoint(version, model.actions, random.choice(KINDS))
        reader = LogReader(tmp_path / f"cache-{seed}", max_overlay=random.choice([3, 50_000]))
        order = [*range(25), *reversed(range(25))]
        for version in order if seed % 2 else reversed(order):
            assert files_of(await reader.snapshot(log.open(), version)) == expected[version], (seed, version)
