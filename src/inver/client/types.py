"""What the management API answers. Times are milliseconds since the epoch.

`etag` comes from the header: give it as `if_match` to change only what was seen.
Fields that this version does not know are ignored, so that a client works with a newer server.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Answer(msgspec.Struct, kw_only=True):
    pass


class Catalog(Answer, kw_only=True):
    id: str
    name: str
    comment: str | None = None
    properties: dict[str, str] = {}
    storage_root: str | None = None
    owner: str
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str
    etag: str | None = None


class Schema(Answer, kw_only=True):
    id: str
    catalog_id: str
    name: str
    path: list[str]
    comment: str | None = None
    properties: dict[str, str] = {}
    storage_root: str | None = None
    owner: str
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str
    etag: str | None = None


class Table(Answer, kw_only=True):
    """Listings leave out what takes a second look: `full_name`, `comment`, `properties`, `columns`."""

    id: str
    name: str
    catalog_id: str
    schema_id: str
    format: str
    kind: str
    state: str
    location: str
    version: int
    owner: str
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str
    dropped_at: int | None = None
    full_name: list[str] = []
    comment: str | None = None
    properties: dict[str, str] = {}
    columns: list[dict[str, Any]] = []
    etag: str | None = None


class Commit(Answer, kw_only=True):
    version: int
    at: int
    by: str
    operation: str
    token: str
    transaction: str
    payload: Any = None
    counts: dict[str, Any] | None = None


class Report(Answer, kw_only=True):
    """What a client measured of one of its commits."""

    version: int
    at: int
    by: str
    report: dict[str, Any]


class OperationResult(Answer, kw_only=True):
    id: str
    version: int | None = None


class Receipt(Answer, kw_only=True):
    """`replayed` says that the transaction had happened before."""

    transaction: str
    at: int
    replayed: bool
    results: list[OperationResult]


class Event(Answer, kw_only=True, rename={"transaction": "invertransaction"}):
    """CloudEvents 1.0; `id` is the sequence number."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str = "application/json"
    transaction: str
    data: dict[str, Any] = {}


class TransactionInfo(Answer, kw_only=True):
    transaction: str
    at: int
    by: str
    events: list[Event]


class Cursor(Answer, kw_only=True):
    cursor: str
    value: str


class ServerInfo(Answer, kw_only=True):
    name: str
    version: str
    database: str
    last_event: str


class Who(Answer, kw_only=True):
    """The caller, as the server knows it."""

    id: str
    name: str
    kind: str
    groups: list[str] = []


class Principal(Answer, kw_only=True):
    """`groups` and `members` are known of one principal, not in listings."""

    id: str
    name: str
    kind: str
    disabled: bool = False
    comment: str | None = None
    created_at: int
    created_by: str
    groups: list[str] = []
    members: list[str] = []


class Token(Answer, kw_only=True):
    id: str
    principal: str
    label: str | None = None
    scope: str = "all"
    created_at: int
    expires_at: int | None = None
    last_used_at: int | None = None
    revoked_at: int | None = None


class NewToken(Answer, kw_only=True):
    """`token` is shown this once."""

    token: str
    id: str
    principal: str
    label: str | None = None
    scope: str = "all"
    expires_at: int | None = None


class ClientSecret(Answer, kw_only=True):
    id: str
    label: str | None = None
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None


class NewClientSecret(Answer, kw_only=True):
    """`client_secret` is shown this once."""

    id: str
    client_id: str
    client_secret: str
    expires_at: int | None = None


class AccessToken(Answer, kw_only=True):
    access_token: str
    token_type: str
    expires_in: int | None = None


class Securable(Answer, kw_only=True):
    """`name` is empty for the metastore."""

    kind: str
    name: list[str] = []
    id: str | None = None


class Grant(Answer, kw_only=True):
    principal: str
    privilege: str
    securable: Securable
    granted_at: int | None = None
    granted_by: str | None = None


class Explanation(Answer, kw_only=True):
    allowed: bool
    action: str
    principal: str
    securable: Securable
    because: list[str] = []
    missing: list[str] = []


class SearchResult(Answer, kw_only=True):
    kind: str
    id: str
    name: list[str]
    matched: str
    column: str | None = None


class Check(Answer, kw_only=True):
    """`status` is ok, warning or failed."""

    name: str
    status: str
    detail: str
    fix: str | None = None


class Diagnosis(Answer, kw_only=True):
    healthy: bool
    checks: list[Check]


class SharedItem(Answer, kw_only=True):
    """`schema` and `table` are its names in the share, `source` is where it stands; None if it is gone."""

    kind: str
    schema: str
    table: str | None = None
    source: list[str] | None = None
    start_version: int = 0
    history: bool = True
    added_at: int | None = None
    added_by: str | None = None


class ShareGrant(Answer, kw_only=True):
    recipient: str
    filters: list[dict[str, str]] = []
    granted_at: int | None = None
    granted_by: str | None = None


class Share(Answer, kw_only=True):
    """`items` and `recipients` are known of one share, not in listings."""

    id: str
    name: str
    comment: str | None = None
    owner: str
    created_at: int
    created_by: str
    items: list[SharedItem] = []
    recipients: list[ShareGrant] = []


class RecipientCredential(Answer, kw_only=True):
    id: str
    kind: str
    created_at: int
    expires_at: int
    revoked_at: int | None = None
    last_used_at: int | None = None


class Recipient(Answer, kw_only=True):
    """`credentials` are known of one recipient, not in listings."""

    id: str
    name: str
    kind: str
    comment: str | None = None
    networks: list[str] = []
    owner: str
    created_at: int
    created_by: str
    revoked_at: int | None = None
    credentials: list[RecipientCredential] = []


class NewRecipient(Answer, kw_only=True):
    """`activation_url` or `profile` is shown this once."""

    recipient: Recipient
    expires_at: int
    activation_url: str | None = None
    profile: dict[str, Any] | None = None
