"""What is read of a Lance manifest, and that nothing else can be taken for one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inver.domain.lance import DataFile, Fragment
from inver.errors import Invalid
from inver.formats.lance_manifest import read_manifest
from tests.fixtures.lance import field, fragment, manifest

UUID = "6f1fa4ac-3b5c-4b1e-9d0b-2b1c8a1d2e3f"


def test_version_transaction_and_fragments():
    found = read_manifest(manifest(7, UUID, (fragment(0, 10, 3, 50), fragment(4, 5)), branch="dev/x"))
    assert (found.version, found.branch, found.uuid) == (7, "dev/x", UUID)
    assert found.fragments == (
        Fragment(0, 10, 3, (DataFile("0.lance", 50),)),
        Fragment(4, 5, 0, (DataFile("4.lance", 100),)),
    )


def test_nested_fields():
    fields = (
        field(0, "id", "int64", nullable=False),
        field(1, "v", "fixed_size_list:float:4"),
        field(2, "s", "struct"),
        field(3, "a", "list", parent=2),
        field(4, "item", "int64", parent=3),
        field(5, "b", "fixed_size_binary:2", parent=2),
        field(6, "d", "dict:string:int32:false"),
    )
    found = read_manifest(manifest(1, UUID, fields=fields))
    number, vector, struct, words = found.schema["fields"]
    assert number == {"name": "id", "type": {"type": "int64"}, "nullable": False}
    assert vector["type"] == {
        "type": "fixed_size_list",
        "fields": [{"name": "item", "type": {"type": "float"}, "nullable": True}],
        "length": 4,
    }
    assert [each["name"] for each in struct["type"]["fields"]] == ["a", "b"]
    assert struct["type"]["fields"][0]["type"]["fields"][0]["type"] == {"type": "int64"}
    assert struct["type"]["fields"][1]["type"] == {"type": "fixed_size_binary", "length": 2}
    assert words["type"] == {"type": "dict:string:int32:false"}
    assert found.columns == {0: "id", 1: "v", 2: "s", 3: "s.a", 4: "s.a.item", 5: "s.b", 6: "d"}


@pytest.mark.parametrize("flags", [0, 1, 2, 256])
def test_known_features_hide_nothing(flags):
    assert read_manifest(manifest(1, UUID, flags=flags)).fragments is not None


@pytest.mark.parametrize("flags", [512, 513, 2**40])
def test_a_feature_that_is_not_known_is_no_empty_table(flags):
    assert read_manifest(manifest(1, UUID, flags=flags)).fragments is None


@pytest.mark.parametrize("data", [b"", b"LANC", b"x" * 12 + b"LANC", b"\xff" * 64 + b"LANC", b"PAR1" * 9])
def test_what_is_no_manifest(data):
    with pytest.raises(Invalid):
        read_manifest(data)


def test_a_field_that_contains_itself():
    with pytest.raises(Invalid, match="nested too deeply"):
        read_manifest(manifest(1, UUID, fields=(field(1, "a", "struct"), field(1, "b", "struct", parent=1))))


@settings(max_examples=300)
@given(st.data())
def test_damage_is_told_and_never_crashes(data):
    whole = bytearray(manifest(3, UUID, (fragment(0, 10, 1), fragment(1, 20))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for damaged in (bytes(whole), bytes(whole[:cut])):
        with suppress(Invalid):
            assert read_manifest(damaged).version >= 0
