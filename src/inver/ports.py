"""The seams. Services see these protocols; `server/app.py` decides what stands behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Protocol

import msgspec

from inver.domain.events import Event
from inver.domain.idempotency import KeyedRequest, KeyRecord
from inver.domain.ledger import Receipt, Transaction
from inver.domain.locations import Location
from inver.domain.principals import Principal
from inver.domain.securables import Catalog, Schema
from inver.domain.tables import Table, TableDetails


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

    async def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write only if nothing is there; False if something is. Atomic against every other writer."""
        ...

    async def get(self, path: str) -> bytes:
        """The whole object; NotFound if it is not there."""
        ...

    async def get_range(self, path: str, start: int, length: int) -> bytes: ...

    async def head(self, path: str) -> ObjectInfo | None: ...

    def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects whose path lies below `prefix` by whole segments, in path order."""
        ...

    async def delete(self, path: str) -> bool:
        """True if it was there. Deleting what is absent is not an error."""
        ...

    async def signed_url(self, path: str, expires_in_s: int) -> str:
        """A URL that lets its holder GET this one object until it expires."""
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
    expires_at: int | None
    revoked_at: int | None
    principal: Principal
    disabled: bool


class KeyTaken(Exception):
    """Another server recorded this idempotency key first; its record has the answer."""


class Store(Protocol):
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
    async def tables(self, schema_id: str, after: str, limit: int) -> list[Table]: ...
    async def dropped_tables(self, schema_id: str, limit: int) -> list[Table]: ...
    async def details(self, table_id: str) -> TableDetails | None: ...
    async def full_name(self, table_id: str) -> tuple[str, ...] | None: ...
    async def commits(
        self, table_id: str, branch: str, first: int, last: int, limit: int
    ) -> list[Commit]: ...
    async def cursor(self, name: str) -> str | None: ...

    async def events(self, after: int, limit: int) -> list[Event]: ...
    async def transaction_events(self, number: int) -> list[Event]: ...
    async def last_event(self) -> int: ...
    async def wait_for_event(self, after: int, timeout_s: float) -> bool:
        """True as soon as there is an event past `after`."""
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

    async def token(self, token_id: str) -> StoredToken | None: ...
    async def add_token(self, token: StoredToken, label: str, at: int) -> None: ...

    async def remember(self, key: str, value: str) -> str:
        """The value under `key`; `value` itself if there was none. It never changes afterwards."""
        ...

    @property
    def queued(self) -> int:
        """Commits that wait for their decision."""
        ...

    async def close(self) -> None: ...

    async def ping(self) -> None:
        """Raises unless the database answers."""
        ...
