from __future__ import annotations

from itertools import product

import pytest

from inver.domain.tables import INITIAL, NAMED, State, may_become, require_transition
from inver.errors import Refused

ALLOWED = {
    (State.STAGED, State.LIVE),
    (State.STAGED, State.PURGED),
    (State.DECLARED, State.LIVE),
    (State.DECLARED, State.DROPPED),
    (State.LIVE, State.DROPPED),
    (State.DROPPED, State.LIVE),
    (State.DROPPED, State.DECLARED),
    (State.DROPPED, State.PURGED),
}


@pytest.mark.parametrize(("state", "target"), list(product(State, State)), ids=lambda state: state.value)
def test_every_pair_of_states_is_decided(state: State, target: State):
    assert may_become(state, target) == ((state, target) in ALLOWED)
    if (state, target) in ALLOWED:
        require_transition(state, target)
    else:
        with pytest.raises(Refused, match=f"a {state} table cannot become {target}"):
            require_transition(state, target)


def reachable(state: State) -> set[State]:
    found: set[State] = set()
    waiting = [state]
    while waiting:
        for target in State:
            if target not in found and may_become(waiting[-1], target):
                found.add(target)
                waiting.insert(0, target)
        waiting.pop()
    return found


@pytest.mark.parametrize("state", [state for state in State if state is not State.PURGED])
def test_every_life_can_end_and_nothing_comes_back_from_the_end(state: State):
    assert State.PURGED in reachable(state)
    assert State.STAGED not in reachable(state)
    assert reachable(State.PURGED) == set()


def test_a_name_is_held_by_what_can_be_found_under_it():
    assert {State.DECLARED, State.LIVE} == NAMED
    assert {State.STAGED, State.DECLARED, State.LIVE} == INITIAL


def test_data_is_only_purged_from_what_holds_no_name():
    assert not any(may_become(state, State.PURGED) for state in NAMED)
