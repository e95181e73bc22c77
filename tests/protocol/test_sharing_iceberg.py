"""Iceberg tables on the endpoints of Delta Sharing: versions, files, row deletes, and what is refused."""

from __future__ import annotations

import struct
import uuid
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inver.domain.delta_actions import DeletionVector
from inver.formats.deletion_vectors import file_of, parse_inline
from inver.formats.roaring import RowSet
from tests.fixtures.iceberg_sharing import FIELDS, Ice, IcedTable, ice, names
from tests.fixtures.server import InverServer
from tests.fixtures.sharing import DELTA, Guest, Provider, provider

__all__ = ["ice", "provider"]


def moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")


def version_of(answer: Any) -> int:
    return int(answer.headers["delta-table-version"])


def queried(guest: Guest, table: IcedTable, body: Any = None, headers: Any = None) -> list[Any]:
    return guest.lines("POST", f"{table.name}/query", json=body or {}, headers=headers or {})


def refused(guest: Guest, table: IcedTable, body: Any = None, headers: Any = None) -> str:
    answer = guest.refused(400, "POST", f"{table.name}/query", json=body or {}, headers=headers or {})
    return answer["message"]


# --- versions ---


def test_versions_are_those_of_the_ledger(ice: Ice):
    table = ice.iced()
    table.append("a")
    table.touch()
    table.append("b")
    guest = table.shared()
    assert version_of(guest.good("GET", f"{table.name}/version")) == 3
    for version, files in enumerate([[], ["a"], ["a"], ["a", "b"]]):
        answer = guest.good("POST", f"{table.name}/query", json={"version": version})
        assert version_of(answer) == version
        assert sorted(names(queried(guest, table, {"version": version}))) == files
        told = guest.lines("GET", f"{table.name}/metadata", params={"version": version})
        assert len(told) == 2
        assert (
            told[1]["metaData"] | {"version": version, "numFiles": len(files), "size": 1000 * len(files)}
            == (told[1]["metaData"])
        )
    assert refused(guest, table, {"version": 4}) == (
        "Provided version(4) is invalid. The latest version of the table is 3."
    )


def test_a_folder_that_was_chosen_below_the_root_of_the_catalog(shared_inver: InverServer):
    """No root for external tables is above it."""
    root = (Path(shared_inver.home) / "warehouse" / f"own{uuid.uuid4().hex}").as_uri()
    ice = Ice(Provider(shared_inver, storage_root=root))
    table = ice.iced(location=f"{root}/mine")
    table.append("a")
    guest = table.shared()
    assert names(queried(guest, table)) == ["a"]
    assert table.location == f"{root}/mine"
    ice.close()


def test_moments_are_those_of_the_ledger(ice: Ice):
    table = ice.iced()
    table.append("a")
    table.touch()
    table.append("b")
    guest = table.shared()
    for version, at in enumerate(table.times):
        answer = guest.good("POST", f"{table.name}/query", json={"timestamp": moment(at)})
        assert version_of(answer) == version
        if version < 3:
            params = {"startingTimestamp": moment(at)}
            assert version_of(guest.good("GET", f"{table.name}/version", params=params)) == version + 1
    early = moment(table.times[0] - 3_600_000)
    assert "is before the earliest version" in refused(guest, table, {"timestamp": early})
    params = {"startingTimestamp": moment(table.times[-1])}
    late = guest.refused(400, "GET", f"{table.name}/version", params=params)["message"]
    assert "is after the latest version" in late


def test_a_share_begins_with_a_version(ice: Ice):
    table = ice.iced()
    table.append("a")
    table.append("b")
    guest = table.shared(start_version=2)
    assert sorted(names(queried(guest, table))) == ["a", "b"]
    assert refused(guest, table, {"version": 1}) == "You can only query table data since version 2."
    early = guest.refused(400, "GET", f"{table.name}/changes", params={"startingVersion": 1})["message"]
    assert early == "You can only query table changes since version 2."
    assert names(guest.lines("GET", f"{table.name}/changes", params={"startingVersion": 2})) == ["b"]


def test_without_its_history_a_table_is_its_latest_version(ice: Ice):
    table = ice.iced()
    table.append("a")
    table.touch()
    guest = table.shared(history=False)
    lines = queried(guest, table)
    assert lines[1]["metaData"]["configuration"] == {}
    assert "without its history" in refused(guest, table, {"version": 1})
    changes = guest.refused(400, "GET", f"{table.name}/changes", params={"startingVersion": 0})
    assert changes["message"] == f"cdf is not enabled on table {table.name}"


