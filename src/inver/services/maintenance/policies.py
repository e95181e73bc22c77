"""Policies: what is done unasked, with a table or with every table of a catalog."""

from __future__ import annotations

from inver.clock import Clock
from inver.domain.care import JOBS_OF
from inver.domain.grants import Action, Chain
from inver.domain.ledger import Transaction
from inver.domain.names import dotted
from inver.domain.runs import (
    Caring,
    DropCarePolicy,
    Policy,
    SetCarePolicy,
    layered,
    require_floors,
)
from inver.domain.securables import SecurableKind
from inver.errors import Invalid, NotFound
from inver.ports import Store
from inver.services.access import Access
from inver.services.context import Caller
from inver.services.names import Names, TableRef


class Policies:
    """A catalog is named by its own name alone, a table by its whole one."""

    def __init__(self, store: Store, clock: Clock, names: Names, access: Access) -> None:
        self._store = store
        self._clock = clock
        self._names = names
        self._access = access

    async def get(self, caller: Caller, name: tuple[str, ...]) -> Policy:
        chain = await self._chain(caller, name)
        action = Action.SEE if chain[0].kind is SecurableKind.CATALOG else Action.LOAD
        await self._access.require(caller, action, chain, dotted(name))
        policy = await self._store.care_policy(chain[0].id)
        if policy is None:
            raise NotFound(f"{chain[0].shown()} has no care policy of its own", kind="policy")
        return policy

    async def put(self, caller: Caller, name: tuple[str, ...], policy: Policy) -> Policy:
        chain = await self._chain(caller, name)
        await self._access.require(caller, Action.MAINTAIN, chain, dotted(name))
        above = None
        if chain[0].kind is SecurableKind.TABLE:
            table = await self._names.table(TableRef(name=name))
            unknown = [job for job in policy.jobs or () if job not in JOBS_OF[table.format]]
            if unknown:
                raise Invalid(
                    f"there is no job {unknown[0]} for {table.format} tables",
                    field="jobs",
                    fix="any of " + ", ".join(JOBS_OF[table.format]),
                )
            above = await self._store.care_policy(table.catalog_id)
        require_floors(layered(*(each.options for each in (above, policy) if each is not None)))
        await self._decide(caller, SetCarePolicy(securable_id=chain[0].id, kind=chain[0].kind, policy=policy))
        return policy

    async def drop(self, caller: Caller, name: tuple[str, ...]) -> None:
        chain = await self._chain(caller, name)
        await self._access.require(caller, Action.MAINTAIN, chain, dotted(name))
        await self._decide(caller, DropCarePolicy(securable_id=chain[0].id))

    async def _chain(self, caller: Caller, name: tuple[str, ...]) -> Chain:
        if len(name) == 1:
            return self._access.catalog_chain(await self._names.catalog(name[0]))
        return await self._access.table_chain(caller, await self._names.table(TableRef(name=name)))

    async def _decide(self, caller: Caller, operation: Caring) -> None:
        me = caller.principal
        await self._store.decide(Transaction(me.id, self._clock.now_ms(), (operation,), epoch=me.epoch))
