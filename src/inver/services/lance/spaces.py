"""Namespaces: a catalog is one, and so is everything in it that holds tables."""

from __future__ import annotations

from inver.domain.grants import Action
from inver.domain.securables import Catalog, Schema
from inver.errors import AlreadyExists, Invalid, NotFound
from inver.services.access import METASTORE_CHAIN, Access
from inver.services.cascade import Cascade
from inver.services.catalogs import MAX_PAGE, Catalogs
from inver.services.context import Caller
from inver.services.lance.types import TableId


class Spaces:
    """The root contains catalogs, and nobody can make or drop it."""

    def __init__(self, access: Access, catalogs: Catalogs, cascade: Cascade) -> None:
        self._access = access
        self._catalogs = catalogs
        self._cascade = cascade

    async def describe(self, caller: Caller, path: TableId) -> dict[str, str]:
        if not path:
            await self._access.standing(caller)
            return {}
        return (await self._get(caller, path)).properties

    async def page(
        self, caller: Caller, path: TableId, after: str, limit: int
    ) -> tuple[list[str], str | None]:
        wanted = min(limit, MAX_PAGE)
        found: list[Catalog] | list[Schema]
        if not path:
            found = await self._catalogs.page(caller, after, wanted + 1)
        else:
            found = await self._catalogs.schemas(caller, path[0], path[1:], after, wanted + 1)
        names = [each.name for each in found]
        return names[:wanted], names[wanted - 1] if len(names) > wanted else None

    async def create(
        self, caller: Caller, path: TableId, properties: dict[str, str], exist_ok: bool, overwrite: bool
    ) -> dict[str, str]:
        if not path:
            await self._access.require(caller, Action.CREATE_CATALOG, METASTORE_CHAIN)
            raise AlreadyExists("the root namespace is always there", kind="schema")
        if overwrite:
            # Who may drop it may not be able to make it again, and must not lose it over that.
            if len(path) == 1:
                await self._access.require(caller, Action.CREATE_CATALOG, METASTORE_CHAIN)
            else:
                await self._catalogs.room_for(caller, path[0], path[1:])
            await self.drop(caller, path, skip=True, cascade=True)
        try:
            if len(path) == 1:
                return (await self._catalogs.create(caller, path[0], properties=properties)).properties
            made = await self._catalogs.create_schema(caller, path[0], path[1:], properties=properties)
            return made.properties
        except AlreadyExists:
            if overwrite:
                # Somebody else made it meanwhile; whoever comes last stays.
                return await self.create(caller, path, properties, exist_ok, overwrite)
            if not exist_ok:
                raise
        return (await self._get(caller, path)).properties

    async def drop(self, caller: Caller, path: TableId, skip: bool, cascade: bool) -> dict[str, str]:
        if not path:
            await self._access.require(caller, Action.DROP, METASTORE_CHAIN)
            raise Invalid("the root namespace cannot be dropped", field="id")
        try:
            found = await self._get(caller, path)
            await self._drop(caller, path, cascade)
        except NotFound:
            if skip:
                return {}
            raise
        return found.properties

    async def _drop(self, caller: Caller, path: TableId, cascade: bool) -> None:
        catalog, *schema = path
        if schema and cascade:
            await self._cascade.drop_schema(caller, catalog, schema)
        elif schema:
            await self._catalogs.drop_schema(caller, catalog, schema, None)
        elif cascade:
            await self._cascade.drop_catalog(caller, catalog)
        else:
            await self._catalogs.drop(caller, catalog, None)

    async def _get(self, caller: Caller, path: TableId) -> Catalog | Schema:
        if len(path) == 1:
            return await self._catalogs.get(caller, path[0])
        return await self._catalogs.schema(caller, path[0], path[1:])
