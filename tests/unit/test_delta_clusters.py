"""By which columns a table is clustered, which files are laid out anew, and the curve."""

from __future__ import annotations

import json
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.care import Curve, Options
from inver.domain.delta_actions import Add, Metadata, Protocol
from inver.domain.delta_clusters import Clustering, clustering, cubes
from inver.domain.delta_rebase import Standing
from inver.errors import Invalid, Unsupported

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

OPTIONS = Options(target_file_size=10, cluster_columns=("a", "b"))
BY = Clustering(("a", "b"), (("a",), ("b",)), False)
LIQUID = msgspec.structs.replace(BY, liquid=True)


def standing(domain: object = None, mapped: bool = False, partition: tuple[str, ...] = ()) -> Standing:
    def field(name: str, kind: object = "long") -> dict[str, object]:
        physical = {"delta.columnMapping.physicalName": f"col-{name}"} if mapped else {}
        return {"name": name, "type": kind, "nullable": True, "metadata": physical}

    inner = {"type": "struct", "fields": [field("x")]}
    fields = [field("a"), field("b", "string"), field("s", inner), field("p")]
    metadata = Metadata(
        id="t",
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=partition,
        configuration={"delta.columnMapping.mode": "name"} if mapped else {},
    )
    domains = {} if domain is None else {"delta.clustering": json.dumps(domain)}
    return Standing(1, 1, Protocol(1, 2), metadata, domains)


def file(path: str, size: int = 10, cube: str | None = None, by: Clustering = BY, p: str = "") -> Add:
    return Add(
        path=path,
        partition_values={"p": p},
        size=size,
        tags=None if cube is None else dict(by.tags(cube)),
        clustering_provider="liquid" if by.liquid and cube else None,
    )


def paths(bins) -> list[set[str]]:
    return [{each.path for each in bin.files} for bin in bins]


def test_the_tables_own_columns_win():
    own = standing({"clusteringColumns": [["b"], ["s", "x"]]})
    assert clustering(own, OPTIONS) == Clustering(("b", "s.x"), (("b",), ("s", "x")), True)


def test_files_call_mapped_columns_otherwise():
    own = standing({"clusteringColumns": [["col-s", "col-x"]]}, mapped=True)
    assert clustering(own, OPTIONS) == Clustering(("s.x",), (("col-s", "col-x"),), True)
    assert clustering(standing(mapped=True), OPTIONS) == Clustering(BY.names, (("col-a",), ("col-b",)), False)


def test_without_columns_there_is_nothing_to_do():
    assert clustering(standing(), Options()) is None
    assert clustering(standing({"clusteringColumns": []}), OPTIONS) is None


@pytest.mark.parametrize(("column", "says"), [("z", "no column"), ("s", "sorted"), ("p", "partition")])
def test_columns_that_do_not_do(column, says):
    with pytest.raises(Invalid, match=says):
        clustering(standing(partition=("p",)), Options(cluster_columns=(column,)))


def test_a_domain_that_is_not_understood():
    with pytest.raises(Unsupported):
        clustering(standing(["no object"]), OPTIONS)


def test_what_has_its_place_is_left_alone():
    assert cubes([file("a", cube="1"), file("b", cube="1")], BY, OPTIONS, 20) == []
    assert cubes([], BY, OPTIONS, 0) == []


def test_loose_files_join_the_small_cubes():
    files = [file("large", 200, cube="1"), file("small", 10, cube="2"), file("loose")]
    assert paths(cubes(files, BY, OPTIONS, 220)) == [{"small", "loose"}]


def test_files_of_other_columns_are_loose():
    other = Clustering(("b",), (("b",),), False)
    assert paths(cubes([file("a", cube="1", by=other)], BY, OPTIONS, 10)) == [{"a"}]


def test_files_of_a_liquid_table_say_that_they_are():
    plain = file("plain", cube="1")
    assert paths(cubes([plain, file("sound", cube="2", by=LIQUID)], LIQUID, OPTIONS, 20)) == [
        {"plain", "sound"}
    ]


