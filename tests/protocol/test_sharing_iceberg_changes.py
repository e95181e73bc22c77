"""Changes of Iceberg tables: what was appended, version by version, and every bound of a range."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fixtures.iceberg import Table
from tests.fixtures.iceberg_sharing import FIELDS, Ice, IcedTable, ice, names
from tests.fixtures.iceberg_snapshots import Writer
from tests.fixtures.sharing import DELTA, Guest, provider
from tests.protocol.test_sharing_iceberg import moment, positions, version_of

__all__ = ["ice", "provider"]

WIDER = [*FIELDS, {"id": 3, "name": "note", "required": False, "type": "string"}]


class Feed:
    """A table that was appended to in versions 1, 3 and 6; 4 rewrites what 1 and 3 appended."""

    def __init__(self, ice: Ice) -> None:
        self.table = table = ice.iced()
        table.append("a", "b")
        table.touch()
        table.append("c")
        table.commit([table.writer.manifest([table.file("rewritten")])], "replace", keep=False)
        table.schema(*WIDER)
        table.append("d")
        self.guest = table.shared()

    def changes(self, *headers: dict[str, str], **params: Any) -> list[Any]:
        return told(self.guest, self.table, *headers, **params)

    def refused(self, **params: Any) -> str:
        return refused(self.guest, self.table, **params)


def told(guest: Guest, table: IcedTable, *headers: dict[str, str], **params: Any) -> list[Any]:
    given = headers[0] if headers else {}
    return guest.lines("GET", f"{table.name}/changes", params=params, headers=given)


def refused(guest: Guest, table: IcedTable, **params: Any) -> str:
    return guest.refused(400, "GET", f"{table.name}/changes", params=params)["message"]


@pytest.fixture
def feed(ice: Ice) -> Feed:
    return Feed(ice)


def test_what_was_appended_is_inserted(feed: Feed):
    lines = feed.changes(startingVersion=0)
    assert names(lines) == ["a", "b", "c", "d"]
    assert [line["add"]["version"] for line in lines[2:]] == [1, 1, 3, 6]
    times = feed.table.times
    for line in lines[2:]:
        version = line["add"]["version"]
        assert times[version - 1] < line["add"]["timestamp"] < times[version]
    assert lines[1]["metaData"]["version"] == 6
    assert lines[1]["metaData"]["configuration"] == {"enableChangeDataFeed": "true"}
    delta = feed.changes(DELTA, startingVersion=0)
    assert names(delta) == ["a", "b", "c", "d"]
    assert all(line["file"]["deltaSingleAction"]["add"]["dataChange"] for line in delta[2:])
    assert delta[0]["protocol"]["deltaProtocol"] == {"minReaderVersion": 1, "minWriterVersion": 4}


@pytest.mark.parametrize(
    ("start", "end", "files"),
    [(1, 1, ["a", "b"]), (2, 2, []), (2, 4, ["c"]), (4, 5, []), (6, None, ["d"]), (3, 99, ["c", "d"])],
)
def test_ranges(feed: Feed, start: int, end: int | None, files: list[str]):
    params = {"startingVersion": start} | ({} if end is None else {"endingVersion": end})
    assert names(feed.changes(**params)) == files
    answer = feed.guest.good("GET", f"{feed.table.name}/changes", params=params)
    assert version_of(answer) == start


def test_ranges_by_time(feed: Feed):
    times = feed.table.times
    begin = {"startingTimestamp": moment(times[1])}
    assert names(feed.changes(**begin)) == ["c", "d"]
    assert names(feed.changes(**begin, endingTimestamp=moment(times[4]))) == ["c"]
    early, late = moment(times[0] - 3_600_000), moment(times[-1])
    assert names(feed.changes(startingTimestamp=early, endingTimestamp=late)) == ["a", "b", "c", "d"]
    assert "is after the latest version" in feed.refused(startingTimestamp=late)
    assert "is before the earliest version" in feed.refused(startingVersion=0, endingTimestamp=early)


def test_bounds(feed: Feed):
    assert feed.refused() == "No startingVersion or startingTimestamp provided for CDF read."
    assert "Start version cannot be greater than the latest version of the table(6)" in (
        feed.refused(startingVersion=7)
    )
    assert feed.refused(startingVersion=3, endingVersion=2) == (
        "CDF range from start 3 to end 2 was invalid. End cannot be before start."
    )


def test_metadata_on_the_way(feed: Feed):
    lines = feed.changes(startingVersion=1, includeHistoricalMetadata="true")
    kinds = [next(iter(line)) for line in lines]
    assert kinds == ["protocol", "metaData", "add", "add", "add", "metaData", "add"]
    assert [lines[at]["metaData"]["version"] for at in (1, 5)] == [1, 5]
    assert ["note" in lines[at]["metaData"]["schemaString"] for at in (1, 5)] == [False, True]
    assert "note" in feed.changes(startingVersion=1)[1]["metaData"]["schemaString"]


def test_pages(feed: Feed):
    whole = feed.changes(startingVersion=0)
    found: list[str] = []
    params: dict[str, Any] = {"startingVersion": 0, "maxFiles": 1}
    for _ in range(5):
        lines = feed.changes(**params)
        assert lines[:2] == whole[:2]
        found += names(lines)
        token = lines[-1]["endStreamAction"].get("nextPageToken")
        if token is None:
            break
        # What comes while somebody reads is for the next time.
        feed.table.append("later")
        params["pageToken"] = token
    assert found == ["a", "b", "c", "d"]


def test_queries_since_a_version(feed: Feed):
    def since(**body: Any) -> list[Any]:
        return feed.guest.lines("POST", f"{feed.table.name}/query", json=body)

    assert names(since(startingVersion=0)) == ["a", "b", "c", "d"]
    assert names(since(startingVersion=2, endingVersion=3)) == ["c"]
    answer = feed.guest.refused(
        400, "POST", f"{feed.table.name}/query", json={"startingVersion": 0, "endingVersion": 7}
    )
    assert "End version cannot be greater than the latest version" in answer["message"]


def test_pages_of_queries_since_a_version(feed: Feed):
    def page(**body: Any) -> list[Any]:
        asked = {"startingVersion": 0, "maxFiles": 1, **body}
        return feed.guest.lines("POST", f"{feed.table.name}/query", json=asked)

    found: list[Any] = []
    lines = page()
    for _ in range(4):
        found += lines[2:-1]
        token = lines[-1]["endStreamAction"].get("nextPageToken")
        if token is None:
            break
        feed.table.append("later")
        lines = page(pageToken=token)
    # What a stream compares: the schema that came on the way, once.
    assert [next(iter(line)) for line in found] == ["add", "add", "add", "metaData", "add"]
    assert names(found) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("operation", ["overwrite", "delete"])
def test_anything_but_appending_is_refused(ice: Ice, operation: str):
    table = ice.iced()
    table.append("a")
    table.append("b", operation=operation)
    table.append("c")
    guest = table.shared()
    message = refused(guest, table, startingVersion=0)
    assert f"version 2 of the table did more than append rows (its operation is {operation})" in message
    assert "read version 2 as a whole, and changes from the next one on" in message
    assert names(told(guest, table, startingVersion=0, endingVersion=1)) == ["a"]
    assert names(told(guest, table, startingVersion=3)) == ["c"]
    body = {"startingVersion": 2}
    answer = guest.refused(400, "POST", f"{table.name}/query", json=body)
    assert "did more than append rows" in answer["message"]


def test_going_back_is_refused(ice: Ice):
    table = ice.iced()
    first = table.append("a")
    table.append("b")
    back = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": first}
    table.update(back)
    table.live = table.live[:1]
    table.append("c")
    guest = table.shared()
    assert "it went back to an earlier state" in refused(guest, table, startingVersion=2)
    assert names(told(guest, table, startingVersion=4)) == ["c"]
    assert names(guest.lines("POST", f"{table.name}/query", json={"version": 3})) == ["a"]


def test_another_branch_is_none_of_it(ice: Ice):
    table = ice.iced()
    table.append("a")
    table.writer.commit([table.writer.manifest([table.file("aside")])], ref="audit")
    table.append("b")
    guest = table.shared()
    assert names(told(guest, table, startingVersion=0)) == ["a", "b"]
    assert names(guest.lines("POST", f"{table.name}/query", json={"version": 2})) == ["a"]


def test_a_first_snapshot_is_inserted_as_it_is(ice: Ice):
    """Before it there was nothing, so that its rows are new whatever made them."""
    table = ice.iced()
    table.append("a", operation="overwrite")
    table.delete(positions(table, "d", a=[1]))
    place = table.table.load()["metadata-location"]
    body = {"name": f"{table.short}_again", "metadata-location": place}
    ice.send("DELETE", table.table.url)
    ice.post("/namespaces/sales/register", body)
    table.short = body["name"]
    guest = table.shared()
    lines = told(guest, table, DELTA, startingVersion=0)
    assert names(lines) == ["a"]
    assert lines[2]["file"]["deltaSingleAction"]["add"]["deletionVector"]["cardinality"] == 1
    assert "deletionVectors" in refused(guest, table, startingVersion=0)


def test_a_renamed_column_maps_the_whole_range(ice: Ice):
    table = ice.iced()
    table.append("a")
    table.schema(FIELDS[0], {**FIELDS[1], "name": "where"})
    table.append("b")
    guest = table.shared()
    assert "columnMapping" in refused(guest, table, startingVersion=0)
    lines = told(guest, table, DELTA, startingVersion=0, includeHistoricalMetadata="true")
    told_of = [line["metaData"]["deltaMetadata"] for line in lines if "metaData" in line]
    assert [each["configuration"]["delta.columnMapping.mode"] for each in told_of] == ["id", "id"]
    assert ['"name":"where"' in each["schemaString"] for each in told_of] == [False, True]
    assert lines[0]["protocol"]["deltaProtocol"]["readerFeatures"] == ["columnMapping"]
    # Before the change, names do.
    assert names(told(guest, table, startingVersion=0, endingVersion=1)) == ["a"]


def test_partitions_of_changes(ice: Ice):
    table = ice.by_region()
    table.in_regions("EU", None)
    table.in_regions("US")
    guest = table.shared()
    lines = told(guest, table, startingVersion=0)
    assert lines[1]["metaData"]["partitionColumns"] == ["region"]
    assert [line["add"]["partitionValues"] for line in lines[2:]] == [
        {"region": "EU"},
        {"region": None},
        {"region": "US"},
    ]


class Behind(Table):
    """The table as a writer saw it, who insists on what it saw."""

    def __init__(self, table: Table) -> None:
        super().__init__(table.lake, tuple(table.identifier["namespace"]), str(table.identifier["name"]))
        self._seen = table.metadata

    @property
    def metadata(self) -> dict[str, Any]:
        return self._seen

    def commit(self, body: dict[str, Any], **options: Any) -> httpx.Response:
        seen = self._seen["refs"]["main"]["snapshot-id"]
        body["requirements"] = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": seen}]
        return super().commit(body, **options)


def test_a_rewrite_that_was_taken_back_changes_nothing(ice: Ice):
    """Care makes way for a writer: of the rewrite, not even the snapshot stays."""
    table = ice.iced()
    table.append("a")
    writer = Writer(Behind(table.table))
    first = list(table.live)
    rewritten = table.writer.manifest([table.file("rewritten")])
    table.writer.commit([rewritten], "replace", summary={"operation": "replace", "inver.care": "run"})
    writer.commit([*first, writer.manifest([table.file("b")])])
    assert len(table.table.metadata["snapshots"]) == 2
    guest = table.shared()
    assert names(told(guest, table, startingVersion=0)) == ["a", "b"]
    assert names(told(guest, table, startingVersion=2)) == ["b"]
    assert names(told(guest, table, startingVersion=3)) == ["b"]
    assert sorted(names(guest.lines("POST", f"{table.name}/query", json={}))) == ["a", "b"]
    gone = guest.refused(400, "POST", f"{table.name}/query", json={"version": 2})
    assert "snapshot of version 2 has been expired" in gone["message"]
