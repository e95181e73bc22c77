"""Bounds, texts, formats: what Delta Sharing promises before a file is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inver.domain.delta_actions import Metadata, Protocol
from inver.domain.delta_schema import shared_schema
from inver.domain.sharing import (
    Capabilities,
    Moment,
    ResponseFormat,
    as_of,
    capabilities,
    changes_bounds,
    changes_request,
    check_query,
    check_recorded,
    not_shared,
    query_bounds,
    query_version,
    response_format,
    shared_metadata,
    shared_protocol,
    starting_at,
    timestamp_parameter,
    used_features,
)
from inver.errors import Invalid, Unsupported

PARQUET, DELTA = ResponseFormat.PARQUET, ResponseFormat.DELTA


def refused(match: str) -> Any:
    return pytest.raises(Invalid, match=f"^{match}$")


@pytest.mark.parametrize(
    ("given", "text", "field"),
    [
        ({}, r"No startingVersion or startingTimestamp provided for CDF read\.", "startingVersion"),
        (
            {"endingVersion": "3"},
            r"No startingVersion or startingTimestamp provided for CDF read\.",
            "startingVersion",
        ),
        (
            {"startingVersion": "1", "startingTimestamp": "2022-01-01T00:00:00Z"},
            r"Multiple starting arguments provided for CDF read\. Please provide one of either "
            r"startingTimestamp or startingVersion\.",
            "startingVersion",
        ),
        (
            {"startingVersion": "1", "endingVersion": "2", "endingTimestamp": "2022-01-01T00:00:00Z"},
            r"Multiple ending arguments provided for CDF read\. Please provide one of either "
            r"endingTimestamp or endingVersion\.",
            "endingVersion",
        ),
        ({"startingVersion": "x"}, r"startingVersion is not a valid number\.", "startingVersion"),
        ({"startingVersion": ""}, r"startingVersion is not a valid number\.", "startingVersion"),
        ({"startingVersion": "1.0"}, r"startingVersion is not a valid number\.", "startingVersion"),
        ({"startingVersion": "٣"}, r"startingVersion is not a valid number\.", "startingVersion"),
        ({"startingVersion": str(2**63)}, r"startingVersion is not a valid number\.", "startingVersion"),
        ({"startingVersion": "-1"}, r"startingVersion cannot be negative\.", "startingVersion"),
        (
            {"startingVersion": "1", "endingVersion": "y"},
            r"endingVersion is not a valid number\.",
            "endingVersion",
        ),
        (
            {"startingTimestamp": "yesterday"},
            r"Invalid startingTimestamp: 'yesterday' .*",
            "startingTimestamp",
        ),
        ({"startingTimestamp": "2022-01-01"}, r"Invalid startingTimestamp: .*", "startingTimestamp"),
        ({"startingTimestamp": "2022-01-01T00:00:00"}, r"Invalid startingTimestamp: .*", "startingTimestamp"),
        ({"startingVersion": "1", "endingTimestamp": "z"}, r"Invalid endingTimestamp: .*", "endingTimestamp"),
        (
            {"startingVersion": "1", "includeHistoricalMetadata": "yes"},
            r"includeHistoricalMetadata must be true or false\.",
            "includeHistoricalMetadata",
        ),
    ],
)
def test_requests_for_changes_that_are_refused(given, text, field):
    with refused(text) as error:
        changes_request(given)
    assert error.value.field == field


def test_requests_for_changes():
    found = changes_request({"startingVersion": "3", "endingTimestamp": "1970-01-01T00:00:01.5Z", "x": "y"})
    assert (found.starting_version, found.starting_timestamp) == (3, None)
    assert (found.ending_version, found.ending_timestamp) == (None, 1500)
    assert (found.historical_metadata, found.historical_protocol) == (False, False)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("FALSE", False)])
def test_flags_in_every_clients_spelling(text, value):
    found = changes_request({"startingVersion": "0", "includeHistoricalMetadata": text})
    assert found.historical_metadata is value


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-01T02:00:00 02:00", 0),
        ("1970-01-01T00:00:00.001999Z", 1),
        ("1969-12-31T23:59:59Z", -1000),
    ],
)
def test_timestamps(text, milliseconds):
    assert timestamp_parameter({"t": text}, "t") == milliseconds


def bounds(start: int, end: int | None = None, **more: int) -> tuple[int, int]:
    return changes_bounds(start, end, **{"latest": 5, "earliest": 0, **more})


def test_bounds_of_changes():
    assert bounds(0) == (0, 5)
    assert bounds(2, 3) == (2, 3)
    assert bounds(5, 5) == (5, 5)
    assert bounds(2, 99) == (2, 5)
    assert bounds(3, shared_since=3, earliest=3) == (3, 5)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"start": 6},
            r"Provided Start version\(6\) for reading change data is invalid\. Start version cannot be "
            r"greater than the latest version of the table\(5\)\.",
        ),
        (
            {"start": 2, "end": 1},
            r"CDF range from start 2 to end 1 was invalid\. End cannot be before start\.",
        ),
        ({"start": 0, "shared_since": 1}, r"You can only query table changes since version 1\."),
        (
            {"start": 1, "earliest": 3},
            r"The table's log has been cleaned, and version 1 is no longer in it\. The earliest available "
            r"version is 3\.",
        ),
    ],
)
def test_bounds_of_changes_that_are_refused(given, text):
    with refused(text):
        bounds(**given)


def test_bounds_of_queries():
    assert query_bounds(2, 5, latest=5, earliest=0) == (2, 5)
    with refused(r"Provided End version\(6\) is invalid\. .* the latest version of the table\(5\)\."):
        query_bounds(2, 6, latest=5, earliest=0)
    assert query_version(5, latest=5) == 5
    with refused(r"Provided version\(6\) is invalid\. The latest version of the table is 5\."):
        query_version(6, latest=5)
    with refused(r"You can only query table data since version 2\."):
        query_version(1, latest=5, shared_since=2)
    check_query(None, None, 3)
    for given in ((1, 2, None), (1, None, 2), (None, 1, 2)):
        with refused("Please only provide one of: version,timestamp,startingVersion"):
            check_query(*given)


def test_bounds_of_timestamps():
    assert starting_at(10, 0, Moment(5, 100)) == 0
    with refused(
        r"The provided timestamp \(1970-01-01T00:00:00\.101Z\) is after the latest version available to "
        r"this table \(1970-01-01T00:00:00\.100Z\)\. Please use a timestamp before "
        r"or at 1970-01-01T00:00:00\.100Z\."
    ):
        starting_at(101, None, Moment(5, 100))
    assert as_of(10, 3, Moment(0, 5), "endingTimestamp") == 3
    with refused(
        r"The provided timestamp \(1970-01-01T00:00:00\.004Z\) is before the earliest version available "
        r"to this table \(1970-01-01T00:00:00\.005Z\)\. Please use a timestamp at "
        r"or after 1970-01-01T00:00:00\.005Z\."
    ):
        as_of(4, None, Moment(0, 5), "endingTimestamp")


ON, OFF = Metadata("m", configuration={"delta.enableChangeDataFeed": "true"}), Metadata("m")


def test_change_data_must_be_recorded_all_the_way():
    check_recorded(0, 5, ON, [(3, ON)])
    with refused(
        r"Error getting change data for range \[0, 5\] as change data was not recorded for version \[4\]"
    ):
        check_recorded(0, 5, ON, [(3, ON), (4, OFF)])
    with refused(
        r"Error getting change data for range \[2, 5\] as change data was not recorded for version \[2\]"
    ):
        check_recorded(2, 5, OFF, [(3, ON)])


def test_history_that_is_not_shared():
    assert not_shared("s.s.t").message == "cdf is not enabled on table s.s.t"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, Capabilities()),
        ("", Capabilities()),
        ("responseformat=delta", Capabilities(frozenset({DELTA}))),
        ("ResponseFormat=DELTA,Parquet", Capabilities(frozenset({DELTA, PARQUET}))),
        ("responseformat=delta,avro", Capabilities(frozenset({DELTA}))),
        (
            "responseformat=delta; readerfeatures=deletionVectors,columnMapping ;unknown=x;alone",
            Capabilities(frozenset({DELTA}), frozenset({"deletionvectors", "columnmapping"})),
        ),
        ("readerfeatures=", Capabilities()),
        (
            "includeEndStreamAction=true;asyncquery=TRUE",
            Capabilities(end_stream_action=True, async_query=True),
        ),
    ],
)
def test_capabilities(header, expected):
    assert capabilities(header) == expected


def test_a_format_that_nobody_knows_is_refused():
    with pytest.raises(Invalid, match="responseformat names no known format"):
        capabilities("responseformat=avro")


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)})


def field(name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


PLAIN = Metadata("m", schema(field("id", "long")))
MAPPED = Metadata("m", PLAIN.schema_string, configuration={"delta.columnMapping.mode": "name"})
NTZ = Metadata(
    "m", schema(field("x", {"type": "array", "elementType": "timestamp_ntz", "containsNull": True}))
)
WIDENED = Metadata("m", schema(field("x", "long", **{"delta.typeChanges": [{"fromType": "integer"}]})))
VARIANT = Metadata("m", schema(field("x", {"type": "struct", "fields": [field("y", "variant")]})))
OLD = Protocol(1, 2)


def modern(*features: str) -> Protocol:
    return Protocol(3, 7, features, features)


@pytest.mark.parametrize(
    ("metadata", "vectors", "used"),
    [
        (PLAIN, False, set()),
        (PLAIN, True, {"deletionVectors"}),
        (MAPPED, True, {"columnMapping", "deletionVectors"}),
        (NTZ, False, {"timestampNtz"}),
        (WIDENED, False, {"typeWidening"}),
        (VARIANT, False, {"variantType"}),
    ],
)
def test_features_in_use(metadata, vectors, used):
    assert used_features(metadata, vectors=vectors) == used


@pytest.mark.parametrize(
    ("header", "protocol", "metadata", "vectors", "answer"),
    [
        (None, OLD, PLAIN, False, PARQUET),
        ("responseformat=delta", OLD, PLAIN, False, DELTA),
        ("responseformat=delta,parquet", OLD, PLAIN, False, PARQUET),
        # Listed, and not in use: whoever asks for parquet alone gets the right rows.
        (None, modern("deletionVectors", "catalogManaged"), PLAIN, False, PARQUET),
        ("responseformat=delta,parquet", modern("catalogManaged"), PLAIN, False, PARQUET),
        ("responseformat=delta,parquet", modern("deletionVectors"), PLAIN, False, DELTA),
        (
            "responseformat=delta,parquet;readerfeatures=deletionvectors",
            modern("deletionVectors"),
            PLAIN,
            True,
            DELTA,
        ),
        ("responseformat=delta;readerfeatures=columnmapping", Protocol(2, 5), MAPPED, False, DELTA),
        (
            "responseformat=delta;readerfeatures=typewidening-preview",
            modern("typeWidening-preview"),
            WIDENED,
            False,
            DELTA,
        ),
    ],
)
def test_response_formats(header, protocol, metadata, vectors, answer):
    assert response_format(capabilities(header), protocol, metadata, vectors=vectors) is answer


@pytest.mark.parametrize(
    ("metadata", "vectors"), [(PLAIN, True), (MAPPED, False), (NTZ, False), (WIDENED, False)]
)
def test_what_parquet_cannot_express_is_refused_with_what_to_ask_for(metadata, vectors):
    with pytest.raises(Unsupported, match="which the parquet response format cannot express") as error:
        response_format(Capabilities(), modern("x"), metadata, vectors=vectors)
    assert error.value.fix is not None
    assert "responseformat=delta;readerfeatures=" in error.value.fix


def test_what_the_recipient_cannot_read_is_refused():
    with pytest.raises(Unsupported, match="the table uses columnMapping, which the recipient does not say"):
        response_format(
            capabilities("responseformat=delta;readerfeatures=deletionvectors"), OLD, MAPPED, vectors=True
        )


def shared(protocol: Protocol, header: str = "responseformat=delta", vectors: bool = False) -> Protocol:
    return shared_protocol(protocol, PLAIN, capabilities(header), vectors=vectors)


def test_protocols_without_what_is_about_the_catalog():
    managed = Protocol(
        3,
        7,
        ("catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors"),
        (
            "catalogManaged",
            "v2Checkpoint",
            "vacuumProtocolCheck",
            "inCommitTimestamp",
            "changeDataFeed",
            "deletionVectors",
        ),
    )
    with_vectors = "responseformat=delta;readerfeatures=deletionvectors"
    assert shared(managed, with_vectors) == Protocol(
        3, 7, ("deletionVectors",), ("changeDataFeed", "deletionVectors")
    )
    # Neither known to the recipient nor needed for these files.
    assert shared(managed) == Protocol(3, 7, (), ("changeDataFeed",))
    assert shared(managed, vectors=True).reader_features == ("deletionVectors",)


def test_an_empty_list_of_reader_features_stays_a_list():
    assert shared(Protocol(3, 7, None, None)) == Protocol(3, 7, (), ())
    assert shared(Protocol(1, 7, None, ("inCommitTimestamp", "appendOnly"))) == Protocol(
        1, 7, None, ("appendOnly",)
    )
    assert shared(Protocol(1, 4)) == Protocol(1, 4)


def test_metadata_without_what_is_about_the_catalogs_log():
    configuration: dict[str, str | None] = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "3",
        "delta.checkpointPolicy": "v2",
        "io.unitycatalog.tableId": "x",
        "delta.enableChangeDataFeed": "true",
        "delta.columnMapping.mode": "name",
        "mine": "1",
    }
    kept = {"delta.enableChangeDataFeed", "delta.columnMapping.mode", "mine"}
    assert set(shared_metadata(Metadata("m", configuration=configuration)).configuration) == kept


def test_a_shared_schema_keeps_comments_only():
    inner = {"type": "struct", "fields": [field("y", "long", comment="why", secret=1)]}
    told = shared_schema(Metadata("m", schema(field("x", inner, **{"delta.columnMapping.id": 1}))))
    expected = {"type": "struct", "fields": [field("y", "long", comment="why")]}
    assert json.loads(told) == {"type": "struct", "fields": [field("x", expected)]}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fields":[{"name":"x"}]}', '{"fields":1}'])
def test_a_schema_that_is_none(text):
    with pytest.raises(Invalid, match="no Delta schema"):
        shared_schema(Metadata("m", text))
