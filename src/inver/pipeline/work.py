"""What a job is given: the ticket, and the ways to the catalog, to Spark and to the table's files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inver.domain.care import Result, Ticket

if TYPE_CHECKING:
    from inver.client import Client
    from inver.pipeline.places import Place


class LeaseLost(Exception):
    """Another worker may have the table by now: stop before the next commit or deletion."""


class Stopped(LeaseLost):
    """This worker is told to end: what cannot be undone is not begun any more."""


@dataclass(frozen=True)
class Work:
    """`spark` starts a session when it is first called. `tell` reports progress, from 0 to 1, and holds the
    lease; it raises LeaseLost when that is gone, so a job calls it before each step that cannot be undone."""

    ticket: Ticket
    client: Client
    spark: Callable[[], Any]
    place: Place
    tell: Callable[[float, str], None]


Job = Callable[[Work], Result]
