"""Tokens that say again what a client was told, and that nobody else can make.

Nothing is kept of them: the key is the same on all servers of a database.
"""

from __future__ import annotations

import hmac
import secrets
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import TypeVar

import msgspec

from inver.ports import Store

KEY = "iceberg_plan_key"
_MAC = 16

T = TypeVar("T", bound=msgspec.Struct)


class Seal:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = b""

    async def close(self, content: msgspec.Struct) -> str:
        packed = zlib.compress(msgspec.json.encode(content), 6)
        token = await self._mac(type(content), packed) + packed
        return urlsafe_b64encode(token).decode().rstrip("=")

    async def open(self, token: str, kind: type[T]) -> T | None:
        """None for what is not a token of this kind."""
        try:
            given = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        except ValueError:
            return None
        mac, packed = given[:_MAC], given[_MAC:]
        if not hmac.compare_digest(mac, await self._mac(kind, packed)):
            return None
        try:
            return msgspec.json.decode(zlib.decompress(packed), type=kind)
        except msgspec.ValidationError:
            # Of another version of the server.
            return None

    async def _mac(self, kind: type[msgspec.Struct], packed: bytes) -> bytes:
        if not self._key:
            self._key = bytes.fromhex(await self._store.remember(KEY, secrets.token_hex(32)))
        return hmac.digest(self._key, kind.__name__.encode() + b"\x00" + packed, sha256)[:_MAC]
