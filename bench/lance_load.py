"""The load generator for Lance: one process, a keep-alive connection for each table, one request at a time.

Requests are made before, since every version has a manifest of its own; a read is repeated.
"""

from __future__ import annotations

from functools import partial

import msgspec

from bench import generator
from bench.generator import Answers
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


class Client(generator.ParsingClient):
    def __init__(self, window: generator.TimedWindow, plan: Plan, number: int) -> None:
        super().__init__(window, generator.ANY_NUMBER, 200)
        self._requests = plan.requests[number]
        self._repeated = plan.repeated
        self._at = 0

    def ask(self) -> None:
        if self._at == len(self._requests):
            if not self._repeated:
                self._window.end()
            self._at = 0
        super().ask()

    def request(self) -> bytes:
        self._at += 1
        return self._requests[self._at - 1]


async def generate(plan: Plan) -> Outcome:
    window = generator.TimedWindow(plan)
    return Outcome(*await generator.measure(window, plan, partial(Client, window, plan)))


if __name__ == "__main__":
    generator.main(Plan, generate)