def test_an_expired_snapshot_is_gone(ice: Ice):
    table = ice.iced()
    first = table.append("a")
    table.append("b")
    table.update({"action": "remove-snapshots", "snapshot-ids": [first]})
    guest = table.shared()
    assert "snapshot of version 1 has been expired" in refused(guest, table, {"version": 1})
    assert len(names(queried(guest, table, {"version": 2}))) == 2
    gone = guest.refused(400, "GET", f"{table.name}/changes", params={"startingVersion": 0})["message"]
    assert "snapshot of version 1 has been expired" in gone
    # What came after it is still known.
    assert names(guest.lines("GET", f"{table.name}/changes", params={"startingVersion": 2})) == ["b"]


def test_pages_and_refreshes_stay_at_their_version(ice: Ice):
    table = ice.iced()
    table.append("a", "b", "c")
    guest = table.shared()
    first = queried(guest, table, {"maxFiles": 2, "includeRefreshToken": True})
    end = first[-1]["endStreamAction"]
    table.append("d")
    second = queried(guest, table, {"maxFiles": 2, "pageToken": end["nextPageToken"]})
    assert first[:2] == second[:2]
    assert sorted(names(first) + names(second)) == ["a", "b", "c"]
    assert "nextPageToken" not in second[-1]["endStreamAction"]
    again = queried(guest, table, {"refreshToken": end["refreshToken"], "maxFiles": 9})
    assert sorted(names(again)) == ["a", "b", "c"]
    assert sorted(names(queried(guest, table))) == ["a", "b", "c", "d"]


# --- partitions and statistics ---


def test_partitions_and_who_may_see_them(ice: Ice, provider: Provider):
    table = ice.by_region()
    table.in_regions("EU", "US", None)
    table.in_regions("APAC")
    guest = table.shared()
    lines = queried(guest, table)
    assert lines[1]["metaData"]["partitionColumns"] == ["region"]
    assert sorted(line["file"]["partitionValues"]["region"] or "" for line in lines[2:]) == [
        "",
        "APAC",
        "EU",
        "US",
    ]
    assert names(queried(guest, table, {"predicateHints": ["region IS NULL"]})) == ["None"]
    share, _, _ = table.name.split(".")
    limited = provider.recipient(name=f"only{table.short}")
    path = f"/shares/{share}/recipients/{limited.name}"
    where = {"schema": "sales", "table": table.short, "where": "region IN ('EU', 'APAC')"}
    wrong = provider.server.call("PUT", path, json={"filters": [{**where, "where": "id = 1"}]})
    assert wrong.status_code == 400
    provider.ok("PUT", path, json={"filters": [where]})
    lines = queried(limited, table)
    assert sorted(names(lines)) == ["APAC", "EU"]
    assert lines[1]["metaData"]["numFiles"] == 2
    assert names(limited.lines("GET", f"{table.name}/changes", params={"startingVersion": 0})) == [
        "EU",
        "APAC",
    ]
    # Once files are partitioned otherwise, nobody can say which of them are meant.
    none: list[Any] = []
    table.update(
        {"action": "add-spec", "spec": {"fields": none}}, {"action": "set-default-spec", "spec-id": -1}
    )
    table.writer.partition = ()
    table.append("everything", partition_spec_id=table.table.metadata["default-spec-id"])
    assert limited.ask("POST", f"{table.name}/query", json={}).status_code == 403
    assert sorted(names(queried(limited, table, {"version": 2}))) == ["APAC", "EU"]
    assert len(names(queried(guest, table))) == 5


def test_hidden_partitions_are_no_columns(ice: Ice):
    bucket = [{"source-id": 1, "transform": "bucket[4]", "name": "b"}]
    table = ice.iced(partition=bucket, avro=[{"name": "b", "type": ["null", "int"], "field-id": 1000}])
    table.append(table.file("a", partition={"b": 3}))
    guest = table.shared()
    _, told, file = queried(guest, table)
    assert told["metaData"]["partitionColumns"] == []
    assert file["file"]["partitionValues"] == {}


