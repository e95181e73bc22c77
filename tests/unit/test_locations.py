from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.locations import MAX_LOCATION_BYTES, Location
from inver.errors import Invalid

# Few and treacherous: neighbours of '/' in byte order, prefixes of each other, case, escapes.
segments = st.sampled_from(
    ["orders", "orders2", "Orders", "orders.", "orders-", "orders0", "a", "a b", "a%20b", "é", "e\u0301", "0"]
)
roots = st.sampled_from(["s3://b", "s3a://b", "s3://b2", "gs://b", "abfss://c@acct.dfs.core.windows.net", ""])
slashes = st.sampled_from(["", "/", "//"])


@st.composite
def texts(draw):
    text = "/".join([draw(roots), *draw(st.lists(segments, max_size=4))]) + draw(slashes)
    return text or "/"


locations = texts().map(Location.parse)


def parts(location: Location) -> list[str]:
    """The segments by another way than the prefix that the code compares."""
    key = location.key.split("/") if location.key else []
    return [location.scheme, location.authority, *key]


def is_prefix(one: list[str], other: list[str]) -> bool:
    return other[: len(one)] == one


@pytest.mark.parametrize(
    ("spellings", "canonical"),
    [
        (["s3://b/a/c", "s3a://b/a/c", "s3n://b/a/c", "s3://b/a/c/", "s3a://b/a/c//"], "s3://b/a/c"),
        (["s3://b", "s3://b/", "s3a://b//"], "s3://b"),
        (["gs://b_1.x-y/k"], "gs://b_1.x-y/k"),
        (["/x/y", "file:/x/y", "file:///x/y", "/x/y/", "file:/x/y/"], "file:///x/y"),
        (["/", "file:/", "file:///"], "file:///"),
        (
            ["abfss://c@a.dfs.core.windows.net/k", "abfs://c@a.blob.core.windows.net/k/"],
            "abfss://c@a.dfs.core.windows.net/k",
        ),
        (["az://c/k", "abfs://c/k"], "abfss://c/k"),
        (["s3://b/a b/ü+%20/k=v@w:x"], "s3://b/a b/ü+%20/k=v@w:x"),
    ],
)
def test_spellings_of_one_place_are_equal(spellings, canonical):
    parsed = [Location.parse(text) for text in spellings]
    assert {location.canonical for location in parsed} == {canonical}
    assert len(set(parsed)) == 1
    assert str(parsed[0]) == canonical
    for text, location in zip(spellings, parsed, strict=True):
        assert location.text == (text.rstrip("/") if canonical != "file:///" else "file:///")


@pytest.mark.parametrize(
    "other", ["s3://b/A", "s3://b/a2", "s3://B/a", "gs://b/a", "s3://b/a/b", "s3://b/%61"]
)
def test_nothing_else_is_equal(other):
    assert Location.parse("s3://b/a") != Location.parse(other)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("orders", "no scheme"),
        ("./orders", "no scheme"),
        ("C:/orders", "no scheme"),
        ("S3://b/x", "no scheme"),
        ("s3:/b/x", "does not start with 's3://'"),
        ("s3://", "bucket"),
        ("s3:///x", "bucket"),
        ("file:x", "relative path"),
        ("file://", "relative path"),
        ("file://x", "host"),
        ("abfss://c@/x", "container and account"),
        ("abfss://@a.dfs.core.windows.net/x", "container and account"),
        ("abfss://C@a.dfs.core.windows.net/x", "container and account"),
        ("s3://b/" + "x" * MAX_LOCATION_BYTES, "bytes long"),
        ("s3://b/" + "é" * (MAX_LOCATION_BYTES // 2), "bytes long"),
    ],
)
def test_what_is_no_location_is_refused_with_the_reason(text, problem):
    with pytest.raises(Invalid) as refused:
        Location.parse(text, field="storage_location")
    assert problem in refused.value.message
    assert refused.value.field == "storage_location"
    assert refused.value.fix
    assert len(refused.value.message) < 300


