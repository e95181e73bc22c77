"""How versions of Lance tables come about: one at a time or many at once, always by one decision."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from inver.clock import Clock
from inver.domain.lance import WrongState
from inver.domain.ledger import MAIN, MAX_OPERATIONS, Reason, Receipt, Transaction
from inver.errors import Conflict, Invalid, Refused
from inver.ports import Store
from inver.services.access import Access
from inver.services.context import Caller
from inver.services.lance.cleaning import Cleaning
from inver.services.lance.finalizing import Finalizing
from inver.services.lance.finding import Finding
from inver.services.lance.importing import Importing
from inver.services.lance.manifests import Manifests, key_of
from inver.services.lance.phantoms import Phantoms
from inver.services.lance.planning import Plan, Planned
from inver.services.lance.targets import KnownTables, Target
from inver.services.lance.types import Committed, Item, Outcome, Version
from inver.services.names import Names
from inver.services.placement import Placement

log = logging.getLogger("inver.lance")


class Commits:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        names: Names,
        access: Access,
        placement: Placement,
        finding: Finding,
        manifests: Manifests,
        finalizing: Finalizing,
        phantoms: Phantoms,
        importing: Importing,
        cleaning: Cleaning,
    ) -> None:
        self._store = store
        self._clock = clock
        self._names = names
        self._access = access
        self._placement = placement
        self._finding = finding
        self._manifests = manifests
        self._finalizing = finalizing
        self._phantoms = phantoms
        self._importing = importing
        self._cleaning = cleaning
        self._known = KnownTables(access)

    async def commit(self, caller: Caller, items: Sequence[Item]) -> Committed:
        """All or none. A refusal says by `operation` which item it is about."""
        if not items:
            raise Invalid("there must be at least one operation", field="operations")
        if len(items) > MAX_OPERATIONS:
            raise Invalid(f"at most {MAX_OPERATIONS} operations go into one batch", field="operations")
        numbered = list(enumerate(items))
        guess = self._known.guess(caller, items)
        done = None if guess is None else await self._follow(caller, numbered, guess)
        if done is None:
            plan = await self.plan(caller, numbered)
            if len(plan.operations) > MAX_OPERATIONS:
                raise Invalid("the batch makes too many branches at once", field="operations")
            receipt = await self._decide(caller, plan)
        else:
            plan, receipt = done
        if len(items) == 1 and 0 in plan.planned and not receipt.replayed:
            self._known.remember(caller, plan.planned[0].target)
        await self.finish(plan)
        return Committed(receipt.transaction, self._outcomes(plan, receipt, len(items)))

    async def _follow(
        self, caller: Caller, items: Sequence[tuple[int, Item]], guess: Target
    ) -> tuple[Plan, Receipt] | None:
        """None if it must be looked closer: another table has the name, or the version is there already."""
        try:
            plan = await self.plan(caller, items, guess)
            receipt = await self._decide(caller, plan)
            if not receipt.replayed:
                return plan, receipt
        except Conflict:
            self._known.forget(guess.name)
            raise
        except Refused:
            pass
        self._known.forget(guess.name)
        return None

    async def plan(
        self, caller: Caller, items: Sequence[tuple[int, Item]], guess: Target | None = None
    ) -> Plan:
        """What numbered items come to, each seeing what the ones before it do.

        A guess is the table of the only one.
        """
        plan = Plan(
            caller,
            self._clock.now_ms(),
            self._store,
            self._names,
            self._access,
            self._placement,
            self._finding,
            self._manifests,
            self._finalizing,
            self._phantoms,
            self._importing,
            guess,
        )
        plan.expect([item for _, item in items])
        for index, item in items:
            try:
                await plan.add(index, item)
            except Refused as refused:
                refused.operation = index
                await self.discard(plan)
                raise
        return plan

    async def _decide(self, caller: Caller, plan: Plan) -> Receipt:
        principal = caller.principal
        transaction = Transaction(
            principal.id,
            plan.now,
            tuple(plan.operations),
            epoch=principal.epoch,
        )
        try:
            return await self._store.decide(transaction)
        except Refused as refused:
            await self.discard(plan)
            if refused.operation is not None:
                refused.operation = plan.owners[refused.operation]
            if isinstance(refused, Conflict) and _reason(refused) is Reason.NEWEST_VERSION:
                wrong = WrongState("the newest version stays as long as the table does", refused.conflicts)
                wrong.operation = refused.operation
                raise wrong from None
            raise

    async def discard(self, plan: Plan) -> None:
        """Nothing of it was decided, nor will be."""
        for planned in plan.planned.values():
            if planned.data is not None:
                await self._finalizing.discard(planned.target.table, planned.body.staged)
        await self._cleaning.lost(plan.staged)

    async def finish(self, plan: Plan) -> None:
        """The decision stands whatever happens here; who reads a version finishes it if we cannot."""
        by_branch: dict[tuple[str, str], list[Planned]] = {}
        for planned in plan.planned.values():
            by_branch.setdefault((planned.target.table.id, planned.branch), []).append(planned)
        chains = [self._finish_branch(chain) for chain in by_branch.values()]
        if len(chains) == 1:
            await chains[0]
        else:
            await asyncio.gather(*chains)

    async def _finish_branch(self, chain: Sequence[Planned]) -> None:
        """In the order of versions: who finds one on storage must find those before it."""
        for planned in chain:
            if planned.manifest is not None and planned.branch == MAIN:
                self._manifests.decided(
                    planned.target.table.id, planned.record.version, planned.manifest, planned.body.size
                )
            try:
                await self._finalizing.finish(
                    planned.target.table,
                    planned.branch,
                    planned.record.version,
                    planned.body,
                    planned.data,
                    planned.stray,
                )
            except Exception:
                self._finalizing.failed += 1
                log.exception("version %s waits for its manifest", planned.record.version)
                return

    def _outcomes(self, plan: Plan, receipt: Receipt, count: int) -> list[Outcome]:
        deleted = {plan.owners[at]: result.count for at, result in enumerate(receipt.results)}
        outcomes = []
        for index in range(count):
            planned = plan.planned.get(index)
            target = plan.declared.get(index) or plan.left.get(index)
            if planned is not None:
                outcomes.append(Outcome(version=_version(planned)))
            elif target is not None:
                outcomes.append(Outcome(placed=target.placed))
            else:
                outcomes.append(Outcome(deleted=deleted[index] or 0))
        return outcomes


def _version(planned: Planned) -> Version:
    record, body = planned.record, planned.body
    key = key_of(planned.target.table.location)
    return Version(
        record.version,
        f"{key}/{body.final(planned.branch, record.version)}",
        body.size,
        record.at,
        body.metadata,
    )


def _reason(conflict: Conflict) -> Reason | None:
    return conflict.conflicts[0].reason if conflict.conflicts else None
