"""The pipeline's composition root: from a ticket to its result, whatever happens on the way."""

from __future__ import annotations

import logging
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from inver.config.settings import StorageSettings
from inver.domain.care import Outcome, Result, Ticket
from inver.errors import Broken, Conflict, InverError, Refused
from inver.pipeline import jobs
from inver.pipeline.lease import Lease, Show
from inver.pipeline.places import Place
from inver.pipeline.work import LeaseLost, Stopped, Work
from inver.storage.options import StorageOptions

if TYPE_CHECKING:
    from inver.client import Client

log = logging.getLogger("inver.care")

MOST_OF_A_MESSAGE = 500
MOST_LOGS = 100


def worker_name() -> str:
    """How this process is known in the history of runs."""
    return f"{socket.gethostname()}/{os.getpid()}"


def log_folder() -> Path:
    """Where a person finds what a failed run said."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "inver" / "care"


def require_spark() -> None:
    if find_spec("pyspark") is None:
        raise Broken("care runs on Spark, which is not installed here", fix="pip install inver[spark]")


class SparkAt:
    """The session on an address: a master (`local[*]`, `spark://…`) or a Connect server (`sc://…`).

    It starts when it is first called for, and what was started stops with the block. With `errors`, what
    its Java machine says goes there and not to standard error; `short_lived` is as in `open_session`.
    """

    def __init__(
        self,
        address: str,
        jars: Sequence[Path] = (),
        *,
        errors: Path | None = None,
        short_lived: bool = False,
    ) -> None:
        self._address = address
        self._jars = tuple(jars)
        self._errors = errors
        self._short_lived = short_lived
        self._session: Any = None
        self._mine = True

    def __call__(self) -> Any:
        if self._session is None:
            require_spark()
            from pyspark.sql import SparkSession

            from inver.pipeline.session import open_session

            # Whoever calls us may have one, and goes on with it.
            self._mine = SparkSession.getActiveSession() is None
            connect = self._address if self._address.startswith("sc://") else None
            with _standard_error(self._errors):
                self._session = open_session(
                    self._address, remote=connect, jars=self._jars, short_lived=self._short_lived
                )
        return self._session

    def __enter__(self) -> SparkAt:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None and self._mine:
            # A Java machine that has died is stopped enough.
            with suppress(Exception):
                self._session.stop()


class Runner:
    """Runs tickets one after the other. `spark` gives the session to a job that asks for it.

    Failed runs leave a log in `logs`. When `stopping` says so, the job in hand ends before its next step.
    """

    def __init__(
        self,
        client: Client,
        storage: StorageSettings,
        spark: Callable[[], Any],
        *,
        logs: Path,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        given = msgspec.structs.asdict(storage)
        del given["warehouse"]
        self._client = client
        self._storage = StorageOptions(**given)
        self._spark = spark
        self._logs = logs
        self._stopping = stopping
        self._session: Any = None
        self.broken = False
        """Spark has ended under us; a process has one Java machine, so another process must go on."""

    def run(self, ticket: Ticket, show: Show) -> Result:
        """Every error of the job is a result, and every result reaches the server if it can be reached."""
        started = time.monotonic()
        said: list[str] = []

        def told(progress: float, message: str) -> None:
            said.append(f"{time.monotonic() - started:9.3f} s {progress:4.0%} {message}")
            show(progress, message)

        interrupted: BaseException | None = None
        with Lease(self._client, ticket, told, self._stopping) as lease:
            try:
                result = self._do(ticket, lease)
            except (KeyboardInterrupt, SystemExit) as ended:
                interrupted = ended
                result = Result(outcome=Outcome.STOPPED, message="the worker was interrupted")
            except Exception as error:
                result = self._failed(ticket, error, said)
                self.broken = not self._spark_lives()
        seconds = round(time.monotonic() - started, 3)
        measured = {"seconds": seconds, **result.measured}
        result = msgspec.structs.replace(result, measured=measured)
        self._finish(ticket, result)
        if interrupted is not None:
            raise interrupted
        return result

    def _do(self, ticket: Ticket, lease: Lease) -> Result:
        place = Place(ticket.location, self._storage)
        work = Work(ticket, self._client, self._start_spark, place, lease.tell)
        try:
            return jobs.find(ticket.format, ticket.job)(work)
        except Stopped as stopped:
            return Result(outcome=Outcome.STOPPED, message=str(stopped))
        except (LeaseLost, Conflict) as lost:
            return Result(outcome=Outcome.LOST, message=str(lost))
        except (Refused, Broken) as refused:
            return Result(outcome=Outcome.REFUSED, message=_shown(refused))

    def _start_spark(self) -> Any:
        try:
            self._session = self._spark()
        except Exception as error:
            # Nothing is wrong with the table, so it is not refused.
            raise NoSpark(f"Spark does not start: {_shown(error)}") from error
        return self._session

    def _spark_lives(self) -> bool:
        try:
            return self._session is None or self._session.range(1).count() == 1
        except Exception:
            return False

    def _failed(self, ticket: Ticket, error: Exception, said: Sequence[str]) -> Result:
        path = self._logs / f"{ticket.run_id}.log"
        head = f"{'.'.join(ticket.name)} {ticket.job} at version {ticket.version}, {ticket.location}"
        try:
            self._logs.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_text("\n".join([head, *said, *traceback.format_exception(error)]), encoding="utf-8")
            # The ids of runs grow with time.
            for old in sorted(self._logs.glob("*.log"))[:-MOST_LOGS]:
                old.unlink(missing_ok=True)
            kept = f"; log: {path}"
        except OSError as unwritable:
            kept = f"; no log: {unwritable.strerror}"
        return Result(outcome=Outcome.FAILED, message=_shown(error) + kept)

    def _finish(self, ticket: Ticket, result: Result) -> None:
        try:
            self._client.finish_care(ticket.run_id, result)
        except InverError as unheard:
            # Another worker has the table, or the lease runs out: whoever comes next looks for itself.
            log.warning("%s of %s is %s: %s", ticket.job, ".".join(ticket.name), result.outcome, unheard)


class NoSpark(Exception):
    """The session of this process cannot be had."""


@contextmanager
def _standard_error(path: Path | None) -> Iterator[None]:
    """The file, for processes that are started meanwhile."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    kept = os.dup(2)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


def _shown(error: Exception) -> str:
    """One line for a person."""
    if isinstance(error, InverError):
        text = error.message if error.fix is None else f"{error.message} ({error.fix})"
    elif isinstance(error, NoSpark):
        text = str(error)
    else:
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return text[:MOST_OF_A_MESSAGE]
