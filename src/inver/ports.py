"""The seams. Services see these protocols; `server/app.py` decides what stands behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from inver.domain.events import Event
from inver.domain.grants import Node, Privilege, Standing
from inver.domain.idempotency import KeyedRequest, KeyRecord
from inver.domain.ledger import Part, Receipt, Record, Transaction
from inver.domain.locations import Location
from inver.domain.principals import Principal, PrincipalInfo, PrincipalKind, Scope
from inver.domain.securables import Catalog, Schema, SecurableKind
from inver.domain.shares import CredentialKind, Recipient, Share, ShareItem
from inver.domain.tables import Format, Table, TableDetails
from inver.secrets import Secret


class ObjectInfo(msgspec.Struct, frozen=True):
    """One stored object, as a listing shows it. `path` is relative to the store's root."""

    path: str
    size: int
    modified_ms: int
    etag: str | None = None


class ObjectStore(Protocol):
    """Bytes under one root location. Paths are relative, `/`-separated, and never leave the root."""

    @property
    def root(self) -> Location: ...

    async def put(self, path: str, data: bytes) -> None:
        """Write or replace; durable when it returns."""
        ...

    async def put_if_absent(
        self, path: str, data: bytes | Sequence[bytes], durable: bool = True, whole: bool = False
    ) -> bool:
        """Write only if nothing is there; False if something is. Atomic against every other writer.

        Data in pieces is not joined where the storage takes one after the other.
        What is not durable may be lost with the machine until `sync`, and unless it must be `whole`, be
        seen half-written by who knows its name before this returns.
        """
        ...

    def put_at_once(self, path: str, data: bytes) -> bool | None:
        """The same, whole and not durable, where no disk and no network is waited for; None says nothing."""
        ...

    def link_at_once(self, path: str, other: str) -> bool | None:
        """Give an object a second name in its folder; False if something has it, None says nothing."""
        ...

    async def sync(self, path: str) -> None:
        """Make an object durable; NotFound if it is not there."""
        ...

    async def get(self, path: str) -> bytes:
        """The whole object; NotFound if it is not there."""
        ...

    def get_at_once(self, path: str) -> bytes | None:
        """The whole object if it can be had without waiting; None says nothing."""
        ...

    async def get_range(self, path: str, start: int, length: int) -> bytes: ...

    async def head(self, path: str) -> ObjectInfo | None: ...

    def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects whose path lies below `prefix` by whole segments, in path order."""
        ...

    async def copy_if_absent(self, pairs: Sequence[tuple[str | bytes, str]]) -> int:
        """Copy each source to its target, in order, where nothing is; what was copied is durable.

        A source is the path of an object, or its bytes where they are known. Returns for how many
        pairs, from the first on, the target has the bytes of the source, or is there while its
        source is gone. It stops at the first of which that cannot be said.
        """
        ...

    async def delete(self, path: str, durable: bool = True) -> bool:
        """True if it was there. Deleting what is absent is not an error.

        What is not durably deleted may be there again after the machine was lost.
        """
        ...

    async def signed_url(self, path: str, expires_in_s: int) -> str:
        """A URL that lets its holder GET this one object until it expires."""
        ...

    def signed_urls(self, paths: Sequence[str], expires_in_s: int) -> Sequence[str]:
        """The same for many objects, without waiting for anybody; for a thread of its own."""
        ...


class StorageAccess(StrEnum):
    READ = "READ"
    READ_WRITE = "READ_WRITE"


class StorageCredential(msgspec.Struct, frozen=True, kw_only=True):
    """Keys to everything below one location, of one cloud; the others are None."""

    expires_at: int
    access_key_id: str | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    sas_token: Secret | None = None
    oauth_token: Secret | None = None


class CredentialVendor(Protocol):
    """Makes short-lived keys to storage. Whoever calls it has been allowed what is asked for."""

    async def vend(self, location: Location, access: StorageAccess) -> StorageCredential | None:
        """None where clients reach the storage by means of their own."""
        ...


class S3Target(msgspec.Struct, frozen=True):
    """What a request to S3 is about; the key is empty for one about the bucket."""

    bucket: str
    key: str
    query: dict[str, str]


class RequestSigner(Protocol):
    """Signs requests to an object store in the server's name. Whoever calls it has allowed the request."""

    def target(self, uri: str) -> S3Target: ...

    def sign(self, method: str, uri: str, region: str, headers: Mapping[str, str]) -> dict[str, str]:
        """Every header that must be sent."""
        ...


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The permanent row of one version."""

    version: int
    at: int
    by: str
    operation: str
    token: str
    transaction: int
    payload: bytes
    counts: bytes | None


class WorkItem(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    kind: str
    subject: str
    payload: bytes
    state: str
    not_before: int
    lease_until: int
    leased_by: str | None
    attempts: int
    last_error: str | None
    created_at: int


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token as the database knows it: by its hash, never by its secret."""

    id: str
    hash: str
    label: str
    scope: Scope
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None
    principal: Principal
    disabled: bool


