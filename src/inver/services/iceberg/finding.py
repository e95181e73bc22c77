"""From identifiers to what the caller may do with what they stand for.

What the caller may not see is told in the same words as what is not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from inver.clock import Clock
from inver.domain import delta
from inver.domain.grants import RULES, Action, Chain
from inver.domain.idempotency import KeyedRequest
from inver.domain.ledger import Operation, Receipt, Transaction, Work
from inver.domain.securables import Catalog, Schema
from inver.domain.tables import Format, Table, TableKind
from inver.errors import NotFound, Unsupported
from inver.ports import Store
from inver.services.access import Access
from inver.services.context import Caller
from inver.services.iceberg import naming
from inver.services.iceberg.naming import Identifier
from inver.services.names import Names
from inver.services.once import Once, T
from inver.services.transactions import SCOPE


class Home(msgspec.Struct, frozen=True):
    """A namespace in which the caller wants to make something, with everything above it."""

    catalog: Catalog
    schema: Schema
    chain: Chain


class Finder:
    def __init__(self, store: Store, names: Names, access: Access) -> None:
        self._store = store
        self._names = names
        self._access = access

    async def named(self, identifier: Identifier) -> Table | None:
        """Whatever has the name, table or view of any format, whoever asks."""
        return await self._store.table_by_name(identifier.catalog, identifier.namespace, identifier.name)

    async def by_id(self, table_id: str) -> Table | None:
        """Whatever has the id, dropped tables too, whoever asks."""
        return await self._store.table_by_id(table_id)

    async def table(self, caller: Caller, identifier: Identifier, action: Action) -> Table:
        return await self._relation(caller, identifier, action, view=False)

    async def view(self, caller: Caller, identifier: Identifier, action: Action) -> Table:
        return await self._relation(caller, identifier, action, view=True)

    async def _relation(self, caller: Caller, identifier: Identifier, action: Action, view: bool) -> Table:
        table = await self.named(identifier)
        if table is None or (table.kind is TableKind.VIEW) is not view:
            await self._access.standing(caller)
            raise naming.missing(identifier, view)
        chain = await self._access.table_chain(caller, table)
        try:
            await self._access.require(caller, action, chain, str(identifier))
        except NotFound:
            raise naming.missing(identifier, view) from None
        if not view and mirror_of(table.format, table.head) is not None:
            if action is not Action.SEE and RULES[action].changes:
                raise Unsupported(
                    f"{identifier} is a Delta table: Iceberg clients can read it, not change it"
                )
            return table
        if not is_iceberg(table):
            kind = table.format.title()
            because = f"it is a {kind} table" if table.format is not Format.ICEBERG else "it has no metadata"
            raise naming.missing(identifier, view, f"{because}, which Iceberg clients cannot read")
        return table

    async def namespace(self, caller: Caller, catalog: str, path: Sequence[str], *actions: Action) -> Home:
        """The namespace, for which the caller has all the rights that are named; without any, to see it."""
        try:
            owner = await self._names.catalog(catalog)
            await self._access.require(caller, Action.SEE, self._access.catalog_chain(owner), catalog)
            schema = await self._names.schema(catalog, path)
            chain = await self._access.schema_chain(caller, schema.id)
            if not chain:
                raise naming.no_namespace(path)
            for action in actions or (Action.SEE,):
                await self._access.require(caller, action, chain, ".".join(path))
        except NotFound:
            await self._access.standing(caller)
            raise naming.no_namespace(path) from None
        return Home(owner, schema, chain)

    async def require_free(self, identifier: Identifier, view: bool) -> None:
        found = await self.named(identifier)
        if found is not None:
            raise naming.taken(identifier, view, found.kind is TableKind.VIEW)


class Desk:
    """Where requests that change something are decided: once for each key, and in the caller's name."""

    def __init__(self, store: Store, clock: Clock, access: Access, once: Once) -> None:
        self._store = store
        self._clock = clock
        self._access = access
        self._once = once

    async def once(
        self,
        caller: Caller,
        request: Sequence[Any],
        use_case: Callable[[KeyedRequest | None], Awaitable[T]],
        body: bytes = b"null",
    ) -> T | Receipt:
        """`request` is the operation, its target and what else matters; `body` is valid JSON."""
        if caller.key is None:
            return await use_case(None)
        # A recorded outcome is given again without a decision that would find a caller to be stale.
        await self._access.standing(caller)
        canonical = msgspec.json.encode((*request, msgspec.json.decode(body)), order="sorted")
        return await self._once.run(caller, SCOPE, canonical, use_case)

    def now(self) -> int:
        return self._clock.now_ms()

    async def decide(
        self,
        caller: Caller,
        operations: Sequence[Operation],
        keyed: KeyedRequest | None,
        work: Sequence[Work] = (),
        at: int | None = None,
    ) -> Receipt:
        principal = caller.principal
        at = self.now() if at is None else at
        return await self._store.decide(
            Transaction(principal.id, at, tuple(operations), keyed, tuple(work), principal.epoch)
        )


def is_iceberg(table: Table) -> bool:
    """Whether the catalog has the metadata of an Iceberg table or view."""
    return table.format is Format.ICEBERG and table.head is not None


def mirror_of(format: Format, head: bytes | None) -> str | None:
    """Where the Iceberg metadata of a Delta table is, if its writer keeps some (UniForm)."""
    if format is not Format.DELTA or head is None:
        return None
    uniform = delta.head_of(head).uniform
    return None if uniform is None else uniform.metadata_location
