"""Row-level changes of shared tables: what is told of each commit, and every bound of a range."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.fixtures.delta import add_file, new_table, unity
from tests.fixtures.delta_log import FIELDS, PROTOCOL, LogFolder, add, metadata, protocol, remove, vector
from tests.fixtures.sharing import DELTA, FEED, Guest, Provider, provider

__all__ = ["provider"]

WIDER = (*FIELDS, ("note", "string"))
MERGE = {
    "operation": "MERGE",
    "operationMetrics": dict.fromkeys(
        ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"), "0"
    ),
}


def moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")


def cdc(path: str, size: int) -> dict[str, Any]:
    return {"cdc": {"path": path, "partitionValues": {}, "size": size, "dataChange": False}}


def told(lines: list[Any]) -> list[tuple[str, int, int]]:
    """Kind, version and size of every file."""
    found = []
    for line in lines:
        ((kind, value),) = line.items()
        if kind in ("add", "cdf", "remove"):
            found.append((kind, value["version"], value["size"]))
        elif kind == "file":
            ((kind, action),) = value["deltaSingleAction"].items()
            found.append((kind, value["version"], action["size"]))
    return found


class Feed:
    """A table with a commit of each kind, at 1 000, 2 000, ... milliseconds."""

    def __init__(self, provider: Provider, **options: Any) -> None:
        self.log = log = LogFolder(provider.lake / "feed")
        log.commit(
            0, PROTOCOL, metadata((), FIELDS, **FEED), add("a.parquet", 1), add("b.parquet", 2), at=1_000
        )
        log.commit(
            1, cdc("_change_data/c.parquet", 3), remove("a.parquet", size=1), add("d.parquet", 4), at=2_000
        )
        log.commit(
            2, remove("b.parquet", size=2, dataChange=False), add("e.parquet", 5, dataChange=False), at=3_000
        )
        log.commit(3, {"commitInfo": MERGE}, remove("e.parquet", size=5), add("f.parquet", 6), at=4_000)
        log.commit(4, metadata(fields=WIDER, **FEED), add("g.parquet", 7), at=5_000)
        log.commit(5, remove("g.parquet"), at=6_000)
        provider.register("feed", log.folder)
        self.share = provider.share({"feed": options})
        self.guest = provider.recipient(self.share)
        self.name = f"{self.share}.sales.feed"

    def changes(self, **params: Any) -> list[Any]:
        return self.guest.lines("GET", f"{self.name}/changes", params=params)

    def refused(self, **params: Any) -> str:
        answer = self.guest.refused(400, "GET", f"{self.name}/changes", params=params)
        assert answer["errorCode"] == "INVALID_PARAMETER_VALUE"
        return answer["message"]


@pytest.fixture
def feed(provider: Provider) -> Feed:
    return Feed(provider)


ALL = [("add", 0, 1), ("add", 0, 2), ("cdf", 1, 3), ("add", 4, 7), ("remove", 5, 7)]


def test_each_commit_is_told_by_what_it_recorded(feed: Feed):
    answer = feed.guest.good("GET", f"{feed.name}/changes", params={"startingVersion": 0})
    assert answer.headers["delta-table-version"] == "0"
    assert answer.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [next(iter(line)) for line in lines[:2]] == ["protocol", "metaData"]
    # Change data files tell all of their commit; a rewrite and a merge that did nothing tell nothing;
    # a remove that does not say its size has the size of what was added.
    assert told(lines) == ALL
    assert [line["metaData"].get("version") for line in lines if "metaData" in line] == [5]
    assert lines[1]["metaData"]["configuration"] == {"enableChangeDataFeed": "true"}
    assert "note" in lines[1]["metaData"]["schemaString"]
    assert lines[2]["add"]["timestamp"] == 1_000


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"startingVersion": 1, "endingVersion": 1}, ALL[2:3]),
        ({"startingVersion": 2, "endingVersion": 3}, []),
        ({"startingVersion": 4}, ALL[3:]),
        ({"startingVersion": 4, "endingVersion": 99}, ALL[3:]),
        ({"startingTimestamp": moment(2_000), "endingTimestamp": moment(2_000)}, ALL[2:3]),
        ({"startingTimestamp": moment(1_001), "endingTimestamp": moment(4_999)}, ALL[2:3]),
        ({"startingTimestamp": moment(1)}, ALL),
        ({"startingTimestamp": moment(6_000)}, ALL[4:]),
        ({"startingVersion": 4, "endingTimestamp": moment(99_000)}, ALL[3:]),
        ({"startingTimestamp": "1970-01-01T01:00:05+01:00"}, ALL[3:]),
    ],
)
def test_ranges(feed: Feed, params: dict[str, Any], expected: list[Any]):
    assert told(feed.changes(**params)) == expected


def test_the_header_is_the_start(feed: Feed):
    answer = feed.guest.good("GET", f"{feed.name}/changes", params={"startingTimestamp": moment(1_500)})
    assert answer.headers["delta-table-version"] == "1"


BOUNDS: list[tuple[dict[str, Any], str]] = [
    ({}, "No startingVersion or startingTimestamp provided for CDF read."),
    ({"endingVersion": 1}, "No startingVersion or startingTimestamp provided for CDF read."),
    (
        {"startingVersion": 0, "startingTimestamp": moment(1)},
        "Multiple starting arguments provided for CDF read.",
    ),
    (
        {"startingVersion": 0, "endingVersion": 1, "endingTimestamp": moment(1)},
        "Multiple ending arguments provided for CDF read.",
    ),
    ({"startingVersion": "x"}, "startingVersion is not a valid number."),
    ({"startingVersion": 0, "endingVersion": "1.5"}, "endingVersion is not a valid number."),
    ({"startingVersion": "-1"}, "startingVersion cannot be negative."),
    ({"startingTimestamp": "soon"}, "Invalid startingTimestamp:"),
    ({"startingTimestamp": "2022-01-01"}, "Invalid startingTimestamp:"),
    ({"startingVersion": 0, "endingTimestamp": "2022-13-01T00:00:00Z"}, "Invalid endingTimestamp:"),
    (
        {"startingVersion": 6},
        "Provided Start version(6) for reading change data is invalid. Start version cannot be greater than "
        "the latest version of the table(5).",
    ),
    (
        {"startingVersion": 2, "endingVersion": 1},
        "CDF range from start 2 to end 1 was invalid. End cannot be before start.",
    ),
    (
        {"startingTimestamp": moment(3_000), "endingTimestamp": moment(2_000)},
        "CDF range from start 2 to end 1 was invalid. End cannot be before start.",
    ),
    ({"startingTimestamp": moment(6_001)}, "The provided timestamp (1970-01-01T00:00:06.001Z) is after"),
    (
        {"startingVersion": 0, "endingTimestamp": moment(999)},
        "The provided timestamp (1970-01-01T00:00:00.999Z)",
    ),
    ({"startingVersion": 0, "includeHistoricalMetadata": "maybe"}, "includeHistoricalMetadata must be"),
    ({"startingVersion": 0, "maxFiles": "0"}, "maxFiles"),
]


@pytest.mark.parametrize(("params", "message"), BOUNDS)
def test_bounds(feed: Feed, params: dict[str, Any], message: str):
    assert feed.refused(**params).startswith(message)


def test_the_start_version_of_the_share_bounds_changes(provider: Provider):
    feed = Feed(provider, start_version=1)
    assert feed.refused(startingVersion=0) == "You can only query table changes since version 1."
    assert told(feed.changes(startingVersion=1)) == ALL[2:]
    assert told(feed.changes(startingTimestamp=moment(1))) == ALL[2:]


def test_history_that_is_not_shared(provider: Provider):
    feed = Feed(provider, history=False)
    assert feed.refused(startingVersion=0) == f"cdf is not enabled on table {feed.name}"


def test_change_data_that_was_not_recorded(feed: Feed):
    feed.log.commit(6, metadata(fields=WIDER), at=7_000)
    feed.log.commit(7, metadata(fields=WIDER, **FEED), at=8_000)
    assert (
        feed.refused(startingVersion=0, endingVersion=7)
        == "Error getting change data for range [0, 7] as change data was not recorded for version [6]"
    )
    assert (
        feed.refused(startingVersion=6)
        == "Error getting change data for range [6, 7] as change data was not recorded for version [6]"
    )
    assert told(feed.changes(startingVersion=0, endingVersion=5)) == ALL
    assert told(feed.changes(startingVersion=7)) == []


def test_a_log_that_was_cleaned(feed: Feed):
    live = [add("d.parquet", 4), add("f.parquet", 6)]
    feed.log.checkpoint(5, [PROTOCOL, metadata(fields=WIDER, **FEED), *live])
    for version in range(5):
        (feed.log.log / f"{version:020d}.json").unlink()
    assert "The earliest available version is 5." in feed.refused(startingVersion=0)
    assert told(feed.changes(startingVersion=5))[0][:2] == ("remove", 5)


def test_historical_metadata_only_when_asked(feed: Feed):
    assert [next(iter(line)) for line in feed.changes(startingVersion=0)].count("metaData") == 1
    for spelling in ("true", "True"):
        lines = feed.changes(startingVersion=0, includeHistoricalMetadata=spelling)
        heads = [line["metaData"] for line in lines if "metaData" in line]
        assert [head["version"] for head in heads] == [0, 4]
        assert ["note" in head["schemaString"] for head in heads] == [False, True]
        assert told(lines) == ALL


@pytest.mark.parametrize("paged", [False, True])
def test_a_stream_of_spark_is_told_the_metadata_of_every_version(feed: Feed, paged: bool):
    """It forgets what it has gone past, and takes no changes of a version whose metadata it has not."""
    agent = {"User-Agent": "Delta-Sharing-SparkStructuredStreaming/1.4.1 QueryId-0 Spark/4.1.4"}
    params: dict[str, Any] = {"startingVersion": 1, "includeHistoricalMetadata": "true"}
    path = f"{feed.name}/changes"

    def heads(headers: dict[str, str]) -> list[Any]:
        lines = feed.guest.lines(
            "GET", path, params=params | ({"maxFiles": 1} if paged else {}), headers=headers
        )
        while token := lines[-1].get("endStreamAction", {}).get("nextPageToken"):
            more = {**params, "maxFiles": 1, "pageToken": token}
            lines += feed.guest.lines("GET", path, params=more, headers=headers)[2:]
        return [line["metaData"] for line in lines if "metaData" in line]

    told = heads({**DELTA, **agent})
    assert [head["version"] for head in told] == [1, 2, 3, 4, 5]
    told = [head["deltaMetadata"] for head in told]
    assert ["note" in head["schemaString"] for head in told] == [False, False, False, True, True]
    assert all(head["configuration"] == {"delta.enableChangeDataFeed": "true"} for head in told)
    # Nobody else is, nor is it in the format in which it does not forget.
    for headers in (DELTA, agent):
        assert [head["version"] for head in heads(headers)] == [1, 4]


def test_pages_of_changes(feed: Feed):
    seen, token, pages = [], None, 0
    while True:
        params = {"startingVersion": 0, "maxFiles": 1, **({} if token is None else {"pageToken": token})}
        lines = feed.changes(**params)
        seen += told(lines)
        pages += 1
        if pages == 1:
            feed.log.commit(6, add("z.parquet", 99), at=9_000)
        token = lines[-1]["endStreamAction"].get("nextPageToken")
        if token is None:
            break
        assert token.isascii()
        assert not set(token) & set("+/=&%")
    assert (seen, pages) == (ALL, 5)
    params = {"startingVersion": 0, "maxFiles": 2}
    token = feed.changes(**params)[-1]["endStreamAction"]["nextPageToken"]
    assert "mismatch" in feed.refused(startingVersion=1, maxFiles=2, pageToken=token)


def test_the_delta_format_of_changes(feed: Feed):
    answer = feed.guest.good("GET", f"{feed.name}/changes", params={"startingVersion": 0}, headers=DELTA)
    assert answer.headers["delta-sharing-capabilities"] == "responseformat=delta"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert told(lines) == [("cdc" if kind == "cdf" else kind, *rest) for kind, *rest in ALL]
    assert lines[1]["metaData"]["deltaMetadata"]["configuration"] == {"delta.enableChangeDataFeed": "true"}


def test_pairs_of_deletion_vectors_need_the_delta_format(provider: Provider):
    log = LogFolder(provider.lake / "pairs")
    features = protocol(["deletionVectors"], ["changeDataFeed"])
    log.commit(0, features, metadata((), FIELDS, **FEED), add("a.parquet", 1))
    new = vector("ab^-aqEH.-t@S}K{vb[*k^", rows=2)
    log.commit(1, remove("a.parquet", size=1), add("a.parquet", 1, **new))
    provider.register("pairs", log.folder)
    share = provider.share({"pairs": {}})
    guest, name = provider.recipient(share), f"{share}.sales.pairs/changes"
    refused = guest.refused(400, "GET", name, params={"startingVersion": 0})
    assert (refused["errorCode"], "responseformat=delta" in refused["message"]) == (
        "UNSUPPORTED_OPERATION",
        True,
    )
    lines = guest.lines("GET", name, params={"startingVersion": 1}, headers=DELTA)
    assert told(lines) == [("remove", 1, 1), ("add", 1, 1)]
    # A range without vectors can be told either way.
    assert told(guest.lines("GET", name, params={"startingVersion": 0, "endingVersion": 0})) == [
        ("add", 0, 1)
    ]


def test_changes_of_a_managed_table_reach_to_its_latest_ratified_commit(provider: Provider):
    with unity(provider.server) as http:
        table = new_table(http, f"{provider.catalog}.sales.managed")
        update = {"action": "set-properties", "updates": {"delta.enableChangeDataFeed": "true"}}
        head = json.loads((table.folder / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[2])
        head["metaData"]["configuration"]["delta.enableChangeDataFeed"] = "true"
        table.commit(table.stage(1, [head]), update).raise_for_status()
        staged = table.stage(2, [add_file("a.parquet")])
        table.commit(staged).raise_for_status()
        share = provider.share({"managed": {}})
        guest, name = provider.recipient(share), f"{share}.sales.managed/changes"
        lines = guest.lines("GET", name, params={"startingVersion": 1}, headers=DELTA)
        assert [version for _, version, _ in told(lines)] == [2]
        (file,) = (line["file"] for line in lines if "file" in line)
        assert file["timestamp"] == staged["timestamp"]
        at = {"startingTimestamp": moment(staged["timestamp"])}
        assert guest.good("GET", name, params=at, headers=DELTA).headers["delta-table-version"] == "2"


def test_a_remove_without_size_is_completed_from_files_that_nobody_was_told_of(provider: Provider):
    """Of change data and of a rewrite, the files themselves are no change."""
    log = provider.table("bare", add("a.parquet", 1), partitions=(), **FEED)
    log.commit(1, cdc("_change_data/c.parquet", 3), remove("a.parquet", size=1), add("b.parquet", 22))
    log.commit(2, remove("b.parquet", size=22, dataChange=False), add("d.parquet", 44, dataChange=False))
    log.commit(3, cdc("_change_data/e.parquet", 5), add("f.parquet", 66))
    log.commit(4, remove("d.parquet"), remove("f.parquet"))
    share = provider.share({"bare": {}})
    guest, path = provider.recipient(share), f"{share}.sales.bare/changes"
    for headers in ({}, DELTA):
        for start in (0, 1, 2, 3, 4):
            lines = guest.lines("GET", path, params={"startingVersion": start}, headers=headers)
            assert told(lines)[-2:] == [("remove", 4, 44), ("remove", 4, 66)], start


def test_refusals_of_the_seed(feed: Feed, provider: Provider):
    """A request that is malformed, unproved, forbidden, or about what is not there."""
    guest: Guest = feed.guest
    path = f"{feed.name}/changes"
    assert guest.refused(400, "GET", path)["errorCode"] == "INVALID_PARAMETER_VALUE"
    told_401 = guest.refused(401, "GET", path, headers={"Authorization": "Bearer wrong"})
    assert told_401["errorCode"] == "UNAUTHENTICATED"
    stranger = provider.recipient(feed.share, networks=["192.0.2.0/24"])
    assert stranger.refused(403, "GET", path)["errorCode"] == "PERMISSION_DENIED"
    missing = f"{feed.share}.sales.none/changes?startingVersion=0"
    assert guest.refused(404, "GET", missing)["errorCode"] == "RESOURCE_DOES_NOT_EXIST"
