"""Versions, metadata and files of shared tables, in both response formats."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.fixtures.delta import LONG_ID, add_file, new_table, unity
from tests.fixtures.delta_log import PROTOCOL, LogFolder, add, metadata, protocol, remove, vector
from tests.fixtures.sharing import DELTA, FEED, Guest, Provider, provider

__all__ = ["provider"]

STATS = {"stats": json.dumps({"numRecords": 10, "minValues": {"id": 1}, "maxValues": {"id": 9}})}
VECTOR = vector("ab^-aqEH.-t@S}K{vb[*k^", rows=2)
DAYS = [{"day": f"2024-01-{day:02d}"} for day in range(1, 4)]


def moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")


def files(lines: list[Any]) -> list[dict[str, Any]]:
    return [line["file"] for line in lines if "file" in line]


def sizes(lines: list[Any]) -> list[int]:
    return sorted(file["size"] for file in files(lines))


@pytest.fixture
def days(provider: Provider) -> tuple[LogFolder, str, Guest]:
    """Three versions of a table by day; each has ten rows a file."""
    log = provider.table(
        "days",
        *(add(f"{n}.parquet", n, each, **STATS) for n, each in enumerate(DAYS, 1)),
        partitions=("day",),
    )
    log.commit(0, PROTOCOL, metadata(("day",)), *_adds(), at=1_000)
    log.commit(1, add("4.parquet", 4, DAYS[0], **STATS), at=2_000)
    log.commit(2, remove("1.parquet", size=1, partitionValues=DAYS[0]), at=3_000)
    share = provider.share({"days": {}})
    return log, f"{share}.sales.days", provider.recipient(share)


def _adds() -> list[dict[str, Any]]:
    return [add(f"{n}.parquet", n, each, **STATS) for n, each in enumerate(DAYS, 1)]


def test_the_latest_version(days):
    _, table, guest = days
    answer = guest.good("GET", f"{table}/version")
    assert (answer.headers["delta-table-version"], answer.content) == ("2", b"")
    lines = guest.lines("POST", f"{table}/query", json={})
    assert lines[0] == {"protocol": {"minReaderVersion": 1}}
    told = lines[1]["metaData"]
    assert (told["partitionColumns"], told["size"], told["numFiles"]) == (["day"], 9, 3)
    assert sizes(lines) == [2, 3, 4]
    file = files(lines)[0]
    assert file["url"].startswith(guest.server.url + "/delta-sharing/files/")
    assert "X-Amz-Signature=" in file["url"]
    assert file["partitionValues"]["day"].startswith("2024-01-")
    assert json.loads(file["stats"])["numRecords"] == 10
    assert file["expirationTimestamp"] > 0
    assert guest.good("POST", f"{table}/query").text.count("\n") == len(lines)  # without a body


def test_metadata_has_exactly_two_lines(days):
    _, table, guest = days
    query = guest.good("POST", f"{table}/query", json={}).text.splitlines()
    answer = guest.good("GET", f"{table}/metadata")
    assert answer.text.splitlines() == query[:2]
    assert answer.headers["delta-table-version"] == "2"


def test_versions_by_number_and_by_time(days):
    _, table, guest = days

    def at(**body: Any) -> list[int]:
        return sizes(guest.lines("POST", f"{table}/query", json=body))

    assert (
        at(version=0)
        == at(version="0")
        == at(timestamp=moment(1_000))
        == at(timestamp=moment(1_999))
        == [1, 2, 3]
    )
    assert at(version=1) == at(timestamp=moment(2_000)) == [1, 2, 3, 4]
    assert at(version=2) == at(timestamp=moment(9_000)) == [2, 3, 4]
    told = guest.good("GET", f"{table}/metadata", params={"version": 1})
    assert told.headers["delta-table-version"] == "1"
    assert '"numFiles":4' in told.text
    told = guest.good("GET", f"{table}/metadata", params={"timestamp": moment(1_500)})
    assert told.headers["delta-table-version"] == "0"


def test_the_version_at_or_after_a_moment(days):
    _, table, guest = days

    def starting(milliseconds: int) -> str:
        answer = guest.good("GET", f"{table}/version", params={"startingTimestamp": moment(milliseconds)})
        return str(answer.headers["delta-table-version"])

    # Exactly at a commit it is that one, before the first it is the first.
    assert [starting(at) for at in (500, 1_000, 1_001, 2_000, 3_000)] == ["0", "0", "1", "1", "2"]
    told = guest.refused(400, "GET", f"{table}/version", params={"startingTimestamp": moment(3_001)})
    assert "is after the latest version" in told["message"]


WRONG = [
    ({"version": 3}, "Provided version(3) is invalid"),
    ({"version": -1}, "version"),
    ({"version": "x"}, "version"),
    (
        {"version": 0, "timestamp": moment(1_000)},
        "Please only provide one of: version,timestamp,startingVersion",
    ),
    ({"version": 0, "startingVersion": 0}, "Please only provide one of: version,timestamp,startingVersion"),
    ({"timestamp": "yesterday"}, "Invalid timestamp"),
    ({"timestamp": "2024-01-01"}, "Invalid timestamp"),
    ({"timestamp": moment(500)}, "is before the earliest version"),
    ({"startingVersion": 9}, "Provided Start version(9)"),
    ({"startingVersion": 0, "endingVersion": 3}, "Provided End version(3) is invalid"),
    ({"maxFiles": 0}, "maxFiles"),
    ({"limitHint": -1}, "limitHint"),
    ({"pageToken": "x"}, "maxFiles"),
    ({"maxFiles": 1, "pageToken": "x"}, "Error decoding the page token"),
    ({"refreshToken": "x"}, "Error decoding the refresh token"),
    ({"predicateHints": "x"}, "predicateHints"),
]


@pytest.mark.parametrize(("body", "message"), WRONG)
def test_wrong_queries_are_refused(days, body, message):
    _, table, guest = days
    told = guest.refused(400, "POST", f"{table}/query", json=body)
    assert message in told["message"] or message in told.values()
    assert told["errorCode"] in ("INVALID_PARAMETER_VALUE", "MALFORMED_REQUEST")


def test_a_broken_body_is_malformed(days):
    _, table, guest = days
    for body in (b"{", b"[]", b'"x"', b"\xff"):
        told = guest.refused(400, "POST", f"{table}/query", content=body)
        assert told["errorCode"] == "MALFORMED_REQUEST"


def test_hints_leave_out_files_and_wrong_ones_leave_out_none(days):
    _, table, guest = days

    def left(**body: Any) -> list[int]:
        return sizes(guest.lines("POST", f"{table}/query", json=body))

    equal = {
        "op": "equal",
        "children": [
            {"op": "column", "name": "day", "valueType": "date"},
            {"op": "literal", "value": "2024-01-02", "valueType": "date"},
        ],
    }
    assert left(jsonPredicateHints=json.dumps(equal)) == [2]
    assert left(predicateHints=["day = '2024-01-01'"]) == [4]
    assert left(predicateHints=["id > 100"]) == []
    assert left(predicateHints=["id > 5", "day > '2024-01-01'"]) == [2, 3]
    assert left(predicateHints=["what is this"]) == left(jsonPredicateHints="{") == [2, 3, 4]


def test_a_limit_ends_the_files_and_is_nothing_beside_predicates(days):
    _, table, guest = days
    assert len(files(guest.lines("POST", f"{table}/query", json={"limitHint": 5}))) == 1
    assert len(files(guest.lines("POST", f"{table}/query", json={"limitHint": 11}))) == 2
    hinted = {"limitHint": 1, "predicateHints": ["day > '2024-01-01'"]}
    assert len(files(guest.lines("POST", f"{table}/query", json=hinted))) == 2


def test_pages_show_one_pinned_version(days):
    log, table, guest = days
    first = guest.good("POST", f"{table}/query", json={"maxFiles": 1})
    lines = [json.loads(line) for line in first.text.splitlines()]
    seen, heads = files(lines), {tuple(first.text.splitlines()[:2])}
    token = lines[-1]["endStreamAction"]["nextPageToken"]
    log.commit(
        3, remove("2.parquet", size=2, partitionValues=DAYS[1]), add("5.parquet", 5, DAYS[2]), at=4_000
    )
    while token:
        page = guest.good("POST", f"{table}/query", json={"maxFiles": 1, "pageToken": token})
        assert page.headers["delta-table-version"] == "2"
        lines = [json.loads(line) for line in page.text.splitlines()]
        seen += files(lines)
        heads.add(tuple(page.text.splitlines()[:2]))
        token = lines[-1]["endStreamAction"].get("nextPageToken")
    assert sorted(file["size"] for file in seen) == [2, 3, 4]
    assert len(heads) == 1, "clients compare the first two lines of every page"


def test_a_page_of_another_query_or_recipient_is_refused(days, provider: Provider):
    _, table, guest = days
    lines = guest.lines("POST", f"{table}/query", json={"maxFiles": 1})
    token = lines[-1]["endStreamAction"]["nextPageToken"]
    told = guest.refused(
        400, "POST", f"{table}/query", json={"maxFiles": 1, "pageToken": token, "version": 1}
    )
    assert told["message"] == "Query parameter mismatch detected for the next page query"
    other = provider.recipient(table.split(".")[0])
    told = other.refused(400, "POST", f"{table}/query", json={"maxFiles": 1, "pageToken": token})
    assert "does not match" in told["message"]
    changed = ("A" if token[0] != "A" else "B") + token[1:]
    told = guest.refused(400, "POST", f"{table}/query", json={"maxFiles": 1, "pageToken": changed})
    assert told["message"] == "Error decoding the page token"


def test_a_refresh_token_shows_the_same_version_again(days):
    log, table, guest = days
    lines = guest.lines("POST", f"{table}/query", json={"includeRefreshToken": True})
    end = lines[-1]["endStreamAction"]
    assert end["minUrlExpirationTimestamp"] > 0
    log.commit(3, add("5.parquet", 5, DAYS[2]), at=4_000)
    again = guest.lines("POST", f"{table}/query", json={"refreshToken": end["refreshToken"]})
    assert sorted(f["id"] for f in files(again)) == sorted(f["id"] for f in files(lines))
    assert sizes(guest.lines("POST", f"{table}/query", json={})) == [2, 3, 4, 5]


def test_the_last_line_comes_only_when_it_is_asked_for(days):
    _, table, guest = days
    assert "endStreamAction" not in guest.good("POST", f"{table}/query", json={}).text
    asked = {"delta-sharing-capabilities": "includeEndStreamAction=true"}
    answer = guest.good("POST", f"{table}/query", json={}, headers=asked)
    assert (
        answer.headers["delta-sharing-capabilities"] == "responseformat=parquet;includeendstreamaction=true"
    )
    assert "endStreamAction" in answer.text.splitlines()[-1]


def test_a_stream_of_what_was_added_and_removed(days):
    _, table, guest = days
    answer = guest.good("POST", f"{table}/query", json={"startingVersion": 1})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert answer.headers["delta-table-version"] == "1"
    assert [next(iter(line)) for line in lines] == ["protocol", "metaData", "add", "remove"]
    assert (lines[2]["add"]["version"], lines[2]["add"]["timestamp"]) == (1, 2_000)
    assert (lines[3]["remove"]["version"], lines[3]["remove"]["size"]) == (2, 1)
    body = {"startingVersion": 0, "endingVersion": 0}
    assert len(guest.lines("POST", f"{table}/query", json=body)) == 5


def test_a_query_can_be_answered_later(days):
    _, table, guest = days
    later = {"delta-sharing-capabilities": "asyncquery=true"}
    answer = guest.good(
        "POST", f"{table}/query", json={"predicateHints": ["day = '2024-01-02'"]}, headers=later
    )
    assert answer.headers["delta-table-version"] == "2"
    assert "asyncquery=true" in answer.headers["delta-sharing-capabilities"]
    status = answer.json()["queryStatus"]
    assert status["status"] == "pending"
    for body in ({}, {"queryId": status["queryId"]}):
        assert sizes(guest.lines("POST", f"{table}/queries/{status['queryId']}", json=body)) == [2]
    paged = guest.lines("POST", f"{table}/queries/{status['queryId']}", json={"maxFiles": 1})
    assert "endStreamAction" in paged[-1]
    assert (
        guest.refused(400, "POST", f"{table}/queries/nothing", json={})["message"]
        == "Error decoding the query id"
    )


def test_ids_of_files_follow_the_header(days):
    _, table, guest = days
    plain = guest.lines("POST", f"{table}/query", json={})
    answer = guest.good("POST", f"{table}/query", json={}, headers={"fileidhash": "DELTA"})
    assert answer.headers["fileidhash"] == "delta"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert {len(file["id"]) for file in files(plain)} == {32}
    assert {len(file["id"]) for file in files(lines)} == {64}
    for wrong in ("", "md5"):
        guest.refused(400, "POST", f"{table}/query", json={}, headers={"fileidhash": wrong})


# --- the delta format ---


def test_the_delta_format(days):
    _, table, guest = days
    answer = guest.good("POST", f"{table}/query", json={}, headers=DELTA)
    assert answer.headers["delta-sharing-capabilities"] == "responseformat=delta"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines[0] == {"protocol": {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 4}}}
    assert (lines[1]["metaData"]["size"], lines[1]["metaData"]["numFiles"]) == (9, 3)
    action = files(lines)[0]["deltaSingleAction"]["add"]
    assert action["path"].startswith("http")
    both = {"delta-sharing-capabilities": "responseformat=delta,parquet"}
    assert "responseformat=parquet" in str(guest.good("GET", f"{table}/metadata", headers=both).headers)
    guest.refused(
        400, "GET", f"{table}/metadata", headers={"delta-sharing-capabilities": "responseformat=csv"}
    )


def test_deletion_vectors_are_never_told_in_the_parquet_format(provider: Provider):
    log = LogFolder(provider.lake / "vectors")
    log.commit(0, protocol(["deletionVectors"]), metadata(), add("a.parquet", 7, **VECTOR))
    provider.register("vectors", log.folder)
    share = provider.share({"vectors": {}})
    guest = provider.recipient(share)
    table = f"{share}.sales.vectors"
    for path, method in (("metadata", "GET"), ("query", "POST")):
        told = guest.refused(400, method, f"{table}/{path}")
        assert told["errorCode"] == "UNSUPPORTED_OPERATION"
        assert "responseformat=delta" in told["message"]
    told = guest.refused(
        400, "POST", f"{table}/query", headers={"delta-sharing-capabilities": "responseformat=delta"}
    )
    assert "deletionVectors" in told["message"]
    (file,) = files(guest.lines("POST", f"{table}/query", headers=DELTA))
    told_vector = file["deltaSingleAction"]["add"]["deletionVector"]
    assert told_vector["storageType"] == "p"
    assert told_vector["pathOrInlineDv"].startswith("http")
    assert file["deletionVectorFileId"]


def test_everything_is_ascii(provider: Provider):
    """Clients split lines at every character that Unicode takes for the end of one."""
    name = "part\u2028\u0085ü.parquet"
    provider.table(
        "odd", add(name, 3, stats=json.dumps({"numRecords": 1, "minValues": {"name": "a\u2029b"}}))
    )
    share = provider.share({"odd": {}})
    guest = provider.recipient(share)
    assert len(guest.lines("POST", f"{share}.sales.odd/query", json={})) == 3


# --- tables whose commits the catalog decides ---


def test_a_managed_table_is_shared_at_its_latest_ratified_commit(provider: Provider):
    with unity(provider.server) as http:
        table = new_table(http, f"{provider.catalog}.sales.managed", LONG_ID)
        share = provider.share({"managed": {}})
        guest = provider.recipient(share)
        name = f"{share}.sales.managed"
        table.append(1, add_file("a.parquet"))
        staged = table.stage(2, [add_file("b.parquet")])
        table.commit(staged).raise_for_status()
        answer = guest.good("POST", f"{name}/query", json={}, headers=DELTA)
        assert answer.headers["delta-table-version"] == "2"
        lines = [json.loads(line) for line in answer.text.splitlines()]
        told = lines[0]["protocol"]["deltaProtocol"]
        kept = {*told["readerFeatures"], *told["writerFeatures"]}
        assert not kept & {"catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "inCommitTimestamp"}
        assert "delta.enableInCommitTimestamps" not in json.dumps(lines[1])
        assert len(files(lines)) == 2
        # The time of a version is the ledger's, whether its file is published or not.
        at = staged["timestamp"]
        for timestamp, version in ((at, "2"), (at - 1, "1")):
            found = guest.good(
                "GET", f"{name}/metadata", params={"timestamp": moment(timestamp)}, headers=DELTA
            )
            assert found.headers["delta-table-version"] == version
        found = guest.good("GET", f"{name}/version", params={"startingTimestamp": moment(at)})
        assert found.headers["delta-table-version"] == "2"
        guest.refused(400, "GET", f"{name}/version", params={"startingTimestamp": moment(at + 1)})


def test_what_is_in_the_log_and_not_ratified_is_not_shared(provider: Provider):
    with unity(provider.server) as http:
        table = new_table(http, f"{provider.catalog}.sales.rogue", LONG_ID)
        table.append(1, add_file("a.parquet"))
        share = provider.share({"rogue": {}})
        guest = provider.recipient(share)
        foreign = table.folder / "_delta_log" / f"{2:020d}.json"
        foreign.write_text(json.dumps({"commitInfo": {"inCommitTimestamp": table.timestamp + 5}}) + "\n")
        assert guest.good("GET", f"{share}.sales.rogue/version").headers["delta-table-version"] == "1"


# --- parts of a table ---


def test_a_start_version_hides_what_was_before(days, provider: Provider):
    log, _, _ = days
    share = provider.share({"days": {"start_version": 1}})
    guest, name = provider.recipient(share), f"{share}.sales.days"
    assert sizes(guest.lines("POST", f"{name}/query", json={"version": 1})) == [1, 2, 3, 4]
    told = guest.refused(400, "POST", f"{name}/query", json={"version": 0})
    assert told["message"] == "You can only query table data since version 1."
    guest.refused(400, "POST", f"{name}/query", json={"timestamp": moment(1_000)})
    guest.refused(400, "GET", f"{name}/metadata", params={"version": 0})
    guest.refused(400, "POST", f"{name}/query", json={"startingVersion": 0})
    found = guest.good("GET", f"{name}/version", params={"startingTimestamp": moment(1_000)})
    assert found.headers["delta-table-version"] == "1"
    later = provider.share({"days": {"start_version": 9}})
    guest = provider.recipient(later)
    guest.refused(400, "POST", f"{later}.sales.days/query", json={})
    assert log.folder.exists()


def test_without_history_there_is_the_latest_version_alone(days, provider: Provider):
    share = provider.share({"days": {"history": False}})
    guest, name = provider.recipient(share), f"{share}.sales.days"
    assert sizes(guest.lines("POST", f"{name}/query", json={})) == [2, 3, 4]
    assert sizes(guest.lines("POST", f"{name}/query", json={"version": 2})) == [2, 3, 4]
    for body in ({"version": 1}, {"timestamp": moment(1_000)}, {"startingVersion": 1}):
        assert "without its history" in guest.refused(400, "POST", f"{name}/query", json=body)["message"]
    told = guest.refused(400, "GET", f"{name}/changes", params={"startingVersion": 0})
    assert told["message"] == f"cdf is not enabled on table {name}"


def test_a_partition_filter_hides_files_and_counts(provider: Provider):
    log = provider.table("filtered", *_adds(), partitions=("day",), **FEED)
    log.commit(1, add("4.parquet", 4, DAYS[0]), add("5.parquet", 5, DAYS[1]))
    share = provider.share({"filtered": {}})
    guest, name = provider.recipient(share), f"{share}.sales.filtered"
    path = f"/shares/{share}/recipients/{guest.name}"
    where = {"schema": "sales", "table": "filtered", "where": "day = '2024-01-01'"}
    provider.ok("PUT", path, json={"filters": [where]})
    lines = guest.lines("POST", f"{name}/query", json={})
    assert sizes(lines) == [1, 4]
    assert (lines[1]["metaData"]["size"], lines[1]["metaData"]["numFiles"]) == (5, 2)
    changed = guest.lines("GET", f"{name}/changes", params={"startingVersion": 0})
    assert sorted(line["add"]["size"] for line in changed if "add" in line) == [1, 4]
    since = guest.lines("POST", f"{name}/query", json={"startingVersion": 1})
    assert [line["add"]["size"] for line in since if "add" in line] == [4]
    # What decides what somebody may see must be decided by partition values alone.
    for wrong in ("id = 1", "nothing = 1", "day =", "day = '2024-01-01' OR id = 1"):
        answer = provider.server.call("PUT", path, json={"filters": [{**where, "where": wrong}]})
        assert answer.status_code == 400, wrong
    # The table is no longer partitioned by it: nothing may be seen, and not everything.
    log.commit(2, metadata(()), *(remove(f"{n}.parquet", size=n) for n in range(1, 6)), add("9.parquet", 9))
    guest.refused(403, "POST", f"{name}/query", json={})
