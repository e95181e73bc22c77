"""The load generator: one process, many keep-alive connections, one request at a time on each.

Requests are byte templates with two numbers in them, answers are cut by their Content-Length: a request
costs the generator a few microseconds.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from functools import partial
from time import perf_counter

import msgspec

from bench import generator
from bench.generator import Answers, summary
from bench.machine import Usage
from bench.unity_wire import READS, REQUESTS
from bench.wire import template


class Slot(msgspec.Struct):
    """A table and the version at which it stands; with what else a protocol calls it by."""

    id: str
    version: int = 0
    name: str = ""
    location: str = ""


class Plan(generator.Plan, kw_only=True):
    """Who asks for what, how often.

    Every connection commits to tables of its own, in turn; with `shared` all commit to all, and one that
    loses asks for the version after the one that stands. Without `seconds` every connection sends `each`
    requests. Without `unity`, which names one of its requests, they go to the management API.
    """

    path: str
    bearer: str
    unity: str | None = None
    slots: list[Slot]
    shared: bool = False


class Outcome(msgspec.Struct):
    """`answers` and `usage` are of the measured window; `won` counts from the first request to the last."""

    answers: dict[int, Answers]
    usage: Usage
    won: int
    slots: list[Slot]

    @property
    def ok(self) -> int:
        return self.answers[200].count if 200 in self.answers else 0


def run(plan: Plan) -> Outcome:
    return generator.apart("bench.load", plan, Outcome)


class _Conflict(msgspec.Struct):
    current: int


class _Problem(msgspec.Struct):
    conflicts: list[_Conflict]


_problem = msgspec.json.Decoder(_Problem).decode
_standing = re.compile(rb"the table is at version (\d+)").search


class Window(generator.Window):
    """`won` counts from the first request to the last."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.latencies: dict[int, array[float]] = {}
        self.won = 0


class Client(generator.Client, asyncio.Protocol):
    """One connection and the tables it commits to."""

    _window: Window

    def __init__(self, window: Window, plan: Plan, number: int, slots: list[Slot]) -> None:
        super().__init__(window, plan.each if plan.seconds is None else generator.ANY_NUMBER)
        self.slots = slots
        self._unity = plan.unity
        self._reads = plan.unity in READS
        if plan.unity is None:
            self._templates = [template(plan.path, plan.bearer, slot.id, number) for slot in slots]
        else:
            make = REQUESTS[plan.unity]
            self._templates = [make(plan.bearer, slot.id, slot.location, slot.name, number) for slot in slots]
        self._turn = 0
        self._shared = plan.shared
        self._buffer = b""
        self._version = 0

    def request(self) -> bytes:
        template = self._templates[self._turn]
        version = self._version = self.slots[self._turn].version + 1
        if self._reads:
            return template % ()
        if self._unity is None:
            return template % (version, version)
        return template % (version, version, version - 1)

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        end = data.find(b"\r\n\r\n")
        start = data.find(b"ength: ", 0, end) + 7  # of Content-Length, in either spelling
        if end < 0 or len(data) < end + 4 + int(data[start : data.find(b"\r", start)]):
            self._buffer = data
            return
        self._buffer = b""
        now = perf_counter()
        window = self._window
        status = int(data[9:12])
        if window.measuring:
            latencies = window.latencies.get(status)
            if latencies is None:
                latencies = window.latencies[status] = array("d")
            latencies.append(now - self._sent)
        slot = self.slots[self._turn]
        if status == 200:
            window.won += 1
            if not self._reads:
                slot.version = max(slot.version, self._version)
        elif status == 409 and self._shared:
            slot.version = max(slot.version, self._told(data[end + 4 :]))
        else:
            window.fail(RuntimeError(f"unexpected answer: {data.decode(errors='replace')}"))
            return
        self._turn = (self._turn + 1) % len(self.slots)
        self.ask()

    def _told(self, body: bytes) -> int:
        """The version at which the table stands, as the refusal says it."""
        if self._unity is None:
            return _problem(body).conflicts[0].current
        found = _standing(body)
        assert found is not None, body
        return int(found[1])


async def generate(plan: Plan) -> Outcome:
    loop = asyncio.get_running_loop()
    window = Window(plan)
    clients = []
    for number in range(plan.connections):
        if plan.shared:
            # Each client knows only what it was told, as clients on different machines do.
            slots = [msgspec.structs.replace(slot) for slot in plan.slots]
        else:
            slots = plan.slots[number :: plan.connections]
        make = partial(Client, window, plan, number, slots)
        clients.append((await loop.create_connection(make, "127.0.0.1", plan.port))[1])
    used = await window.pass_with(clients)
    assert used is not None
    if plan.shared:
        for client in clients:
            for slot, known in zip(plan.slots, client.slots, strict=True):
                slot.version = max(slot.version, known.version)
    answers = {status: summary(found) for status, found in window.latencies.items()}
    return Outcome(answers, used, window.won, plan.slots)


if __name__ == "__main__":
    generator.main(Plan, generate)
