"""URLs of shared files: presigned where the object store can, else served by this server.

A URL of ours names the recipient, the share, the table and the file, and ends. What it names is looked up
again when it is used, so that it ends at once when the share or the recipient does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import uuid
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from inver.clock import Clock
from inver.domain.locations import Location
from inver.domain.tables import Table
from inver.errors import Forbidden, Invalid, NotFound, Unsupported
from inver.ports import ObjectInfo, ObjectStore, Store
from inver.services.sharing.door import Door
from inver.services.sharing.logs import Sign
from inver.services.sharing.sealed import Seal
from inver.services.sharing.tables import Looked, terms

LIFETIME_S = 3600
_NAME = re.compile(r"[^A-Za-z0-9._-]")
_QUERY = re.compile(r"X-Inver-Expires=([0-9]{1,11})&X-Amz-Signature=([0-9a-f]{64})", re.ASCII)
"""Delta's readers take a URL for presigned by the name of such a parameter."""
_REFUSED = "the URL is not valid, or not valid any more"


class Opened(msgspec.Struct, frozen=True):
    """A file that may be read."""

    store: ObjectStore
    info: ObjectInfo
    recipient_id: str
    share_id: str
    table_id: str


class Files:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        seal: Seal,
        door: Door,
        open_table: Callable[[Table], Awaitable[ObjectStore]],
        lifetime_s: int = LIFETIME_S,
    ) -> None:
        self._store = store
        self._clock = clock
        self._seal = seal
        self._door = door
        self._open = open_table
        self.lifetime_s = lifetime_s

    async def signer(self, looked: Looked, base_url: str) -> tuple[Sign, int]:
        """What makes URLs, and when they end, in milliseconds since 1970."""
        table, objects = looked.shared.table, looked.objects
        expires_s = self._clock.now_ms() // 1000 + self.lifetime_s
        location = Location.parse(table.location)

        def relative(path: str) -> str:
            if "://" not in path and not path.startswith(("/", "file:")):
                return path
            try:
                return location.relative(Location.parse(path))
            except Invalid:
                raise Unsupported(
                    "a file of the table lies outside its folder, and cannot be shared"
                ) from None

        presign = objects.url_signer(self.lifetime_s)
        if presign is not None:
            return lambda paths: presign([relative(path) for path in paths]), expires_s * 1000
        key = await self._seal.key()
        ids = (looked.guest.recipient.id, looked.share.id, table.id)
        who = _packed(ids, looked.terms)

        def sign(paths: Sequence[str]) -> Sequence[str]:
            return [_url(base_url, key, who, relative(path), expires_s) for path in paths]

        return sign, expires_s * 1000

    async def opened(self, who: str, path: str, name: str, query: str, client: str) -> Opened:
        """The file that a URL of ours names, if it still may be read."""
        found = _QUERY.fullmatch(query)
        file = _decoded(path)
        genuine = found is not None and hmac.compare_digest(
            _signature(await self._seal.key(), who, path, int(found[1])), found[2]
        )
        if found is None or not genuine or file is None or name != _name(file):
            raise Forbidden(_REFUSED)
        if self._clock.now_ms() // 1000 >= int(found[1]):
            raise Forbidden(_REFUSED)
        recipient_id, share_id, table_id = ids = _unpacked(who)
        recipient = await self._store.recipient_by_id(recipient_id)
        if recipient is None or recipient.revoked_at is not None:
            raise Forbidden(_REFUSED)
        self._door.require_network(recipient, client)
        granted = await self._store.share_for_by_id(recipient_id, share_id)
        items = [] if granted is None else await self._store.items_with(share_id, table_id)
        # The recipient may get other partitions, or other versions, than when the URL was made.
        if granted is None or all(
            who != _packed(ids, terms(item, granted[1].get(table_id))) for item in items
        ):
            raise Forbidden(_REFUSED)
        table = await self._store.table_by_id(table_id)
        if table is None:
            raise Forbidden(_REFUSED)
        objects = await self._open(table)
        try:
            info = await objects.head(file)
        except Invalid:
            info = None
        if info is None:
            raise NotFound("the file is not there any more", kind="file")
        return Opened(objects, info, recipient_id, share_id, table_id)


def _url(base_url: str, key: bytes, who: str, file: str, expires_s: int) -> str:
    path = base64.urlsafe_b64encode(file.encode("utf-8", "surrogatepass")).decode().rstrip("=")
    signature = _signature(key, who, path, expires_s)
    return (
        f"{base_url}/files/{who}/{path}/{_name(file)}?X-Inver-Expires={expires_s}&X-Amz-Signature={signature}"
    )


def _signature(key: bytes, who: str, path: str, expires_s: int) -> str:
    message = f"inver-sharing-file\n{expires_s}\n{who}\n{path}".encode("utf-8", "surrogatepass")
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def _name(file: str) -> str:
    """The file's own name for people and for readers that look at its end; it decides nothing."""
    return _NAME.sub("_", file.rpartition("/")[2])[-200:]


def _packed(ids: Sequence[str], agreed: str) -> str:
    """Who may read, of which table, and what of it."""
    mark = hashlib.sha256(agreed.encode()).digest()[:9]
    return base64.urlsafe_b64encode(b"".join(uuid.UUID(each).bytes for each in ids) + mark).decode()


def _unpacked(text: str) -> tuple[str, str, str]:
    data = base64.urlsafe_b64decode(text)
    first, second, third = (str(uuid.UUID(bytes=data[at : at + 16])) for at in (0, 16, 32))
    return first, second, third


def _decoded(path: str) -> str | None:
    try:
        data = base64.b64decode(path + "=" * (-len(path) % 4), altchars=b"-_", validate=True)
        return data.decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
