"""Several changes of the grants on one securable, decided as one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from inver.clock import Clock
from inver.domain import governance
from inver.domain.grants import Action, Privilege, parse_privilege
from inver.domain.ledger import Transaction
from inver.domain.names import name_key
from inver.errors import Forbidden
from inver.ports import Store
from inver.services.access import Access, missing
from inver.services.context import Caller
from inver.services.grants import Grants, SecurableRef


class PermissionChange(msgspec.Struct, frozen=True):
    principal: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class Held(msgspec.Struct, frozen=True):
    principal: str
    privilege: Privilege


class Permissions:
    def __init__(self, store: Store, clock: Clock, grants: Grants, access: Access) -> None:
        self._store = store
        self._clock = clock
        self._grants = grants
        self._access = access

    async def require_known(self, caller: Caller) -> None:
        """What everybody may know is still not for a credential that is good no more."""
        await self._access.standing(caller)

    async def on(self, caller: Caller, ref: SecurableRef, principal: str | None = None) -> list[Held]:
        """All that is held on it, for who may read that; everybody else sees what they hold themselves."""
        try:
            found = await self._grants.on(caller, ref, principal)
            return [Held(grant.principal, grant.row.privilege) for grant in found]
        except Forbidden:
            me = caller.principal.name
            if principal is not None and name_key(principal) != name_key(me):
                raise
            rows = await self._store.grants_on((await self._grants.chain(caller, ref))[0].id)
            return [Held(me, row.privilege) for row in rows if row.principal_id == caller.principal.id]

    async def change(
        self, caller: Caller, ref: SecurableRef, changes: Sequence[PermissionChange]
    ) -> list[Held]:
        chain = await self._grants.chain(caller, ref)
        await self._access.require(caller, Action.CHANGE_GRANTS, chain, ref.shown())
        securable_id = chain[0].id
        operations: list[governance.Governance] = []
        for index, change in enumerate(changes):
            holder = await self._store.principal_by_name(change.principal)
            if holder is None:
                raise missing("principal", change.principal)
            kinds = ((governance.Grant, change.add, "add"), (governance.Revoke, change.remove, "remove"))
            for operation, names, word in kinds:
                field = f"changes[{index}].{word}"
                if names:
                    operations.append(
                        operation(
                            principal_id=holder.id,
                            kind=ref.kind,
                            securable_id=securable_id,
                            privileges=tuple(parse_privilege(name, ref.kind, field) for name in names),
                        )
                    )
        if operations:
            me = caller.principal
            await self._store.decide(
                Transaction(me.id, self._clock.now_ms(), tuple(operations), epoch=me.epoch)
            )
        # Whoever gave their own right away has still made this change, and may see what came of it.
        rows = await self._store.grants_on(securable_id)
        people = await self._store.names_of([row.principal_id for row in rows])
        return [Held(people.get(row.principal_id, row.principal_id), row.privilege) for row in rows]
