"""The load generator for Iceberg REST: one process, many keep-alive connections, one request at a time each.

Answers are cut by httptools, since the peer sends its larger ones in chunks.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter

import msgspec

from bench import generator
from bench.generator import Answers
from bench.iceberg_wire import numbers
from bench.machine import Usage

MOST_S = 30.0


class Slot(msgspec.Struct):
    """Something to ask for again and again: templates that take turns, and the number that counts up.

    After `most` requests it has grown enough, and the whole measurement ends.
    """

    templates: list[bytes]
    version: int = 0
    most: int = 1_000_000_000


class Plan(generator.Plan, kw_only=True):
    """Every connection works on slots of its own, in turn, and wants `status` for each answer.

    Without `seconds` every slot is asked for `each` times.
    """

    slots: list[Slot]
    status: int


class Outcome(msgspec.Struct):
    """`answers` and `usage` are of the measured window; `versions` are where the slots stand."""

    answers: Answers
    usage: Usage
    versions: list[int]


def run(plan: Plan) -> Outcome:
    return generator.apart("bench.iceberg_load", plan, Outcome)


class Window(generator.TimedWindow):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._created = perf_counter()

    def time_is_over(self) -> None:
        """A server may be so slow that this is before every connection has had an answer."""
        late = perf_counter() - self._created > MOST_S
        if late or len(self.latencies) >= self._plan.connections:
            self.end()
        else:
            asyncio.get_running_loop().call_later(0.25, self.time_is_over)


class Client(generator.ParsingClient):
    """One connection and what it asks for."""

    def __init__(self, window: Window, plan: Plan, number: int) -> None:
        slots = plan.slots[number :: plan.connections]
        each = plan.each * len(slots) if plan.seconds is None else generator.ANY_NUMBER
        super().__init__(window, each, plan.status)
        self._slots = slots
        self._turn = 0
        self._ends = [] if plan.seconds is None else [slot.version + slot.most for slot in slots]

    def ask(self) -> None:
        if self._ends and self._slots[self._turn].version >= self._ends[self._turn]:
            self._window.end()
        super().ask()

    def request(self) -> bytes:
        slot = self._slots[self._turn]
        return slot.templates[slot.version % len(slot.templates)] % numbers(slot.version)

    def answered(self) -> None:
        self._slots[self._turn].version += 1
        self._turn = (self._turn + 1) % len(self._slots)


async def generate(plan: Plan) -> Outcome:
    window = Window(plan)
    answers, used = await generator.measure(window, plan, partial(Client, window, plan))
    return Outcome(answers, used, [slot.version for slot in plan.slots])


if __name__ == "__main__":
    generator.main(Plan, generate)
