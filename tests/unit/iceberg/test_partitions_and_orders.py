"""Partition specs and sort orders: binding, numbering and reuse."""

from __future__ import annotations

from typing import Any

import pytest

from inver.domain.iceberg import IllegalArgument
from inver.domain.iceberg.transforms import applies, canonical_transform
from inver.errors import Invalid
from tests.fixtures.iceberg_tables import by_id, new_table
from tests.fixtures.iceberg_updates import COLUMNS, column, order, partition, schema, sort, spec

NESTED = [
    *COLUMNS,
    column(4, "s", {"type": "struct", "fields": [column(6, "x", "int")]}),
    column(5, "l", {"type": "list", "element-id": 7, "element": "int", "element-required": False}),
]


def add_spec(*fields: Any, **more: Any) -> Any:
    return {"action": "add-spec", "spec": spec(*fields, **more)}


def default_spec(id_: Any = -1) -> Any:
    return {"action": "set-default-spec", "spec-id": id_}


def add_order(*fields: Any, **more: Any) -> Any:
    return {"action": "add-sort-order", "sort-order": order(*fields, **more)}


def default_order(id_: Any = -1) -> Any:
    return {"action": "set-default-sort-order", "sort-order-id": id_}


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("Identity", "identity"),
        ("BUCKET[16]", "bucket[16]"),
        ("truncate[007]", "truncate[7]"),
        ("Void", "void"),
        ("zorder", "zorder"),
        ("Zorder[3]", "Zorder[3]"),
    ],
)
def test_transforms_have_one_spelling(written, canonical):
    assert canonical_transform(written) == canonical


@pytest.mark.parametrize("written", ["bucket[0]", "truncate[0]", "bucket[99999999999]"])
def test_transforms_need_a_width(written):
    with pytest.raises(IllegalArgument, match="must be > 0"):
        canonical_transform(written)


def test_transforms_apply_to_some_types():
    assert applies("day", "date")
    assert not applies("hour", "date")
    assert applies("hour", "timestamptz_ns")
    assert applies("bucket[3]", "decimal(9, 2)")
    assert not applies("bucket[3]", "double")
    assert not applies("truncate[3]", "date")
    assert applies("identity", "double")
    assert not applies("identity", "geometry(OGC:CRS84)")
    assert not applies("identity", "variant")
    assert applies("of tomorrow", "variant")


