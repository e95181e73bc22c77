"""Catalogs and schemas: the use cases around the tree of names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from inver.clock import Clock
from inver.domain import ledger
from inver.domain.grants import Action, Chain, Node, shows_all_inside, visible
from inver.domain.idempotency import KeyedRequest
from inver.domain.ledger import Operation, Transaction
from inver.domain.locations import Location
from inver.domain.names import check_name, dotted
from inver.domain.securables import Catalog, Schema, SecurableKind
from inver.errors import NotFound, OutcomeUnknown
from inver.ids import new_id
from inver.ports import Store
from inver.services.access import METASTORE_CHAIN, Access, missing
from inver.services.context import Caller
from inver.services.names import Names

MAX_PAGE = 1_000
T = TypeVar("T", Catalog, Schema)


class Changes(msgspec.Struct, frozen=True):
    """What to alter; UNSET stays. `owner` is a principal's name."""

    comment: str | None | msgspec.UnsetType = msgspec.UNSET
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    owner: str | msgspec.UnsetType = msgspec.UNSET
    name: str | msgspec.UnsetType = msgspec.UNSET


class Catalogs:
    def __init__(self, store: Store, clock: Clock, names: Names, access: Access) -> None:
        self._store = store
        self._clock = clock
        self._names = names
        self._access = access

    async def get(self, caller: Caller, name: str) -> Catalog:
        catalog, _ = await self._catalog(caller, name, Action.SEE)
        return catalog

    async def page(self, caller: Caller, after: str, limit: int) -> list[Catalog]:
        standing = await self._access.standing(caller)
        return await _visible_page(
            self._store.catalogs,
            lambda found: visible(standing, self._access.catalog_chain(found)),
            after,
            limit,
        )

    async def create(
        self,
        caller: Caller,
        name: str,
        comment: str | None = None,
        properties: dict[str, str] | None = None,
        storage_root: str | None = None,
    ) -> Catalog:
        await self._access.require(caller, Action.CREATE_CATALOG, METASTORE_CHAIN)
        operation = ledger.CreateCatalog(
            id=new_id(),
            name=check_name(name, "name"),
            comment=comment,
            properties=properties or {},
            storage_root=await self._root(caller, storage_root),
        )
        await self._decide(caller, operation)
        return await _changed(self._names.catalog(name))

    async def alter(self, caller: Caller, name: str, changes: Changes, etag: int | None) -> Catalog:
        catalog, chain = await self._catalog(caller, name, Action.ALTER)
        owner = await self._new_owner(caller, chain, changes)
        new_name = _other_name(changes.name, catalog.name)
        if not isinstance(new_name, msgspec.UnsetType):
            await self._access.require(caller, Action.CREATE_CATALOG, METASTORE_CHAIN)
            name = new_name
        operation = ledger.AlterCatalog(
            id=catalog.id,
            expect_etag=etag,
            name=new_name,
            comment=changes.comment,
            properties=changes.properties,
            owner=owner,
        )
        if operation == ledger.AlterCatalog(id=catalog.id):
            return catalog
        await self._decide(caller, operation)
        return await _changed(self._names.catalog(name))

    async def drop(self, caller: Caller, name: str, etag: int | None) -> None:
        catalog, _ = await self._catalog(caller, name, Action.DROP)
        await self._decide(caller, ledger.DropCatalog(id=catalog.id, expect_etag=etag))

    async def schema(self, caller: Caller, catalog: str, path: Sequence[str]) -> Schema:
        schema, _ = await self._schema(caller, catalog, path, Action.SEE)
        return schema

    async def schemas(
        self, caller: Caller, catalog: str, parent: Sequence[str], after: str, limit: int
    ) -> list[Schema]:
        above: Catalog | Schema
        if parent:
            above, chain = await self._schema(caller, catalog, parent, Action.SEE)
        else:
            above, chain = await self._catalog(caller, catalog, Action.SEE)
        standing = await self._access.standing(caller)
        if shows_all_inside(standing, chain, SecurableKind.SCHEMA):
            return await self._store.schemas(above.id, after, min(limit, MAX_PAGE + 1))

        def shows(schema: Schema) -> bool:
            node = Node(SecurableKind.SCHEMA, schema.id, schema.owner, (*chain[0].name, schema.name))
            return visible(standing, (node, *chain))

        return await _visible_page(partial(self._store.schemas, above.id), shows, after, limit)

    async def room_for(
        self, caller: Caller, catalog: str, path: Sequence[str]
    ) -> tuple[Catalog, Catalog | Schema]:
        """The catalog, and what in it a new schema of this path lies in, if the caller may make it there."""
        owner = await self._names.catalog(catalog)
        if len(path) > 1:
            parent, _ = await self._schema(caller, catalog, path[:-1], Action.CREATE_SCHEMA)
            return owner, parent
        await self._access.require(caller, Action.CREATE_SCHEMA, self._access.catalog_chain(owner), catalog)
        return owner, owner

    async def create_schema(
        self,
        caller: Caller,
        catalog: str,
        path: Sequence[str],
        comment: str | None = None,
        properties: dict[str, str] | None = None,
        storage_root: str | None = None,
        keyed: KeyedRequest | None = None,
    ) -> Schema:
        """The last name of `path` is the new one; what is above it must exist."""
        owner, parent = await self.room_for(caller, catalog, path)
        operation = ledger.CreateSchema(
            id=new_id(),
            catalog_id=owner.id,
            parent_id=parent.id,
            name=check_name(path[-1], "name"),
            comment=comment,
            properties=properties or {},
            storage_root=await self._root(caller, storage_root),
        )
        await self._decide(caller, operation, keyed)
        return await _changed(self._names.schema(catalog, path))

    async def alter_schema(
        self,
        caller: Caller,
        catalog: str,
        path: Sequence[str],
        changes: Changes,
        etag: int | None,
        keyed: KeyedRequest | None = None,
    ) -> Schema:
        schema, chain = await self._schema(caller, catalog, path, Action.ALTER)
        owner = await self._new_owner(caller, chain, changes)
        new_name = _other_name(changes.name, schema.name)
        if not isinstance(new_name, msgspec.UnsetType):
            # It takes a name in its place, as a new schema there would.
            await self._access.require(caller, Action.CREATE_SCHEMA, chain[1:])
            path = (*path[:-1], new_name)
        operation = ledger.AlterSchema(
            id=schema.id,
            expect_etag=etag,
            name=new_name,
            comment=changes.comment,
            properties=changes.properties,
            owner=owner,
        )
        if keyed is None and operation == ledger.AlterSchema(id=schema.id):
            return schema
        await self._decide(caller, operation, keyed)
        return await _changed(self._names.schema(catalog, path))

    async def drop_schema(
        self,
        caller: Caller,
        catalog: str,
        path: Sequence[str],
        etag: int | None,
        keyed: KeyedRequest | None = None,
    ) -> None:
        schema, _ = await self._schema(caller, catalog, path, Action.DROP)
        await self._decide(caller, ledger.DropSchema(id=schema.id, expect_etag=etag), keyed)

    async def _catalog(self, caller: Caller, name: str, action: Action) -> tuple[Catalog, Chain]:
        catalog = await self._names.catalog(name)
        chain = self._access.catalog_chain(catalog)
        await self._access.require(caller, action, chain, name)
        return catalog, chain

    async def _schema(
        self, caller: Caller, catalog: str, path: Sequence[str], action: Action
    ) -> tuple[Schema, Chain]:
        # A catalog that the caller may not see must not be told apart from one that is not there.
        await self._catalog(caller, catalog, Action.SEE)
        schema = await self._names.schema(catalog, path)
        chain = await self._access.schema_chain(caller, schema.id)
        shown = dotted([catalog, *path])
        if not chain:
            raise missing("schema", shown)
        await self._access.require(caller, action, chain, shown)
        return schema, chain

    async def _root(self, caller: Caller, storage_root: str | None) -> str | None:
        """Whoever chooses a root has the server write below it and give out keys to what lies there."""
        if storage_root is None:
            return None
        await self._access.require(caller, Action.CREATE_MANAGED_STORAGE, METASTORE_CHAIN)
        return Location.parse(storage_root, field="storage_root").canonical

    async def _new_owner(self, caller: Caller, chain: Chain, changes: Changes) -> str | msgspec.UnsetType:
        return await new_owner(self._store, self._access, caller, chain, changes.owner)

    async def _decide(self, caller: Caller, operation: Operation, keyed: KeyedRequest | None = None) -> None:
        principal = caller.principal
        await self._store.decide(
            Transaction(principal.id, self._clock.now_ms(), (operation,), keyed, epoch=principal.epoch)
        )


