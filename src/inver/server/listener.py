"""A listening socket for an application, and the sweeper of its connections."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from time import monotonic, time
from typing import Any, TypeVar

from inver.server.application import Application
from inver.server.forwarded import Proxies
from inver.server.http import Connection, Hub
from inver.server.wire import date_line

T = TypeVar("T")

log = logging.getLogger("inver.server")

_TICK = 0.5
_BACKLOG = 2048


class Listener:
    """One bound address. `port` is the real one, also when 0 was asked for."""

    def __init__(self, hub: Hub, server: asyncio.Server) -> None:
        self.port: int = server.sockets[0].getsockname()[1]
        self._hub = hub
        self._server = server
        self._sweeper = asyncio.get_running_loop().create_task(_sweep(hub))

    @property
    def connections(self) -> int:
        return len(self._hub.connections)

    async def stop(self, grace_s: float) -> None:
        """Accept nothing more, let requests in flight be answered for at most `grace_s`, and end."""
        hub = self._hub
        self._server.close()
        hub.draining = True
        # Connections that the loop has accepted already are made known within its next turns.
        await asyncio.sleep(0.01)
        for connection in tuple(hub.connections):
            connection.drain()
        if not await _until(lambda: not hub.connections, grace_s):
            for connection in tuple(hub.connections):
                connection.give_up()
            if not await _until(lambda: not hub.connections, 1.0):
                for connection in tuple(hub.connections):
                    connection.cut()
        self._sweeper.cancel()
        with suppress(asyncio.CancelledError):
            await self._sweeper


async def listen(
    application: Application,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    bound: socket.socket | None = None,
    trusted_proxies: Iterable[str] = (),
) -> Listener:
    """Serve `application` on an address, or on a socket that is `bound` already and may be shared.

    `trusted_proxies` are networks whose `X-Forwarded-For` is believed."""
    hub = Hub(application, Proxies(trusted_proxies))
    hub.date = date_line(time())
    loop = asyncio.get_running_loop()
    if bound is not None:
        server = await loop.create_server(lambda: Connection(hub), sock=bound, backlog=_BACKLOG)
    else:
        server = await loop.create_server(lambda: Connection(hub), host, port, backlog=_BACKLOG)
    return Listener(hub, server)


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, on uvloop where it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


async def _sweep(hub: Hub) -> None:
    limits = hub.application.limits
    times = (limits.request_time, limits.head_time, limits.idle_time, limits.keep_alive)
    tick = min(_TICK, min(times) / 2)
    while True:
        hub.date = date_line(time())
        now = monotonic()
        for connection in tuple(hub.connections):
            try:
                connection.sweep(now)
            except Exception:  # one bad connection must not switch off the limits of all
                log.exception("a connection could not be swept")
        await asyncio.sleep(tick)


async def _until(met: Callable[[], bool], seconds: float) -> bool:
    end = monotonic() + seconds
    while not met():
        if monotonic() >= end:
            return False
        await asyncio.sleep(0.01)
    return True