def test_partitions_are_not_mixed():
    assert sorted(map(sorted, paths(cubes([file("a", p="1"), file("b", p="2")], BY, OPTIONS, 20)))) == [
        ["a"],
        ["b"],
    ]


@given(st.lists(st.tuples(st.integers(1, 100), st.sampled_from([None, "1", "2"])), max_size=40))
def test_every_plan_takes_all_loose_files_once(sizes):
    files = [file(f"f{i}", size, cube) for i, (size, cube) in enumerate(sizes)]
    taken = [each.path for bin in cubes(files, BY, OPTIONS, 1000) for each in bin.files]
    assert len(taken) == len(set(taken))
    loose = {each.path for each in files if not BY.holds(each)}
    assert loose <= set(taken)
    assert bool(taken) == bool(loose)


# --- the curve ---


@pytest.mark.parametrize(("axes", "bits"), [(2, 4), (3, 3), (4, 2)])
def test_the_curve_visits_every_cell_and_makes_no_jumps(axes, bits):
    from inver.pipeline.tasks.curves import hilbert

    cells = np.array(list(product(range(1 << bits), repeat=axes)))
    places = hilbert([cells[:, axis] for axis in range(axes)], bits)
    assert sorted(places) == list(range(len(cells)))
    steps = np.abs(np.diff(cells[np.argsort(places)], axis=0)).sum(axis=1)
    assert (steps == 1).all()


def test_the_z_order_takes_the_bits_of_all_columns_in_turn():
    from inver.pipeline.tasks.curves import interleaved, places, ranges_of

    cells = np.array(list(product(range(4), repeat=2)))
    found = interleaved([cells[:, 0], cells[:, 1]], 2)
    assert found.reshape(4, 4).tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    columns = [pa.array(cells[:, axis]) for axis in range(2)]
    cuts = [np.arange(1, 4)] * 2
    assert ranges_of(2) > 4
    assert places(columns, cuts, Curve.ZORDER).to_pylist() == found.tolist()
    assert places(columns, cuts).to_pylist() != found.tolist()


def test_files_of_another_curve_are_laid_out_anew():
    other = msgspec.structs.replace(BY, curve=Curve.ZORDER)
    assert clustering(standing(), msgspec.structs.replace(OPTIONS, cluster_curve=Curve.ZORDER)) == other
    assert BY.holds(file("f", cube="c"))
    assert not other.holds(file("f", cube="c"))
    assert other.holds(file("f", cube="c", by=other))
    untold = msgspec.structs.replace(
        file("f"), tags={k: v for k, v in BY.tags("c").items() if "CURVE" not in k}
    )
    assert BY.holds(untold)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, 1, 2, None]),
        pa.array(["c", "a", "b", None]),
        pa.array([2.5, -1.0, 0.0, None]),
        pa.array([300, 100, 200, None], pa.timestamp("us", "UTC")),
        pa.array([30, 10, 20, None], pa.date32()),
        pa.array([True, False, False, None]),
    ],
)
def test_one_column_is_sorted_with_nulls_first(values):
    from inver.pipeline.tasks.curves import bounds, places, ranges_of

    cuts = bounds(values, ranges_of(1))
    found = places([values], [cuts]).to_pylist()
    order = sorted(range(4), key=lambda i: (values[i].as_py() is not None, values[i].as_py()))
    assert [found[i] for i in order] == sorted(found)


def test_a_column_without_values_has_one_place():
    from inver.pipeline.tasks.curves import bounds, places

    empty = pa.nulls(3, pa.string())
    assert len(set(places([empty], [bounds(empty, 16)]).to_pylist())) == 1


def test_places_fit_into_a_long():
    from inver.pipeline.tasks.curves import ranges_of

    for columns in range(1, 10):
        assert (ranges_of(columns).bit_length() - 1) * columns <= 62