def test_hints_are_asked_of_bounds_and_limits_of_counts(ice: Ice):
    def bounds(low: int, high: int) -> dict[str, Any]:
        return {
            "lower_bounds": {1: struct.pack("<q", low)},
            "upper_bounds": {1: struct.pack("<q", high)},
        }

    table = ice.iced()
    table.append(table.file("low", **bounds(0, 9)), table.file("high", **bounds(10, 19)), table.file("any"))
    guest = table.shared()
    assert sorted(names(queried(guest, table, {"predicateHints": ["id > 15"]}))) == ["any", "high"]
    for headers in ({}, DELTA):
        assert len(names(queried(guest, table, {"limitHint": 15}, headers=headers))) == 2


# --- row deletes ---


def positions(table: IcedTable, name: str, **rows: list[int]) -> dict[str, Any]:
    """A file of position deletes, by the names of data files."""
    columns: dict[str, list[Any]] = {
        "file_path": [f"{table.location}/data/{file}.parquet" for file, found in rows.items() for _ in found],
        "pos": [row for found in rows.values() for row in found],
    }
    out = BytesIO()
    pq.write_table(pa.table(columns), out)
    file = table.file(name, content=1, record_count=len(columns["pos"]), file_size_in_bytes=out.tell())
    place = table.table.folder / "data" / f"{name}.parquet"
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(out.getvalue())
    return file


def deleted(guest: Guest, table: IcedTable, **body: Any) -> dict[str, list[int]]:
    """By data file, the rows that its vector leaves out."""
    lines = queried(guest, table, body, headers=DELTA)
    found = {}
    for name, line in zip(names(lines), lines[2:], strict=True):
        vector = line["file"]["deltaSingleAction"]["add"].get("deletionVector")
        rows: list[int] = []
        if vector is not None:
            assert vector["storageType"] == "i"
            told = DeletionVector("i", vector["pathOrInlineDv"], vector["sizeInBytes"], vector["cardinality"])
            rows = list(parse_inline(told))
        found[name] = rows
    return found


def test_position_deletes_are_put_together_for_each_file(ice: Ice):
    table = ice.iced()
    table.append("a", "b")
    table.delete(positions(table, "d1", a=[1, 3], b=[0]))
    table.delete(positions(table, "d2", a=[3, 5]))
    table.append("c")
    guest = table.shared()
    assert deleted(guest, table) == {"a": [1, 3, 5], "b": [0], "c": []}
    assert deleted(guest, table, version=2) == {"a": [1, 3], "b": [0]}
    assert deleted(guest, table, version=1) == {"a": [], "b": []}
    assert names(queried(guest, table, {"version": 1})) == ["a", "b"]
    for body in ({}, {"version": 3}):
        message = refused(guest, table, body)
        assert "the table uses deletionVectors" in message
        assert "responseformat=delta;readerfeatures=deletionvectors" in message
    only = {"delta-sharing-capabilities": "responseformat=delta"}
    assert "does not say that it can read" in refused(guest, table, headers=only)
    both = {"delta-sharing-capabilities": "responseformat=parquet,delta;readerfeatures=deletionvectors"}
    answer = guest.good("GET", f"{table.name}/metadata", headers=both)
    assert answer.headers["delta-sharing-capabilities"] == "responseformat=delta"


def test_vectors_of_puffin_files(ice: Ice):
    table = ice.iced(version=3)
    table.append("a", "b")
    _, data, (told,) = file_of([RowSet([2, 70_000])], uuid.uuid4())
    # A blob of a Puffin file, which here begins where Delta's own file has it.
    place = table.table.folder / "data" / "v.puffin"
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(data)
    vector = table.file("v", content=1, file_format="PUFFIN", record_count=2) | {
        "file_path": f"{table.location}/data/v.puffin",
        "referenced_data_file": f"{table.location}/data/a.parquet",
        "content_offset": told.offset,
        "content_size_in_bytes": told.size_in_bytes + 8,
    }
    table.delete(vector)
    guest = table.shared()
    assert deleted(guest, table) == {"a": [2, 70_000], "b": []}
    # One that is not what the manifest says would bring rows back.
    place.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    table.touch()
    message = refused(guest, table, {"version": 3}, headers=DELTA)
    assert "its checksum is wrong" in message


