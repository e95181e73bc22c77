"""Grants: given, taken back, listed and explained. They hang on ids, so names may change freely."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from inver.clock import Clock
from inver.domain import governance
from inver.domain.grants import Action, Chain, Decision, parse_action, parse_privilege
from inver.domain.ledger import Transaction
from inver.domain.names import dotted
from inver.domain.principals import PrincipalInfo
from inver.domain.securables import METASTORE_ID, SecurableKind
from inver.errors import Invalid
from inver.ports import GrantRow, Store
from inver.services.access import METASTORE_CHAIN, Access, missing
from inver.services.context import Caller
from inver.services.names import Names, TableRef


class SecurableRef(msgspec.Struct, frozen=True):
    kind: SecurableKind
    name: tuple[str, ...] = ()

    def shown(self) -> str:
        return dotted(self.name) if self.name else str(self.kind)


class NamedGrant(msgspec.Struct, frozen=True):
    """A grant with the names that its ids have now."""

    row: GrantRow
    principal: str
    granted_by: str
    securable: tuple[str, ...]


class Grants:
    def __init__(self, store: Store, clock: Clock, names: Names, access: Access) -> None:
        self._store = store
        self._clock = clock
        self._names = names
        self._access = access

    async def on(self, caller: Caller, ref: SecurableRef, principal: str | None = None) -> list[NamedGrant]:
        chain = await self.chain(caller, ref)
        await self._access.require(caller, Action.READ_GRANTS, chain, ref.shown())
        rows = await self._store.grants_on(chain[0].id)
        if principal is not None:
            holder = await self._principal(principal)
            rows = [row for row in rows if row.principal_id == holder.id]
        return await self._named(rows)

    async def of(self, caller: Caller, principal: str) -> list[NamedGrant]:
        """What somebody was given: everybody may ask about themselves."""
        holder = await self._holder(caller, principal)
        return await self._named(await self._store.grants_of(holder.id))

    async def add(
        self, caller: Caller, principal: str, ref: SecurableRef, privileges: Sequence[str]
    ) -> list[NamedGrant]:
        return await self._change(caller, principal, ref, privileges, governance.Grant)

    async def remove(
        self, caller: Caller, principal: str, ref: SecurableRef, privileges: Sequence[str]
    ) -> list[NamedGrant]:
        return await self._change(caller, principal, ref, privileges, governance.Revoke)

    async def explain(self, caller: Caller, principal: str, action: str, ref: SecurableRef) -> Decision:
        """Why somebody may or may not: for themselves, or for who may read the grants there."""
        asked = parse_action(action)
        chain = await self.chain(caller, ref)
        holder = await self._store.principal_by_name(principal)
        if holder is None or holder.id != caller.principal.id:
            await self._access.require(caller, Action.READ_GRANTS, chain, ref.shown())
        else:
            await self._access.require(caller, Action.SEE, chain, ref.shown())
        if holder is None:
            raise missing("principal", principal)
        return await self._access.explain(holder, asked, chain)

    async def chain(self, caller: Caller, ref: SecurableRef) -> Chain:
        """The securable and what is above it; whether the caller may know of it is for the next step."""
        name = ref.name
        match ref.kind:
            case SecurableKind.METASTORE if not name:
                return METASTORE_CHAIN
            case SecurableKind.CATALOG if len(name) == 1:
                return self._access.catalog_chain(await self._names.catalog(name[0]))
            case SecurableKind.SCHEMA if len(name) > 1:
                schema = await self._names.schema(name[0], name[1:])
                chain = await self._access.schema_chain(caller, schema.id)
                if not chain:
                    raise missing("schema", ref.shown())
                return chain
            case SecurableKind.TABLE if len(name) > 2:
                table = await self._names.table(TableRef(name=name))
                return await self._access.table_chain(caller, table)
            case SecurableKind.VIEW | SecurableKind.FUNCTION | SecurableKind.VOLUME if len(name) > 2:
                raise missing(ref.kind, ref.shown())
        raise Invalid(
            f"{ref.shown()!r} is not the name of a {ref.kind}",
            field="securable.name",
            fix='a catalog is ["main"], a schema ["main", "sales"], a table ["main", "sales", "orders"]',
        )

    async def _change(
        self,
        caller: Caller,
        principal: str,
        ref: SecurableRef,
        privileges: Sequence[str],
        operation: type[governance.Grant] | type[governance.Revoke],
    ) -> list[NamedGrant]:
        chain = await self.chain(caller, ref)
        await self._access.require(caller, Action.CHANGE_GRANTS, chain, ref.shown())
        if not privileges:
            raise Invalid("no privilege is given", field="privileges")
        holder = await self._principal(principal)
        change = operation(
            principal_id=holder.id,
            kind=ref.kind,
            securable_id=chain[0].id,
            privileges=tuple(parse_privilege(each, ref.kind) for each in privileges),
        )
        me = caller.principal
        await self._store.decide(Transaction(me.id, self._clock.now_ms(), (change,), epoch=me.epoch))
        return await self._named(await self._store.grants_on(chain[0].id))

    async def _holder(self, caller: Caller, name: str) -> PrincipalInfo:
        holder = await self._store.principal_by_name(name)
        if holder is None or holder.id != caller.principal.id:
            await self._access.require(caller, Action.READ_GRANTS, METASTORE_CHAIN)
        else:
            await self._access.standing(caller)
        if holder is None:
            raise missing("principal", name)
        return holder

    async def _principal(self, name: str) -> PrincipalInfo:
        found = await self._store.principal_by_name(name)
        if found is None:
            raise missing("principal", name)
        return found

    async def _named(self, rows: Sequence[GrantRow]) -> list[NamedGrant]:
        people = await self._store.names_of(
            [each for row in rows for each in (row.principal_id, row.granted_by)]
        )
        places = {row.securable_id: row.kind for row in rows}
        names = {each: await self._name_of(kind, each) for each, kind in places.items()}
        return [
            NamedGrant(
                row,
                people.get(row.principal_id, row.principal_id),
                people.get(row.granted_by, row.granted_by),
                names[row.securable_id],
            )
            for row in rows
        ]

    async def _name_of(self, kind: SecurableKind, securable_id: str) -> tuple[str, ...]:
        if securable_id == METASTORE_ID:
            return ()
        if kind is SecurableKind.CATALOG:
            node = await self._store.catalog_node(securable_id)
            return node.name if node else ()
        if kind is SecurableKind.SCHEMA:
            chain = await self._store.chain(securable_id)
            return chain[0].name if chain else ()
        return await self._store.full_name(securable_id) or ()
