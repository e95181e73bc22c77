"""Namespaces: schemas, in the words of Iceberg. The property `comment` is the schema's comment."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import msgspec

from inver.domain.idempotency import KeyedRequest
from inver.domain.ledger import Receipt
from inver.domain.securables import Catalog, Schema
from inver.errors import AlreadyExists, NotEmpty, NotFound, OutcomeUnknown, PreconditionFailed
from inver.ports import Store
from inver.services.catalogs import Catalogs, Changes
from inver.services.context import Caller
from inver.services.iceberg import naming
from inver.services.iceberg.finding import Desk, Finder

COMMENT = "comment"
ATTEMPTS = 10


class Updated(msgspec.Struct, frozen=True):
    """Which keys an update set, took away, and did not find to take away."""

    updated: tuple[str, ...]
    removed: tuple[str, ...]
    missing: tuple[str, ...]


class _Altered(msgspec.Struct, frozen=True):
    changed: tuple[str, ...]
    removed: tuple[str, ...] = ()


_read_altered = msgspec.json.Decoder(_Altered).decode


class Namespaces:
    def __init__(self, store: Store, catalogs: Catalogs, finder: Finder, desk: Desk) -> None:
        self._store = store
        self._catalogs = catalogs
        self._finder = finder
        self._desk = desk

    async def warehouse(self, caller: Caller, name: str) -> Catalog:
        try:
            return await self._catalogs.get(caller, name)
        except NotFound:
            raise naming.no_warehouse(name) from None

    async def only_warehouse(self, caller: Caller) -> Catalog | None:
        """The catalog that is meant when none is named: there is no other."""
        found = await self._catalogs.page(caller, "", 2)
        return found[0] if len(found) == 1 else None

    async def page(
        self, caller: Caller, catalog: str, parent: Sequence[str], after: str, limit: int
    ) -> list[Schema]:
        try:
            return await self._catalogs.schemas(caller, catalog, parent, after, limit)
        except NotFound:
            raise (naming.no_namespace(parent) if parent else naming.no_warehouse(catalog)) from None

    async def get(self, caller: Caller, catalog: str, path: Sequence[str]) -> Schema:
        return (await self._finder.namespace(caller, catalog, path)).schema

    async def create(
        self, caller: Caller, catalog: str, path: Sequence[str], properties: dict[str, str]
    ) -> Schema:
        async def make(keyed: KeyedRequest | None) -> Schema:
            try:
                return await self._catalogs.create_schema(
                    caller,
                    catalog,
                    path,
                    comment=properties.get(COMMENT),
                    properties=_without_comment(properties),
                    keyed=keyed,
                )
            except AlreadyExists:
                raise naming.namespace_taken(path) from None
            except NotFound:
                above = path[:-1]
                raise (naming.no_namespace(above) if above else naming.no_warehouse(catalog)) from None

        request = ("create-namespace", catalog, path, properties)
        made = await self._desk.once(caller, request, make)
        if not isinstance(made, Receipt):
            return made
        try:
            return await self.get(caller, catalog, path)
        except NotFound:
            # To say that it is not there would say that it was never made.
            raise OutcomeUnknown("the namespace was made, and is not to be seen any more") from None

    async def drop(self, caller: Caller, catalog: str, path: Sequence[str]) -> None:
        async def drop(keyed: KeyedRequest | None) -> None:
            try:
                await self._catalogs.drop_schema(caller, catalog, path, None, keyed)
            except NotFound:
                raise naming.no_namespace(path) from None
            except NotEmpty:
                raise naming.namespace_not_empty(path) from None

        await self._desk.once(caller, ("drop-namespace", catalog, path), drop)

    async def update(
        self,
        caller: Caller,
        catalog: str,
        path: Sequence[str],
        removals: Sequence[str],
        updates: dict[str, str],
    ) -> Updated:
        async def update(keyed: KeyedRequest | None) -> Updated:
            for left in reversed(range(ATTEMPTS)):
                schema = await self.get(caller, catalog, path)
                properties = properties_of(schema)
                changed = {
                    key: value for key, value in {**properties, **updates}.items() if key not in removals
                }
                comment = changed.get(COMMENT)
                changes = Changes(
                    comment=msgspec.UNSET if comment == schema.comment else comment,
                    properties=_without_comment(changed),
                )
                try:
                    await self._catalogs.alter_schema(caller, catalog, path, changes, schema.etag, keyed)
                except PreconditionFailed:
                    # Somebody changed other properties at the same time; both changes hold.
                    if left:
                        continue
                    raise
                break
            return _updated(removals, updates, properties)

        request = ("update-namespace", catalog, path, sorted(removals), updates)
        done = await self._desk.once(caller, request, update)
        if isinstance(done, Updated):
            return done
        return _updated(removals, updates, await self._removed(done))

    async def _removed(self, receipt: Receipt) -> set[str]:
        """What the update of a namespace took away, as the event of it says."""
        [event] = await self._store.transaction_events(receipt.transaction)
        told = _read_altered(event.data)
        return {*told.removed, *({COMMENT} & set(told.changed))}


def _updated(removals: Sequence[str], updates: Mapping[str, str], held: Container[str]) -> Updated:
    """`held` are the keys that there were, as far as they were to be removed."""
    asked = tuple(dict.fromkeys(removals))
    return Updated(
        tuple(updates),
        tuple(key for key in asked if key in held),
        tuple(key for key in asked if key not in held),
    )


def properties_of(schema: Schema) -> dict[str, str]:
    if schema.comment is None:
        return schema.properties
    return {**schema.properties, COMMENT: schema.comment}


def _without_comment(properties: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key != COMMENT}
