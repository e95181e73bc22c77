"""Transactions: what callers ask for, turned into operations of the ledger and decided as one.

Each format brings its own requests: what must be written before the decision, and what follows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from inver.clock import Clock
from inver.domain import ledger
from inver.domain.events import Event
from inver.domain.grants import Action
from inver.domain.idempotency import KeyedRequest
from inver.domain.ledger import MAX_OPERATIONS, Operation, Reason, Receipt, Transaction
from inver.domain.names import name_key
from inver.domain.tables import Format
from inver.errors import Conflict, Invalid, NotFound, Refused, Unavailable
from inver.ports import KeyTaken, Store
from inver.services.access import METASTORE_CHAIN, Access
from inver.services.context import Caller
from inver.services.intents import Intent
from inver.services.names import Names
from inver.services.once import Once
from inver.services.placement import Placement
from inver.services.planning import Plan
from inver.services.portions import Native, Portion, Preparing

log = logging.getLogger("inver.transactions")

SCOPE = "transactions"
ATTEMPTS = 8
WAIT_S = 0.01
BARE = 20_000


class Transactions:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        names: Names,
        access: Access,
        placement: Placement,
        once: Once,
        hold_ms: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._names = names
        self._access = access
        self._placement = placement
        self._once = once
        self._hold_ms = hold_ms
        self._formats: dict[Format, Preparing] = {}
        self._bare: set[str] = set()

    def bring(self, table_format: Format, prepare: Preparing) -> None:
        """From now on, requests in the words of this format can be part of a transaction."""
        self._formats[table_format] = prepare

    def decide(self, caller: Caller, intents: Sequence[Intent], numbered: bool = False) -> Awaitable[Receipt]:
        """All or none. Commits of tables given by id need no look-up and go straight to the ledger.

        `numbered` names a wrong field by its operation, for callers that asked with a list of them.
        """
        if not intents:
            raise Invalid("a transaction needs at least one operation", field="operations")
        if len(intents) > MAX_OPERATIONS:
            raise Invalid(
                f"a transaction has at most {MAX_OPERATIONS} operations, this one has {len(intents)}",
                field="operations",
            )
        if caller.key is None and self._may_append(caller, intents):
            principal = caller.principal
            appends: tuple[ledger.Append, ...] = tuple(intents)  # type: ignore[arg-type]
            return self._store.decide(
                Transaction(principal.id, self._clock.now_ms(), appends, None, (), principal.epoch)
            )
        return self._decide_once(caller, intents, numbered)

    def _may_append(self, caller: Caller, intents: Sequence[Intent]) -> bool:
        """Nothing but commits of tables given by id that the caller is known to be allowed."""
        permitted, bare = self._access.permitted, self._bare
        for intent in intents:
            if type(intent) is not ledger.Append or intent.table_id not in bare:
                return False
            if not permitted(caller, Action.COMMIT, intent.table_id):
                return False
        return True

    async def get(self, caller: Caller, number: int) -> list[Event]:
        await self._access.require(caller, Action.READ_EVENTS, METASTORE_CHAIN)
        events = await self._store.transaction_events(number)
        if not events:
            raise NotFound(f"transaction {number} does not exist", kind="transaction")
        return events

    async def _decide_once(self, caller: Caller, intents: Sequence[Intent], numbered: bool) -> Receipt:
        if caller.key is not None:
            # A recorded outcome is given again without a decision that would find a caller to be stale.
            await self._access.standing(caller)
        return await self._once.run(
            caller,
            SCOPE,
            _canonical(intents),
            lambda keyed: self._resolve_and_decide(caller, intents, numbered, keyed),
        )

    async def _resolve_and_decide(
        self, caller: Caller, intents: Sequence[Intent], numbered: bool, keyed: KeyedRequest | None
    ) -> Receipt:
        for left in reversed(range(ATTEMPTS)):
            try:
                return await self._attempt(caller, intents, numbered, keyed)
            except Conflict as lost:
                if not left or not _may_be_made_again(lost, intents):
                    raise
                await asyncio.sleep(WAIT_S * (ATTEMPTS - left))
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(
        self, caller: Caller, intents: Sequence[Intent], numbered: bool, keyed: KeyedRequest | None
    ) -> Receipt:
        now = self._clock.now_ms()
        plan = Plan(caller, self._store, self._names, self._access, self._placement, now + self._hold_ms)
        natives: dict[Format, list[tuple[int, Any]]] = {}
        for index, intent in enumerate(intents):
            if isinstance(intent, Native):
                natives.setdefault(intent.format, []).append((index, intent.asked))
                continue
            try:
                await plan.add(index, intent)
            except Invalid as error:
                raise (_placed(error, index) if numbered else error) from None
        if plan.bare:
            if len(self._bare) + len(plan.bare) > BARE:
                self._bare.clear()
            self._bare.update(plan.bare)
        portions: list[Portion] = []
        for table_format, asked in natives.items():
            try:
                portions.append(await self._formats[table_format](caller, asked))
            except Invalid as error:
                at = error.operation if numbered else None
                raise (error if at is None else _placed(error, at)) from None
        return await self._decide(caller, now, plan, portions, keyed)

    async def _decide(
        self,
        caller: Caller,
        now: int,
        plan: Plan,
        portions: Sequence[Portion],
        keyed: KeyedRequest | None,
    ) -> Receipt:
        operations = [*plan.operations, *(each for portion in portions for each in portion.operations)]
        # In the order in which they were asked for; a sort keeps those of one request together.
        operations.sort(key=itemgetter(0))
        if portions:
            operations = _with_new_names(operations)
        owners = tuple(index for index, _ in operations)
        several = bool(portions) or len(set(owners)) < len(owners)
        transaction = Transaction(
            caller.principal.id,
            now,
            tuple(operation for _, operation in operations),
            keyed,
            (*plan.work, *(each for portion in portions for each in portion.work)),
            caller.principal.epoch,
            owners if several else (),
        )
        try:
            for portion in portions:
                await portion.write()
            receipt = await self._store.decide(transaction)
        except (Refused, Unavailable, KeyTaken) as error:
            # Certainly not applied. After anything else, what was written may be needed.
            for portion in portions:
                await portion.discard()
            if several and isinstance(error, Refused):
                raise _of_request(error, owners) from None
            raise
        for portion in portions:
            try:
                await portion.finish()
            except Exception:
                log.exception("what follows transaction %s is left for later", receipt.transaction)
        return receipt


def _canonical(intents: Sequence[Intent]) -> bytes:
    """The parsed request, the same for the same meaning whatever its spelling in bytes."""
    return msgspec.json.encode(
        [
            (intent.format, msgspec.json.decode(intent.body))
            if isinstance(intent, Native)
            else (type(intent).__name__, intent)
            for intent in intents
        ],
        order="sorted",
    )


def _placed(error: Invalid, index: int) -> Invalid:
    place = f"operations[{index}]" + (f".{error.field}" if error.field else "")
    return Invalid(error.message, field=place, fix=error.fix)


def _of_request(error: Refused, owners: Sequence[int]) -> Refused:
    """The refusal of an operation as that of the request that it belongs to."""
    if error.operation is not None:
        error.operation = owners[error.operation]
    if isinstance(error, Conflict):
        error.conflicts = tuple(
            msgspec.structs.replace(detail, operation=owners[detail.operation]) for detail in error.conflicts
        )
    return error


def _with_new_names(operations: Sequence[tuple[int, Operation]]) -> list[tuple[int, Operation]]:
    """Commits find a table that was renamed before them, although they call it by its old name.

    Not if another table gets that name too: then it is not certain which of them is meant.
    """
    found: list[tuple[int, Operation]] = []
    renamed: dict[str, str] = {}
    given: set[str] = set()
    for index, operation in operations:
        if isinstance(operation, ledger.RenameTable | ledger.CreateTable):
            given.add(name_key(operation.name))
        if isinstance(operation, ledger.RenameTable):
            renamed[operation.table_id] = name_key(operation.name)
        elif (
            isinstance(operation, ledger.Append)
            and operation.table_id in renamed
            and operation.named not in (None, *given)
        ):
            operation = msgspec.structs.replace(operation, named=renamed[operation.table_id])
        found.append((index, operation))
    return found


def _may_be_made_again(lost: Conflict, intents: Sequence[Intent]) -> bool:
    """Whether all that was lost are versions of tables whose commits say what they require."""
    return bool(lost.conflicts) and all(
        detail.reason in (Reason.VERSION_TAKEN, Reason.VERSION_GAP)
        and isinstance(intent := intents[detail.operation], Native)
        and intent.format is Format.ICEBERG
        for detail in lost.conflicts
    )
