"""Managed Delta tables that the catalog makes itself: their columns, features and first file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inver.domain import delta, delta_new
from inver.domain.ddl import parse_columns
from inver.domain.delta import Metadata
from inver.errors import Invalid
from inver.formats.delta_commit import summarize
from inver.formats.delta_first import write_first

TABLE = "01a1ec71-b922-7e7a-b20f-924a5b36f4eb"


def field(name: str, kind: Any, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("id BIGINT", [field("id", "long")]),
        ("id bigint, city STRING", [field("id", "long"), field("city", "string")]),
        ("id: int NOT NULL", [field("id", "integer", False)]),
        (
            "id INT NOT NULL COMMENT 'it''s, the (key)', n decimal(5)",
            [field("id", "integer", False, comment="it's, the (key)"), field("n", "decimal(5,0)")],
        ),
        ("`a,b` date comment ''", [field("a,b", "date", comment="")]),
        (
            "s struct<a: int not null comment 'x', b: array<map<string, double>>>",
            [
                field(
                    "s",
                    {
                        "type": "struct",
                        "fields": [
                            field("a", "integer", False, comment="x"),
                            field(
                                "b",
                                {
                                    "type": "array",
                                    "elementType": {
                                        "type": "map",
                                        "keyType": "string",
                                        "valueType": "double",
                                        "valueContainsNull": True,
                                    },
                                    "containsNull": True,
                                },
                            ),
                        ],
                    },
                )
            ],
        ),
        ("i interval day to second comment 'c'", [field("i", "interval day to second", comment="c")]),
    ],
)
def test_columns_are_read(text, fields):
    assert parse_columns(text, "schema") == fields


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "id",
        "id BIGINT,",
        ", id BIGINT",
        "id BIGINT city STRING",
        "id BIGINT NOT",
        "id BIGINT COMMENT key",
        "id BIGINT COMMENT 'key",
        "id BIGINT DEFAULT 1",
        "'id' BIGINT",
        "id 'BIGINT'",
        "id array<int",
        "id decimal(99)",
        "id BIGINT, ID STRING",
        "id numbers",
        "x " + "array<" * 80 + "int" + ">" * 80,
        "x" * 100_001,
    ],
)
def test_what_is_no_list_of_columns_is_refused(text):
    with pytest.raises(Invalid) as refused:
        parse_columns(text, "schema")
    assert refused.value.field is not None
    assert refused.value.field.startswith("schema")


def test_features_follow_from_columns_and_properties():
    base = {*delta.REQUIRED_FEATURES, *delta.RECOMMENDED_FEATURES}

    def features(text: str, **asked: str) -> set[str]:
        properties = delta_new.properties_of(TABLE, {"delta." + key: value for key, value in asked.items()})
        protocol = delta_new.protocol_for(parse_columns(text, "schema"), properties)
        delta.require_managed(TABLE, protocol, properties)
        return set(protocol.writer_features) - base

    assert features("id BIGINT") == set()
    assert features("a array<struct<t:timestamp_ntz>>") == {"timestampNtz"}
    assert features("m map<string,variant>") == {"variantType"}
    assert features("id BIGINT NOT NULL") == {"invariants"}
    assert features("id BIGINT", enableChangeDataFeed="true") == {"changeDataFeed"}
    assert features("id BIGINT", enableChangeDataFeed="false", appendOnly="TRUE") == {"appendOnly"}


def test_recommended_properties_can_be_asked_for_otherwise():
    asked = {
        "delta.checkpointPolicy": "classic",
        "team": "sales",
        "delta.logRetentionDuration": "interval 1 day",
    }
    made = delta_new.properties_of(TABLE, asked)
    assert asked.items() <= made.items()
    assert made["delta.enableDeletionVectors"] == "true"
    assert made[delta.TABLE_ID] == TABLE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (delta.TABLE_ID, "another"),
        ("delta.enableInCommitTimestamps", "false"),
        ("delta.columnMapping.mode", "name"),
        ("delta.enableRowTracking", "true"),
        ("delta.feature.columnMapping", "supported"),
        ("delta.constraints.positive", "id > 0"),
        ("delta.minReaderVersion", "1"),
    ],
)
def test_properties_that_need_a_writer_are_refused(key, value):
    with pytest.raises(Invalid) as refused:
        delta_new.properties_of(TABLE, {key: value})
    assert refused.value.field == f"properties.{key}"


@pytest.mark.parametrize(
    ("text", "by", "wrong"),
    [
        ("a int, b varchar(3)", [], "schema"),
        ("a array<interval>", [], "schema"),
        ("a int, b void", [], "schema"),
        ("`a b` int", [], "schema"),
        ("s struct<`a=b`:int>", [], "schema"),
        ("a int, b int", ["c"], "partition_by"),
        ("a int, b array<int>", ["b"], "partition_by"),
        ("a int, b int", ["b", "B"], "partition_by"),
        ("a int, b int", ["a", "b"], "partition_by"),
    ],
)
def test_columns_that_no_file_can_have_are_refused(text, by, wrong):
    with pytest.raises(Invalid) as refused:
        delta_new.check_fields(parse_columns(text, "schema"), by)
    assert refused.value.field == wrong


def test_partition_columns_are_spelled_as_the_columns():
    assert delta_new.check_fields(parse_columns("id int, Day date", "schema"), ["DAY"]) == ("Day",)


def test_the_first_file_says_what_was_asked():
    fields = parse_columns("id bigint comment 'é', day date", "schema")
    properties = delta_new.properties_of(TABLE, {"delta.enableChangeDataFeed": "true"})
    protocol = delta_new.protocol_for(fields, properties)
    schema = json.dumps({"type": "struct", "fields": fields}).encode()
    metadata = Metadata("m", schema, ("day",), properties, description="what for")
    data = write_first(metadata, protocol, 1_700_000_000_000, "Inver/test")
    assert next(iter(json.loads(data.splitlines()[0]))) == "commitInfo", (
        "where readers look for the timestamp"
    )
    read = summarize(data)
    assert (read.timestamp, read.operation, read.protocol) == (1_700_000_000_000, "CREATE TABLE", protocol)
    assert read.metadata == metadata
    assert json.loads(data.splitlines()[1])["protocol"]["minWriterVersion"] == 7
