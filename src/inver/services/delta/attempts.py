"""Of those who want the same version of a table one goes ahead; the others wait for what becomes of it."""

from __future__ import annotations

import asyncio

from inver.domain.delta import CommitInfo
from inver.domain.ledger import Receipt, Winner
from inver.errors import Conflict, Invalid
from inver.services.context import Caller
from inver.services.delta.types import Proposal


class Attempt:
    """A commit on its way to a decision, and those who wait for it."""

    __slots__ = ("caller", "info", "proposal", "waiting")

    def __init__(self, caller: Caller, proposal: Proposal, info: CommitInfo) -> None:
        self.caller = caller
        self.proposal = proposal
        self.info = info
        self.waiting: list[tuple[Caller, Proposal, CommitInfo, asyncio.Future[Receipt | None]]] = []

    def has_beaten(self, caller: Caller, info: CommitInfo, receipt: Receipt) -> bool:
        """Whether the decision that was just made is one about that commit too.

        What it found of the epoch holds for everybody who was allowed in that one.
        """
        return (
            not receipt.replayed
            and info.file_name != self.info.file_name
            and caller.principal.epoch == self.caller.principal.epoch
        )

    def has_answered(self, caller: Caller, proposal: Proposal, error: BaseException) -> bool:
        """Whether a refusal is one of that request too: what is sent twice is not refused and accepted."""
        return (
            isinstance(error, Conflict | Invalid)
            and proposal == self.proposal
            and caller.principal == self.caller.principal
        )

    def winner(self, receipt: Receipt) -> Winner:
        info, by = self.info, self.caller.principal.id
        return Winner(info.version, info.file_name, receipt.transaction, receipt.at, by)


def hand_on(done: asyncio.Future[Receipt | None], to: asyncio.Future[Receipt | None]) -> None:
    # Looked at in any case: who waited may have given up, and what nobody looks at is logged as a mistake.
    error = None if done.cancelled() else done.exception()
    if to.done():
        return
    if done.cancelled():
        to.cancel()
    elif error is not None:
        to.set_exception(error)
    else:
        to.set_result(done.result())
