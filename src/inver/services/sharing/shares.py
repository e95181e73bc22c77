"""Shares as their provider handles them: what they contain, and who gets it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from inver.clock import Clock
from inver.domain import shares as ops
from inver.domain.grants import Action, Chain
from inver.domain.ledger import Transaction
from inver.domain.names import dotted, name_key
from inver.domain.shares import ItemKind, Share, ShareItem, check_shared_name
from inver.domain.tables import State, Table
from inver.errors import Invalid, NotFound
from inver.ids import new_id
from inver.ports import ShareGrant, Store
from inver.services.access import Access, missing
from inver.services.context import Caller
from inver.services.names import Names, TableRef
from inver.services.sharing.rights import Rights

MAX_FILTERS = 1_000


class NewItem(msgspec.Struct, frozen=True, kw_only=True):
    """Catalog, schema path and table, or without the table for a whole schema."""

    name: tuple[str, ...]
    kind: ItemKind
    alias: tuple[str, ...] = ()
    start_version: int = 0
    history: bool = True


class NamedItem(msgspec.Struct, frozen=True):
    """`source` is where it stands now; None when it is gone."""

    item: ShareItem
    source: tuple[str, ...] | None


class Shares:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        names: Names,
        access: Access,
        rights: Rights,
        check_filter: Callable[[Table, str], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._names = names
        self._access = access
        self._rights = rights
        self._check_filter = check_filter

    async def page(self, caller: Caller, after: str, limit: int) -> list[Share]:
        """One's own, and all of them for who manages the metastore."""
        subjects = (await self._access.standing(caller)).subjects
        everything = await self._rights.sees_all(caller)
        found: list[Share] = []
        while len(found) < limit:
            some = await self._store.shares(after, limit)
            found += [share for share in some if everything or share.owner in subjects]
            if len(some) < limit:
                break
            after = some[-1].name
        return found[:limit]

    async def get(self, caller: Caller, name: str) -> Share:
        return await self._share(caller, name, change=False)

    async def items(self, share: Share) -> list[NamedItem]:
        """For a share that the caller has been shown."""
        found = []
        for item in await self._store.share_items(share.id):
            if item.kind is ItemKind.TABLE:
                source = await self._store.full_name(item.securable_id)
            else:
                chain = await self._store.chain(item.securable_id)
                source = chain[0].name if chain else None
            found.append(NamedItem(item, source))
        return found

    async def grants(self, share: Share) -> list[ShareGrant]:
        return await self._store.grants_of_share(share.id)

    async def create(self, caller: Caller, name: str, comment: str | None = None) -> Share:
        await self._rights.require(caller, Action.CREATE_SHARE)
        check_shared_name(name, "name", dots=False)
        now, me = self._clock.now_ms(), caller.principal.id
        share_id = new_id()
        await self._decide(caller, ops.CreateShare(id=share_id, name=name, comment=comment))
        return Share(id=share_id, name=name, comment=comment, owner=me, created_at=now, created_by=me)

    async def drop(self, caller: Caller, name: str) -> None:
        share = await self._share(caller, name)
        await self._decide(caller, ops.DropShare(id=share.id))

    async def add(self, caller: Caller, name: str, new: NewItem) -> ShareItem:
        """Whoever gives something to others must be able to give it away."""
        share = await self._share(caller, name)
        securable_id, chain = await self._source(caller, new)
        await self._access.require(caller, Action.CHANGE_GRANTS, chain, dotted(new.name))
        schema, table = _shared_name(new)
        for known in await self._store.share_items(share.id):
            if name_key(known.schema_name) == name_key(schema):
                # Recipients see one schema, so it has one spelling.
                schema = known.schema_name
        item = ShareItem(
            id=new_id(),
            share_id=share.id,
            kind=new.kind,
            securable_id=securable_id,
            schema_name=schema,
            table_name=table,
            start_version=new.start_version,
            history=new.history,
        )
        await self._decide(caller, ops.AddToShare(item=item))
        return msgspec.structs.replace(item, added_at=self._clock.now_ms(), added_by=caller.principal.id)

    async def remove(self, caller: Caller, name: str, schema: str, table: str | None) -> None:
        share = await self._share(caller, name)
        item = await self._item(share, schema, table)
        await self._decide(caller, ops.RemoveFromShare(id=item.id, share_id=share.id))

    async def grant(
        self, caller: Caller, name: str, recipient: str, filters: Mapping[tuple[str, str], str]
    ) -> None:
        """`filters` are by schema and table of the share, and stand in place of those before."""
        share = await self._share(caller, name)
        found = await self._rights.require_found(
            caller, await self._store.recipient_by_name(recipient), "recipient", recipient, change=True
        )
        if len(filters) > MAX_FILTERS:
            raise Invalid(f"at most {MAX_FILTERS} filters are allowed", field="filters")
        by_table: dict[str, str] = {}
        for (schema, table), text in filters.items():
            # A schema's tables come and go, and one that takes a filtered one's name would have none.
            item = await self._item(share, schema, table)
            known = await self._store.table_by_id(item.securable_id)
            if known is None or known.state is not State.LIVE:
                raise missing("table", f"{schema}.{table}")
            await self._check_filter(known, text)
            by_table[item.securable_id] = text
        await self._decide(caller, ops.GrantShare(share_id=share.id, recipient_id=found.id, filters=by_table))

    async def revoke(self, caller: Caller, name: str, recipient: str) -> None:
        share = await self._share(caller, name)
        held = await self._store.grants_of_share(share.id)
        known = next((g.recipient for g in held if name_key(g.recipient.name) == name_key(recipient)), None)
        if known is None:
            raise NotFound(f"share {name!r} is not granted to {recipient!r}", kind="recipient")
        await self._decide(caller, ops.RevokeShare(share_id=share.id, recipient_id=known.id))

    async def _share(self, caller: Caller, name: str, *, change: bool = True) -> Share:
        found = await self._store.share_by_name(name)
        return await self._rights.require_found(caller, found, "share", name, change=change)

    async def _source(self, caller: Caller, new: NewItem) -> tuple[str, Chain]:
        if new.kind is ItemKind.TABLE:
            table = await self._names.table(TableRef(name=new.name))
            return table.id, await self._access.table_chain(caller, table)
        if len(new.name) < 2:
            raise Invalid("a schema's name has a catalog and at least one schema", field="name")
        schema = await self._names.schema(new.name[0], new.name[1:])
        chain = await self._access.schema_chain(caller, schema.id)
        if not chain:
            raise missing("schema", dotted(new.name))
        return schema.id, chain

    async def _item(self, share: Share, schema: str, table: str | None) -> ShareItem:
        wanted = name_key(schema), name_key(table or "")
        for item in await self._store.share_items(share.id):
            if (name_key(item.schema_name), name_key(item.table_name or "")) == wanted:
                return item
        shown = schema if table is None else f"{schema}.{table}"
        raise NotFound(f"share {share.name!r} has no item {shown!r} of its own", kind="item")

    async def _decide(self, caller: Caller, operation: ops.Sharing) -> None:
        me = caller.principal
        await self._store.decide(Transaction(me.id, self._clock.now_ms(), (operation,), epoch=me.epoch))


def _shared_name(new: NewItem) -> tuple[str, str | None]:
    parts: Sequence[str] = new.alias
    if new.kind is ItemKind.SCHEMA:
        if len(parts) > 1:
            raise Invalid("a schema is shared under one name", field="as")
        return check_shared_name(parts[0] if parts else new.name[-1], "as"), None
    if parts and len(parts) != 2:
        raise Invalid("a table is shared as SCHEMA.TABLE", field="as")
    schema, table = parts or new.name[-2:]
    return check_shared_name(schema, "as"), check_shared_name(table, "as")
