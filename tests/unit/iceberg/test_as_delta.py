"""Iceberg schemas in Delta's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inver.domain.delta_actions import Protocol
from inver.domain.iceberg.as_delta import NAME_MAPPING, DeltaSchema, delta_schema
from inver.domain.iceberg.schemas import Schema
from inver.errors import Unsupported
from tests.fixtures.iceberg_fields import field, many, pairs, schema, struct


def told(*known: Schema, current: int = -1, **properties: str) -> DeltaSchema:
    return delta_schema(known[current], known, properties)


def fields(made: DeltaSchema) -> dict[str, Any]:
    return {each["name"]: each for each in json.loads(made.text)["fields"]}


def test_every_type_that_delta_has():
    kinds = {
        "boolean": "boolean",
        "int": "integer",
        "long": "long",
        "float": "float",
        "double": "double",
        "decimal(9, 2)": "decimal(9,2)",
        "date": "date",
        "timestamp": "timestamp_ntz",
        "timestamptz": "timestamp",
        "string": "string",
        "binary": "binary",
        "variant": "variant",
    }
    made = told(schema(*(field(at, f"c{at}", kind) for at, kind in enumerate(kinds, 1))))
    assert [each["type"] for each in fields(made).values()] == list(kinds.values())
    assert set(made.features) == {"timestampNtz", "variantType", "variantShredding"}
    assert not made.mapped


def test_nested_types_docs_and_nulls():
    made = told(
        schema(
            field(1, "id", "long", required=True, doc="who"),
            field(2, "s", struct(field(3, "x", "int", required=True, doc="inner"))),
            field(4, "l", many(5, struct(field(6, "y", "date")), required=True)),
            field(7, "m", pairs(8, "string", 9, many(10, "long"))),
        )
    )
    assert fields(made) == {
        "id": {"name": "id", "type": "long", "nullable": False, "metadata": {"comment": "who"}},
        "s": {
            "name": "s",
            "type": struct(
                {"name": "x", "type": "integer", "nullable": False, "metadata": {"comment": "inner"}}
            ),
            "nullable": True,
            "metadata": {},
        },
        "l": {
            "name": "l",
            "type": {
                "type": "array",
                "elementType": struct({"name": "y", "type": "date", "nullable": True, "metadata": {}}),
                "containsNull": False,
            },
            "nullable": True,
            "metadata": {},
        },
        "m": {
            "name": "m",
            "type": {
                "type": "map",
                "keyType": "string",
                "valueType": {"type": "array", "elementType": "long", "containsNull": True},
                "valueContainsNull": False,
            },
            "nullable": True,
            "metadata": {},
        },
    }


@pytest.mark.parametrize(
    "kind",
    ["time", "uuid", "fixed[4]", "timestamp_ns", "timestamptz_ns", "unknown", "geometry", "geography"],
)
@pytest.mark.parametrize("place", ["", ".inner", ".element", ".key", ".value"])
def test_a_type_that_delta_does_not_have_is_refused_by_name(kind: str, place: str):
    nested = {
        "": kind,
        ".inner": struct(field(2, "inner", kind)),
        ".element": many(2, kind),
        ".key": pairs(2, kind, 3, "int"),
        ".value": pairs(2, "int", 3, kind),
    }
    with pytest.raises(Unsupported, match=f"column 'c{place}' is of type") as refused:
        told(schema(field(1, "c", nested[place])))
    assert refused.value.fix is not None


def test_a_default_for_rows_of_old_files_is_refused():
    told(schema(field(1, "c", "int", **{"write-default": 5})))
    with pytest.raises(Unsupported, match=r"'s\.c' has a default"):
        told(schema(field(1, "s", struct(field(2, "c", "int", **{"initial-default": 5})))))


def test_names_that_differ_in_case_alone_are_refused():
    with pytest.raises(Unsupported, match=r"'s\.A' from one in other case"):
        told(schema(field(1, "s", struct(field(2, "a", "int"), field(3, "A", "int")))))


ONE = schema(field(1, "a", "int"), field(2, "s", struct(field(3, "x", "int"))))


@pytest.mark.parametrize(
    ("known", "mapped"),
    [
        ([ONE], False),
        ([ONE, schema(field(1, "a", "int"), field(9, "b", "int"), number=1)], False),
        ([ONE, schema(field(2, "s", struct(field(3, "x", "int"))), number=1)], False),
        ([ONE, schema(field(1, "b", "int"), number=1)], True),
        ([ONE, schema(field(9, "a", "int"), number=1)], True),
        ([ONE, schema(field(2, "s", struct(field(3, "y", "int"))), number=1)], True),
        ([ONE, schema(field(2, "s2", struct(field(3, "x", "int"))), number=1)], True),
        # Swapped, and back again.
        ([ONE, schema(field(1, "b", "int"), number=1), schema(field(1, "a", "int"), number=2)], True),
        # What a removed schema said, nobody knows.
        ([ONE, schema(field(1, "a", "int"), number=2)], True),
        ([schema(field(1, "a b", "int"))], True),
        ([schema(field(1, "1a", "int"))], True),
        ([schema(field(1, "ä", "int"))], True),
    ],
)
def test_columns_are_found_by_id_where_names_do_not_do(known: list[Schema], mapped: bool):
    made = told(*known)
    assert made.mapped is mapped
    assert ("columnMapping" in made.features) is mapped
    head = made.head("t", [])
    assert (head.metadata.configuration.get("delta.columnMapping.mode") == "id") is mapped


def test_ids_and_physical_names_of_mapped_columns():
    later = schema(field(1, "b", "int"), field(2, "s", struct(field(7, "z", "int"))), number=1)
    made = told(ONE, later)
    mapping = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    assert fields(made)["b"]["metadata"] == mapping
    inner = fields(made)["s"]["type"]["fields"][0]
    assert inner["metadata"] == {"delta.columnMapping.id": 7, "delta.columnMapping.physicalName": "col-7"}
    assert made.head("t", []).metadata.configuration["delta.columnMapping.maxColumnId"] == "7"
    forced = delta_schema(ONE, [ONE], {}, mapped=True)
    assert forced.mapped


def test_widened_types_are_told_from_step_to_step():
    def version(number: int, price: str, element: str, key: str) -> Schema:
        return schema(
            field(1, "price", price), field(2, "m", pairs(3, key, 4, many(5, element))), number=number
        )

    made = told(
        version(0, "decimal(4, 2)", "float", "int"),
        version(1, "decimal(9, 2)", "float", "int"),
        version(2, "decimal(12, 2)", "double", "long"),
    )
    assert made.features == ("typeWidening",)
    assert fields(made)["price"]["metadata"]["delta.typeChanges"] == [
        {"fromType": "decimal(4,2)", "toType": "decimal(9,2)"},
        {"fromType": "decimal(9,2)", "toType": "decimal(12,2)"},
    ]
    changes = fields(made)["m"]["metadata"]["delta.typeChanges"]
    assert sorted(changes, key=str) == [
        {"fromType": "float", "toType": "double", "fieldPath": "value.element"},
        {"fromType": "integer", "toType": "long", "fieldPath": "key"},
    ]


def test_a_type_that_became_known_was_not_widened_and_a_narrower_one_is_refused():
    made = told(schema(field(1, "a", "unknown")), schema(field(1, "a", "int"), number=1))
    assert made.features == ()
    wider = schema(field(1, "a", "long"), number=1)
    with pytest.raises(Unsupported, match="was of type long before, and int is narrower"):
        told(schema(field(1, "a", "int")), wider, current=0)


@pytest.mark.parametrize(
    ("mapping", "fits"),
    [
        ([{"field-id": 1, "names": ["a"]}, {"field-id": 2, "names": ["s"]}], True),
        ([{"field-id": 1, "names": ["a", "old"]}], False),
        ([{"field-id": 2, "names": ["s"], "fields": [{"field-id": 3, "names": ["y"]}]}], False),
        ([{"names": ["gone"]}, {"field-id": 77, "names": ["dropped"]}], True),
        ({"not": "a list"}, False),
    ],
)
def test_files_without_ids_are_read_by_names_that_are_the_same(mapping: Any, fits: bool):
    properties = {NAME_MAPPING: json.dumps(mapping)}
    if fits:
        assert not delta_schema(ONE, [ONE], properties).mapped
        renamed = schema(field(1, "b", "int"), number=1)
        with pytest.raises(Unsupported, match="may have no field ids"):
            delta_schema(renamed, [ONE, renamed], properties)
    else:
        with pytest.raises(Unsupported, match="may have no field ids"):
            delta_schema(ONE, [ONE], properties)


def test_the_protocol_names_what_is_used():
    made = told(ONE)
    partition = ONE.struct.fields[0]
    head = made.head("t", [partition])
    assert head.protocol == Protocol(1, 4)
    assert (head.metadata.id, head.metadata.partition_columns) == ("t", ("a",))
    assert head.metadata.enabled("delta.enableChangeDataFeed")
    more = made.head("t", [], {"deletionVectors"}).protocol
    assert more == Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "changeDataFeed"))
