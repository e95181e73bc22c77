from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.locations import Location
from inver.domain.securables import Catalog, Schema
from inver.domain.tables import TableKind
from inver.errors import Invalid
from inver.ids import new_id
from inver.services.placement import Placement

WAREHOUSE = Location.parse("s3://lake/warehouse")
EXTERNAL = (Location.parse("s3://lake/landing"), Location.parse("/data/shared"))
TIMES = {"owner": "o", "etag": 1, "created_at": 0, "created_by": "o", "updated_at": 0, "updated_by": "o"}
PLACEMENT = Placement(WAREHOUSE, EXTERNAL)

names = st.text(min_size=1, max_size=20)
roots = st.none() | st.sampled_from(["s3://team/a", "gs://b/c", "file:///srv/x"])


def catalog(root: str | None = None, name: str = "main") -> Catalog:
    return Catalog(id=new_id(), name=name, comment=None, properties={}, storage_root=root, **TIMES)  # type: ignore[arg-type]


def schema(root: str | None = None, name: str = "sales") -> Schema:
    return Schema(
        id=new_id(),
        catalog_id=new_id(),
        parent_id=new_id(),
        name=name,
        path=(name,),
        comment=None,
        properties={},
        storage_root=root,
        **TIMES,  # type: ignore[arg-type]
    )


@given(roots, roots, names, names)
def test_a_managed_table_lies_under_the_nearest_root_by_its_id_alone(catalog_root, schema_root, one, two):
    table_id = new_id()
    place = PLACEMENT.place(
        TableKind.MANAGED, table_id, None, catalog(catalog_root, one), schema(schema_root, two)
    )
    root = schema_root or catalog_root
    above = Location.parse(root) if root else WAREHOUSE
    assert place.canonical == f"{above.canonical}/{table_id}"


def test_nobody_chooses_where_a_managed_table_lies():
    with pytest.raises(Invalid) as refused:
        PLACEMENT.place(TableKind.MANAGED, new_id(), "s3://lake/landing/x", catalog(), schema())
    assert refused.value.field == "location"
    assert refused.value.fix


@pytest.mark.parametrize(
    "asked",
    ["s3://lake/landing/orders", "s3a://lake/landing/a/b/", "/data/shared/x", "file:///data/shared/x"],
)
def test_an_external_table_lies_where_it_was_asked_for_under_a_known_root(asked: str):
    place = PLACEMENT.place(TableKind.EXTERNAL, new_id(), asked, catalog("s3://team/a"), schema())
    assert place == Location.parse(asked)
    assert place.text == asked.rstrip("/")


@pytest.mark.parametrize(
    "asked",
    [
        "s3://lake/landing2/orders",
        "s3://lake/Landing/orders",
        "s3://lake/warehouse/x",
        "s3://lake",
        "s3://other/landing/orders",
        "gs://lake/landing/orders",
        "s3://lake/landing/../warehouse",
        "s3://lake/landing/%2e%2e/warehouse",
        "/data/shared2",
        "/data",
        "/",
        "orders",
        "",
    ],
)
def test_an_external_table_lies_nowhere_else(asked: str):
    with pytest.raises(Invalid) as refused:
        PLACEMENT.place(TableKind.EXTERNAL, new_id(), asked, catalog(), schema())
    assert refused.value.field == "location"


def test_an_external_table_needs_a_location():
    with pytest.raises(Invalid, match="needs a location"):
        PLACEMENT.place(TableKind.EXTERNAL, new_id(), None, catalog(), schema())


def test_without_roots_there_are_no_external_tables():
    with pytest.raises(Invalid) as refused:
        Placement(WAREHOUSE).external("s3://lake/landing/orders")
    assert "storage.external_roots" in str(refused.value.fix)


def test_a_whole_bucket_is_no_table_even_where_it_is_a_root():
    placement = Placement(WAREHOUSE, [Location.parse("s3://bucket"), Location.parse("/")])
    assert placement.external("s3://bucket/x").canonical == "s3://bucket/x"
    for asked in ("s3://bucket", "s3://bucket/", "/"):
        with pytest.raises(Invalid, match="whole bucket"):
            placement.external(asked, field="root")


def test_the_field_is_named_as_the_caller_names_it():
    with pytest.raises(Invalid) as refused:
        PLACEMENT.external("nowhere", field="operations[3].location")
    assert refused.value.field == "operations[3].location"
