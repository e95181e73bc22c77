"""A series is a list of parts that grows without copying and is written out in few pieces."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from inver.domain.iceberg.series import Series


def series(count: int) -> Series:
    made = Series.of()
    for at in range(count):
        made = made.add(f"k{at}", at, b"%d" % at)
    return made


def written(of: Series) -> bytes:
    out: list[bytes] = []
    of.write(out)
    return b"".join(out)


def test_keys_bodies_and_positions():
    made = series(3)
    assert (len(made), made.keys(), made.bodies()) == (3, ["k0", "k1", "k2"], [b"0", b"1", b"2"])
    assert ("k1" in made, "k3" in made) == (True, False)
    assert (made.get("k1"), made.get("k3"), made.position("k2"), made.next_position) == (b"1", None, 2, 3)


def test_an_older_series_does_not_see_what_was_added_to_a_newer_one():
    old = series(3)
    new = old.add("new", 3, b"n")
    assert ("new" in old, old.get("new"), len(old), written(old)) == (False, None, 3, b"0,1,2")
    assert written(new) == b"0,1,2,n"


def test_two_successors_of_one_series_do_not_meet():
    old = series(70)
    written(old)
    one, two = old.add("one", 70, b"one"), old.add("two", 70, b"two")
    assert ("two" in one, "one" in two) == (False, False)
    assert written(one).endswith(b"69,one")
    assert written(two).endswith(b"69,two")


def test_a_long_series_is_written_in_few_pieces():
    made = series(5000)
    out: list[bytes] = []
    made.write(out)
    assert b"".join(out) == b",".join(b"%d" % at for at in range(5000))
    assert len(out) < 60


def test_the_front_goes_without_a_copy_and_positions_go_on():
    made = series(200)
    cut = made.without({f"k{at}" for at in range(150)})
    assert (cut.keys()[0], len(cut), cut.next_position) == ("k150", 50, 200)
    assert "k10" not in cut
    assert "k10" in made
    assert written(cut).startswith(b"150,151")
    emptied = cut.without(set(cut.keys()))
    assert (len(emptied), emptied.next_position, written(emptied)) == (0, 200, b"")


def test_a_key_that_went_may_come_back():
    made = series(3).without({"k0"}).add("k0", 3, b"again")
    assert (made.keys(), made.get("k0")) == (["k1", "k2", "k0"], b"again")


class Windows(RuleBasedStateMachine):
    """Any number of series that came of each other, against plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[Series, list[tuple[str, int, bytes]]]] = [(Series.of(), [])]
        self.count = 0

    @rule(data=st.data(), count=st.integers(1, 130))
    def add(self, data: Any, count: Any) -> Any:
        made, model = data.draw(st.sampled_from(self.pairs))
        for _ in range(count):
            self.count += 1
            part = (f"k{self.count}", made.next_position, b"%d" % self.count)
            made, model = made.add(*part), [*model, part]
        self.pairs.append((made, model))

    @rule(data=st.data())
    def take_away(self, data: Any) -> Any:
        made, model = data.draw(st.sampled_from(self.pairs))
        gone = data.draw(st.sets(st.sampled_from([key for key, _, _ in model]))) if model else set()
        self.pairs.append((made.without(gone), [part for part in model if part[0] not in gone]))

    @rule(data=st.data(), count=st.integers(0, 100))
    def drop_first(self, data: Any, count: Any) -> Any:
        made, model = data.draw(st.sampled_from(self.pairs))
        gone = {key for key, _, _ in model[:count]}
        self.pairs.append((made.without(gone), model[count:]))

    @rule(data=st.data())
    def replace(self, data: Any) -> Any:
        made, model = data.draw(st.sampled_from(self.pairs))
        bodies = {key: b"new" for key, _, _ in model[:2]}
        self.pairs.append(
            (made.replace(bodies), [(key, at, bodies.get(key, body)) for key, at, body in model])
        )

    @invariant()
    def all_are_what_they_were(self) -> Any:
        for made, model in self.pairs[-6:]:
            assert list(made.items()) == model
            assert written(made) == b",".join(body for _, _, body in model)
            assert all(key in made and made.get(key) == body for key, _, body in model)
            assert f"k{self.count + 1}" not in made


TestWindows = Windows.TestCase
TestWindows.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


@given(st.integers(0, 9000))
@settings(max_examples=20, deadline=None)
def test_any_length_is_written_whole(count):
    parts = [(str(at), at, b"%d" % at) for at in range(count)]
    assert written(Series.of(parts)) == b",".join(body for _, _, body in parts)
