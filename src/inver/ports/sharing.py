"""What is kept of shares and recipients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from inver.domain.shares import CredentialKind, Recipient, Share, ShareItem
from inver.domain.tables import Table


class StoredCredential(msgspec.Struct, frozen=True, kw_only=True):
    """What a recipient proves itself with, known by its hash."""

    id: str
    kind: CredentialKind
    hash: str
    created_at: int
    expires_at: int
    revoked_at: int | None
    last_used_at: int | None
    token_until: int | None
    recipient: Recipient


class ShareGrant(msgspec.Struct, frozen=True, kw_only=True):
    """`filters` are partition filters by table id."""

    recipient: Recipient
    filters: dict[str, str]
    granted_at: int
    granted_by: str


class SharedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table under the names that it has in a share."""

    share_id: str
    item_id: str
    table: Table
    schema_name: str
    name: str
    start_version: int
    history: bool


class Shares(Protocol):
    """What is shared, and with whom."""

    async def share_by_name(self, name: str) -> Share | None: ...
    async def shares(self, after: str, limit: int) -> list[Share]: ...
    async def share_items(self, share_id: str) -> list[ShareItem]: ...
    async def grants_of_share(self, share_id: str) -> list[ShareGrant]: ...
    async def recipient_by_name(self, name: str) -> Recipient | None: ...
    async def recipient_by_id(self, recipient_id: str) -> Recipient | None: ...
    async def recipients(self, after: str, limit: int) -> list[Recipient]: ...
    async def credential(self, credential_id: str) -> StoredCredential | None: ...
    async def credentials_of(self, recipient_id: str) -> list[StoredCredential]: ...
    async def touch_credentials(self, used: Mapping[str, int]) -> None: ...
    async def shares_for(self, recipient_id: str, after: str, limit: int) -> list[Share]: ...
    async def share_for(self, recipient_id: str, share: str) -> tuple[Share, dict[str, str]] | None:
        """The share and the partition filters by table id, if it was granted to the recipient."""
        ...

    async def share_for_by_id(
        self, recipient_id: str, share_id: str
    ) -> tuple[Share, dict[str, str]] | None: ...
    async def shared_schemas(self, share_id: str, after: str, limit: int) -> list[str]: ...
    async def shared_tables(
        self, share_id: str, schema: str | None, after: tuple[str, str], limit: int
    ) -> list[SharedTable]:
        """In the order of schema and name, past `after`."""
        ...

    async def shared_table(self, share_id: str, schema: str, name: str) -> SharedTable | None: ...
    async def shares_with(self, table_id: str) -> list[tuple[Share, ShareItem]]:
        """The shares that have this table, by itself or in a schema."""
        ...

    async def items_with(self, share_id: str, table_id: str) -> list[str]:
        """The items by which the share has this table now, under whatever name."""
        ...
