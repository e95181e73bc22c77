"""A server of our HTTP layer alone: routing, authentication and limits, then the body back to the client.

python -m bench.echo --ready-file FILE
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import socket
from pathlib import Path

from inver.domain.principals import ADMIN
from inver.protocols.http import Request, Response, Route
from inver.server.app import write_ready_file
from inver.server.application import Application
from inver.server.health import Readyz
from inver.server.listener import listen, run
from inver.server.router import Router


class Echo:
    mounts = ("/echo",)

    def __init__(self) -> None:
        self.routes = (Route("POST", "", lambda request: Response(200, request.body)),)

    def render(self, error: Exception, request: Request | None) -> Response:
        return Response(500, str(error).encode())


async def serve(ready: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    face = Echo()
    known = {b"Bearer " + b"x" * 86: ADMIN}
    application = Application(
        Router([face, Readyz({})], default=face),
        lambda request: known[request.header(b"authorization") or b""],
    )
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    listener = await listen(application, bound=bound)
    gc.collect()
    gc.freeze()
    address = f"http://127.0.0.1:{listener.port}"
    write_ready_file(ready, address, address)
    await stop.wait()
    await listener.stop(1.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ready-file", type=Path, required=True)
    run(serve(parser.parse_args().ready_file))
