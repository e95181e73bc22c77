"""Principals and groups: who there is, and who belongs to whom."""

from __future__ import annotations

from inver.clock import Clock
from inver.domain import governance
from inver.domain.grants import Action
from inver.domain.ledger import Transaction
from inver.domain.names import check_name
from inver.domain.principals import PrincipalInfo, PrincipalKind
from inver.errors import Invalid
from inver.ids import new_id
from inver.ports import Store
from inver.services.access import METASTORE_CHAIN, Access, missing
from inver.services.context import Caller


class Principals:
    def __init__(self, store: Store, clock: Clock, access: Access) -> None:
        self._store = store
        self._clock = clock
        self._access = access

    async def myself(self, caller: Caller) -> tuple[PrincipalInfo, list[PrincipalInfo]]:
        await self._access.standing(caller)
        info = await self._named(caller.principal.name)
        return info, await self._store.groups_of(info.id)

    async def get(self, caller: Caller, name: str) -> PrincipalInfo:
        await self._require(caller, Action.READ_PRINCIPALS)
        return await self._named(name)

    async def page(
        self, caller: Caller, kind: PrincipalKind | None, after: str, limit: int
    ) -> list[PrincipalInfo]:
        await self._require(caller, Action.READ_PRINCIPALS)
        return await self._store.principals(kind, after, limit)

    async def groups_of(self, info: PrincipalInfo) -> list[PrincipalInfo]:
        """For a principal that the caller has been shown already, or has just changed."""
        return await self._store.groups_of(info.id)

    async def members_of(self, info: PrincipalInfo) -> list[PrincipalInfo]:
        return await self._store.members_of(info.id)

    async def members(self, caller: Caller, group: str) -> list[PrincipalInfo]:
        return await self.members_of(await self._group(caller, group))

    async def create(
        self, caller: Caller, name: str, kind: PrincipalKind, comment: str | None = None
    ) -> PrincipalInfo:
        await self._require(caller)
        await self._decide(
            caller,
            governance.CreatePrincipal(
                id=new_id(), name=check_name(name, "name"), kind=kind, comment=comment
            ),
        )
        return await self._named(name)

    async def alter(self, caller: Caller, name: str, change: governance.AlterPrincipal) -> PrincipalInfo:
        await self._decide(caller, change)
        return await self._named(name)

    async def delete(self, caller: Caller, name: str) -> None:
        info = await self.get(caller, name)
        await self._decide(caller, governance.DeletePrincipal(id=info.id))

    async def add_member(self, caller: Caller, group: str, member: str) -> None:
        found = await self._group(caller, group)
        added = await self._named(member)
        await self._decide(caller, governance.AddMember(group_id=found.id, member_id=added.id))

    async def remove_member(self, caller: Caller, group: str, member: str) -> None:
        found = await self._group(caller, group)
        gone = await self._named(member)
        await self._decide(caller, governance.RemoveMember(group_id=found.id, member_id=gone.id))

    async def _group(self, caller: Caller, name: str) -> PrincipalInfo:
        info = await self.get(caller, name)
        if info.kind is not PrincipalKind.GROUP:
            raise Invalid(f"{name!r} is not a group", field="group")
        return info

    async def _named(self, name: str) -> PrincipalInfo:
        info = await self._store.principal_by_name(name)
        if info is None:
            raise missing("principal", name)
        return info

    async def _require(self, caller: Caller, action: Action = Action.MANAGE_PRINCIPALS) -> None:
        await self._access.require(caller, action, METASTORE_CHAIN)

    async def _decide(self, caller: Caller, operation: governance.Governance) -> None:
        await self._require(caller)
        principal = caller.principal
        await self._store.decide(
            Transaction(principal.id, self._clock.now_ms(), (operation,), epoch=principal.epoch)
        )
