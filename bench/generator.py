"""What load generators have in common: a process of their own, and a window of time that is measured.

`apart(module, plan, ...)` starts one with `python -m module`, so that it shares no interpreter with
anything that is measured; there, `main` reads the plan and writes the outcome.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from array import array
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeVar, cast

import httptools
import msgspec
import uvloop

from bench.machine import Sample, Usage, sample, usage

T = TypeVar("T")
P = TypeVar("P", bound="Plan")

PATIENCE = 120
ANY_NUMBER = -1


class Plan(msgspec.Struct, kw_only=True):
    """Without `seconds` there is an end to what is asked, and nothing is warmed up.

    `watched` names process trees whose CPU time is measured.
    """

    port: int
    connections: int
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


def summary(latencies: Sequence[float]) -> Answers:
    """Of latencies in seconds."""
    ordered = sorted(latencies)
    last = len(ordered) - 1

    def at(share: float) -> float:
        return round(1000 * ordered[min(last, int(share * len(ordered)))], 3)

    return Answers(len(ordered), at(0.50), at(0.99), at(1.0))


def apart(module: str, plan: Plan, returns: type[T]) -> T:
    limit = (plan.seconds or 0) + plan.warm_s + PATIENCE
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, input=msgspec.msgpack.encode(plan), capture_output=True, timeout=limit)
    if done.returncode != 0:
        raise RuntimeError(f"the load generator ended with {done.returncode}:\n{done.stderr.decode()}")
    return msgspec.msgpack.decode(done.stdout, type=returns)


def main(plans: type[P], generate: Callable[[P], Awaitable[Any]]) -> None:
    plan = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=plans)

    async def run() -> Any:
        return await generate(plan)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        outcome = runner.run(run())
    sys.stdout.buffer.write(msgspec.msgpack.encode(outcome))


class Window:
    """What all connections share: whether their answers count, and whether they go on."""

    def __init__(self, plan: Plan) -> None:
        self.measuring = plan.seconds is None
        self.stopping = False
        self._plan = plan
        self._open = plan.connections
        self._first: Sample | None = None
        self._last: Sample | None = None
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def pass_with(self, clients: Sequence[Client]) -> Usage | None:
        """Let the clients ask until it is over. None if it was over before it began."""
        gc.collect()
        gc.disable()
        loop, plan = asyncio.get_running_loop(), self._plan
        if plan.seconds is None:
            self.begin()
        else:
            loop.call_later(plan.warm_s, self.begin)
            loop.call_later(plan.warm_s + plan.seconds, self.time_is_over)
        for client in clients:
            client.ask()
        await self._done
        self.end()
        return usage(self._first, self._last) if self._first and self._last else None

    def begin(self) -> None:
        if not self.stopping:
            self._first = sample(self._plan.watched)
            self.measuring = True

    def time_is_over(self) -> None:
        self.end()

    def end(self) -> None:
        if not self.stopping:
            self._last = sample(self._plan.watched)
            self.measuring = False
            self.stopping = True

    def leave(self) -> None:
        self._open -= 1
        if not self._open and not self._done.done():
            self._done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)


class Client(asyncio.BaseProtocol):
    """One connection, on which one request at a time is on its way; `number` requests, or any number."""

    _transport: asyncio.Transport

    def __init__(self, window: Window, number: int) -> None:
        self._window = window
        self._left = number
        self._sent = 0.0
        self._leaving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._leaving:
            self._window.fail(exc or ConnectionResetError("the server closed a connection"))

    def ask(self) -> None:
        if self._window.stopping or not self._left:
            self._leaving = True
            self._transport.close()
            self._window.leave()
            return
        self._left -= 1
        request = self.request()
        self._sent = perf_counter()
        self._transport.write(request)

    def request(self) -> bytes:
        raise NotImplementedError


class TimedWindow(Window):
    """Keeps how long every answer took that counts."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.latencies: array[float] = array("d")


_received = memoryview(bytearray(256 * 1024))
"""What came last, on whatever connection. Large answers in memory of their own would take the generator
longer than their server."""


class ParsingClient(Client, asyncio.BufferedProtocol):
    """Wants one status for every answer. Bodies are thrown away: that costs the generator their reading,
    whoever sends them."""

    _window: TimedWindow

    def __init__(self, window: TimedWindow, number: int, status: int) -> None:
        super().__init__(window, number)
        self._status = status
        self._last = _received[:0]
        self._parser = httptools.HttpResponseParser(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        self._last = _received[:nbytes]
        self._parser.feed_data(self._last)

    def on_message_complete(self) -> None:
        window, status = self._window, self._parser.get_status_code()
        if status != self._status:
            complaint = self._last.tobytes().decode(errors="replace")
            window.fail(RuntimeError(f"unexpected answer {status}: {complaint}"))
            return
        if window.measuring:
            window.latencies.append(perf_counter() - self._sent)
        self.answered()
        self.ask()

    def answered(self) -> None:
        """What is asked for next may depend on it."""


async def measure(
    window: TimedWindow, plan: Plan, connect: Callable[[int], ParsingClient]
) -> tuple[Answers, Usage]:
    """What the clients of numbered connections were answered, and what that took."""
    loop = asyncio.get_running_loop()
    clients = []
    for number in range(plan.connections):
        made = await loop.create_connection(partial(connect, number), "127.0.0.1", plan.port)
        clients.append(made[1])
    used = await window.pass_with(clients)
    if used is None or not window.latencies:
        raise RuntimeError("nothing was measured: too little to ask for in the time that warming up takes")
    return summary(window.latencies), used
