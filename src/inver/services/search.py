"""Search by name and column, over what the caller may see."""

from __future__ import annotations

import msgspec

from inver.domain.grants import Chain
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
        hits: list[Hit] = []
        while True:
            page = await self._store.find(text.strip(), after, _LOOK_AT)
            for found in page:
                if kind is not None and found.kind is not kind:
                    continue
                chain = await self._chain(caller, found)
                if chain and await self._access.sees(caller, chain):
                    hits.append(Hit(found, chain[0].name))
                    if len(hits) >= limit:
                        return hits
            if len(page) < _LOOK_AT:
                return hits
            after = (page[-1].key, page[-1].id)

    async def _chain(self, caller: Caller, found: Found) -> Chain:
        match found.kind:
            case SecurableKind.CATALOG:
                node = await self._store.catalog_node(found.id)
                return (node, METASTORE) if node else ()
            case SecurableKind.SCHEMA:
                return await self._access.schema_chain(caller, found.id)
            case _:
                table = await self._store.table_by_id(found.id)
                return await self._access.table_chain(caller, table) if table else ()
