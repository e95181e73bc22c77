"""Schemas: what is one, what a format version allows, and how a table numbers them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inver.domain.iceberg import IllegalArgument
from inver.domain.iceberg.schemas import MAX_DEPTH, canonical, parse_schema, with_fresh_ids
from inver.errors import Invalid
from tests.fixtures.iceberg_tables import by_id, new_table
from tests.fixtures.iceberg_updates import (
    COLUMNS,
    PRIMITIVES,
    SINCE_V3,
    body,
    column,
    partition,
    schema,
    sort,
    spec,
)


def add(*columns: Any, **more: Any) -> Any:
    return {"action": "add-schema", "schema": schema(*columns, **more)}


def current(id_: Any = -1) -> Any:
    return {"action": "set-current-schema", "schema-id": id_}


def parse(*columns: Any, **more: Any) -> Any:
    return parse_schema(json.dumps(schema(*columns, **more)).encode())


NESTED = column(
    4,
    "place",
    {
        "type": "struct",
        "fields": [
            column(5, "lat", "double", required=True),
            column(
                6,
                "tags",
                {
                    "type": "map",
                    "key-id": 7,
                    "key": "string",
                    "value-id": 8,
                    "value": {"type": "struct", "fields": [column(9, "x", "int")]},
                    "value-required": False,
                },
            ),
        ],
    },
    required=True,
)
POINTS = column(
    10,
    "points",
    {
        "type": "list",
        "element-id": 11,
        "element": {"type": "struct", "fields": [column(12, "y", "int")]},
        "element-required": True,
    },
)


class TestReading:
    def test_names_ids_and_parents(self):
        read = parse(*COLUMNS, NESTED, POINTS)
        assert read.names[9] == "place.tags.value.x"
        assert read.names[12] == "points.element.y"
        assert (read.ids["points.y"], read.ids["place.tags.x"], read.ids["place.tags.value.x"]) == (12, 9, 9)
        assert (read.parents[9], read.parents[5], read.highest) == (8, 4, 12)

    @pytest.mark.parametrize("name", [*PRIMITIVES, *SINCE_V3])
    def test_every_primitive_type(self, name):
        assert canonical(name) == name

    @pytest.mark.parametrize(
        ("written", "read"),
        [
            ("STRING", "string"),
            ("decimal(9,2)", "decimal(9, 2)"),
            ("Decimal( 38 , 0 )", "decimal(38, 0)"),
            ("fixed[ 4 ]", "fixed[4]"),
            ("geometry", "geometry(OGC:CRS84)"),
            ("geometry(srid:4326)", "geometry(srid:4326)"),
            ("geography", "geography(OGC:CRS84, spherical)"),
            ("geography(OGC:CRS84, karney)", "geography(OGC:CRS84, karney)"),
        ],
    )
    def test_spellings(self, written, read):
        assert canonical(written) == read

    @pytest.mark.parametrize(
        "name", ["text", "decimal(39, 2)", "fixed[x]", "geometry()", "geography(a, flat)", ""]
    )
    def test_no_such_type(self, name):
        with pytest.raises(IllegalArgument):
            canonical(name)

    @pytest.mark.parametrize(
        ("node", "message"),
        [
            ([], "not a struct type"),
            ({"type": "list"}, "not a struct type"),
            ({"type": "struct"}, "missing field: fields"),
            ({"type": "struct", "fields": [5]}, "must be an array of objects"),
            (
                {"type": "struct", "fields": [{"name": "a", "type": "int", "required": True}]},
                "missing int: id",
            ),
            (schema(column(1, "a", {"type": "set"})), "Cannot parse type from json"),
            (schema(column(1, "a", 7)), "Cannot parse type from json"),
            (schema({"id": 1, "name": "a", "type": "int", "required": 1}), "boolean value: required"),
            (schema({"id": "1", "name": "a", "type": "int", "required": True}), "integer value: id"),
            (schema(column(2**31, "a")), "integer value: id"),
            (schema(column(-1, "a")), "has the id -1"),
            (schema(column(1, "a", {"type": "list", "element-id": 2, "element": "int"})), "element-required"),
            (schema(column(1, "a"), **{"identifier-field-ids": "1"}), "identifier-field-ids"),
            (schema(column(1, "a"), column(2, "a")), "multiple fields for name a: 1 and 2"),
            (schema(column(1, "a"), column(1, "b")), "same id 1"),
            (schema(column(1, "a", "unknown", required=True)), "required field with unknown type: a"),
        ],
    )
    def test_what_is_no_schema(self, node, message):
        with pytest.raises(Invalid) as refusal:
            parse_schema(json.dumps(node).encode())
        assert message in refusal.value.message

    def test_types_may_not_be_nested_without_end(self):
        def nested(depth: Any) -> Any:
            type_: Any = "int"
            for level in range(depth):
                type_ = {"type": "list", "element-id": level + 2, "element": type_, "element-required": False}
            return schema(column(1, "a", type_))

        parse_schema(json.dumps(nested(MAX_DEPTH - 1)).encode())
        with pytest.raises(IllegalArgument, match="nested deeper"):
            parse_schema(json.dumps(nested(MAX_DEPTH)).encode())


class TestIdentifiers:
    def refused(self, *columns: Any, ids: Any) -> Any:
        with pytest.raises(IllegalArgument) as refusal:
            parse(*columns, **{"identifier-field-ids": ids})
        return refusal.value.message

    def test_what_identifies_a_row(self):
        assert parse(*COLUMNS, **{"identifier-field-ids": [1]}).identifiers == {1}

    def test_what_does_not(self):
        start = "Cannot add "
        assert (
            self.refused(*COLUMNS, ids=[9])
            == start + "fieldId 9 as an identifier field: field does not exist"
        )
        assert self.refused(*COLUMNS, ids=[3]).endswith("not a required field")
        assert self.refused(NESTED, ids=[4]).endswith("not a primitive type field")
        assert self.refused(NESTED, ids=[5]).endswith("must not be float or double field")
        real = column(1, "r", "float", required=True)
        assert self.refused(real, ids=[1]).endswith("must not be float or double field")
        inside = column(1, "s", {"type": "struct", "fields": [column(2, "x", "int", required=True)]})
        assert self.refused(inside, ids=[2]).endswith(
            "must not be nested in an optional field 1: s: optional struct<2: x: required int>"
        )
        listed = column(
            1,
            "l",
            {"type": "list", "element-id": 2, "element": "int", "element-required": True},
            required=True,
        )
        assert "must not be nested in 1: l" in self.refused(listed, ids=[2])


class TestDefaults:
    @pytest.mark.parametrize(
        ("type_", "value"),
        [
            ("boolean", True),
            ("int", -(2**31)),
            ("long", 2**63 - 1),
            ("float", 1.5),
            ("double", 1),
            ("decimal(9, 2)", "14.20"),
            ("date", "2017-11-16"),
            ("time", "22:31:08.123456"),
            ("timestamp", "2017-11-16T22:31:08.123456"),
            ("timestamptz", "2017-11-16T22:31:08.123456+00:00"),
            ("timestamp_ns", "2017-11-16T22:31:08.123456789"),
            ("timestamptz_ns", "2017-11-16T22:31:08Z"),
            ("string", "any\nthing"),
            ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
            ("fixed[2]", "00fF"),
            ("binary", "00ff"),
            ("variant", None),
        ],
    )
    def test_values_of_a_type(self, type_, value):
        parse(column(1, "a", type_, **{"initial-default": value, "write-default": value}))

    @pytest.mark.parametrize(
        ("type_", "value"),
        [
            ("boolean", 1),
            ("int", 2**31),
            ("int", True),
            ("int", 1.0),
            ("long", 2**63),
            ("double", "1"),
            ("decimal(9, 2)", "14.2"),
            ("decimal(9, 2)", 14.2),
            ("date", "2017-13-16"),
            ("time", "25:00"),
            ("timestamp", "2017-11-16"),
            ("timestamptz", "2017-11-16T22:31:08+02:00"),
            ("uuid", "f79c3e09"),
            ("fixed[2]", "00"),
            ("binary", "0"),
            ("string", 5),
            ("unknown", 5),
            ("variant", 5),
        ],
    )
    def test_values_of_another(self, type_, value):
        with pytest.raises(IllegalArgument, match="Cannot parse default as a"):
            parse(column(1, "a", type_, **{"write-default": value}))

    def test_nested_types_have_none(self):
        with pytest.raises(IllegalArgument, match="Invalid default value for struct"):
            parse(column(1, "a", {"type": "struct", "fields": []}, **{"initial-default": {}}))


class TestFormatVersions:
    @pytest.mark.parametrize("type_", [*SINCE_V3, "geometry", "geography"])
    def test_types_of_version_3(self, type_):
        new = column(4, "new", type_)
        shown = canonical(type_)
        with pytest.raises(IllegalArgument) as refusal:
            new_table(2).commit(add(*COLUMNS, new))
        assert refusal.value.message == (
            f"Invalid schema for v2:\n- Invalid type for new: {shown} is not supported until v3"
        )
        with pytest.raises(IllegalArgument, match="is not supported until v3"):
            new_table(2, schema=schema(new))
        new_table(3).commit(add(*COLUMNS, new), current())

    def test_initial_defaults(self):
        old, new = (column(4, "new", "int", **{f"{kind}-default": 5}) for kind in ("write", "initial"))
        new_table(2).commit(add(*COLUMNS, old))
        with pytest.raises(IllegalArgument, match="Invalid initial default for new: non-null default"):
            new_table(2).commit(add(*COLUMNS, new))
        new_table(3).commit(add(*COLUMNS, new))

    def test_all_problems_are_told_in_order(self):
        with pytest.raises(IllegalArgument) as refusal:
            new_table(2).commit(add(column(9, "b", "variant"), column(4, "a", "unknown")))
        assert refusal.value.message.splitlines()[1:] == [
            "- Invalid type for a: unknown is not supported until v3",
            "- Invalid type for b: variant is not supported until v3",
        ]

    def test_an_upgrade_opens_them(self):
        table = new_table(2)
        table.commit(
            {"action": "upgrade-format-version", "format-version": 3},
            add(*COLUMNS, column(4, "v", "variant")),
        )


class TestCommits:
    def test_a_new_schema_gets_the_next_id_whatever_it_came_with(self):
        table = new_table()
        document = table.commit(add(*COLUMNS, column(4, "new"), **{"schema-id": 77}), current())
        assert (document["current-schema-id"], document["last-column-id"]) == (1, 4)
        assert list(by_id(document, "schemas", "schema-id")) == [0, 1]

    def test_an_older_schema_stays_as_it_came(self):
        table = new_table()
        before = table.state.parts("schema").get("0")
        table.commit(add(*COLUMNS, column(4, "new"), mine={"a": 1.50}), current())
        assert table.state.parts("schema").get("0") == before
        assert b'"mine":{"a": 1.5}' in (table.state.parts("schema").get("1") or b"")

    def test_adding_one_that_exists_is_no_change(self):
        table = new_table()
        table.commit(add(**{"schema-id": 5}))
        assert not table.change.changed

    def test_another_comment_makes_another_schema(self):
        assert len(new_table().commit(add(*COLUMNS[:2], COLUMNS[2] | {"doc": "new"}))["schemas"]) == 2

    def test_other_identifiers_make_another_schema(self):
        document = new_table().commit(add(**{"identifier-field-ids": [1]}), current())
        assert by_id(document, "schemas", "schema-id")[1]["identifier-field-ids"] == [1]

    def test_the_last_added_is_of_this_request(self):
        table = new_table()
        table.commit(add(*COLUMNS, column(4, "a")))
        with pytest.raises(Invalid, match="Cannot set last added schema: no schema has been added"):
            table.commit(current())

    def test_adding_an_older_one_again_is_not_adding(self):
        table = new_table()
        table.commit(add(*COLUMNS, column(4, "a")), current())
        with pytest.raises(Invalid, match="no schema has been added"):
            table.commit(add(), current())

    def test_one_of_this_request_may_be_added_again(self):
        new = add(*COLUMNS, column(4, "a"))
        assert new_table().commit(new, new, current())["current-schema-id"] == 1

    def test_the_request_before_in_a_transaction_does_not_count(self):
        table = new_table()
        with pytest.raises(Invalid, match="no schema has been added"):
            table.send(body([add(*COLUMNS, column(4, "a"))]), body([current()]))

    def test_going_back_by_id(self):
        table = new_table()
        table.commit(add(*COLUMNS, column(4, "a")), current())
        assert table.commit(current(0))["current-schema-id"] == 0
        with pytest.raises(IllegalArgument, match="Cannot set current schema to unknown schema: 9"):
            table.commit(current(9))

    def test_the_highest_field_id_is_never_forgotten(self):
        table = new_table()
        table.commit(add(*COLUMNS, column(9, "a")), current())
        assert table.commit(add(COLUMNS[0]), current())["last-column-id"] == 9

    def test_ids_go_on_from_the_highest(self):
        table = new_table()
        for number in range(4, 7):
            table.commit(add(*COLUMNS, column(number, "a")), current())
        table.commit({"action": "remove-schemas", "schema-ids": [1, 2, 99]})
        document = table.commit(add(*COLUMNS, column(7, "b")))
        assert list(by_id(document, "schemas", "schema-id")) == [0, 3, 4]

    def test_the_current_one_is_not_removed(self):
        with pytest.raises(IllegalArgument, match="Cannot remove the current schema"):
            new_table().commit({"action": "remove-schemas", "schema-ids": [0]})

    def test_a_schema_without_the_column_of_the_default_spec_cannot_be_current(self):
        table = new_table(**{"partition-spec": spec(partition(3))})
        with pytest.raises(
            Invalid, match="Cannot find source column for partition field: 1000: p3: identity"
        ):
            table.commit(add(*COLUMNS[:2]), current())

    def test_nor_one_without_the_column_of_the_default_order(self):
        table = new_table(**{"write-order": {"order-id": 1, "fields": [sort(3)]}})
        with pytest.raises(Invalid, match=r"sort field: identity\(3\) ASC NULLS FIRST"):
            table.commit(add(*COLUMNS[:2]), current())

    def test_nor_one_with_a_column_called_like_a_partition_of_another(self):
        table = new_table(**{"partition-spec": spec(partition(3, "bucket[4]", "bucketed"))})
        with pytest.raises(IllegalArgument, match="sourced from different field in schema: bucketed"):
            table.commit(add(*COLUMNS, column(4, "bucketed")), current())


class TestNewTables:
    def test_ids_are_given_anew_level_by_level(self):
        read = schema(
            column(100, "a", {"type": "struct", "fields": [column(7, "x", "int"), column(3, "y", "int")]}),
            column(50, "b", {"type": "list", "element-id": 51, "element": "int", "element-required": False}),
            column(
                9,
                "c",
                {
                    "type": "map",
                    "key-id": 1,
                    "key": "string",
                    "value-id": 2,
                    "value": {"type": "struct", "fields": [column(4, "z", "int")]},
                    "value-required": True,
                },
                required=True,
            ),
        )
        written, fresh = with_fresh_ids(json.dumps(read).encode())
        names = parse_schema(written).names
        assert names == {
            1: "a",
            2: "b",
            3: "c",
            4: "a.x",
            5: "a.y",
            6: "b.element",
            7: "c.key",
            8: "c.value",
            9: "c.value.z",
        }
        assert fresh == {100: 1, 50: 2, 9: 3, 7: 4, 3: 5, 51: 6, 1: 7, 2: 8, 4: 9}

    def test_identifiers_follow(self):
        columns = [column(40, "a"), column(20, "b", "long", required=True)]
        written, _ = with_fresh_ids(json.dumps(schema(*columns, **{"identifier-field-ids": [20]})).encode())
        assert parse_schema(written).identifiers == {2}

    def test_what_is_not_known_of_a_field_stays(self):
        field = b'{"id":7,"name":"a","required":false,"type":"int","new": {"x": 1.00}}'
        raw = b'{"type":"struct","fields":[' + field + b"]}"
        assert b'"new":{"x": 1.00}' in with_fresh_ids(raw)[0]
