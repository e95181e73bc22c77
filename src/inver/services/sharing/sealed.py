"""Tokens that the server gives out and takes back: it signs them, so that nobody else makes one.

They carry everything that the next request needs, so that any server can go on with it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Any, TypeVar

import msgspec

from inver.errors import Invalid
from inver.ports import Store

T = TypeVar("T")
_KEY = "sharing_key"
_SIZE = 16


class Seal:
    """The key is the installation's own: all of its servers have the same."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key: bytes | None = None

    async def key(self) -> bytes:
        if self._key is None:
            self._key = bytes.fromhex(await self._store.remember(_KEY, secrets.token_hex(32)))
        return self._key

    async def seal(self, purpose: str, value: Any) -> str:
        body = msgspec.json.encode(value)
        mark = _mark(await self.key(), purpose, body)
        return base64.urlsafe_b64encode(mark + body).decode().rstrip("=")

    async def open(self, purpose: str, text: str, kind: type[T], message: str, field: str) -> T:
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            mark, body = data[:_SIZE], data[_SIZE:]
            if hmac.compare_digest(mark, _mark(await self.key(), purpose, body)):
                return msgspec.json.decode(body, type=kind)
        except (binascii.Error, ValueError, msgspec.DecodeError):
            pass
        raise Invalid(message, field=field)


def _mark(key: bytes, purpose: str, body: bytes) -> bytes:
    message = f"inver-sharing-{purpose}\n".encode() + body
    return hmac.new(key, message, hashlib.sha256).digest()[:_SIZE]