def _other_name(name: str | msgspec.UnsetType, current: str) -> str | msgspec.UnsetType:
    """The name that is to be taken, unless it is the one that is there."""
    if isinstance(name, msgspec.UnsetType) or name == current:
        return msgspec.UNSET
    return check_name(name, "name")


async def new_owner(
    store: Store, access: Access, caller: Caller, chain: Chain, name: str | msgspec.UnsetType
) -> str | msgspec.UnsetType:
    """The id of a principal that is to become owner, if the caller may make it so."""
    if isinstance(name, msgspec.UnsetType):
        return name
    await access.require(caller, Action.TRANSFER, chain)
    owner = await store.principal_by_name(name)
    if owner is None:
        raise missing("principal", name)
    return owner.id


async def _changed(found: Awaitable[T]) -> T:
    """What a change has made. To say that it is not there would say that the change was not made."""
    try:
        return await found
    except NotFound:
        raise OutcomeUnknown("the change is made, and its subject was renamed or dropped after it") from None


async def _visible_page(
    fetch: Callable[[str, int], Awaitable[list[T]]], shows: Callable[[T], bool], after: str, limit: int
) -> list[T]:
    """A full page of what may be seen; hidden ones leave no gap."""
    found: list[T] = []
    while True:
        page = await fetch(after, MAX_PAGE)
        found.extend(item for item in page if shows(item))
        if len(found) >= limit or len(page) < MAX_PAGE:
            return found[:limit]
        after = page[-1].name
