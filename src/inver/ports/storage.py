"""Storage: bytes under a root, and keys to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from inver.domain.locations import Location
from inver.secrets import Secret

SignUrls: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
"""From paths of objects to URLs, each of which lets its holder GET one object. For a thread of its own:
it may have to ask the cloud for keys."""


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

    def link_at_once(self, path: str, other: str, data: bytes) -> bool | None:
        """Give an object a second name in its folder, under which there are these bytes then.

        False if something has the name, or if other bytes were found there; None says nothing.
        """
        ...

    async def sync(self, path: str) -> None:
        """Make an object durable; NotFound if it is not there."""
        ...

    async def sync_all(self, paths: Sequence[str]) -> Sequence[str]:
        """Make objects durable together; returns those that are not there."""
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
        pairs, from the first on, the target has the bytes of the source. It stops at the first of
        which that cannot be said, and fails only if that is the very first.
        """
        ...

    async def delete(self, path: str, durable: bool = True) -> bool:
        """True if it was there. Deleting what is absent is not an error.

        What is not durably deleted may be there again after the machine was lost.
        """
        ...

    async def discard(self, paths: Sequence[str]) -> None:
        """Delete what is there of it. It may be there again after a power cut."""
        ...

    async def make_folder(self, path: str) -> None:
        """For writers that expect a folder where they write; storage that has none needs none."""
        ...

    async def remove_folders(self) -> None:
        """Those below the root that contain nothing."""
        ...

    def url_signer(self, expires_in_s: int) -> SignUrls | None:
        """What makes URLs that expire so long from now; None where the storage has none of its own."""
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
