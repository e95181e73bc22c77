"""Search by name and column, over what the caller may see."""

from __future__ import annotations

import asyncio

import msgspec

from inver.domain.grants import Action, Chain, Node, allowed
from inver.domain.securables import SecurableKind
from inver.errors import Invalid
from inver.ports import Found, Store
from inver.services.access import METASTORE, Access
from inver.services.context import Caller

MAX_RESULTS = 200
_LOOK_AT = 1_000


class Hit(msgspec.Struct, frozen=True):
    found: Found
    name: tuple[str, ...]


class Search:
    def __init__(self, store: Store, access: Access) -> None:
        self._store = store
        self._access = access

    async def find(
        self, caller: Caller, text: str, kind: SecurableKind | None, after: tuple[str, str], limit: int
    ) -> list[Hit]:
        if not text.strip():
            raise Invalid("what to search for is empty", field="q")
        limit = min(limit, MAX_RESULTS + 1)
        standing = await self._access.standing(caller)
        hits: list[Hit] = []
        while True:
            page = await self._store.find(text.strip(), after, _LOOK_AT)
            for found in page:
                if kind is not None and found.kind is not kind:
                    continue
                chain = await self._chain(caller, found)
                # Columns are part of the definition, and so for who may load the table.
                needed = Action.SEE if found.column is None else Action.LOAD
                if chain and allowed(standing, needed, chain):
                    hits.append(Hit(found, chain[0].name))
                    if len(hits) >= limit:
                        return hits
            if len(page) < _LOOK_AT:
                return hits
            after = (page[-1].key, page[-1].id)
            # SQLite answers without a pause; others have a turn between two pages.
            await asyncio.sleep(0)

    async def _chain(self, caller: Caller, found: Found) -> Chain:
        match found.kind:
            case SecurableKind.CATALOG:
                return (Node(found.kind, found.id, found.owner, (found.name,)), METASTORE)
            case SecurableKind.SCHEMA:
                return await self._access.schema_chain(caller, found.id)
            case _:
                above = await self._access.schema_chain(caller, found.parent_id)
                if not above:
                    return ()
                return (Node(found.kind, found.id, found.owner, (*above[0].name, found.name)), *above)
