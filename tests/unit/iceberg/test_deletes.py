"""Which delete files apply to which data files."""

from __future__ import annotations

from typing import Any

from inver.domain.iceberg.content import Content, ContentFile, Metrics
from inver.domain.iceberg.deletes import DeleteIndex, slim
from inver.domain.iceberg.schemas import Field

COLUMNS = {1: Field(1, "id", False, "long"), 2: Field(2, "key", True, "string")}
NAN = float("nan")


def file(path: str, sequence: int, content: Content = Content.DATA, **more: Any) -> ContentFile:
    given = {"partition": (), "format": "parquet", "spec_id": 0, "record_count": 1, "size": 1, **more}
    return ContentFile(content=content, path=path, sequence_number=sequence, **given)


def position(path: str, sequence: int, **more: Any) -> ContentFile:
    return file(path, sequence, Content.POSITION_DELETES, **more)


def equality(path: str, sequence: int, **more: Any) -> ContentFile:
    return file(path, sequence, Content.EQUALITY_DELETES, **{"equality_ids": (1,), **more})


def applied(data: ContentFile, *deletes: ContentFile, whole: frozenset[int] = frozenset([0])) -> list[str]:
    index = DeleteIndex(map(slim, deletes), whole, COLUMNS)
    assert len(index) == len(deletes)
    return [each.path for each in index.of(data)]


def long(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def ids(low: int, high: int, nulls: int | None = 0, values: int = 9) -> dict[str, Any]:
    counts = None if nulls is None else {1: nulls}
    return {"metrics": Metrics(None, {1: values}, counts, None, {1: long(low)}, {1: long(high)})}


def test_positions_apply_to_what_is_as_old_or_older() -> None:
    deletes = [position(f"d{n}", n) for n in (3, 1, 2, 2)]
    assert applied(file("a", 2), *deletes) == ["d2", "d2", "d3"]
    assert applied(file("a", 4), *deletes) == []


def test_equality_applies_to_what_is_older() -> None:
    deletes = [equality(f"e{n}", n) for n in (3, 1, 2)]
    assert applied(file("a", 2), *deletes) == ["e3"]
    assert applied(file("a", 0), *deletes) == ["e1", "e2", "e3"]


def test_deletes_stay_in_their_partition() -> None:
    data = file("a", 1, spec_id=1, partition=("x",))
    elsewhere = [position("d", 2, spec_id=1, partition=("y",)), equality("e", 2, spec_id=1, partition=("y",))]
    other_spec = [
        position("d", 2, spec_id=2, partition=("x",)),
        equality("e", 2, spec_id=2, partition=("x",)),
    ]
    here = [position("d", 2, spec_id=1, partition=("x",)), equality("e", 2, spec_id=1, partition=("x",))]
    assert applied(data, *elsewhere, *other_spec) == []
    assert applied(data, *here) == ["e", "d"]


def test_equality_deletes_without_a_partition_are_about_everything() -> None:
    data = file("a", 1, spec_id=1, partition=("x",))
    assert applied(data, equality("e", 2), position("d", 2)) == ["e"]
    assert applied(data, equality("e", 2), whole=frozenset()) == []


def test_nan_and_null_are_partitions() -> None:
    for value in (NAN, None):
        data = file("a", 1, spec_id=1, partition=(value,))
        assert applied(data, position("d", 2, spec_id=1, partition=(float("nan") if value else None,))) == [
            "d"
        ]
        assert applied(data, position("d", 2, spec_id=1, partition=(1.0,))) == []


def test_positions_of_one_file() -> None:
    bounds = {2147483546: b"a"}
    by_bounds = position("d1", 2, metrics=Metrics(lower=bounds, upper=bounds))
    by_name = position("d2", 2, referenced_data_file="a")
    several = position("d3", 2, metrics=Metrics(lower=bounds, upper={2147483546: b"b"}))
    assert applied(file("a", 1), by_bounds, by_name, several) == ["d3", "d1", "d2"]
    assert applied(file("b", 1), by_bounds, by_name, several) == ["d3"]


def test_a_vector_is_all_there_is_to_know_of_positions() -> None:
    vector = position("v", 3, format="puffin", referenced_data_file="a", content_offset=4)
    old = position("d", 2, referenced_data_file="a")
    assert applied(file("a", 1), vector, old, equality("e", 3)) == ["e", "v"]
    assert applied(file("b", 1), vector, old) == []


def test_equality_deletes_that_cannot_meet_a_file() -> None:
    data = file("a", 1, **ids(0, 9))
    assert applied(data, equality("e", 2, **ids(5, 20))) == ["e"]
    assert applied(data, equality("e", 2, **ids(10, 20))) == []
    # Null is among the rows and among the deletes, or may be.
    nulls = file("a", 1, **ids(0, 9, nulls=3))
    assert applied(nulls, equality("e", 2, **ids(10, 20, nulls=1))) == ["e"]
    assert applied(nulls, equality("e", 2, **ids(10, 20, nulls=None))) == ["e"]
    assert applied(nulls, equality("e", 2, **ids(10, 20, nulls=0))) == []
    only = file("a", 1, metrics=Metrics(None, {1: 9}, {1: 9}))
    assert applied(only, equality("e", 2, **ids(0, 9))) == []
    assert applied(data, equality("e", 2, metrics=Metrics(None, {1: 2}, {1: 2}))) == []
    # A column that nobody knows any more says nothing.
    assert applied(data, equality("e", 2, equality_ids=(99,), **ids(10, 20))) == ["e"]


def test_required_columns_have_no_null() -> None:
    def keys(low: bytes, high: bytes) -> dict[str, Any]:
        return {"metrics": Metrics(lower={2: low}, upper={2: high})}

    data = file("a", 1, **keys(b"a", b"f"))
    assert applied(data, equality("e", 2, equality_ids=(2,), **keys(b"g", b"z"))) == []
    assert applied(data, equality("e", 2, equality_ids=(2,), **keys(b"f", b"z"))) == ["e"]
