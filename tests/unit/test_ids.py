from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise
from uuid import RFC_4122, UUID

from inver.domain.uuids import is_uuid
from inver.ids import new_id, random_uuid


def milliseconds(text: str) -> int:
    return UUID(text).int >> 80


def test_an_id_is_a_uuid_of_version_7():
    for text in [new_id() for _ in range(2_000)]:
        value = UUID(text)
        assert (value.version, value.variant) == (7, RFC_4122)
        assert str(value) == text
        assert is_uuid(text)


def test_an_id_tells_when_it_was_made():
    before = time.time_ns() // 1_000_000
    made = milliseconds(new_id())
    assert before <= made <= time.time_ns() // 1_000_000


def test_ids_sort_by_the_millisecond_of_their_making():
    made = [new_id()]
    while milliseconds(made[-1]) < milliseconds(made[0]) + 3:
        made.append(new_id())
    by_time: dict[int, list[str]] = {}
    for text in made:
        by_time.setdefault(milliseconds(text), []).append(text)
    groups = list(by_time.values())
    assert len(groups) >= 2
    for earlier, later in pairwise(groups):
        assert max(earlier) < min(later)


def test_every_random_bit_is_used():
    """74 of them, in the first id of a millisecond; with 64 a bit that never changes would be one in 2**63.

    Those that follow in the same millisecond count up from it.
    """
    values = [UUID(new_id()).int]
    while len(values) < 64:
        value = UUID(new_id()).int
        if value >> 80 > values[-1] >> 80:
            values.append(value)
    fixed = ((1 << 48) - 1 << 80) | (0xF << 76) | (0x3 << 62)
    changing = 0
    for value in values:
        changing |= value ^ values[0]
    assert changing & ~fixed == ((1 << 128) - 1) & ~fixed
    assert len(set(values)) == len(values)


def test_random_uuids_are_of_version_4_and_never_the_same():
    made = [random_uuid() for _ in range(1_000)]
    assert len(set(made)) == 1_000
    parsed = [UUID(text) for text in made]
    assert {(each.version, each.variant) for each in parsed} == {(4, RFC_4122)}
    assert [str(each) for each in parsed] == made


FORK = """
import os
from inver.ids import random_uuid
random_uuid()
if os.fork() == 0:
    print(random_uuid(), flush=True)
    os._exit(0)
os.wait()
print(random_uuid())
"""


def test_a_forked_process_has_randomness_of_its_own():
    # In a process of its own: libraries that others have loaded may not like to be forked.
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    childs, ours = done.stdout.split()
    assert childs != ours
