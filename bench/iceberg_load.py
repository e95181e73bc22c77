"""The load generator for Iceberg REST: one process, many keep-alive connections, one request at a time each.

Answers are cut by httptools, since the peer sends its larger ones in chunks, and thrown away: an answer
of megabytes costs the generator its reading, whoever sends it.
"""

from __future__ import annotations

import asyncio
from array import array
from functools import partial
from time import perf_counter

import httptools
import msgspec

from bench import generator
from bench.generator import Answers, summary
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


class Window(generator.Window):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.latencies: array[float] = array("d")
        self._created = perf_counter()

    def time_is_over(self) -> None:
        """A server may be so slow that this is before every connection has had an answer."""
        late = perf_counter() - self._created > MOST_S
        if late or len(self.latencies) >= self._plan.connections:
            self.end()
        else:
            asyncio.get_running_loop().call_later(0.25, self.time_is_over)


class Client(generator.Client):
    """One connection and what it asks for."""

    _window: Window

    def __init__(self, window: Window, plan: Plan, slots: list[Slot]) -> None:
        super().__init__(window, plan.each * len(slots) if plan.seconds is None else generator.ANY_NUMBER)
        self._status = plan.status
        self._slots = slots
        self._turn = 0
        self._complaint = b""
        self._parser = httptools.HttpResponseParser(self)
        self._ends = [] if plan.seconds is None else [slot.version + slot.most for slot in slots]

    def ask(self) -> None:
        if self._ends and self._slots[self._turn].version >= self._ends[self._turn]:
            self._window.end()
        super().ask()

    def request(self) -> bytes:
        slot = self._slots[self._turn]
        return slot.templates[slot.version % len(slot.templates)] % numbers(slot.version)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        if self._parser.get_status_code() != self._status:
            self._complaint += body

    def on_message_complete(self) -> None:
        window, status = self._window, self._parser.get_status_code()
        if status != self._status:
            window.fail(
                RuntimeError(f"unexpected answer {status}: {self._complaint.decode(errors='replace')}")
            )
            return
        if window.measuring:
            window.latencies.append(perf_counter() - self._sent)
        self._slots[self._turn].version += 1
        self._turn = (self._turn + 1) % len(self._slots)
        self.ask()


async def generate(plan: Plan) -> Outcome:
    loop = asyncio.get_running_loop()
    window = Window(plan)
    clients = []
    for number in range(plan.connections):
        make = partial(Client, window, plan, plan.slots[number :: plan.connections])
        clients.append((await loop.create_connection(make, "127.0.0.1", plan.port))[1])
    used = await window.pass_with(clients)
    if used is None or not window.latencies:
        raise RuntimeError("nothing was measured: too few slots for the time that warming up takes")
    return Outcome(summary(window.latencies), used, [slot.version for slot in plan.slots])


if __name__ == "__main__":
    generator.main(Plan, generate)
