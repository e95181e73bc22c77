"""The client for code on an event loop: the same operations, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, TypeVar

from inver.client.core import DEFAULT_POLICY, Call, NoAnswer, Page, Policy, Wait, check_token, exchange
from inver.client.methods import Operations
from inver.client.streams import Streams
from inver.client.transport import Address

if TYPE_CHECKING:
    from inver.client.blocks import AsyncTransaction

T = TypeVar("T")


class AsyncClient(Operations):
    """A catalog server, for code on an event loop.

    async with AsyncClient("http://127.0.0.1:8181", token) as client:
        await client.create_catalog("main")
    """

    def __init__(self, url: str, token: str | None = None, *, policy: Policy = DEFAULT_POLICY) -> None:
        self.url = url.rstrip("/")
        self._token = check_token(token)
        self._policy = policy
        self._transport = Streams(Address.parse(url))

    async def run(self, call: Call[T]) -> T:
        """Send a call until it has its outcome."""
        steps = exchange(call, self._token, self._policy)
        step = next(steps)
        try:
            while True:
                if isinstance(step, Wait):
                    await asyncio.sleep(step.seconds)
                    step = next(steps)
                    continue
                try:
                    response = await self._transport.send(step)
                except NoAnswer as failure:
                    step = steps.throw(failure)
                else:
                    step = steps.send(response)
        except StopIteration as done:
            result: T = done.value
            return result

    async def items(self, call: Call[Page[T]]) -> AsyncIterator[T]:
        following: Call[Page[T]] | None = call
        while following is not None:
            page = await self.run(following)
            for item in page.items:
                yield item
            following = page.next

    def begin(self) -> AsyncTransaction:
        """A transaction over tables of any format, sent when its block ends."""
        from inver.client.blocks import AsyncTransaction

        return AsyncTransaction(self, self._token)

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
