"""The load generator: one process, many keep-alive connections, one request at a time on each.

`run(plan)` starts it as a process of its own (`python -m bench.load`), so that it shares no interpreter
with anything that is measured. Requests are byte templates with two numbers in them, answers are cut by
their Content-Length: a request costs the generator a few microseconds.
"""

from __future__ import annotations

import asyncio
import gc
import re
import subprocess
import sys
from array import array
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import cast

import msgspec
import uvloop

from bench.machine import Sample, Usage, sample, usage
from bench.unity_wire import READS, REQUESTS
from bench.wire import template

PATIENCE = 120


class Slot(msgspec.Struct):
    """A table and the version at which it stands; with what else a protocol calls it by."""

    id: str
    version: int = 0
    name: str = ""
    location: str = ""


class Plan(msgspec.Struct, kw_only=True):
    """Who asks for what, how often.

    Every connection commits to tables of its own, in turn; with `shared` all commit to all, and one that
    loses asks for the version after the one that stands. Without `seconds` every connection sends `each`
    requests and nothing is warmed up. `watched` names process trees whose CPU time is measured. Without
    `unity`, which names one of its requests, they go to the management API.
    """

    port: int
    path: str
    bearer: str
    unity: str | None = None
    connections: int
    slots: list[Slot]
    shared: bool = False
    seconds: float | None = None
    warm_s: float = 0.5
    each: int = 0
    watched: dict[str, int] = {}


class Answers(msgspec.Struct):
    """How many of one status, and how long they took."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


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
    command = [sys.executable, "-m", "bench.load"]
    limit = (plan.seconds or 0) + plan.warm_s + PATIENCE
    done = subprocess.run(command, input=msgspec.json.encode(plan), capture_output=True, timeout=limit)
    if done.returncode != 0:
        raise RuntimeError(f"the load generator ended with {done.returncode}:\n{done.stderr.decode()}")
    return msgspec.json.decode(done.stdout, type=Outcome)


def summary(latencies: Sequence[float]) -> Answers:
    """Of latencies in seconds."""
    ordered = sorted(latencies)
    last = len(ordered) - 1

    def at(share: float) -> float:
        return round(1000 * ordered[min(last, int(share * len(ordered)))], 3)

    return Answers(len(ordered), at(0.50), at(0.99), at(1.0))


class _Conflict(msgspec.Struct):
    current: int


class _Problem(msgspec.Struct):
    conflicts: list[_Conflict]


_problem = msgspec.json.Decoder(_Problem).decode
_standing = re.compile(rb"the table is at version (\d+)").search


class Run:
    """What all connections share."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.latencies: dict[int, array[float]] = {}
        self.measuring = plan.seconds is None
        self.stopping = False
        self.won = 0
        self.first: Sample | None = None
        self.last: Sample | None = None
        self._open = plan.connections
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        self.first = sample(self.plan.watched)
        self.measuring = True

    def end(self) -> None:
        self.last = sample(self.plan.watched)
        self.measuring = False
        self.stopping = True

    def leave(self) -> None:
        self._open -= 1
        if not self._open and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Client(asyncio.Protocol):
    """One connection and the tables it commits to."""

    _transport: asyncio.Transport

    def __init__(self, run: Run, number: int, slots: list[Slot]) -> None:
        plan = run.plan
        self._run = run
        self._slots = slots
        self._reads = plan.unity in READS
        if plan.unity is None:
            self._templates = [template(plan.path, plan.bearer, slot.id, number) for slot in slots]
        else:
            make = REQUESTS[plan.unity]
            self._templates = [make(plan.bearer, slot.id, slot.location, slot.name, number) for slot in slots]
        self._turn = 0
        self._left = plan.each if plan.seconds is None else -1
        self._shared = plan.shared
        self._buffer = b""
        self._sent = 0.0
        self._version = 0
        self._leaving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._leaving:
            self._run.fail(exc or ConnectionResetError("the server closed a connection"))

    def ask(self) -> None:
        if self._run.stopping or not self._left:
            self._leaving = True
            self._transport.close()
            self._run.leave()
            return
        self._left -= 1
        template = self._templates[self._turn]
        version = self._version = self._slots[self._turn].version + 1
        self._sent = perf_counter()
        if self._reads:
            self._transport.write(template % ())
        elif self._run.plan.unity is None:
            self._transport.write(template % (version, version))
        else:
            self._transport.write(template % (version, version, version - 1))

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
        run = self._run
        status = int(data[9:12])
        if run.measuring:
            latencies = run.latencies.get(status)
            if latencies is None:
                latencies = run.latencies[status] = array("d")
            latencies.append(now - self._sent)
        slot = self._slots[self._turn]
        if status == 200:
            run.won += 1
            if not self._reads:
                slot.version = max(slot.version, self._version)
        elif status == 409 and self._shared:
            slot.version = max(slot.version, self._told(data[end + 4 :]))
        else:
            run.fail(RuntimeError(f"unexpected answer: {data.decode(errors='replace')}"))
            return
        self._turn = (self._turn + 1) % len(self._slots)
        self.ask()

    def _told(self, body: bytes) -> int:
        """The version at which the table stands, as the refusal says it."""
        if self._run.plan.unity is None:
            return _problem(body).conflicts[0].current
        found = _standing(body)
        assert found is not None, body
        return int(found[1])


async def generate(plan: Plan) -> Outcome:
    loop = asyncio.get_running_loop()
    run = Run(plan)
    clients = []
    for number in range(plan.connections):
        if plan.shared:
            # Each client knows only what it was told, as clients on different machines do.
            slots = [msgspec.structs.replace(slot) for slot in plan.slots]
        else:
            slots = plan.slots[number :: plan.connections]
        make = partial(Client, run, number, slots)
        clients.append((await loop.create_connection(make, "127.0.0.1", plan.port))[1])
    gc.collect()
    gc.disable()
    if plan.seconds is None:
        run.begin()
    else:
        loop.call_later(plan.warm_s, run.begin)
        loop.call_later(plan.warm_s + plan.seconds, run.end)
    for client in clients:
        client.ask()
    await run.done
    if run.last is None:
        run.end()
    assert run.first is not None
    assert run.last is not None
    if plan.shared:
        for client in clients:
            for slot, known in zip(plan.slots, client._slots, strict=True):
                slot.version = max(slot.version, known.version)
    answers = {status: summary(found) for status, found in run.latencies.items()}
    return Outcome(answers, usage(run.first, run.last), run.won, plan.slots)


def main() -> None:
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        outcome = runner.run(generate(plan))
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