class StoredSecret(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    hash: str
    label: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None


class GrantRow(msgspec.Struct, frozen=True, kw_only=True):
    securable_id: str
    kind: SecurableKind
    principal_id: str
    privilege: Privilege
    granted_at: int
    granted_by: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A search hit; `column` is set when a column's name matched and the table's did not."""

    kind: SecurableKind
    id: str
    name: str
    key: str
    owner: str
    parent_id: str
    column: str | None


class Finding(msgspec.Struct, frozen=True):
    """What offends an invariant: how many, and some of them by name. None is what is wanted."""

    name: str
    count: int
    samples: tuple[str, ...] = ()


class FullTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table with its definition and the names that its ids have now."""

    table: Table
    details: TableDetails
    full_name: tuple[str, ...]
    owner: str
    created_by: str
    updated_by: str


class LogTail(msgspec.Struct, frozen=True):
    """A table, its commits that may not be published, and the epoch of this look.

    `commits` is a JSON array of their payloads, newest first: most who ask hand it on as it is.
    """

    table: Table
    commits: bytes
    epoch: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a client measured of one version."""

    version: int
    at: int
    by: str
    body: bytes


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """A format's whole state at one version, its parts ordered by kind and position."""

    version: int
    head: bytes | None
    parts: tuple[Part, ...]


class NamedTable(msgspec.Struct, frozen=True):
    """As much of a table as a long listing needs. The head is left out where nobody asks for it."""

    name: str
    format: Format
    head: bytes | None = None


class KeyTaken(Exception):
    """Another server recorded this idempotency key first; its record has the answer."""


class Directory(Protocol):
    """Who there is, what they hold, and what was granted to them."""

    @property
    def known_epoch(self) -> int:
        """The newest state of grants and credentials that this process has heard of."""
        ...

    def epoch(self) -> Awaitable[int]:
        """The state of grants and credentials now, as the database has it."""
        ...

    async def principal_by_name(self, name: str) -> PrincipalInfo | None: ...
    async def principal_by_id(self, principal_id: str) -> PrincipalInfo | None: ...
    async def principals(self, kind: PrincipalKind | None, after: str, limit: int) -> list[PrincipalInfo]: ...
    async def names_of(self, ids: Sequence[str]) -> dict[str, str]: ...
    async def groups_of(self, principal_id: str) -> list[PrincipalInfo]: ...
    async def members_of(self, group_id: str) -> list[PrincipalInfo]: ...
    async def token(self, token_id: str) -> StoredToken | None: ...
    async def tokens(self, principal_id: str) -> list[StoredToken]: ...
    async def secrets(self, principal_id: str) -> list[StoredSecret]: ...
    async def touch_tokens(self, used: Mapping[str, int]) -> None: ...
    async def standing(self, principal: Principal) -> Standing: ...
    async def chain(self, schema_id: str) -> tuple[Node, ...]:
        """A schema and everything above it; empty when there is no such schema."""
        ...

    async def catalog_node(self, catalog_id: str) -> Node | None: ...
    async def grants_on(self, securable_id: str) -> list[GrantRow]: ...
    async def grants_of(self, principal_id: str) -> list[GrantRow]: ...
    async def tables_for(
        self, subjects: Sequence[str], schema_id: str, after: str, limit: int, views: bool = False
    ) -> list[Table]:
        """Tables that somebody sees by grants on them or by owning them."""
        ...

    async def find(self, text: str, after: tuple[str, str], limit: int) -> list[Found]: ...


class DeltaLog(Protocol):
    """What is kept of Delta tables besides their commits."""

    async def full_table_by_name(self, catalog: str, path: Sequence[str], name: str) -> FullTable | None: ...
    async def full_table(self, table_id: str) -> FullTable | None: ...
    async def full_tables(self, ids: Sequence[str]) -> list[FullTable]: ...
    async def table_at(self, location_key: str) -> Table | None:
        """Whatever claims exactly this location, staged and dropped tables included."""
        ...

    async def tables_below(self, lower: str, upper: str, limit: int) -> list[Table]: ...
    def tail(self, table_id: str, first: int, last: int) -> Awaitable[LogTail | None]:
        """With the commits from `first` to `last`."""
        ...

    def tail_by_name(self, catalog: str, path: Sequence[str], name: str) -> Awaitable[LogTail | None]: ...
    async def unpublished(self, limit: int, format: Format = Format.DELTA) -> list[str]: ...
    async def mark_published(self, versions: Mapping[str, int]) -> None:
        """By table, the version up to which its commits are known to be in its log."""
        ...

    async def add_report(
        self, table_id: str, version: int, at: int, by: str, body: bytes, kind: str = "commit"
    ) -> None:
        """The newest report of each kind is kept for a version."""
        ...

    async def reports(self, table_id: str, limit: int) -> list[Report]: ...


class BranchState(msgspec.Struct, frozen=True):
    name: str
    version: int


class LanceRecords(Protocol):
    """What is kept of Lance tables besides their commits."""

    async def records(
        self, table_id: str, branch: str, first: int, last: int, limit: int, newest_first: bool = True
    ) -> list[Record]:
        """Versions as clients list them, `first` and `last` included."""
        ...

    async def record_by_key(self, table_id: str, branch: str, key: str) -> Record | None: ...
    async def branches(self, table_id: str) -> list[BranchState]: ...
    async def branch(self, table_id: str, name: str) -> BranchState | None: ...
    async def waiting_records(self, limit: int) -> list[tuple[str, str, int]]:
        """Table, branch and version of what is not where readers look for it, oldest versions first."""
        ...

    async def record_data(self, table_id: str, branch: str, version: int) -> bytes | None: ...
    async def let_go(self, versions: Sequence[tuple[str, str, int]]) -> None:
        """The data of these versions is where readers look for it, so that it need not wait any longer."""
        ...

    async def lance_tables(self, after: Sequence[str], limit: int) -> list[tuple[str, tuple[str, ...], bool]]:
        """Id, full name and whether there is a version, of all Lance tables in the order of their names."""
        ...

    async def transaction_properties(self, number: int) -> dict[str, str]: ...
    async def set_transaction_properties(self, number: int, changes: Mapping[str, str | None]) -> None: ...


class LedgeredVersion(msgspec.Struct, frozen=True):
    """A version of a table whose versions the ledger decides; `path` is from the root of its store."""

    version: int
    path: str
    size: int
    at: int


class LedgeredTable(Protocol):
    """One table towards a library that commits to it, on behalf of one caller."""

    async def newest(self, branch: str) -> LedgeredVersion | None: ...
    async def version(self, branch: str, version: int) -> LedgeredVersion: ...
    async def create(
        self, branch: str, version: int, path: str, size: int | None, v2: bool | None
    ) -> LedgeredVersion: ...


class LancePlace(msgspec.Struct, frozen=True):
    """What to work on: a version to read, or with `table` the newest one to change."""

    location: str
    branch: str
    version: int | None = None
    table: LedgeredTable | None = None


class LanceEngine(Protocol):
    async def run(self, operation: str, place: LancePlace, arguments: Mapping[str, Any]) -> Any:
        """Work on the data itself, beside the event loop."""
        ...


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
    async def shares_table(self, share_id: str, table_id: str) -> bool:
        """Whether the share has this table now, under whatever name."""
        ...


class Store(Directory, DeltaLog, LanceRecords, Shares, Protocol):
    """The catalog's memory. Reads see only what is durable."""

    def decide(self, transaction: Transaction) -> Awaitable[Receipt]:
        """Apply all operations or none; the answer comes after the database has synced."""
        ...

    async def catalog_by_name(self, name: str) -> Catalog | None: ...
    async def catalogs(self, after: str, limit: int) -> list[Catalog]: ...
    async def schema_by_path(self, catalog: str, path: Sequence[str]) -> Schema | None: ...
    async def schemas(self, parent_id: str, after: str, limit: int) -> list[Schema]: ...
    async def table_by_id(self, table_id: str) -> Table | None: ...
    async def table_by_name(self, catalog: str, path: Sequence[str], name: str) -> Table | None: ...
    async def tables(self, schema_id: str, after: str, limit: int, views: bool = False) -> list[Table]: ...
    async def table_names(
        self, schema_id: str, after: str, limit: int, format: Format, views: bool = False
    ) -> list[NamedTable]:
        """Tables or views whose state the catalog has: in this format, and in others with their heads."""
        ...

    async def dropped_tables(self, schema_id: str, limit: int) -> list[Table]: ...
    async def details(self, table_id: str) -> TableDetails | None: ...
    async def full_name(self, table_id: str) -> tuple[str, ...] | None: ...
    async def commits(
        self, table_id: str, branch: str, first: int, last: int, limit: int
    ) -> list[Commit]: ...
    async def pieces(self, table_id: str) -> Pieces | None: ...
    async def cursor(self, name: str) -> str | None: ...

    async def events(self, after: int, limit: int) -> list[Event]: ...
    async def transaction_events(self, number: int) -> list[Event]: ...
    async def last_event(self) -> int: ...
    async def wait_for_event(self, after: int, timeout_s: float) -> bool:
        """True as soon as there is an event past `after`."""
        ...

    def end_waits(self) -> None:
        """Whoever waits for an event stops waiting: the server is about to stop."""
        ...

    async def key_record(self, scope: str, key: str) -> KeyRecord | None: ...
    async def record_refusal(self, request: KeyedRequest, at: int, outcome: bytes) -> None: ...
    async def forget_keys(self, before: int) -> int: ...

    async def claim_work(
        self, kinds: Sequence[str], worker: str, now: int, lease_ms: int, limit: int
    ) -> list[WorkItem]: ...
    async def finish_work(self, item_id: str, worker: str) -> bool: ...
    async def extend_work(self, item_id: str, worker: str, until: int) -> bool: ...
    async def fail_work(self, item_id: str, worker: str, error: str, now: int) -> bool: ...
    async def retry_work(self, item_id: str, now: int) -> bool: ...
    async def work(self, limit: int) -> list[WorkItem]: ...

    async def remember(self, key: str, value: str) -> str:
        """The value under `key`; `value` itself if there was none. It never changes afterwards."""
        ...

    @property
    def queued(self) -> int:
        """Commits that wait for their decision."""
        ...

    async def close(self) -> None: ...

    async def invariants(self, now: int) -> list[Finding]:
        """What must hold between rows, examined; one finding each, also when nothing offends."""
        ...

    async def database_time(self) -> int:
        """The database's own clock."""
        ...

    async def ping(self) -> None:
        """Raises unless the database answers."""
        ...
