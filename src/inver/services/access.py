"""The one place where a caller is allowed or refused.

What is remembered here are facts: who is in which group, what was granted, who owns what and where
it stands. The decision itself is made anew for every request. Facts belong to one epoch; when the
database has another, they are forgotten and the request is decided again from its credentials on.
"""

from __future__ import annotations

import msgspec

from inver.domain.grants import RULES, Action, Chain, Decision, Node, Standing, allowed, explain, visible
from inver.domain.principals import ADMINS, Principal, PrincipalInfo, Scope
from inver.domain.securables import METASTORE_ID, Catalog, SecurableKind
from inver.domain.tables import Table
from inver.errors import Forbidden, NotFound, Stale
from inver.ports import Store
from inver.services.audit import Audit
from inver.services.context import Caller

METASTORE = Node(SecurableKind.METASTORE, METASTORE_ID, ADMINS.id, ())
METASTORE_CHAIN: Chain = (METASTORE,)
FACTS_LIMIT = 50_000
"""Tables of which is remembered where they stand, and grants of which is remembered whose they are."""


def missing(kind: str, shown: str) -> NotFound:
    """The same words whether something is not there or may not be seen."""
    return NotFound(f"{kind} {shown!r} does not exist", kind=kind)


class Access:
    def __init__(self, store: Store, audit: Audit) -> None:
        self._store = store
        self._audit = audit
        self._epoch = -1
        self._standings: dict[tuple[str, Scope], Standing] = {}
        self._schemas: dict[str, Chain] = {}
        self._tables: dict[str, Chain] = {}
        self._grants = 0

    async def require(self, caller: Caller, action: Action, chain: Chain, shown: str = "") -> None:
        """Refuse unless allowed: not found when the caller may not even see it, else forbidden."""
        standing = await self.standing(caller)
        if not allowed(standing, action, chain):
            raise self._refusal(caller, standing, action, chain, shown)

    async def require_own(self, caller: Caller, action: Action) -> None:
        """What everybody may do with what is their own, as far as their credential reaches."""
        standing = await self.standing(caller)
        if standing.read_only and RULES[action].changes:
            self._audit.denied(caller.principal.id, action, caller.principal.id)
            raise Forbidden(
                f"{caller.principal.name} may not {action} with a read-only token",
                fix="needed: a token whose scope is not read-only",
            )

    async def permits(self, caller: Caller, action: Action, chain: Chain) -> bool:
        return allowed(await self.standing(caller), action, chain)

    async def standing(self, caller: Caller) -> Standing:
        principal = caller.principal
        if await self._store.epoch() != principal.epoch:
            raise Stale
        key = (principal.id, principal.scope)
        standing = self._standings.get(key) if self._is_current(principal.epoch) else None
        if standing is None:
            standing = await self._store.standing(principal)
            # It was read in several steps; a change between them must not mix before and after.
            if await self._store.epoch() != principal.epoch:
                raise Stale
            if self._is_current(principal.epoch) and key not in self._standings:
                self._standings[key] = standing
                self._grants += len(standing.grants)
        return standing

    def permitted(self, caller: Caller, action: Action, table_id: str) -> Chain | None:
        """What is above a table when every fact is at hand and allows it; None says nothing.

        It holds in the caller's epoch; whether that is still the database's is for the caller's next look.
        """
        principal = caller.principal
        if principal.epoch != self._epoch:
            return None
        standing = self._standings.get((principal.id, principal.scope))
        chain = self._tables.get(table_id)
        if standing is None or chain is None or not allowed(standing, action, chain):
            return None
        return chain

    async def explain(
        self, principal: PrincipalInfo, action: Action, chain: Chain, scope: Scope = Scope.ALL
    ) -> Decision:
        standing = await self._store.standing(Principal(principal.id, principal.name, principal.kind, scope))
        subjects = {subject for given in standing.grants.values() for subject in given.values()}
        names = await self._store.names_of([*subjects, *standing.subjects])
        decision = explain(standing, action, chain, names)
        if principal.disabled:
            missing = (f"to be enabled: {principal.name} is disabled", *decision.missing)
            return msgspec.structs.replace(decision, allowed=False, missing=missing)
        return decision

    # --- chains ---

    def catalog_chain(self, catalog: Catalog) -> Chain:
        return (Node(SecurableKind.CATALOG, catalog.id, catalog.owner, (catalog.name,)), METASTORE)

    async def schema_chain(self, caller: Caller, schema_id: str) -> Chain:
        """Empty when there is no such schema any more."""
        epoch = caller.principal.epoch
        chain = self._schemas.get(schema_id) if self._is_current(epoch) else None
        if chain is None:
            chain = await self._store.chain(schema_id)
            if chain and self._is_current(epoch):
                self._schemas[schema_id] = chain
        return chain

    async def table_chain(self, caller: Caller, table: Table) -> Chain:
        """`table` was read after the caller was authenticated, so it is not older than the epoch."""
        epoch = caller.principal.epoch
        chain = self._tables.get(table.id) if self._is_current(epoch) else None
        if chain is None:
            # A dropped table whose schema is gone stands directly below the metastore.
            above = await self.schema_chain(caller, table.schema_id) or METASTORE_CHAIN
            node = Node(SecurableKind.TABLE, table.id, table.owner, (*above[0].name, table.name))
            chain = (node, *above)
            if self._is_current(epoch):
                self._tables[table.id] = chain
        return chain

    def _is_current(self, epoch: int) -> bool:
        """Facts belong to the newest epoch that was seen; a newer one starts with none."""
        if epoch > self._epoch or len(self._tables) > FACTS_LIMIT or self._grants > FACTS_LIMIT:
            self._epoch = max(epoch, self._epoch)
            self._grants = 0
            self._standings = {}
            self._schemas = {}
            self._tables = {}
        return epoch == self._epoch

    def _refusal(
        self, caller: Caller, standing: Standing, action: Action, chain: Chain, shown: str
    ) -> Forbidden | NotFound:
        target = chain[0]
        self._audit.denied(caller.principal.id, action, target.id)
        if not visible(standing, chain):
            return missing(target.kind, shown or ".".join(target.name))
        needed = "; ".join(explain(standing, action, chain).missing)
        return Forbidden(
            f"{caller.principal.name} may not {action} {target.shown()}",
            fix=f"needed: {needed}" if needed else None,
        )
