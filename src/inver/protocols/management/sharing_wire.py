"""Types of the management API for shares and recipients."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from inver.domain.shares import CredentialKind, ItemKind, Recipient, RecipientKind, Share, ShareItem
from inver.ports import ShareGrant, StoredCredential
from inver.protocols.management.wire import Long, Name, Path, Strict, Text
from inver.services.sharing.shares import NamedItem

Lifetime = Annotated[int, Meta(ge=1, le=366 * 24 * 3600)]
Grace = Annotated[int, Meta(ge=0, le=30 * 24 * 3600)]
Networks = Annotated[list[Name], Meta(max_length=100)]
Alias = Annotated[tuple[Name, ...], Meta(max_length=2)]


class CreateShare(Strict):
    name: Name
    comment: Text | None = None


class AddToShare(Strict, rename={"alias": "as"}):
    """A table, or a whole schema with the tables that are in it at any time."""

    name: Path
    kind: ItemKind = ItemKind.TABLE
    alias: Alias = ()
    start_version: Long = 0
    history: bool = True


class ItemShown(msgspec.Struct, kw_only=True, rename={"schema_name": "schema", "table_name": "table"}):
    kind: ItemKind
    schema_name: str
    table_name: str | None
    source: list[str] | None
    start_version: int
    history: bool
    added_at: int
    added_by: str

    @classmethod
    def of(cls, item: ShareItem, source: tuple[str, ...] | None) -> ItemShown:
        return cls(
            kind=item.kind,
            schema_name=item.schema_name,
            table_name=item.table_name,
            source=None if source is None else list(source),
            start_version=item.start_version,
            history=item.history,
            added_at=item.added_at,
            added_by=item.added_by,
        )


class PartitionFilter(Strict, rename={"schema_name": "schema"}):
    """Of a table that the share has by itself, under the names that it has there."""

    schema_name: Name
    table: Name
    where: Text


class GrantShare(Strict):
    filters: Annotated[list[PartitionFilter], Meta(max_length=1_000)] = msgspec.field(default_factory=list)


class ShareGrantShown(msgspec.Struct, kw_only=True):
    recipient: str
    filters: list[PartitionFilter]
    granted_at: int
    granted_by: str

    @classmethod
    def of(cls, grant: ShareGrant, items: list[NamedItem]) -> ShareGrantShown:
        shown = [
            PartitionFilter(
                schema_name=each.item.schema_name,
                table=each.item.table_name,
                where=grant.filters[each.item.securable_id],
            )
            for each in items
            if each.item.table_name is not None and each.item.securable_id in grant.filters
        ]
        return cls(
            recipient=grant.recipient.name,
            filters=shown,
            granted_at=grant.granted_at,
            granted_by=grant.granted_by,
        )


class ShareShown(msgspec.Struct, kw_only=True):
    id: str
    name: str
    comment: str | None
    owner: str
    created_at: int
    created_by: str
    items: list[ItemShown] | UnsetType = UNSET
    recipients: list[ShareGrantShown] | UnsetType = UNSET

    @classmethod
    def of(cls, share: Share) -> ShareShown:
        return msgspec.convert(share, cls, from_attributes=True)


class ShareList(msgspec.Struct):
    shares: list[ShareShown]
    next_page_token: str | None


class CreateRecipient(Strict):
    """With `activate` the answer has a link by which the recipient fetches its profile file, once."""

    name: Name
    kind: RecipientKind = RecipientKind.TOKEN
    comment: Text | None = None
    networks: Networks = msgspec.field(default_factory=list)
    expires_in_s: Lifetime | None = None
    activate: bool = True


class AlterRecipient(Strict):
    comment: Text | None | UnsetType = UNSET
    networks: Networks | UnsetType = UNSET


class RotateRecipient(Strict):
    """What the recipient has had goes on for the time of grace."""

    grace_s: Grace = 0
    expires_in_s: Lifetime | None = None
    activate: bool = True


class CredentialShown(msgspec.Struct, kw_only=True):
    id: str
    kind: CredentialKind
    created_at: int
    expires_at: int
    revoked_at: int | None
    last_used_at: int | None

    @classmethod
    def of(cls, stored: StoredCredential) -> CredentialShown:
        return msgspec.convert(stored, cls, from_attributes=True)


class RecipientShown(msgspec.Struct, kw_only=True):
    id: str
    name: str
    kind: RecipientKind
    comment: str | None
    networks: list[str]
    owner: str
    created_at: int
    created_by: str
    revoked_at: int | None
    credentials: list[CredentialShown] | UnsetType = UNSET

    @classmethod
    def of(cls, recipient: Recipient) -> RecipientShown:
        return msgspec.convert(recipient, cls, from_attributes=True)


class RecipientList(msgspec.Struct):
    recipients: list[RecipientShown]
    next_page_token: str | None


class NewRecipient(msgspec.Struct, kw_only=True):
    """The link, or the profile file with the secret in it, is shown here and never again."""

    recipient: RecipientShown
    expires_at: int
    activation_url: str | None
    profile: dict[str, Any] | None
