"""How a proposed Delta commit becomes a version.

Everything that needs the file system happens before the decision: the staged file is read once,
compared with what the request says of it, and counted. The decision itself is the ledger's.

Who is known to be too late costs no look at any file. Of those who want the same version one goes
ahead, while the others wait for what becomes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

import msgspec

from inver.clock import Clock
from inver.domain import delta, ledger
from inver.domain.delta import CommitInfo, CommitSummary
from inver.domain.grants import Action
from inver.domain.ledger import Reason, Receipt, Transaction
from inver.domain.locations import Location
from inver.domain.tables import Table, TableKind, is_managed_delta
from inver.domain.uuids import is_uuid
from inver.errors import Conflict, Invalid, NotFound, PreconditionFailed
from inver.ports import FullTable, Store
from inver.services.access import Access, missing
from inver.services.context import Caller
from inver.services.delta.agreement import compare, compare_domains, completed, is_plain
from inver.services.delta.altering import Altering, require_published, was_overtaken
from inver.services.delta.attempts import Attempt, hand_on
from inver.services.delta.changing import with_changes
from inver.services.delta.places import Place, Places
from inver.services.delta.publishing import Publishing
from inver.services.delta.repeats import Repeats
from inver.services.delta.staged import StagedCommits
from inver.services.delta.types import Changes, Proposal

_encode = msgspec.json.encode
NEWEST_LIMIT = 20_000
_VERSIONS = (Reason.VERSION_TAKEN, Reason.VERSION_GAP)


class Commits:
    """`verify` switches the comparison of the staged file with the request; its counts go with it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        access: Access,
        publishing: Publishing,
        places: Places,
        staged: StagedCommits,
        verify: bool = True,
    ) -> None:
        self._store = store
        self._clock = clock
        self._access = access
        self._publishing = publishing
        self._places = places
        self._staged = staged
        self._verify = verify
        # The newest version of a table that is known here.
        self._newest: dict[str, int] = {}
        self._attempts: dict[str, Attempt] = {}
        self._altering = Altering(store, clock, self._table)
        self.repeats = Repeats(store, access)

    def propose(
        self, caller: Caller, proposal: Proposal, permitted: bool = False
    ) -> Awaitable[Receipt | None]:
        """A commit, a notice of published versions, or both.

        `permitted` says that the caller was just seen to have the right to commit.
        """
        info, published = proposal.info, proposal.published
        if info is None and published is None and proposal.changes is None:
            raise Invalid("neither a commit nor a published version is given", field="commit_info")
        place = self._places.known(proposal.table_id)
        if place is None:
            proposal = msgspec.structs.replace(proposal, table_id=check_table_id(proposal.table_id))
            place = self._places.known(proposal.table_id)
        if info is not None:
            delta.check_commit_info(info)
        if published is not None and published < 0:
            raise Invalid("the published version must not be negative", field="latest_published_version")
        if info is None and proposal.changes is not None:
            return self._altering.alter(caller, proposal)
        if info is None:
            return self._notice(caller, proposal)
        if place is None or not self._is_short(caller, proposal, info, place, permitted):
            return self._commit(caller, proposal, info)
        table_id = proposal.table_id
        newest = self._newest.get(table_id)
        if newest is not None and info.version <= newest:
            return self._decide(caller, _append(table_id, info, None))
        if not self._verify:
            return self._decided(proposal, info, b"", self._decide(caller, _append(table_id, info, None)))
        attempt = self._attempts.get(table_id)
        if attempt is None or attempt.info.version != info.version:
            return self._verified(caller, proposal, info, place)
        waiting: asyncio.Future[Receipt | None] = asyncio.get_running_loop().create_future()
        attempt.waiting.append((caller, proposal, info, waiting))
        return waiting

    # --- the short way: nothing of the table is read but the staged file ---

    def _is_short(
        self, caller: Caller, proposal: Proposal, info: CommitInfo, place: Place, permitted: bool
    ) -> bool:
        """Whether all that this commit depends on is the version; False says nothing."""
        if proposal.changes is not None or proposal.uniform is not None or proposal.expect_etag is not None:
            return False
        if proposal.published is not None and proposal.published >= info.version:
            return False
        # The right comes first: what is wrong with the location is nobody else's business.
        if not permitted and self._access.permitted(caller, Action.COMMIT, proposal.table_id) is None:
            return False
        return place.is_at(proposal.location)

    def _verified(
        self, caller: Caller, proposal: Proposal, info: CommitInfo, place: Place
    ) -> Awaitable[Receipt]:
        data = None
        if self._staged.follows(proposal.table_id, info):
            data = place.objects.get_at_once(delta.staged_name(info.file_name))
        if data is None:
            return self._attempted(caller, proposal, info, self._when_read(caller, proposal, info, place))
        try:
            summary = self._staged.examined(data, info)
        except Invalid:
            # Whether it is late comes first, whatever is wrong with its file.
            return self._commit(caller, proposal, info)
        if not is_plain(summary):
            return self._commit(caller, proposal, info)
        seen = None
        if proposal.published:
            seen = self._publishing.glance(proposal.table_id, place.objects, proposal.published)
        append = _append(proposal.table_id, info, summary, seen)
        deciding = self._decide(caller, append)
        return self._decided(proposal, info, data, deciding, self._attempt(caller, proposal, info))

    async def _when_read(self, caller: Caller, proposal: Proposal, info: CommitInfo, place: Place) -> Receipt:
        try:
            await self._staged.require_order(proposal.table_id, info)
            data, summary = await self._staged.read(place.objects, info)
        except (NotFound, Invalid):
            return await self._commit(caller, proposal, info)
        if not is_plain(summary):
            return await self._commit(caller, proposal, info)
        deciding = self._decide(caller, _append(proposal.table_id, info, summary))
        return await self._decided(proposal, info, data, deciding)

    def _attempted(
        self, caller: Caller, proposal: Proposal, info: CommitInfo, work: Awaitable[Receipt]
    ) -> asyncio.Future[Receipt]:
        future = asyncio.ensure_future(work)
        attempt = self._attempt(caller, proposal, info)
        if attempt is not None:
            future.add_done_callback(partial(self._end, proposal.table_id, attempt))
        return future

    def _attempt(self, caller: Caller, proposal: Proposal, info: CommitInfo) -> Attempt | None:
        """Let those who want the same version wait for what becomes of this commit."""
        if proposal.table_id in self._attempts:
            return None
        attempt = self._attempts[proposal.table_id] = Attempt(caller, proposal, info)
        return attempt

    def _end(self, table_id: str, attempt: Attempt, done: asyncio.Future[Receipt]) -> None:
        """Those who waited are late now, or come again and may try themselves."""
        del self._attempts[table_id]
        if not attempt.waiting:
            return
        failure = None if done.cancelled() else done.exception()
        receipt = None if done.cancelled() or failure is not None else done.result()
        for caller, proposal, info, waiting in attempt.waiting:
            if waiting.done():
                continue
            if receipt is not None and attempt.has_beaten(caller, info, receipt):
                self._store.dismiss(waiting, _append(table_id, info, None), attempt.winner(receipt))
                continue
            if failure is not None and attempt.has_answered(caller, proposal, failure):
                waiting.set_exception(failure)
                continue
            try:
                again = asyncio.ensure_future(self.propose(caller, proposal))
            except Exception as error:
                waiting.set_exception(error)
            else:
                again.add_done_callback(partial(hand_on, to=waiting))

    def _decided(
        self,
        proposal: Proposal,
        info: CommitInfo,
        data: bytes,
        deciding: Awaitable[Receipt],
        attempt: Attempt | None = None,
    ) -> asyncio.Future[Receipt]:
        future = deciding if isinstance(deciding, asyncio.Future) else asyncio.ensure_future(deciding)
        future.add_done_callback(partial(self._follow, proposal, info, data, attempt))
        return future

    def _follow(
        self,
        proposal: Proposal,
        info: CommitInfo,
        data: bytes,
        attempt: Attempt | None,
        done: asyncio.Future[Receipt],
    ) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, Conflict):
            for detail in error.conflicts:
                if detail.reason in _VERSIONS and isinstance(detail.current, int):
                    self._learn(detail.subject, detail.current)
        if not done.cancelled() and error is None:
            receipt = done.result()
            if not receipt.replayed:
                self._staged.decided(proposal.table_id, info)
                if data:
                    self._publishing.keep(proposal.table_id, info.version, data)
            self.settle(proposal, info, receipt.published)
        if attempt is not None:
            self._end(proposal.table_id, attempt, done)

    def settle(self, proposal: Proposal, info: CommitInfo, marked: int | None = None) -> None:
        """A proposal is decided: what follows from it. `marked` is how far the ledger knows the log to go."""
        table_id, publishing = proposal.table_id, self._publishing
        self._learn(table_id, info.version)
        publishing.soon(table_id, info.version)
        if marked is not None:
            publishing.marked(table_id, marked)
        if proposal.published and (marked is None or marked < proposal.published):
            publishing.told(table_id, proposal.published)

    def _learn(self, table_id: str, version: int) -> None:
        known = self._newest.get(table_id, -1)
        if known < version:
            if len(self._newest) >= NEWEST_LIMIT:
                self._newest.clear()
            self._newest[table_id] = version

    # --- the whole way ---

    async def _commit(self, caller: Caller, proposal: Proposal, info: CommitInfo) -> Receipt:
        try:
            return await self._prepared(caller, proposal, info)
        except PreconditionFailed as error:
            if not was_overtaken(proposal, error):
                raise
        # What it was merged with has changed since, of which it has never spoken.
        return await self._altering.in_turn(proposal, lambda: self._prepared(caller, proposal, info))

    async def _prepared(self, caller: Caller, proposal: Proposal, info: CommitInfo) -> Receipt:
        append = await self.prepare(caller, proposal, info)
        return await self._decided(proposal, info, b"", self._decide(caller, append))

    async def prepare(self, caller: Caller, proposal: Proposal, info: CommitInfo) -> ledger.Append:
        """The operation that decides a proposal, after all that can be found wrong with it before."""
        try:
            full = await self._table(caller, proposal)
        except NotFound:
            if await self.repeats.has_happened(caller, proposal.table_id, info):
                return _append(proposal.table_id, info, None)
            raise
        table = full.table
        if info.version <= table.version:
            # Made for a state that is past: whatever else is wrong with it, it is late or a repetition.
            return _append(table.id, info, None)
        require_published(table, proposal)
        summary = await self._staged_or_ratified(table, info) if self._verify else None
        append = _append(table.id, info, summary)
        changes = proposal.changes
        if summary is not None:
            changes = completed(changes, summary, full.details)
        if changes is not None or proposal.uniform is not None:
            append = with_changes(append, full, proposal, changes or Changes())
        if proposal.expect_etag is not None:
            append = msgspec.structs.replace(append, expect_etag=proposal.expect_etag)
        if summary is not None:
            compare(table, append, summary)
            if proposal.changes is not None:
                compare_domains(table, proposal.changes, summary)
        return append

    def _decide(self, caller: Caller, append: ledger.Append) -> Awaitable[Receipt]:
        principal = caller.principal
        return self._store.decide(
            Transaction(principal.id, self._clock.now_ms(), (append,), epoch=principal.epoch)
        )

    async def _staged_or_ratified(self, table: Table, info: CommitInfo) -> CommitSummary | None:
        """A staged file that is gone may have been ratified before: the ledger knows."""
        await self._staged.require_order(table.id, info)
        try:
            _, summary = await self._staged.read(self._places.of(table).objects, info)
        except NotFound:
            standing = await self._store.commits(table.id, ledger.MAIN, info.version, info.version, 1)
            if standing and standing[0].token == info.file_name:
                return None
            raise Invalid(
                f"the staged commit {info.file_name} does not exist",
                field="commit_info.file_name",
                fix=f"write it to {delta.STAGED_FOLDER} of the table before committing it",
            ) from None
        return summary

    async def _notice(self, caller: Caller, proposal: Proposal) -> None:
        """A client says that it has published; we look before we believe."""
        table = (await self._table(caller, proposal)).table
        require_published(table, proposal)
        if proposal.expect_etag is not None and proposal.expect_etag != table.etag:
            raise PreconditionFailed(f"the table has the etag etag-{table.etag}")
        assert proposal.published is not None
        await self._publishing.publish(table.id, proposal.published)

    async def _table(self, caller: Caller, proposal: Proposal) -> FullTable:
        full = await self._store.full_table(proposal.table_id)
        if full is None:
            raise missing("table", proposal.table_id)
        table = full.table
        chain = await self._access.table_chain(caller, table)
        await self._access.require(caller, Action.COMMIT, chain, proposal.table_id)
        require_location(table, proposal.location)
        managed = is_managed_delta(table)
        if not managed and table.kind is TableKind.MANAGED:
            raise Invalid("no version 0 of this table was ever written: it has no log", field="table_id")
        if not managed and (proposal.info is not None or proposal.published is not None):
            field = "latest_published_version" if proposal.info is None else "commit_info"
            raise Invalid("the catalog does not manage the commits of this table", field=field)
        if managed:
            self._places.of(table)
        return full


def check_table_id(table_id: str) -> str:
    if not is_uuid(table_id):
        raise Invalid("table_id is not a UUID", field="table_id")
    return table_id.lower()


def require_location(table: Table, location: str | None) -> None:
    """`file:/x`, `file:///x` and `/x` are one place, with or without a slash at the end."""
    if location is None:
        return
    if Location.parse(location, field="table_uri").prefix != Location.parse(table.location).prefix:
        raise Invalid("table_uri is not the location of this table", field="table_uri")


def _append(
    table_id: str, info: CommitInfo, summary: CommitSummary | None, published: int | None = None
) -> ledger.Append:
    """The staged file's name is the token: the same file for the same version is the same commit."""
    return ledger.Append(
        table_id=table_id,
        version=info.version,
        token=info.file_name,
        operation=(summary.operation if summary else None) or "WRITE",
        payload=_encode(info),
        counts=_encode(summary.counts) if summary else None,
        published=published,
    )
