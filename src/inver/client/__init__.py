"""A small client of the management API: plain in `Client`, on an event loop in `AsyncClient`.

    from inver.client import connect

    with connect() as client:
        client.create_catalog("main")
        for event in client.events(follow=True):
            print(event.type, event.subject)

What goes wrong is raised as the class of `inver.errors` that the server raised.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from inver.client.core import Call, Policy
from inver.client.locate import Target, locate
from inver.client.naming import dotted
from inver.client.operations.privileges import securable
from inver.client.problems import Unreachable
from inver.client.threads import Client

if TYPE_CHECKING:
    from inver.client.blocks import Transaction
    from inver.client.loops import AsyncClient

__all__ = [
    "AsyncClient",
    "Call",
    "Client",
    "Policy",
    "Target",
    "Unreachable",
    "connect",
    "connect_async",
    "dotted",
    "locate",
    "securable",
    "transaction",
]


def connect(
    url: str | None = None, token: str | None = None, *, profile: str | None = None, home: Path | None = None
) -> Client:
    """A client of the server that arguments, environment, profile or home folder name."""
    target = locate(url, token, profile=profile, home=home)
    return Client(target.url, target.token)


def connect_async(
    url: str | None = None, token: str | None = None, *, profile: str | None = None, home: Path | None = None
) -> AsyncClient:
    """The same, for an event loop."""
    from inver.client.loops import AsyncClient

    target = locate(url, token, profile=profile, home=home)
    return AsyncClient(target.url, target.token)


def transaction(
    url: str | None = None, token: str | None = None, *, profile: str | None = None, home: Path | None = None
) -> Transaction:
    """A transaction over tables of any format, with a client of its own that is closed at its end."""
    from inver.client.blocks import Transaction

    target = locate(url, token, profile=profile, home=home)
    return Transaction(Client(target.url, target.token), target.token, owned=True)


def __getattr__(name: str) -> Any:
    # asyncio takes a while to load, and a command line does without it.
    if name == "AsyncClient":
        from inver.client.loops import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
