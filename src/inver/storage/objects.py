"""Objects in S3, GCS and Azure, through obstore."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from inver.clock import Clock, SystemClock
from inver.domain.locations import Location
from inver.errors import Broken, Invalid, InverError, NotFound, OutcomeUnknown, Unavailable, Unsupported
from inver.ports import ObjectInfo, SignUrls
from inver.storage.connect import connect
from inver.storage.options import StorageOptions
from inver.storage.paths import check_expiry, check_range, split_path, split_prefix
from inver.storage.signing import encoded, url_signer

if TYPE_CHECKING:
    from obstore import ObjectMeta

T = TypeVar("T")

_RETRIES = 3
_ATTEMPTS = 4
_LIST_CHUNK = 1000


class RemoteStore:
    def __init__(self, root: Location, options: StorageOptions, clock: Clock | None = None) -> None:
        self._root = root
        self._options = options
        self._clock: Clock = clock or SystemClock()
        self._client = connect(root, options, retries=_RETRIES)
        # A conditional write that is silently sent twice takes its own first success for a rival.
        self._creator = connect(root, options, retries=0)

    @property
    def root(self) -> Location:
        return self._root

    async def put(self, path: str, data: bytes) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        split_path(path)
        for attempt in range(_ATTEMPTS):
            await asyncio.sleep(0.1 * attempt)
            try:
                await _answer(path, obstore.put_async(self._client, path, data, use_multipart=False))
                return
            except Unavailable as error:
                # A plain write replaces: only another operation on the key can be in its way (409).
                if not isinstance(error.__cause__, AlreadyExistsError) or attempt == _ATTEMPTS - 1:
                    raise

    async def sync(self, path: str) -> None:
        """What an object store has answered for is durable."""
        if await self.head(path) is None:
            raise NotFound(f"there is no object {path!r}", kind="object")

    async def sync_all(self, paths: Sequence[str]) -> Sequence[str]:
        found = await asyncio.gather(*(self.head(path) for path in paths))
        return [path for path, info in zip(paths, found, strict=True) if info is None]

    async def put_if_absent(
        self, path: str, data: bytes | Sequence[bytes], durable: bool = True, whole: bool = False
    ) -> bool:
        """OutcomeUnknown if a write went unanswered and something is, or may come to be, there."""
        import obstore
        from obstore.exceptions import (
            AlreadyExistsError,
            BaseError,
            PermissionDeniedError,
            UnauthenticatedError,
        )

        split_path(path)
        data = data if isinstance(data, bytes) else b"".join(data)
        unanswered: BaseError | None = None
        for attempt in range(_ATTEMPTS):
            await asyncio.sleep(0.1 * attempt)
            try:
                await obstore.put_async(self._creator, path, data, mode="create", use_multipart=False)
                return True
            except AlreadyExistsError:
                # Stores also say this when two writers only met; then nobody may have won yet.
                if await self.head(path) is None:
                    continue
                if unanswered is None:
                    return False
                break
            except (PermissionDeniedError, UnauthenticatedError) as error:
                raise _unavailable(path, error) from error
            except BaseError as error:
                unanswered = error
        if unanswered is None:
            raise Unavailable(f"writers of {path!r} keep getting into each other's way")
        raise OutcomeUnknown(f"the object store did not say whether {path!r} was written") from unanswered

    def get_at_once(self, path: str) -> bytes | None:
        return None

    def put_at_once(self, path: str, data: bytes) -> bool | None:
        return None

    def link_at_once(self, path: str, other: str, data: bytes) -> bool | None:
        return None

    async def get(self, path: str) -> bytes:
        import obstore

        split_path(path)
        result = await _answer(path, obstore.get_async(self._client, path))
        return bytes(await _answer(path, result.bytes_async()))

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        """The slice `[start : start + length]`, so shorter or empty at the end of the object."""
        import obstore

        split_path(path)
        check_range(start, length)
        try:
            if length:
                found = obstore.get_range_async(self._client, path, start=start, length=length)
                return bytes(await _answer(path, found))
        except Unavailable:
            # A store refuses a range that starts behind the end; only the size tells this from a failure.
            info = await self.head(path)
            if info is None or start < info.size:
                raise
            return b""
        if await self.head(path) is None:
            raise _not_found(path)
        return b""

    async def head(self, path: str) -> ObjectInfo | None:
        import obstore

        split_path(path)
        try:
            return _info(await _answer(path, obstore.head_async(self._client, path)))
        except NotFound:
            return None

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        import obstore
        from obstore.exceptions import BaseError, InvalidPathError

        folder = "/".join(split_prefix(prefix))
        try:
            async for chunk in obstore.list(self._client, folder or None, chunk_size=_LIST_CHUNK):
                for meta in chunk:
                    if _addressable(meta["path"]):
                        yield _info(meta)
        except InvalidPathError as error:
            raise Broken(f"below {self._root} lies an object whose key no path can name") from error
        except BaseError as error:
            raise _unavailable(prefix, error) from error

    async def copy_if_absent(self, pairs: Sequence[tuple[str | bytes, str]]) -> int:
        for done, (source, target) in enumerate(pairs):
            try:
                if not await self._copy(source, target):
                    return done
            except InverError:
                # What was done before it counts; the next call meets it first.
                if not done:
                    raise
                return done
        return len(pairs)

    async def _copy(self, source: str | bytes, target: str) -> bool:
        split_path(target)
        try:
            data = source if isinstance(source, bytes) else await self.get(source)
        except NotFound:
            return False
        return await self.put_if_absent(target, data) or await self.get(target) == data

    async def delete(self, path: str, durable: bool = True) -> bool:
        import obstore

        # S3 does not say whether there was anything to delete.
        if await self.head(path) is None:
            return False
        try:
            await _answer(path, obstore.delete_async(self._client, path))
        except NotFound:
            return False
        return True

    async def discard(self, paths: Sequence[str]) -> None:
        await asyncio.gather(*(self.delete(path) for path in paths))

    async def make_folder(self, path: str) -> None:
        return

    async def remove_folders(self) -> None:
        return

    def url_signer(self, expires_in_s: int) -> SignUrls:
        check_expiry(expires_in_s)
        options = self._options
        ours = url_signer(self._root, options, self._clock.now_ms(), expires_in_s)
        if ours is None and options.azure_sas and self._root.scheme == "abfss":
            raise Unsupported(
                f"objects in {self._root} cannot be shared by URL: a signature cannot sign others",
                fix="set storage.azure_key",
            )
        sign = ours or partial(self._sign, timedelta(seconds=expires_in_s))

        def checked(paths: Sequence[str]) -> Sequence[str]:
            for path in paths:
                split_path(path)
            return sign(paths)

        return checked

    def _sign(self, expires_in: timedelta, paths: Sequence[str]) -> Sequence[str]:
        """With keys that are not configured but found by the provider's own chain, or with RSA."""
        import obstore
        from obstore.exceptions import BaseError

        if self._root.scheme == "gs":
            # For Google it takes paths into the URL as they are, so `?` and `#` would end them.
            paths = [encoded(path) for path in paths]
        try:
            return obstore.sign(self._client, "GET", paths, expires_in)
        except BaseError as error:
            raise _unavailable(str(self._root), error) from error


async def _answer(path: str, request: Awaitable[T]) -> T:
    from obstore.exceptions import BaseError

    try:
        return await request
    except FileNotFoundError:
        raise _not_found(path) from None
    except BaseError as error:
        raise _unavailable(path, error) from error


def _not_found(path: str) -> NotFound:
    return NotFound(f"there is no object {path!r}", kind="object")


def _unavailable(path: str, error: Exception) -> Unavailable:
    # The cause has the details; its text may name hosts and keys that callers should not see.
    return Unavailable(f"the object store failed at {path!r}: {type(error).__name__}")


def _addressable(path: str) -> bool:
    try:
        split_path(path)
    except Invalid:
        return False
    return True


def _info(meta: ObjectMeta) -> ObjectInfo:
    modified_ms = int(meta["last_modified"].timestamp() * 1000)
    return ObjectInfo(meta["path"], meta["size"], modified_ms, meta["e_tag"])
