"""`inver serve`: run the catalog server."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inver.cli.options import Subparsers, verb
from inver.cli.settings import add_config, add_setting, settings_of
from inver.errors import Broken, InverError

if TYPE_CHECKING:
    from inver.config import Settings


def add(commands: Subparsers) -> None:
    parser = verb(
        commands,
        "serve",
        run,
        "run the catalog server until SIGTERM or Ctrl-C",
        "inver serve                                      # SQLite and a warehouse in ./.inver",
        "inver serve --home data --port 0 --ready-file ready.json",
        "inver serve --database postgresql://inver@db/inver --workers 2",
        about="Every setting can also come from a file or the environment: see `inver config show`.",
        shows=False,
        remote=False,
    )
    add_setting(parser, "--home", "server.home", "FOLDER")
    add_setting(parser, "--database", "database.url", "URL")
    add_setting(parser, "--host", "server.host", "ADDRESS")
    add_setting(parser, "--port", "server.port", "PORT")
    add_setting(parser, "--management-port", "server.management_port", "PORT")
    add_setting(parser, "--workers", "server.workers", "N")
    add_setting(parser, "--ready-file", "server.ready_file", "FILE")
    add_setting(parser, "--warehouse", "storage.warehouse", "URI")
    add_setting(parser, "--external-root", "storage.external_roots", "URI", many=True)
    add_config(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    _check(settings)
    public, private = _bind(settings.host, settings.port), _bind(settings.host, settings.probe_port)
    if settings.workers > 1:
        return _supervise(settings, public, private)
    return _serve(settings, public, private, None)


def _check(settings: Settings) -> None:
    from inver.server.app import require_safe_address

    if settings.workers > 1 and settings.database is None:
        raise Broken(
            "SQLite has exactly one server process",
            fix="use --workers 1, or give --database postgresql://...",
        )
    require_safe_address(settings)


def _bind(host: str, port: int) -> socket.socket:
    """Bound before anything else starts, so that a taken port is found at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise Broken(f"cannot listen on {host}:{port}: {error}", fix="choose another --port") from None
    bound.set_inheritable(True)
    return bound


def _url(settings: Settings, bound: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{bound.getsockname()[1]}"


@dataclass(frozen=True, slots=True)
class Worker:
    """One of several processes: its number, the folder they share, the pipe to who waits for them."""

    number: int
    folder: Path
    ready: int


def _serve(
    settings: Settings, public: socket.socket, private: socket.socket | None, worker: Worker | None
) -> int:
    """One server process."""
    from inver.server.app import build, first_token, start
    from inver.server.listener import run as run_loop

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        app = await build(settings)
        token = await first_token(app) if worker is None else None
        if worker is not None:
            app.share_metrics(worker.folder, worker.number)
        running = await start(app, public, private)
        if worker is not None:
            os.write(worker.ready, b"+")
            if worker.number == 0:
                app.care_worker.start(_url(settings, public))
            await stop.wait()
            await running.stop()
            return
        assert private is not None
        with _announced(settings, public, private, token):
            app.care_worker.start(_url(settings, public))
            await stop.wait()
            await running.stop()

    run_loop(serve())
    return 0


@contextmanager
def _announced(
    settings: Settings, public: socket.socket, private: socket.socket, token: str | None
) -> Iterator[None]:
    """Tell people and programs that the server is ready, and programs when it is gone."""
    from inver.server.app import write_ready_file

    url, probes = _url(settings, public), _url(settings, private)
    print(f"Inver serves {settings.public_url or url} (metrics on {probes})")
    if not settings.auth.enabled:
        print("Authentication is off: whoever reaches this address is the administrator.")
    if token is not None:
        print(f"The admin token, shown once and kept in {settings.token_file}:\n  {token}")
    sys.stdout.flush()
    write_ready_file(settings.server_file, url, probes)
    if settings.ready_file is not None:
        write_ready_file(settings.ready_file, url, probes)
    mine = settings.server_file.read_bytes()
    yield
    # Another server on the same home folder may have put its own there since.
    if settings.server_file.exists() and settings.server_file.read_bytes() == mine:
        settings.server_file.unlink()


def _supervise(settings: Settings, public: socket.socket, private: socket.socket) -> int:
    """Fork the workers before any event loop exists, and end them all when one ends or we are told to."""
    from inver.server.app import build, first_token
    from inver.server.listener import run as run_loop

    async def prepare() -> str | None:
        app = await build(settings)
        try:
            return await first_token(app)
        finally:
            await app.store.close()

    token = run_loop(prepare())
    with tempfile.TemporaryDirectory(prefix="inver-workers-") as folder:
        return _run_workers(settings, public, private, token, Path(folder))


def _run_workers(
    settings: Settings, public: socket.socket, private: socket.socket, token: str | None, folder: Path
) -> int:
    reading, writing = os.pipe()
    children: list[int] = []
    for number in range(settings.workers):
        child = os.fork()
        if child == 0:
            os.close(reading)
            probes = private if number == 0 else None
            os._exit(_child(settings, public, probes, Worker(number, folder, writing)))
        children.append(child)
    os.close(writing)
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        for child in children:
            _kill(child)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    for _ in children:
        if os.read(reading, 1) != b"+":
            stop()
            return _await(children)
    with _announced(settings, public, private, token):
        code = 0
        for _ in children:
            _, status = os.wait()
            if not stopping:
                print("inver: a worker ended unexpectedly; stopping the others", file=sys.stderr)
                stop()
                code = 1
            code = code or os.waitstatus_to_exitcode(status)
    return code


def _await(children: list[int]) -> int:
    """The exit status of workers that did not all start."""
    statuses = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in children]
    return next((status for status in statuses if status), 1)


def _child(settings: Settings, public: socket.socket, private: socket.socket | None, worker: Worker) -> int:
    try:
        return _serve(settings, public, private, worker)
    except InverError as error:
        print(f"inver: {error.message}", file=sys.stderr)
        return 1


def _kill(child: int) -> None:
    try:
        os.kill(child, signal.SIGTERM)
    except ProcessLookupError:
        return
