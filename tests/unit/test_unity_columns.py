"""Columns between Unity's list, delta/v1's struct, schema JSON and Spark's DDL."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inver.domain.datatypes import DataType, ddl, kebab, read_type, type_name
from inver.domain.ddl import parse_ddl
from inver.errors import Invalid
from inver.protocols.unity import columns as cols
from inver.protocols.unity.columns import ColumnInfo

PLAIN = [
    ("boolean", "BOOLEAN", "boolean"),
    ("byte", "BYTE", "tinyint"),
    ("short", "SHORT", "smallint"),
    ("integer", "INT", "int"),
    ("long", "LONG", "bigint"),
    ("float", "FLOAT", "float"),
    ("double", "DOUBLE", "double"),
    ("date", "DATE", "date"),
    ("timestamp", "TIMESTAMP", "timestamp"),
    ("timestamp_ntz", "TIMESTAMP_NTZ", "timestamp_ntz"),
    ("string", "STRING", "string"),
    ("binary", "BINARY", "binary"),
    ("variant", "VARIANT", "variant"),
    ("void", "NULL", "void"),
    ("decimal(10,2)", "DECIMAL", "decimal(10,2)"),
    ("char(3)", "CHAR", "char(3)"),
    ("varchar(20)", "STRING", "varchar(20)"),
    ("interval", "INTERVAL", "interval"),
    ("interval year to month", "INTERVAL", "interval year to month"),
    ("interval day to second", "INTERVAL", "interval day to second"),
    ("interval hour", "INTERVAL", "interval hour"),
]


@pytest.mark.parametrize(("simple", "name", "text"), PLAIN)
def test_plain_types_have_a_name_and_a_text(simple: str, name: str, text: str) -> None:
    assert read_type(simple, "t") == simple
    assert (type_name(simple), ddl(simple)) == (name, text)
    assert parse_ddl(text, "t") == simple


def test_nested_types_in_all_spellings() -> None:
    wire = {
        "type": "map",
        "key-type": "string",
        "value-type": {
            "type": "array",
            "element-type": {
                "type": "struct",
                "fields": [
                    {"name": "a b", "type": "long", "nullable": False, "metadata": {"contains-null": 1}},
                    {"name": "c", "type": "decimal(38,18)", "nullable": True, "metadata": {}},
                ],
            },
            "contains-null": False,
        },
        "value-contains-null": True,
    }
    inner = read_type(wire, "t", complete=True)
    assert inner == {
        "type": "map",
        "keyType": "string",
        "valueType": {
            "type": "array",
            "elementType": {
                "type": "struct",
                "fields": [
                    {"name": "a b", "type": "long", "nullable": False, "metadata": {"contains-null": 1}},
                    {"name": "c", "type": "decimal(38,18)", "nullable": True, "metadata": {}},
                ],
            },
            "containsNull": False,
        },
        "valueContainsNull": True,
    }
    assert kebab(inner) == wire
    assert ddl(inner) == "map<string,array<struct<`a b`:bigint,c:decimal(38,18)>>>"
    assert type_name(inner) == "MAP"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INT", "integer"),
        (" numeric ( 12 ) ", "decimal(12,0)"),
        ("decimal", "decimal(10,0)"),
        ("timestamp_ltz", "timestamp"),
        ("array<int>", {"type": "array", "elementType": "integer", "containsNull": True}),
        (
            "struct<a: int not null, `b``c` string>",
            {
                "type": "struct",
                "fields": [
                    {"name": "a", "type": "integer", "nullable": False, "metadata": {}},
                    {"name": "b`c", "type": "string", "nullable": True, "metadata": {}},
                ],
            },
        ),
        ("struct<>", {"type": "struct", "fields": []}),
    ],
)
def test_ddl_is_read(text: str, expected: DataType) -> None:
    assert parse_ddl(text, "t") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "array",
        "array<int",
        "array<>",
        "map<int>",
        "struct<a>",
        "int int",
        "int;",
        "int>",
        "decimal(39)",
        "decimal(a,b)",
        "interval fortnight",
        "frob",
        "array<" * 200 + "int" + ">" * 200,
        "struct<a:int,A:int>",
    ],
)
def test_ddl_that_is_none_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_ddl(text, "columns[0].type_text")
    assert str(refused.value.field).startswith("columns[0].type_text")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ([{"name": "a", "type": "long", "nullable": True}], "columns.fields[0].metadata"),
        ([{"name": "a", "type": "long", "metadata": {}}], "columns.fields[0].nullable"),
        ([{"name": "a", "type": "long", "nullable": "yes", "metadata": {}}], "columns.fields[0].nullable"),
        ([{"name": "", "type": "long", "nullable": True, "metadata": {}}], "columns.fields[0].name"),
        ([{"name": "x" * 256, "type": "long", "nullable": True, "metadata": {}}], "columns.fields[0].name"),
        ([{"type": "long", "nullable": True, "metadata": {}}], "columns.fields[0].name"),
        ([{"name": "a", "nullable": True, "metadata": {}}], "columns.fields[0].type"),
        ([{"name": "a", "type": "int", "nullable": True, "metadata": {}}], "columns.fields[0].type"),
        (
            [{"name": "a", "type": "decimal(39,0)", "nullable": True, "metadata": {}}],
            "columns.fields[0].type",
        ),
        ([{"name": "a", "type": "decimal(5,6)", "nullable": True, "metadata": {}}], "columns.fields[0].type"),
        ([{"name": "a", "type": "decimal(0,0)", "nullable": True, "metadata": {}}], "columns.fields[0].type"),
        (
            [{"name": "a", "type": {"type": "set"}, "nullable": True, "metadata": {}}],
            "columns.fields[0].type",
        ),
        ([{"name": "a", "type": 7, "nullable": True, "metadata": {}}], "columns.fields[0].type"),
        (
            [
                {
                    "name": "a",
                    "type": {"type": "array", "contains-null": True},
                    "nullable": True,
                    "metadata": {},
                }
            ],
            "columns.fields[0].type.element-type",
        ),
        (
            [
                {
                    "name": "a",
                    "type": {"type": "array", "element-type": "long"},
                    "nullable": True,
                    "metadata": {},
                }
            ],
            "columns.fields[0].type.contains-null",
        ),
        (
            [
                {"name": "id", "type": "long", "nullable": True, "metadata": {}},
                {"name": "ID", "type": "long", "nullable": True, "metadata": {}},
            ],
            "columns.fields[1].name",
        ),
        ("nothing", "columns.fields"),
        (["a"], "columns.fields[0]"),
    ],
)
def test_a_wrong_struct_is_refused_at_its_place(fields: Any, place: str) -> None:
    with pytest.raises(Invalid) as refused:
        cols.from_struct({"type": "struct", "fields": fields})
    assert refused.value.field == place
    assert place in refused.value.message


def test_a_type_that_is_nested_too_deeply_is_refused() -> None:
    given: DataType = "long"
    for _ in range(70):
        given = {"type": "array", "element-type": given, "contains-null": True}
    with pytest.raises(Invalid, match="nested deeper"):
        read_type(given, "t")


def test_a_column_keeps_the_words_of_its_client() -> None:
    text = '{"name":"id","type":"long","nullable":true,"metadata":{"delta.columnMapping.id":1}}'
    info = ColumnInfo(
        name="id", type_text="BIGINT", type_json=text, type_name="LONG", position=0, nullable=True
    )
    [column] = cols.from_infos([info])
    assert column == cols.Column(
        name="id",
        type_text="BIGINT",
        type_json=text,
        type_name="LONG",
        type_precision=0,
        type_scale=0,
        position=0,
        nullable=True,
    )


@pytest.mark.parametrize(
    "info",
    [
        ColumnInfo(name="price", type_json='"decimal(10,2)"'),
        ColumnInfo(name="price", type_json='{"type":"decimal(10,2)"}'),
        ColumnInfo(name="price", type_json='{"name":"price","type":"decimal(10,2)"}'),
        ColumnInfo(name="price", type_text="decimal(10,2)"),
        ColumnInfo(name="price", type_name="DECIMAL", type_precision=10, type_scale=2),
        ColumnInfo(name="price", type="decimal(10,2)", nullable=True),
    ],
)
def test_a_column_is_completed_from_what_is_there(info: ColumnInfo) -> None:
    [column] = cols.from_infos([info])
    assert json.loads(column.type_json) == {
        "name": "price",
        "type": "decimal(10,2)",
        "nullable": True,
        "metadata": {},
    }
    assert (column.type_text, column.type_name) == ("decimal(10,2)", "DECIMAL")
    assert (column.type_precision, column.type_scale) == (10, 2)


def test_a_type_that_stands_alone_as_json_may_be_nested() -> None:
    text = '{"type":"array","elementType":"long","containsNull":true}'
    [column] = cols.from_infos([ColumnInfo(name="xs", type_json=text)])
    assert column.type_text == "array<bigint>"
    assert json.loads(cols.struct_json(cols.encode([column]))) == {
        "type": "struct",
        "fields": [
            {
                "name": "xs",
                "type": {"type": "array", "element-type": "long", "contains-null": True},
                "nullable": True,
                "metadata": {},
            }
        ],
    }


@pytest.mark.parametrize(
    ("inner", "text", "shown"),
    [
        ("y z", "struct<y z:string>", "struct<`y z`:string>"),
        ("y-z", "struct<y-z:string>", "struct<`y-z`:string>"),
        ("y`z", "struct<y`z:string>", "struct<`y``z`:string>"),
        ("y", "STRUCT<y: STRING>", "STRUCT<y: STRING>"),
    ],
)
def test_a_text_that_nobody_can_read_back_is_written_anew(inner, text, shown):
    """Spark sends it so, and then asks for a text that it can read."""
    kind = {"type": "struct", "fields": [{"name": inner, "type": "string", "nullable": True, "metadata": {}}]}
    field = json.dumps({"name": "a", "type": kind, "nullable": True, "metadata": {}})
    [column] = cols.from_infos([ColumnInfo(name="a", type_text=text, type_json=field, type_name="STRUCT")])
    assert column.type_text == shown
    assert column.type_json == field


@pytest.mark.parametrize(
    ("infos", "place"),
    [
        ([ColumnInfo(type_text="int")], "columns[0].name"),
        ([ColumnInfo(name="a")], "columns[0]"),
        ([ColumnInfo(name="a", type_name="ARRAY")], "columns[0]"),
        ([ColumnInfo(name="a", type_name="FROB", type_text="int")], "columns[0].type_name"),
        ([ColumnInfo(name="a", type_json="long")], "columns[0].type_json"),
        ([ColumnInfo(name="a", type_json='{"name":"b","type":"long"}')], "columns[0].type_json"),
        (
            [ColumnInfo(name="a", type_json='{"name":"a","type":"long"}', nullable=False)],
            "columns[0].nullable",
        ),
        ([ColumnInfo(name="a", type_json='{"name":"a","type":"\\u0000"}')], "columns[0].type_json"),
        ([ColumnInfo(name="a", type_json="[" * 5000)], "columns[0].type_json"),
        ([ColumnInfo(name="a", type_json='"long"', type_text="int")], "columns[0].type_text"),
        ([ColumnInfo(name="a", type_json='"string"', type_text="array<string>")], "columns[0].type_text"),
        ([ColumnInfo(name="a", type="long", type_text="struct<a:int>")], "columns[0].type_text"),
        ([ColumnInfo(name="a", type_json='"long"', type_name="INT")], "columns[0].type_name"),
        ([ColumnInfo(name="a", type_text="bigint", type_name="STRING")], "columns[0].type_name"),
        ([ColumnInfo(name="a", type_text="int", position=-1)], "columns[0].position"),
        (
            [ColumnInfo(name="a", type_text="int"), ColumnInfo(name="A", type_text="int")],
            "columns[1].name",
        ),
        (
            [
                ColumnInfo(name="a", type_text="int", position=1),
                ColumnInfo(name="b", type_text="int", position=1),
            ],
            "columns[1].position",
        ),
        (
            [
                ColumnInfo(name="a", type_text="int", partition_index=0),
                ColumnInfo(name="b", type_text="int", partition_index=0),
            ],
            "columns[1].partition_index",
        ),
    ],
)
def test_wrong_columns_are_refused_at_their_place(infos: list[ColumnInfo], place: str) -> None:
    with pytest.raises(Invalid) as refused:
        cols.from_infos(infos)
    assert refused.value.field == place


@pytest.mark.parametrize(
    ("type_json", "type_text", "shown"),
    [
        ('"long"', "BIGINT", "BIGINT"),
        ('"long"', "long", "long"),
        ('"long"', None, "bigint"),
        ('"long"', "", "bigint"),
        ('"long"', "garbage <<<", "bigint"),
        ('"long"', "x" * 200_000, "bigint"),
        ('"string"', "varchar(5)", "varchar(5)"),
        ('"varchar(5)"', "string", "string"),
        ('"string"', "string collate UTF8_LCASE", "string"),
        (
            '{"type":"struct","fields":[{"name":"A b","type":"long"}]}',
            "struct<A b:bigint>",
            "struct<`A b`:bigint>",
        ),
        (
            '{"type":"struct","fields":[{"name":"Ab","type":"long"}]}',
            "struct<ab:bigint>",
            "struct<ab:bigint>",
        ),
        (
            '{"type":"struct","fields":[{"name":"a","type":"long"}]}',
            "struct<a:bigint,... 3 more fields>",
            "struct<a:bigint>",
        ),
    ],
)
def test_the_text_of_a_type_can_always_be_read(type_json: str, type_text: str | None, shown: str) -> None:
    [column] = cols.from_infos([ColumnInfo(name="a", type_json=type_json, type_text=type_text)])
    assert column.type_text == shown
    parse_ddl(column.type_text, "type_text")


@pytest.mark.parametrize(
    ("type_text", "type_name"),
    [("char(3)", "STRING"), ("string", "CHAR"), ("varchar(3)", "CHAR"), ("bigint", "USER_DEFINED_TYPE")],
)
def test_names_of_types_that_mean_the_same_to_somebody(type_text: str, type_name: str) -> None:
    [column] = cols.from_infos([ColumnInfo(name="a", type_text=type_text, type_name=type_name.lower())])
    assert column.type_name == type_name


def test_columns_stand_in_the_order_of_their_positions() -> None:
    given = [
        ColumnInfo(name="b", type_text="int", position=1, partition_index=1),
        ColumnInfo(name="a", type_text="int", position=0),
        ColumnInfo(name="c", type_text="int", position=2, partition_index=0),
    ]
    found = cols.from_infos(given)
    assert [column.name for column in found] == ["a", "b", "c"]
    assert cols.partition_columns(found) == ("c", "b")


def test_partition_columns_follow_the_state_of_the_table() -> None:
    found = cols.from_infos(
        [ColumnInfo(name="Day", type_text="date", partition_index=0), ColumnInfo(name="n", type_text="int")]
    )
    assert [column.partition_index for column in cols.partitioned(found, ["n", "day"])] == [1, 0]
    assert [column.partition_index for column in cols.partitioned(found, [])] == [None, None]


def test_char_and_varchar_are_strings_with_metadata() -> None:
    field = {
        "name": "code",
        "type": "string",
        "nullable": True,
        "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(10)", "comment": "short"},
    }
    struct = {"type": "struct", "fields": [field]}
    [column] = cols.from_struct(struct)
    assert (column.type_text, column.type_name, column.comment) == ("string", "STRING", "short")
    assert json.loads(cols.struct_json(cols.encode([column]))) == struct


def test_columns_that_another_protocol_wrote_are_shown_as_what_they_are() -> None:
    kept = (
        b'[{"name":"id","type":"long","id":1,"required":true},{"name":"v","type":"fixed_size_list:float:8"}]'
    )
    [known, foreign] = cols.from_kept(kept)
    assert (known.type_name, known.type_text) == ("LONG", "bigint")
    assert (foreign.type_name, foreign.type_text) == ("USER_DEFINED_TYPE", "fixed_size_list:float:8")
    assert cols.from_kept(b'[{"name": 5}]') == []


def test_the_struct_of_many_columns_is_not_remembered() -> None:
    infos = [ColumnInfo(name=f"column_{index}", type_text="bigint") for index in range(600)]
    kept = cols.encode(cols.from_infos(infos))
    assert len(kept) > 64 * 1024
    assert len(json.loads(cols.struct_json(kept))["fields"]) == 600


# --- properties ---

letters = st.characters(codec="utf-8", exclude_characters="\x00")
names = st.text(letters, min_size=1, max_size=20)
plain = st.sampled_from([simple for simple, _, _ in PLAIN]) | st.builds(
    lambda precision, less: f"decimal({precision},{max(0, precision - less)})",
    st.integers(1, 38),
    st.integers(0, 38),
)
metadata = st.dictionaries(names, st.integers() | st.text(letters, max_size=5) | st.booleans(), max_size=2)


def structs(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[dict[str, Any]]:
    fields = st.fixed_dictionaries(
        {"name": names, "type": types, "nullable": st.booleans(), "metadata": metadata}
    )
    return st.builds(
        lambda found: {"type": "struct", "fields": found},
        st.lists(fields, max_size=4, unique_by=lambda field: field["name"].lower()),
    )


def nested(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "element-type": types, "contains-null": st.booleans()}
    )
    maps = st.fixed_dictionaries(
        {
            "type": st.just("map"),
            "key-type": types,
            "value-type": types,
            "value-contains-null": st.booleans(),
        }
    )
    return arrays | maps | structs(types)


types: st.SearchStrategy[DataType] = st.recursive(plain, nested, max_leaves=8)


@settings(max_examples=50)
@given(structs(types))
def test_the_struct_comes_back_from_the_list_as_it_went_in(struct: dict[str, Any]) -> None:
    kept = cols.encode(cols.from_struct(struct))
    assert msgspec.json.decode(cols.struct_json(kept)) == struct


@settings(max_examples=50)
@given(structs(types))
def test_the_list_can_be_sent_back_unchanged(struct: dict[str, Any]) -> None:
    kept = cols.encode(cols.from_struct(struct))
    sent = msgspec.json.decode(kept, type=list[ColumnInfo])
    assert cols.encode(cols.from_infos(sent)) == kept
    assert cols.encode(cols.from_kept(kept)) == kept


@given(types)
def test_spark_reads_back_the_text_of_every_type(given_type: DataType) -> None:
    inner = read_type(given_type, "t")
    assert ddl(parse_ddl(ddl(inner), "t")) == ddl(inner)


@given(st.text(max_size=40))
def test_any_text_is_a_type_or_refused(text: str) -> None:
    with suppress(Invalid):
        read_type(parse_ddl(text, "t"), "t")
