"""The scheduler of care: `inver care worker` as a child of the server, kept alive as long as it is.

A process of its own, since jobs import Spark and may take all the memory that there is; the server only
hands out their tickets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import suppress
from ipaddress import ip_address
from time import monotonic
from urllib.parse import urlsplit

import msgspec

from inver.clock import Clock
from inver.config import Settings
from inver.domain.care import Scheduler, SchedulerState
from inver.domain.governance import AddMember, CreatePrincipal, CreateToken, RevokeToken
from inver.domain.ledger import Transaction
from inver.domain.principals import ADMINS, SYSTEM, PrincipalKind, Scope
from inver.errors import AlreadyExists, Broken
from inver.ids import new_id
from inver.ports import Store
from inver.secrets import Secret
from inver.services.tokens import new_token

log = logging.getLogger("inver.care")

PRINCIPAL = "inver-care"
TOKEN_DAYS = 30
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
SETTLED_S = 60.0
"""A worker that ran for so long has started well; what ends it then is a new trouble."""

_decode = msgspec.json.Decoder(Scheduler).decode


class CareWorker:
    """`told` says how it stands; the processes of one server read it from a file in the home folder."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._file = settings.home / "care" / "scheduler.json"
        self._mine: Scheduler | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._mine is not None and self._mine.state is SchedulerState.RUNNING

    @property
    def restarts(self) -> int:
        return 0 if self._mine is None else self._mine.restarts

    def told(self) -> Scheduler:
        if self._settings.care.scheduler == "off":
            return Scheduler(state=SchedulerState.OFF)
        if self._mine is None:
            with suppress(OSError, msgspec.DecodeError):
                return _decode(self._file.read_bytes())
        return self._mine or Scheduler(state=SchedulerState.STARTING)

    def start(self, url: str) -> None:
        """`url` is how the server is reached; it answers already."""
        if self._settings.care.scheduler == "on":
            self._task = asyncio.ensure_future(self._keep(reachable(url)))

    async def stop(self) -> None:
        """The worker ends between two steps of its job, and gives the lease back while the server answers."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._file.unlink(missing_ok=True)

    async def _keep(self, url: str) -> None:
        pause, restarts = FIRST_PAUSE_S, 0
        while True:
            started = monotonic()
            self._say(SchedulerState.STARTING, restarts)
            try:
                ended = await self._run(url, restarts)
            except Exception as error:
                log.exception("the worker of care does not start")
                ended = f"it does not start: {type(error).__name__}"
            if monotonic() - started > SETTLED_S:
                pause = FIRST_PAUSE_S
            self._say(SchedulerState.WAITING, restarts, f"{ended}; started again in {pause:.0f} s")
            log.warning("the worker of care has ended: %s; it is started again in %.0f s", ended, pause)
            await asyncio.sleep(pause)
            restarts, pause = restarts + 1, min(2 * pause, LONGEST_PAUSE_S)

    async def _run(self, url: str, restarts: int) -> str:
        """One life of the worker; returns how it ended."""
        token_id, token = None, None
        if self._settings.auth.enabled:
            token_id, token = await self._new_token()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(url, token is not None),
                stdin=asyncio.subprocess.PIPE if token else asyncio.subprocess.DEVNULL,
                # What a server prints on its standard output is for programs that start it.
                stdout=sys.stderr.fileno(),
                # Ctrl-C on the server's terminal is for the server, which then ends the worker in order.
                start_new_session=True,
            )
            self._say(SchedulerState.RUNNING, restarts)
            try:
                if token is not None and process.stdin is not None:
                    process.stdin.write(token.reveal().encode())
                    process.stdin.close()
                return f"it ended with status {await process.wait()}"
            finally:
                await self._end(process)
        finally:
            if token_id is not None:
                with suppress(Exception):
                    await self._decide(RevokeToken(id=token_id))

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._settings.grace_s)
        except TimeoutError:
            process.kill()
            await process.wait()

    def _command(self, url: str, with_token: bool) -> list[str]:
        care = self._settings.care
        command = [sys.executable, "-m", "inver", "care", "worker", "--url", url, "--spark", care.spark]
        command += ["--parent", str(os.getpid())]
        if care.jars is not None:
            command += ["--jars", str(care.jars)]
        if with_token:
            command += ["--token-file", "-"]
        # Flags and the environment aside, the worker has its storage from the file that the server has.
        files = {origin for origin in self._settings.origins.values() if _is_file(origin)}
        return [*command, *(word for path in files for word in ("--config", path))]

    async def _new_token(self) -> tuple[str, Secret]:
        """A token of the worker's own principal, for this life of it."""
        holder = await self._store.principal_by_name(PRINCIPAL)
        if holder is None:
            made = CreatePrincipal(
                id=new_id(),
                name=PRINCIPAL,
                kind=PrincipalKind.SERVICE,
                comment="the worker that the server keeps for the care of tables",
            )
            # Once, with the principal: an administrator who takes it out again is obeyed.
            with suppress(AlreadyExists):
                await self._decide(made, AddMember(group_id=ADMINS.id, member_id=made.id))
            holder = await self._store.principal_by_name(PRINCIPAL)
        if holder is None or holder.disabled:
            raise Broken(
                f"the principal {PRINCIPAL} is disabled", fix="enable it, or set care.scheduler to off"
            )
        token_id, token, hashed = new_token()
        await self._decide(
            CreateToken(
                id=token_id,
                principal_id=holder.id,
                hash=hashed,
                label="scheduler",
                scope=Scope.ALL,
                expires_at=self._clock.now_ms() + TOKEN_DAYS * 86_400_000,
            )
        )
        return token_id, token

    async def _decide(self, *operations: CreatePrincipal | AddMember | CreateToken | RevokeToken) -> None:
        await self._store.decide(Transaction(SYSTEM.id, self._clock.now_ms(), operations))

    def _say(self, state: SchedulerState, restarts: int, message: str = "") -> None:
        self._mine = Scheduler(state=state, since=self._clock.now_ms(), restarts=restarts, message=message)
        temporary = self._file.with_suffix(".new")
        # Only the other processes of this server look at it; a full disk does not end the scheduler.
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_bytes(msgspec.json.encode(self._mine))
            temporary.replace(self._file)


def reachable(url: str) -> str:
    """A server that listens on every address is reached from its own machine on the loopback one."""
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):
        address = ip_address(host)
        if address.is_unspecified:
            shown, loopback = (host, "127.0.0.1") if address.version == 4 else (f"[{host}]", "[::1]")
            return url.replace(shown, loopback, 1)
    return url


def _is_file(origin: str) -> bool:
    return origin != "flag" and not origin.startswith("INVER_")
