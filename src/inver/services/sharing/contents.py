"""What a recipient finds when it looks around."""

from __future__ import annotations

from inver.domain.names import name_key
from inver.domain.shares import Share, is_shared_name
from inver.ports import SharedTable, Store
from inver.services.access import missing
from inver.services.sharing.door import Guest
from inver.services.sharing.tables import Tables


class Contents:
    def __init__(self, store: Store, tables: Tables) -> None:
        self._store = store
        self._tables = tables

    async def shares(self, guest: Guest, after: str, limit: int) -> list[Share]:
        return await self._store.shares_for(guest.recipient.id, after, limit)

    async def share(self, guest: Guest, name: str) -> Share:
        return (await self._tables.share(guest, name))[0]

    async def schemas(self, guest: Guest, share: str, after: str, limit: int) -> tuple[Share, list[str]]:
        found = await self.share(guest, share)
        return found, await self._store.shared_schemas(found.id, after, limit)

    async def tables(
        self, guest: Guest, share: str, schema: str | None, after: tuple[str, str], limit: int
    ) -> tuple[Share, list[SharedTable]]:
        """Tables of a whole schema whose names no recipient could write are left out."""
        granted = await self.share(guest, share)
        if schema is not None:
            known = await self._store.share_items(granted.id)
            if not any(name_key(item.schema_name) == name_key(schema) for item in known):
                raise missing("schema", f"{share}.{schema}")
        found: list[SharedTable] = []
        while len(found) < limit:
            some = await self._store.shared_tables(granted.id, schema, after, limit)
            found += [each for each in some if is_shared_name(each.name)]
            if len(some) < limit:
                break
            after = some[-1].schema_name, some[-1].name
        return granted, found[:limit]
