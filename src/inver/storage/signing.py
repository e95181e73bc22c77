"""Signed URLs for files that this server hands out itself, in the manner of an object store."""

from __future__ import annotations

import hashlib
import hmac
import re
from urllib.parse import quote

from inver.clock import Clock, SystemClock
from inver.errors import Broken

_MIN_KEY_BYTES = 32
# The whole query, once: a second `expires` or a stray parameter is a forgery, not a variant.
_QUERY = re.compile(r"expires=([0-9]{1,11})&signature=([0-9a-f]{64})", re.ASCII)


class UrlSigner:
    """Signs absolute paths of local files; a URL allows GET of one file until it expires."""

    def __init__(self, key: bytes, base_url: str, clock: Clock | None = None) -> None:
        if len(key) < _MIN_KEY_BYTES:
            raise Broken(f"the key that signs URLs has {len(key)} bytes; it needs at least {_MIN_KEY_BYTES}")
        if not base_url.startswith(("http://", "https://")) or "?" in base_url or "#" in base_url:
            raise Broken(f"signed URLs need an http(s) base URL without a query, not {base_url!r}")
        self._key = key
        self._base_url = base_url.rstrip("/")
        self._clock: Clock = clock or SystemClock()

    def now_s(self) -> int:
        return self._clock.now_ms() // 1000

    def sign(self, path: str, expires_at_s: int) -> str:
        signature = self._signature(path, expires_at_s)
        return f"{self._base_url}{quote(path)}?expires={expires_at_s}&signature={signature}"

    def verify(self, path: str, query: str) -> bool:
        """Whether the raw query of a request permits reading `path`, given decoded, now."""
        match = _QUERY.fullmatch(query)
        if match is None:
            return False
        expires_at_s = int(match[1])
        genuine = hmac.compare_digest(self._signature(path, expires_at_s), match[2])
        return genuine and self.now_s() < expires_at_s

    def _signature(self, path: str, expires_at_s: int) -> str:
        # The first line keeps these signatures apart from any other use of the key.
        message = f"inver-get-v1\n{expires_at_s}\n{path}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()
