"""Our Roaring bitmaps beside those of CRoaring: each reads what the other writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from inver.formats.roaring import RowSet

# Sparse and dense containers, runs, several containers, and numbers beyond 32 bits.
ROWS = st.one_of(
    st.sets(st.integers(0, 1 << 40), max_size=60),
    st.builds(
        lambda first, count, step: set(range(first, first + count * step, step)),
        st.integers(0, 1 << 33),
        st.integers(0, 9_000),
        st.integers(1, 3),
    ),
)


@given(ROWS)
def test_what_we_write_is_read(rows: set[int]) -> None:
    assert set(BitMap64.deserialize(RowSet(rows).serialize())) == rows


@given(ROWS)
def test_what_others_write_is_read(rows: set[int]) -> None:
    written = BitMap64(rows)
    assert RowSet.parse(written.serialize()) == RowSet(rows)
    written.run_optimize()
    assert RowSet.parse(written.serialize()) == RowSet(rows)
