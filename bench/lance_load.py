"""The load generator for Lance: one process, a keep-alive connection for each table, one request at a time.

Requests are made before, since every version has a manifest of its own; a read is repeated.
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
from bench.machine import Usage


class Plan(generator.Plan, kw_only=True):
    """What each connection asks for, in order; the first that has nothing left ends the measurement."""

    requests: list[list[bytes]]
    repeated: bool = False


class Outcome(msgspec.Struct):
    answers: Answers
    usage: Usage


def run(plan: Plan) -> Outcome:
    return generator.apart("bench.lance_load", plan, Outcome)


class Window(generator.Window):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.latencies: array[float] = array("d")


class Client(generator.Client):
    _window: Window

    def __init__(self, window: Window, plan: Plan, number: int) -> None:
        super().__init__(window, generator.ANY_NUMBER)
        self._requests = plan.requests[number]
        self._repeated = plan.repeated
        self._at = 0
        self._complaint = b""
        self._parser = httptools.HttpResponseParser(self)

    def ask(self) -> None:
        if self._at == len(self._requests):
            if not self._repeated:
                self._window.end()
            self._at = 0
        super().ask()

    def request(self) -> bytes:
        self._at += 1
        return self._requests[self._at - 1]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        if self._parser.get_status_code() != 200:
            self._complaint += body

    def on_message_complete(self) -> None:
        window, status = self._window, self._parser.get_status_code()
        if status != 200:
            window.fail(
                RuntimeError(f"unexpected answer {status}: {self._complaint.decode(errors='replace')}")
            )
            return
        if window.measuring:
            window.latencies.append(perf_counter() - self._sent)
        self.ask()


async def generate(plan: Plan) -> Outcome:
    loop = asyncio.get_running_loop()
    window = Window(plan)
    clients = []
    for number in range(plan.connections):
        make = partial(Client, window, plan, number)
        clients.append((await loop.create_connection(make, "127.0.0.1", plan.port))[1])
    used = await window.pass_with(clients)
    if used is None or not window.latencies:
        raise RuntimeError("nothing was measured: too few requests for the time that warming up takes")
    return Outcome(summary(window.latencies), used)


if __name__ == "__main__":
    generator.main(Plan, generate)
