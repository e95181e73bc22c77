"""Questions about shares and recipients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from inver.domain.names import name_key
from inver.domain.shares import CredentialKind, ItemKind, Recipient, RecipientKind, Share, ShareItem
from inver.domain.tables import Table
from inver.ports import SharedTable, ShareGrant, StoredCredential
from inver.stores.reads import TABLE_COLUMNS, table_of
from inver.stores.sql import Row, Steps, many, one

T = TypeVar("T")
_filters = msgspec.json.Decoder(dict[str, str]).decode
_networks = msgspec.json.Decoder(tuple[str, ...]).decode

_SHARE = "s.id, s.name, s.comment, s.owner, s.created_at, s.created_by"
_ITEM = """i.id, i.share_id, i.kind, i.securable_id, i.schema_name, i.table_name, i.start_version, i.history,
    i.added_at, i.added_by"""
_RECIPIENT = """r.id, r.name, r.kind, r.comment, r.networks, r.owner, r.created_at, r.created_by,
    r.revoked_at"""
_CREDENTIAL = """c.id, c.recipient_id, c.kind, c.hash, c.created_at, c.expires_at, c.revoked_at,
    c.last_used_at, c.token_until"""


class SharingReads(ABC):
    @abstractmethod
    async def read(self, steps: Steps[T]) -> T: ...

    @abstractmethod
    async def write(self, steps: Callable[[], Steps[T]]) -> T: ...

    async def share_by_name(self, name: str) -> Share | None:
        return await self.read(
            one(f"SELECT {_SHARE} FROM shares s WHERE s.name_key = ?1", (name_key(name),), _share)
        )

    async def shares(self, after: str, limit: int) -> list[Share]:
        return await self.read(
            many(
                f"SELECT {_SHARE} FROM shares s WHERE s.name_key > ?1 ORDER BY s.name_key LIMIT ?2",
                (name_key(after), limit),
                _share,
            )
        )

    async def share_items(self, share_id: str) -> list[ShareItem]:
        return await self.read(
            many(
                f"""SELECT {_ITEM} FROM share_items i WHERE i.share_id = ?1
                    ORDER BY i.schema_key, i.table_key""",
                (share_id,),
                _item,
            )
        )

    async def grants_of_share(self, share_id: str) -> list[ShareGrant]:
        return await self.read(
            many(
                f"""SELECT g.filters, g.granted_at, g.granted_by, {_RECIPIENT} FROM share_grants g
                    JOIN recipients r ON r.id = g.recipient_id WHERE g.share_id = ?1 ORDER BY r.name_key""",
                (share_id,),
                _grant,
            )
        )

    async def recipient_by_name(self, name: str) -> Recipient | None:
        return await self.read(
            one(f"SELECT {_RECIPIENT} FROM recipients r WHERE r.name_key = ?1", (name_key(name),), _recipient)
        )

    async def recipient_by_id(self, recipient_id: str) -> Recipient | None:
        return await self.read(
            one(f"SELECT {_RECIPIENT} FROM recipients r WHERE r.id = ?1", (recipient_id,), _recipient)
        )

    async def recipients(self, after: str, limit: int) -> list[Recipient]:
        return await self.read(
            many(
                f"SELECT {_RECIPIENT} FROM recipients r WHERE r.name_key > ?1 ORDER BY r.name_key LIMIT ?2",
                (name_key(after), limit),
                _recipient,
            )
        )

    async def credential(self, credential_id: str) -> StoredCredential | None:
        found = await self.read(_credentials("c.id", credential_id))
        return found[0] if found else None

    async def credentials_of(self, recipient_id: str) -> list[StoredCredential]:
        return await self.read(_credentials("c.recipient_id", recipient_id))

    async def touch_credentials(self, used: Mapping[str, int]) -> None:
        await self.write(lambda: _touch(used))

    async def shares_for(self, recipient_id: str, after: str, limit: int) -> list[Share]:
        return await self.read(
            many(
                f"""SELECT {_SHARE} FROM share_grants g JOIN shares s ON s.id = g.share_id
                    WHERE g.recipient_id = ?1 AND s.name_key > ?2 ORDER BY s.name_key LIMIT ?3""",
                (recipient_id, name_key(after), limit),
                _share,
            )
        )

    async def share_for(self, recipient_id: str, share: str) -> tuple[Share, dict[str, str]] | None:
        return await self.read(_share_for(recipient_id, "s.name_key = ?2", name_key(share)))

    async def share_for_by_id(self, recipient_id: str, share_id: str) -> tuple[Share, dict[str, str]] | None:
        return await self.read(_share_for(recipient_id, "s.id = ?2", share_id))

    async def shared_schemas(self, share_id: str, after: str, limit: int) -> list[str]:
        return await self.read(_schemas(share_id, name_key(after), limit))

    async def shared_tables(
        self, share_id: str, schema: str | None, after: tuple[str, str], limit: int
    ) -> list[SharedTable]:
        place = name_key(after[0]), name_key(after[1])
        return await self.read(_tables(share_id, schema and name_key(schema), place, limit))

    async def shared_table(self, share_id: str, schema: str, name: str) -> SharedTable | None:
        return await self.read(_table(share_id, name_key(schema), name_key(name)))

    async def shares_with(self, table_id: str) -> list[tuple[Share, ShareItem]]:
        return await self.read(_with(table_id))

    async def items_with(self, share_id: str, table_id: str) -> list[str]:
        return await self.read(_items_with(share_id, table_id))


def _share(row: Row) -> Share:
    return Share(id=row[0], name=row[1], comment=row[2], owner=row[3], created_at=row[4], created_by=row[5])


def _item(row: Row) -> ShareItem:
    return ShareItem(
        id=row[0],
        share_id=row[1],
        kind=ItemKind(row[2]),
        securable_id=row[3],
        schema_name=row[4],
        table_name=row[5],
        start_version=row[6],
        history=bool(row[7]),
        added_at=row[8],
        added_by=row[9],
    )


def _recipient(row: Row) -> Recipient:
    return Recipient(
        id=row[0],
        name=row[1],
        kind=RecipientKind(row[2]),
        comment=row[3],
        networks=_networks(row[4]),
        owner=row[5],
        created_at=row[6],
        created_by=row[7],
        revoked_at=row[8],
    )


def _grant(row: Row) -> ShareGrant:
    return ShareGrant(
        recipient=_recipient(tuple(row)[3:]),
        filters=_filters(row[0]),
        granted_at=row[1],
        granted_by=row[2],
    )


def _stored(row: Row) -> StoredCredential:
    return StoredCredential(
        id=row[0],
        kind=CredentialKind(row[2]),
        hash=row[3],
        created_at=row[4],
        expires_at=row[5],
        revoked_at=row[6],
        last_used_at=row[7],
        token_until=row[8],
        recipient=_recipient(tuple(row)[9:]),
    )


def _credentials(where: str, value: str) -> Steps[list[StoredCredential]]:
    return many(
        f"""SELECT {_CREDENTIAL}, {_RECIPIENT} FROM recipient_credentials c
            JOIN recipients r ON r.id = c.recipient_id WHERE {where} = ?1 ORDER BY c.created_at, c.id""",
        (value,),
        _stored,
    )


def _touch(used: Mapping[str, int]) -> Steps[None]:
    for credential_id, at in sorted(used.items()):
        yield "UPDATE recipient_credentials SET last_used_at = ?2 WHERE id = ?1", (credential_id, at)


def _share_for(recipient_id: str, which: str, value: str) -> Steps[tuple[Share, dict[str, str]] | None]:
    rows = yield (
        f"""SELECT {_SHARE}, g.filters FROM share_grants g JOIN shares s ON s.id = g.share_id
            WHERE g.recipient_id = ?1 AND {which}""",
        (recipient_id, value),
    )
    return (_share(rows[0]), _filters(rows[0][6])) if rows else None


def _schemas(share_id: str, after: str, limit: int) -> Steps[list[str]]:
    """Each once; whatever is in it spells it alike."""
    rows = yield (
        """SELECT MIN(i.schema_name) FROM share_items i WHERE i.share_id = ?1 AND i.schema_key > ?2
           GROUP BY i.schema_key ORDER BY i.schema_key LIMIT ?3""",
        (share_id, after, limit),
    )
    return [row[0] for row in rows]


_WIDTH = TABLE_COLUMNS.count(",") + 1
# What was shared by itself takes its name from what a shared schema has under it.
_OWN = f"""SELECT {TABLE_COLUMNS}, i.schema_key, i.schema_name, i.table_name AS shown, i.table_key AS key,
        i.start_version, i.history, i.id AS item_id
    FROM share_items i JOIN tables t ON t.id = i.securable_id
    WHERE i.share_id = ?1 AND i.kind = 'table' AND t.state = 'live'"""
_INSIDE = f"""SELECT {TABLE_COLUMNS}, i.schema_key, i.schema_name, t.name AS shown, t.name_key AS key,
        i.start_version, i.history, i.id AS item_id
    FROM share_items i JOIN tables t ON t.schema_id = i.securable_id
    WHERE i.share_id = ?1 AND i.kind = 'schema' AND t.state = 'live' AND t.kind <> 'VIEW'
    AND NOT EXISTS (SELECT 1 FROM share_items o WHERE o.share_id = i.share_id AND o.kind = 'table'
        AND o.schema_key = i.schema_key AND o.table_key = t.name_key)"""


def _shared(share_id: str, row: Row) -> SharedTable:
    table: Table = table_of(row)
    return SharedTable(
        share_id=share_id,
        item_id=row[_WIDTH + 6],
        table=table,
        schema_name=row[_WIDTH + 1],
        name=row[_WIDTH + 2],
        start_version=row[_WIDTH + 4],
        history=bool(row[_WIDTH + 5]),
    )


def _tables(
    share_id: str, schema_key: str | None, after: tuple[str, str], limit: int
) -> Steps[list[SharedTable]]:
    only = "" if schema_key is None else "AND i.schema_key = ?5"
    rows = yield (
        f"""SELECT * FROM ({_OWN} {only} UNION ALL {_INSIDE} {only}) AS shared
            WHERE schema_key > ?2 OR (schema_key = ?2 AND key > ?3)
            ORDER BY schema_key, key LIMIT ?4""",
        (share_id, *after, limit, *(() if schema_key is None else (schema_key,))),
    )
    return [_shared(share_id, row) for row in rows]


def _table(share_id: str, schema_key: str, key: str) -> Steps[SharedTable | None]:
    rows = yield (
        f"""{_OWN} AND i.schema_key = ?2 AND i.table_key = ?3
            UNION ALL {_INSIDE} AND i.schema_key = ?2 AND t.name_key = ?3""",
        (share_id, schema_key, key),
    )
    return _shared(share_id, rows[0]) if rows else None


def _with(table_id: str) -> Steps[list[tuple[Share, ShareItem]]]:
    rows = yield (
        f"""SELECT {_SHARE}, {_ITEM} FROM share_items i JOIN shares s ON s.id = i.share_id
            JOIN tables t ON t.id = ?1 WHERE (i.kind = 'table' AND i.securable_id = t.id)
            OR (i.kind = 'schema' AND i.securable_id = t.schema_id) ORDER BY s.name_key, i.id""",
        (table_id,),
    )
    width = _SHARE.count(",") + 1
    return [(_share(row[:width]), _item(row[width:])) for row in rows]


def _items_with(share_id: str, table_id: str) -> Steps[list[str]]:
    rows = yield (
        """SELECT i.id FROM share_items i JOIN tables t ON t.id = ?2 AND t.state = 'live'
           WHERE i.share_id = ?1 AND ((i.kind = 'table' AND i.securable_id = t.id)
           OR (i.kind = 'schema' AND i.securable_id = t.schema_id))""",
        (share_id, table_id),
    )
    return [row[0] for row in rows]
