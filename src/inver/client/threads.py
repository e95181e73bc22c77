"""The client for plain code and threads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from inver.client.core import DEFAULT_POLICY, Call, NoAnswer, Page, Policy, Wait, check_token, exchange
from inver.client.methods import Operations
from inver.client.transport import Address, Transport

if TYPE_CHECKING:
    from inver.client.blocks import Transaction

T = TypeVar("T")


class Client(Operations):
    """A catalog server, for plain code and threads.

    with Client("http://127.0.0.1:8181", token) as client:
        client.create_catalog("main")
    """

    def __init__(self, url: str, token: str | None = None, *, policy: Policy = DEFAULT_POLICY) -> None:
        self.url = url.rstrip("/")
        self._token = check_token(token)
        self._policy = policy
        self._transport = Transport(Address.parse(url))

    @property
    def token(self) -> str | None:
        """What it shows to the server, for libraries that speak its other protocols."""
        return self._token

    def run(self, call: Call[T]) -> T:
        """Send a call until it has its outcome."""
        steps = exchange(call, self._token, self._policy)
        step = next(steps)
        try:
            while True:
                if isinstance(step, Wait):
                    time.sleep(step.seconds)
                    step = next(steps)
                    continue
                try:
                    response = self._transport.send(step)
                except NoAnswer as failure:
                    step = steps.throw(failure)
                else:
                    step = steps.send(response)
        except StopIteration as done:
            result: T = done.value
            return result

    def items(self, call: Call[Page[T]]) -> Iterator[T]:
        following: Call[Page[T]] | None = call
        while following is not None:
            page = self.run(following)
            yield from page.items
            following = page.next

    def begin(self) -> Transaction:
        """A transaction over tables of any format, sent when its block ends."""
        from inver.client.blocks import Transaction

        return Transaction(self, self._token)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
