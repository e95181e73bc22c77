"""What the formats bring to a transaction that spans them.

Each format prepares its own part: it resolves names, checks rights, reads and writes the files that
must stand before the decision. The ledger decides all parts as one; afterwards each format hears
what became of its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from inver.domain.ledger import Operation, Work
from inver.domain.tables import Format
from inver.services.context import Caller


class Native(msgspec.Struct, frozen=True):
    """A request in the words of its format's own protocol; `asked` is what that protocol made of `body`."""

    format: Format
    body: msgspec.Raw
    asked: Any


class Portion(Protocol):
    """One format's part of a transaction."""

    @property
    def operations(self) -> Sequence[tuple[int, Operation]]:
        """Operations of the ledger, each with the number of the request that asked for it."""
        ...

    @property
    def work(self) -> Sequence[Work]: ...

    async def write(self) -> None:
        """Put the files in place that must stand before the decision."""
        ...

    async def discard(self) -> None:
        """It is certainly not applied, and never will be."""
        ...

    async def finish(self) -> None:
        """It is applied, and stands whatever happens here."""
        ...


class Preparing(Protocol):
    async def __call__(self, caller: Caller, asked: Sequence[tuple[int, Any]]) -> Portion:
        """What numbered requests make of their tables. A refusal says by `operation` which it is about."""
        ...