# --- what is refused ---


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ([{"content": 2, "equality_ids": [1]}], "equality deletes"),
        ([{"content": 1, "file_format": "AVRO"}], "position deletes in avro files"),
        ([{"content": 1}], "metadata are missing"),
    ],
)
def test_deletes_that_cannot_be_told(ice: Ice, files: list[dict[str, Any]], problem: str):
    table = ice.iced()
    table.append("a")
    table.delete(*(table.file("d", **more) for more in files))
    guest = table.shared()
    assert problem in refused(guest, table, headers=DELTA)
    message = guest.refused(400, "GET", f"{table.name}/metadata")["message"]
    assert problem in message
    assert table.location not in message
    # Nothing is wrong with the versions before.
    assert names(queried(guest, table, {"version": 1})) == ["a"]
    assert version_of(guest.good("GET", f"{table.name}/version")) == 2


@pytest.mark.parametrize(
    ("more", "problem"), [({"file_format": "ORC"}, "orc files"), ({"key_metadata": b"k"}, "encrypted")]
)
def test_files_that_cannot_be_read(ice: Ice, more: dict[str, Any], problem: str):
    table = ice.iced()
    table.append(table.file("a", **more))
    assert problem in refused(table.shared(), table)


@pytest.mark.parametrize("kind", ["time", "uuid", "fixed[3]"])
def test_types_that_delta_does_not_have(ice: Ice, kind: str):
    table = ice.iced([*FIELDS, {"id": 3, "name": "odd", "required": False, "type": kind}])
    table.append("a")
    guest = table.shared()
    message = refused(guest, table)
    assert f"column 'odd' is of type {kind}, which Delta does not have" in message
    assert "read it through Iceberg REST" in message
    assert refused(guest, table, headers=DELTA) == message


def test_renamed_columns_need_the_delta_format(ice: Ice):
    table = ice.by_region()
    table.in_regions("EU")
    table.schema(FIELDS[0], {**FIELDS[1], "name": "where"})
    table.in_regions("US")
    guest = table.shared()
    message = refused(guest, table)
    assert "the table uses columnMapping, which the parquet response format cannot express" in message
    assert "responseformat=delta;readerfeatures=columnmapping" in message
    protocol, told, *files = queried(guest, table, headers=DELTA)
    assert protocol["protocol"]["deltaProtocol"]["readerFeatures"] == ["columnMapping"]
    metadata = told["metaData"]["deltaMetadata"]
    assert metadata["configuration"]["delta.columnMapping.mode"] == "id"
    assert metadata["partitionColumns"] == ["where"]
    assert {file["file"]["deltaSingleAction"]["add"]["partitionValues"]["col-2"] for file in files} == {
        "EU",
        "US",
    }
    assert names(queried(guest, table, {"predicateHints": ["where = 'US'"]}, headers=DELTA)) == ["US"]
    # Before the change there was one name, and there still is.
    assert names(queried(guest, table, {"version": 1})) == ["EU"]


def test_a_table_whose_metadata_is_lost_or_damaged(ice: Ice):
    table = ice.iced()
    table.append("a")
    guest = table.shared()
    manifest = next(table.table.folder.glob("metadata/*-m0.avro"))
    data = manifest.read_bytes()
    manifest.write_bytes(b"nothing of Avro")
    assert refused(guest, table) == "the table's metadata is damaged"
    manifest.unlink()
    assert refused(guest, table) == "files of the table's metadata are missing"
    manifest.write_bytes(data)
    assert names(queried(guest, table)) == ["a"]


def test_files_outside_the_table_are_not_shared(ice: Ice):
    for path in ("file:///etc/passwd", "s3://elsewhere/x.parquet"):
        table = ice.iced()
        table.append(table.file("a") | {"file_path": path})
        assert "lies outside its folder" in refused(table.shared(), table)


def test_a_table_that_the_catalog_has_no_metadata_of(provider: Provider):
    body = {"name": "bare", "format": "ICEBERG", "kind": "EXTERNAL", "location": str(provider.lake / "bare")}
    provider.ok("POST", f"/catalogs/{provider.catalog}/schemas/sales/tables", json=body)
    share = provider.share({"bare": {}})
    guest = provider.recipient(share)
    told = guest.refused(400, "GET", f"{share}.sales.bare/version")
    assert "does not have the metadata" in told["message"]


def test_keys_to_the_folder_are_not_given_out(ice: Ice):
    table = ice.iced()
    guest = table.shared()
    told = guest.refused(400, "POST", f"{table.name}/temporary-table-credentials", json={})
    assert "is not that of a Delta table" in told["message"]
