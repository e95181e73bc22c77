"""The hold that a run has on its table: renewed while the job works, looked at before each of its steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from inver.domain.care import Ticket
from inver.errors import Conflict, InverError, NotFound
from inver.pipeline.work import LeaseLost, Stopped

if TYPE_CHECKING:
    from inver.client import Client

Show = Callable[[float, str], None]

OFTEN_S = 3.0
"""A beat costs the server a write, so a job that tells more often is not heard more often."""


class Lease:
    """`with lease:` beats on a thread of its own, since a step of Spark may take longer than the lease."""

    def __init__(self, client: Client, ticket: Ticket, show: Show, stopping: Callable[[], bool]) -> None:
        self._client = client
        self._ticket = ticket
        self._show = show
        self._stopping = stopping
        self._every = min(OFTEN_S, ticket.lease_seconds / 4)
        self._said = (0.0, "")
        # Long ago enough that the first word of the job asks whether the ticket still holds.
        self._held_at = monotonic() - self._every
        self._lost = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name=f"lease {ticket.run_id}", daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        # A beat that waits for a silent server is nothing to wait for.
        self._thread.join(self._every)

    def tell(self, progress: float, message: str) -> None:
        """What `Work.tell` is: raises when the job must not go on."""
        self._said = (progress, message)
        self._show(progress, message)
        if self._stopping():
            raise Stopped("the worker is told to end")
        if monotonic() - self._held_at >= self._every:
            self._beat()
        if self._lost or monotonic() - self._held_at > self._ticket.lease_seconds:
            raise LeaseLost("another worker may have the table by now")

    def _beat_on(self) -> None:
        while not self._ended.wait(self._every):
            self._beat()

    def _beat(self) -> None:
        """A server that does not answer leaves the lease to run out, which `tell` finds."""
        asked_at = monotonic()
        try:
            self._client.care_heartbeat(self._ticket.run_id, *self._said)
        except (Conflict, NotFound):
            self._lost = True
        except InverError:
            return
        else:
            self._held_at = asked_at
