"""How the worker of care stands that a server keeps beside itself."""

from __future__ import annotations

from collections.abc import Callable

from inver.domain.care import Scheduler
from inver.services.access import Access
from inver.services.context import Caller


class Scheduling:
    def __init__(self, access: Access, told: Callable[[], Scheduler]) -> None:
        self._access = access
        self._told = told

    async def state(self, caller: Caller) -> Scheduler:
        """For everybody who is known here."""
        await self._access.standing(caller)
        return self._told()
