"""Shares and their recipients, and the operations of the ledger on them.

A share holds tables, or whole schemas with the tables that are in them at the time of asking. A
recipient is somebody of another organisation: it has credentials of its own, and no principal.
"""

from __future__ import annotations

from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TypeAlias

import msgspec

from inver.domain.names import check_name
from inver.errors import Invalid

MAX_LIVE_CREDENTIALS = 8
"""Tokens of a recipient that are good at the same time, access tokens of OAuth left out."""
MAX_NETWORKS = 100


class ItemKind(StrEnum):
    TABLE = "table"
    SCHEMA = "schema"


class RecipientKind(StrEnum):
    """How a recipient proves who it is."""

    TOKEN = "token"
    OAUTH = "oauth"


class CredentialKind(StrEnum):
    TOKEN = "token"
    ACTIVATION = "activation"
    """Good for one exchange against a token."""
    SECRET = "secret"
    """Of an OAuth client; its id is the recipient's."""
    ACCESS = "access"
    """An access token that a secret was exchanged for."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    comment: str | None
    owner: str
    created_at: int
    created_by: str


class ShareItem(msgspec.Struct, frozen=True, kw_only=True):
    """A table under a schema and a name of the share's own, or a schema; then `table_name` is None."""

    id: str
    share_id: str
    kind: ItemKind
    securable_id: str
    schema_name: str
    table_name: str | None
    start_version: int = 0
    history: bool = True
    added_at: int = 0
    added_by: str = ""


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    """`networks` are the only ones it may call from; none means any. A revoked one may do nothing."""

    id: str
    name: str
    kind: RecipientKind
    comment: str | None
    networks: tuple[str, ...]
    owner: str
    created_at: int
    created_by: str
    revoked_at: int | None = None


class CreateShare(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    comment: str | None = None


class DropShare(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class AddToShare(msgspec.Struct, frozen=True, kw_only=True):
    item: ShareItem


class RemoveFromShare(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    share_id: str


class GrantShare(msgspec.Struct, frozen=True, kw_only=True):
    """`filters` say by table which of its partitions the recipient gets; they replace those before."""

    share_id: str
    recipient_id: str
    filters: dict[str, str] = {}


class RevokeShare(msgspec.Struct, frozen=True, kw_only=True):
    share_id: str
    recipient_id: str


class CreateRecipient(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    kind: RecipientKind
    comment: str | None = None
    networks: tuple[str, ...] = ()


class AlterRecipient(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that are UNSET stay as they are."""

    id: str
    comment: str | None | msgspec.UnsetType = msgspec.UNSET
    networks: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class DropRecipient(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class AddCredential(msgspec.Struct, frozen=True, kw_only=True):
    """Only the hash of the secret is ever kept."""

    id: str
    recipient_id: str
    kind: CredentialKind
    hash: str
    expires_at: int
    token_until: int | None = None
    """When the token ends that an activation is exchanged for."""


class RotateRecipient(msgspec.Struct, frozen=True, kw_only=True):
    """What the recipient has ends at `until` at the latest; one that was revoked is let in again."""

    recipient_id: str
    until: int


class RevokeRecipient(msgspec.Struct, frozen=True, kw_only=True):
    """Every credential ends at once, and so do the URLs of files that were handed out."""

    recipient_id: str


class UseActivation(msgspec.Struct, frozen=True, kw_only=True):
    """It is good once; the second who comes is refused."""

    id: str
    recipient_id: str


class RecordAccess(msgspec.Struct, frozen=True, kw_only=True):
    """A recipient was given something of a share: what, of which table, how often."""

    recipient_id: str
    share_id: str | None
    subject: str
    action: str
    version: int | None = None
    times: int = 1


Sharing: TypeAlias = (
    CreateShare
    | DropShare
    | AddToShare
    | RemoveFromShare
    | GrantShare
    | RevokeShare
    | CreateRecipient
    | AlterRecipient
    | DropRecipient
    | AddCredential
    | RotateRecipient
    | RevokeRecipient
    | UseActivation
    | RecordAccess
)


def check_shared_name(value: str, field: str, *, dots: bool = False) -> str:
    """A name as recipients' clients can write it: they join share, schema and table by dots."""
    check_name(value, field)
    if not is_shared_name(value, dots=dots):
        raise Invalid(
            f"{field} {value!r} contains a space, a slash" + (" or '#'" if dots else ", '#' or a dot"),
            field=field,
            fix="share it under another name",
        )
    return value


def is_shared_name(value: str, *, dots: bool = False) -> bool:
    return not any(character.isspace() or character in "/#" for character in value) and (
        dots or "." not in value
    )


def parse_networks(texts: list[str] | tuple[str, ...], field: str) -> tuple[str, ...]:
    if len(texts) > MAX_NETWORKS:
        raise Invalid(f"at most {MAX_NETWORKS} networks are allowed", field=field)
    return tuple(str(_network(text, field)) for text in texts)


def _network(text: str, field: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError:
        raise Invalid(
            f"{text!r} is not a network", field=field, fix="such as 192.0.2.0/24, 2001:db8::/32 or 192.0.2.7"
        ) from None


def may_call_from(networks: tuple[str, ...], client: str) -> bool:
    if not networks:
        return True
    try:
        address = ip_address(client)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in ip_network(network) for network in networks)
