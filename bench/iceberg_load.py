"""The load generator for Iceberg REST: one process, many keep-alive connections, one request at a time each.

`run(plan)` starts it as a process of its own (`python -m bench.iceberg_load`). Answers are cut by
httptools, since the peer sends its larger ones in chunks, and thrown away: an answer of megabytes
costs the generator its reading, whoever sends it.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from array import array
from functools import partial
from time import perf_counter
from typing import cast

import httptools
import msgspec
import uvloop

from bench.iceberg_wire import numbers
from bench.load import Answers, summary
from bench.machine import Sample, Usage, sample, usage

PATIENCE = 120
MOST_S = 30.0


class Slot(msgspec.Struct):
    """Something to ask for again and again: templates that take turns, and the number that counts up.

    After `most` requests it has grown enough, and the whole measurement ends.
    """

    templates: list[bytes]
    version: int = 0
    most: int = 1_000_000_000


class Plan(msgspec.Struct, kw_only=True):
    """Every connection works on slots of its own, in turn, and wants `status` for each answer.

    Without `seconds` every slot is asked for `each` times and nothing is warmed up.
    """

    port: int
    connections: int
    slots: list[Slot]
    status: int
    seconds: float | None = None
    warm_s: float = 0.5
    each: int = 0
    watched: dict[str, int] = {}


class Outcome(msgspec.Struct):
    """`answers` and `usage` are of the measured window; `versions` are where the slots stand."""

    answers: Answers
    usage: Usage
    versions: list[int]


def run(plan: Plan) -> Outcome:
    command = [sys.executable, "-m", "bench.iceberg_load"]
    limit = (plan.seconds or 0) + plan.warm_s + PATIENCE
    done = subprocess.run(command, input=msgspec.msgpack.encode(plan), capture_output=True, timeout=limit)
    if done.returncode != 0:
        raise RuntimeError(f"the load generator ended with {done.returncode}:\n{done.stderr.decode()}")
    return msgspec.msgpack.decode(done.stdout, type=Outcome)


class Run:
    """What all connections share."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.latencies: array[float] = array("d")
        self.measuring = plan.seconds is None
        self.stopping = False
        self.first: Sample | None = None
        self.last: Sample | None = None
        self._open = plan.connections
        self._created = perf_counter()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        if not self.stopping:
            self.first = sample(self.plan.watched)
            self.measuring = True

    def end_in_time(self) -> None:
        """A server may be so slow that the time is over before every connection has had an answer."""
        late = perf_counter() - self._created > MOST_S
        if late or len(self.latencies) >= self.plan.connections:
            self.end()
        else:
            asyncio.get_running_loop().call_later(0.25, self.end_in_time)

    def end(self) -> None:
        if not self.stopping:
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
    """One connection and what it asks for."""

    _transport: asyncio.Transport

    def __init__(self, run: Run, slots: list[Slot]) -> None:
        self._run = run
        self._slots = slots
        self._ends = [slot.version + slot.most for slot in slots]
        self._left = run.plan.each * len(slots) if run.plan.seconds is None else -1
        self._turn = 0
        self._sent = 0.0
        self._leaving = False
        self._complaint = b""
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._leaving:
            self._run.fail(exc or ConnectionResetError("the server closed a connection"))

    def ask(self) -> None:
        slot = self._slots[self._turn]
        if self._run.plan.seconds is not None and slot.version >= self._ends[self._turn]:
            self._run.end()
        if self._run.stopping or not self._left:
            self._leaving = True
            self._transport.close()
            self._run.leave()
            return
        self._left -= 1
        request = slot.templates[slot.version % len(slot.templates)] % numbers(slot.version)
        self._sent = perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        if self._parser.get_status_code() != self._run.plan.status:
            self._complaint += body

    def on_message_complete(self) -> None:
        run, status = self._run, self._parser.get_status_code()
        if status != run.plan.status:
            run.fail(RuntimeError(f"unexpected answer {status}: {self._complaint.decode(errors='replace')}"))
            return
        if run.measuring:
            run.latencies.append(perf_counter() - self._sent)
        self._slots[self._turn].version += 1
        self._turn = (self._turn + 1) % len(self._slots)
        self.ask()


async def generate(plan: Plan) -> Outcome:
    loop = asyncio.get_running_loop()
    run = Run(plan)
    clients = []
    for number in range(plan.connections):
        make = partial(Client, run, plan.slots[number :: plan.connections])
        clients.append((await loop.create_connection(make, "127.0.0.1", plan.port))[1])
    gc.collect()
    gc.disable()
    if plan.seconds is None:
        run.begin()
    else:
        loop.call_later(plan.warm_s, run.begin)
        loop.call_later(plan.warm_s + plan.seconds, run.end_in_time)
    for client in clients:
        client.ask()
    await run.done
    run.end()
    if run.first is None or run.last is None or not run.latencies:
        raise RuntimeError("nothing was measured: too few slots for the time that warming up takes")
    versions = [slot.version for slot in plan.slots]
    return Outcome(summary(run.latencies), usage(run.first, run.last), versions)


def main() -> None:
    plan = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Plan)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        outcome = runner.run(generate(plan))
    sys.stdout.buffer.write(msgspec.msgpack.encode(outcome))


if __name__ == "__main__":
    main()
