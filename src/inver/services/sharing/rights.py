"""Who may change shares and recipients: whoever made them, and who manages the metastore."""

from __future__ import annotations

from typing import TypeVar

from inver.domain.grants import Action
from inver.domain.shares import Recipient, Share
from inver.services.access import METASTORE_CHAIN, Access, missing
from inver.services.context import Caller

T = TypeVar("T", Share, Recipient)


class Rights:
    def __init__(self, access: Access) -> None:
        self._access = access

    async def require(self, caller: Caller, action: Action) -> None:
        await self._access.require(caller, action, METASTORE_CHAIN)

    async def require_found(
        self, caller: Caller, found: T | None, kind: str, name: str, *, change: bool
    ) -> T:
        """Somebody else is refused alike, whether it is there or not."""
        standing = await self._access.standing(caller)
        action = Action.MANAGE_SHARES if change else Action.READ_SHARES
        if found is not None and found.owner in standing.subjects:
            await self._access.require_own(caller, action)
            return found
        await self.require(caller, action)
        if found is None:
            raise missing(kind, name)
        return found

    async def sees_all(self, caller: Caller) -> bool:
        return await self._access.permits(caller, Action.READ_SHARES, METASTORE_CHAIN)
