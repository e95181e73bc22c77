"""How commits to Iceberg tables and views are decided.

Requirements are checked before anything is written, and again, on the newest state, whenever
another commit was faster. The metadata file stands before the decision; the file of a commit that
certainly lost is removed, and that of one whose outcome nobody knows stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from inver.domain.grants import Action
from inver.domain.iceberg import CommitRequest, State
from inver.domain.idempotency import KeyedRequest
from inver.domain.ledger import MAX_OPERATIONS, Reason
from inver.domain.names import check_name
from inver.errors import AlreadyExists, Conflict, Invalid, NotFound, Refused, Unavailable
from inver.ports import KeyTaken
from inver.services.context import Caller
from inver.services.iceberg.drafts import Draft, Drafts
from inver.services.iceberg.files import Files
from inver.services.iceberg.finding import Desk, Finder, Home
from inver.services.iceberg.naming import Identifier
from inver.services.iceberg.settling import Settling
from inver.services.iceberg.states import States, Turns

ATTEMPTS = 8
WAIT_S = 0.01
MAX_UPDATES = 10_000

Changes = Sequence[tuple[Identifier, CommitRequest]]


class Loaded(msgspec.Struct, frozen=True):
    """A table or view at a version. A staged one has no version and no file yet."""

    table_id: str
    version: int
    state: State
    document: list[bytes] | None = None
    """The metadata as JSON in pieces, where somebody needed it already."""


class Commits:
    def __init__(
        self,
        finder: Finder,
        desk: Desk,
        states: States,
        files: Files,
        settling: Settling,
        drafts: Drafts,
    ) -> None:
        self._finder = finder
        self._desk = desk
        self._states = states
        self._files = files
        self._settling = settling
        self._turns = Turns()
        self.drafts = drafts

    async def commit(
        self, caller: Caller, changes: Changes, keyed: KeyedRequest | None, view: bool = False
    ) -> list[Loaded]:
        """All changes or none; several changes to one table become one version of it."""
        groups: dict[str, list[tuple[Identifier, CommitRequest]]] = {}
        if sum(len(request.updates) for _, request in changes) > MAX_UPDATES:
            raise Invalid(f"a request has at most {MAX_UPDATES} updates", field="updates")
        for identifier, request in changes:
            groups.setdefault(identifier.key, []).append((identifier, request))
        async with self._turns.of(groups):
            for left in reversed(range(ATTEMPTS)):
                drafts = []
                for key, group in groups.items():
                    requests = [request for _, request in group]
                    draft = self.drafts.known(caller, key, requests, view) if left == ATTEMPTS - 1 else None
                    drafts.append(draft or await self.drafts.of(caller, group[0][0], requests, view))
                try:
                    found = await self.decide(caller, drafts, keyed)
                    self.drafts.remember(caller, groups, drafts)
                    return found
                except (Conflict, NotFound, AlreadyExists) as lost:
                    if not left or not was_overtaken(lost):
                        raise
                    await asyncio.sleep(WAIT_S * (ATTEMPTS - left))
        raise AssertionError("the last attempt returns or raises")

    async def decide(
        self, caller: Caller, drafts: Sequence[Draft], keyed: KeyedRequest | None, write: bool = True
    ) -> list[Loaded]:
        """Write the files, unless they are there already, then ask the ledger."""
        changed = [draft for draft in drafts if draft.change.changed]
        states = [draft.change.state for draft in changed] if write else []
        operations = [operation for draft in changed for operation in draft.operations]
        if len(operations) > MAX_OPERATIONS:
            raise Invalid(
                f"the request takes {len(operations)} operations; a transaction has at most {MAX_OPERATIONS}",
                field="table-changes",
            )
        documents = await self.write(states)
        if changed or keyed is not None:
            work = [each for draft in changed for each in draft.work]
            try:
                await self._desk.decide(caller, operations, keyed, work)
            except (Refused, Unavailable, KeyTaken):
                # Certainly not applied. After anything else the files may be those of a version.
                await self._files.discard(states)
                raise
        written = dict(zip(map(id, states), documents, strict=True))
        return self.settle(drafts, written)

    def settle(
        self, drafts: Sequence[Draft], written: Mapping[int, list[bytes]] | None = None
    ) -> list[Loaded]:
        """The drafts are decided: what they made is what is known of their tables."""
        found = []
        for draft in drafts:
            if draft.change.changed:
                self._states.advance(draft.table_id, draft.version, draft.change, draft.before)
                self._settling.soon(draft.table_id, draft.version, draft.change.state)
            document = (written or {}).get(id(draft.change.state))
            found.append(Loaded(draft.table_id, draft.version, draft.change.state, document))
        return found

    async def prepare(self, caller: Caller, identifier: Identifier, view: bool = False) -> Home:
        """Where the caller may make a table or view of this name."""
        home = await self._finder.namespace(
            caller, identifier.catalog, identifier.namespace, Action.CREATE_TABLE
        )
        check_name(identifier.name, "name")
        await self._finder.require_free(identifier, view)
        return home

    async def make(
        self,
        caller: Caller,
        identifier: Identifier,
        draft: Draft,
        keyed: KeyedRequest | None,
        write: bool = True,
    ) -> Loaded:
        """One new table or view, or none if somebody else has taken the name since."""
        try:
            return (await self.decide(caller, [draft], keyed, write))[0]
        except AlreadyExists as taken:
            if taken.kind == "table":
                await self._finder.require_free(identifier, draft.change.state.is_view)
            raise

    async def write(self, states: Sequence[State]) -> list[list[bytes]]:
        """All files, or none; returns the documents."""
        if len(states) == 1:
            return [await self._files.write(states[0])]
        outcomes = await asyncio.gather(
            *(self._files.write(state) for state in states), return_exceptions=True
        )
        for failure in outcomes:
            if isinstance(failure, BaseException):
                await self._files.discard(
                    [
                        state
                        for state, each in zip(states, outcomes, strict=True)
                        if not isinstance(each, BaseException)
                    ]
                )
                raise failure
        return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


def was_overtaken(lost: Refused) -> bool:
    """Whether others changed the tables meanwhile; what the client got wrong is not tried again.

    A table that came or went is looked for once more, and the answer says so in the client's words.
    """
    if isinstance(lost, Conflict):
        overtaken = (Reason.VERSION_TAKEN, Reason.VERSION_GAP)
        return bool(lost.conflicts) and all(detail.reason in overtaken for detail in lost.conflicts)
    return getattr(lost, "kind", None) in ("table", "schema")