def test_a_location_is_a_value():
    location = Location.parse("s3://b/x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        location.prefix = "s3://other/"  # type: ignore[misc]
    assert not hasattr(location, "__dict__")


@given(texts())
def test_the_canonical_form_and_the_prefix_parse_to_the_same(text):
    location = Location.parse(text)
    assert Location.parse(location.canonical) == location
    assert Location.parse(location.prefix) == location
    assert Location.parse(location.text) == location
    assert location.prefix.endswith("/")
    assert location.prefix == location.canonical.rstrip("/") + "/" or location.prefix == "file:///"


@given(locations, locations)
def test_containment_and_overlap_are_by_whole_segments(one, other):
    assert one.contains(other) == is_prefix(parts(one), parts(other))
    assert one.overlaps(other) == (is_prefix(parts(one), parts(other)) or is_prefix(parts(other), parts(one)))
    assert one.overlaps(other) == other.overlaps(one)


@given(locations, locations)
def test_the_scan_range_covers_exactly_what_is_contained(one, other):
    lower, upper = one.scan_range()
    assert (lower <= other.prefix < upper) == one.contains(other)
    as_bytes = lower.encode() <= other.prefix.encode() < upper.encode()
    assert as_bytes == one.contains(other)


def test_no_neighbour_is_in_the_scan_range():
    lower, upper = Location.parse("s3://b/orders").scan_range()
    for code in range(0x21, 0x17F):
        if chr(code).isprintable() and chr(code) not in "/\\?#":
            neighbour = Location.parse(f"s3://b/orders{chr(code)}/x")
            assert not lower <= neighbour.prefix < upper


@given(locations)
def test_ancestors_are_all_that_strictly_contain_it(location):
    ancestors = location.ancestors()
    assert len(ancestors) == len(parts(location)) - 2
    assert all(above.contains(location) and above != location for above in ancestors)
    assert all(Location.parse(above.text) == above for above in ancestors)
    assert location.is_root == (not ancestors)
    if ancestors:
        assert ancestors[0].is_root
        assert list(ancestors) == sorted(ancestors, key=lambda above: len(above.prefix))


@given(locations, st.lists(segments, min_size=1, max_size=3))
def test_joining_and_relating_are_inverse(location, below):
    joined = location.join("/".join(below))
    assert location.contains(joined)
    assert location.relative(joined) == "/".join(below)
    assert Location.parse(joined.text) == joined
    assert joined.text.startswith(location.text)


def test_a_join_keeps_the_scheme_as_given():
    assert Location.parse("s3a://b/x/").join("y/z/").text == "s3a://b/x/y/z"
    assert Location.parse("/").join("x").text == "file:///x"


@pytest.mark.parametrize(
    "relative", ["", "/", "/x", "../x", "x/../y", "x//y", ".", "x\ty", "%2e%2e/x", "x?y"]
)
def test_a_join_never_leaves_the_location(relative):
    with pytest.raises(Invalid):
        Location.parse("s3://b/x").join(relative)


def test_a_join_cannot_grow_beyond_the_limit():
    with pytest.raises(Invalid, match="bytes long"):
        Location.parse("s3://b/" + "x" * 4000).join("y" * 100)


def test_what_lies_elsewhere_has_no_relative_path():
    orders = Location.parse("s3://b/orders")
    assert orders.relative(orders) == ""
    with pytest.raises(Invalid, match="does not lie below"):
        orders.relative(Location.parse("s3://b/orders2/x"))


def test_parts_of_a_location():
    remote = Location.parse("s3a://b/x/y")
    assert (remote.scheme, remote.authority, remote.key, remote.is_local) == ("s3", "b", "x/y", False)
    local = Location.parse("file:/x/y")
    assert (local.scheme, local.authority, local.key, local.local_path) == ("file", "", "x/y", "/x/y")
    assert Location.parse("/").local_path == "/"
    with pytest.raises(Invalid):
        _ = remote.local_path