class TestSpecs:
    def test_a_new_one_gets_the_next_id(self):
        table = new_table()
        document = table.commit(add_spec(partition(3, field=1000), **{"spec-id": 9}), default_spec())
        assert (document["default-spec-id"], document["last-partition-id"]) == (1, 1000)
        assert by_id(document, "partition-specs", "spec-id")[1]["fields"] == [partition(3, field=1000)]

    def test_the_same_one_keeps_its_id_whatever_its_field_ids(self):
        table = new_table()
        table.commit(add_spec(partition(3, "Bucket[4]", field=1000)), default_spec())
        document = table.commit(add_spec(partition(3, "bucket[4]", field=1007)), default_spec(1))
        assert not table.change.changed
        assert document["last-partition-id"] == 1000

    def test_another_name_makes_another(self):
        table = new_table()
        table.commit(add_spec(partition(3, field=1000)))
        assert len(table.commit(add_spec(partition(3, name="n", field=1000)))["partition-specs"]) == 3

    def test_fields_without_ids_get_that_of_the_same_field_or_a_new_one(self):
        table = new_table()
        table.commit(add_spec(partition(3, "bucket[4]", "b", 1000), partition(2, "day", "d", 1001)))
        document = table.commit(add_spec(partition(1, name="id"), partition(2, "day", "d")))
        fields = by_id(document, "partition-specs", "spec-id")[2]["fields"]
        assert [field["field-id"] for field in fields] == [1002, 1001]
        assert document["last-partition-id"] == 1002

    def test_in_version_1_ids_are_places(self):
        table = new_table(1)
        document = table.commit(add_spec(partition(3), partition(1)), default_spec())
        fields = by_id(document, "partition-specs", "spec-id")[1]["fields"]
        assert [field["field-id"] for field in fields] == [1000, 1001]
        with pytest.raises(Invalid, match="does not use sequential IDs that are required in v1"):
            table.commit(add_spec(partition(1, field=1000), partition(3, field=1002)))
        new_table(2).commit(add_spec(partition(1, field=1000), partition(3, field=1002)))

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                [partition(9, field=1000)],
                "Cannot find source column for partition field: 1000: p9: identity(9)",
            ),
            (
                [partition(4, field=1000)],
                "Cannot partition by non-primitive source field: struct<6: x: optional int>",
            ),
            ([partition(7, field=1000)], "Invalid partition field parent: list<int>"),
            ([partition(3, "hour", field=1000)], "Invalid source type string for transform: hour"),
            ([partition(3, name="id", field=1000)], "sourced from different field in schema: id"),
            ([partition(3, name="p", field=1000), partition(1, name="p", field=1001)], "more than once: p"),
            ([partition(3, field=1000), partition(1)], "missing field IDs: 1 missing of 2 fields"),
            ([partition(3, field=1000), partition(1, field=1000)], "field id more than once"),
            ([partition(3, field=1000) | {"name": ""}], "Cannot use empty partition name"),
            ([{"name": "a", "transform": "identity"}], "Cannot parse missing int: source-id"),
        ],
    )
    def test_what_does_not_fit(self, fields, message):
        table = new_table(schema=schema(*NESTED))
        with pytest.raises(Invalid) as refusal:
            table.commit(add_spec(*fields))
        assert message in refusal.value.message

    def test_a_field_inside_a_struct_and_one_called_like_its_column(self):
        table = new_table(schema=schema(*NESTED))
        table.commit(add_spec(partition(6, name="x", field=1000), partition(3, name="name", field=1001)))

    def test_void_needs_no_column(self):
        new_table().commit(add_spec(partition(99, "void", "gone", 1000)), default_spec())

    def test_a_transform_that_is_not_known_is_kept(self):
        document = new_table().commit(add_spec(partition(3, "zorder[2]", field=1000)), default_spec())
        assert document["partition-specs"][1]["fields"][0]["transform"] == "zorder[2]"

    def test_the_last_added_is_of_this_request(self):
        table = new_table()
        table.commit(add_spec(partition(3, field=1000)))
        with pytest.raises(Invalid, match="Cannot set last added spec: no spec has been added"):
            table.commit(default_spec())
        with pytest.raises(Invalid, match="no spec has been added"):
            table.commit(add_spec(partition(3, field=1000)), default_spec())

    def test_after_a_new_one_an_older_one_counts_as_added(self):
        table = new_table()
        document = table.commit(add_spec(partition(3, field=1000)), add_spec(), default_spec())
        assert document["default-spec-id"] == 0

    def test_one_that_is_not_there(self):
        with pytest.raises(IllegalArgument, match="unknown spec: 7"):
            new_table().commit(default_spec(7))

    def test_removing(self):
        table = new_table()
        table.commit(add_spec(partition(3, field=1000)))
        document = table.commit({"action": "remove-partition-specs", "spec-ids": [1, 8]})
        assert list(by_id(document, "partition-specs", "spec-id")) == [0]
        assert document["last-partition-id"] == 1000
        with pytest.raises(IllegalArgument, match="Cannot remove the default partition spec"):
            table.commit({"action": "remove-partition-specs", "spec-ids": [0]})

    def test_what_is_not_known_of_a_field_stays(self):
        table = new_table()
        table.commit(add_spec(partition(3, field=1000) | {"new": [1.5, 2]}, more="x"))
        assert b'"new":[1.5, 2]' in (table.state.parts("spec").get("1") or b"")


class TestOrders:
    def test_ids_start_at_one_and_the_same_order_keeps_its_id(self):
        table = new_table()
        document = table.commit(add_order(sort(3), id_=7), default_order())
        assert (document["default-sort-order-id"], list(by_id(document, "sort-orders", "order-id"))) == (
            1,
            [0, 1],
        )
        table.commit(add_order(sort(3) | {"direction": "ASC", "transform": "Identity"}, id_=3))
        assert not table.change.changed
        document = table.commit(add_order(sort(3, direction="desc")), default_order())
        assert document["default-sort-order-id"] == 2

    def test_unsorted_is_always_zero(self):
        table = new_table(**{"write-order": order(sort(3))})
        assert table.head.default_sort_order_id == 1
        assert table.commit(add_order(), default_order())["default-sort-order-id"] == 0
        assert table.commit(default_order(1))["default-sort-order-id"] == 1

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ([sort(9)], "Cannot find source column for sort field: identity(9) ASC NULLS FIRST"),
            ([sort(4)], "Cannot sort by non-primitive source field: struct<6: x: optional int>"),
            ([sort(3, "day", "desc")], "Invalid source type string for transform: day"),
            ([sort(3) | {"direction": "up"}], "Invalid sort direction: up"),
            ([sort(3) | {"null-order": "nulls"}], "Unexpected null order: nulls"),
        ],
    )
    def test_what_does_not_fit(self, fields, message):
        table = new_table(schema=schema(*NESTED))
        with pytest.raises(Invalid) as refusal:
            table.commit(add_order(*fields))
        assert message in refusal.value.message

    def test_zero_is_for_unsorted_alone(self):
        with pytest.raises(IllegalArgument, match="Sort order ID 0 is reserved for unsorted order"):
            new_table().commit(add_order(sort(3), id_=0))
        with pytest.raises(IllegalArgument, match="Unsorted order ID must be 0"):
            new_table().commit(add_order(id_=1))

    def test_the_last_added_and_one_that_is_not_there(self):
        with pytest.raises(Invalid, match="Cannot set last added sort order: no sort order has been added"):
            new_table().commit(default_order())
        with pytest.raises(IllegalArgument, match="unknown sort order: 4"):
            new_table().commit(default_order(4))
