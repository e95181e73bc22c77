"""Bearer tokens: `inver_pat_<id>_<secret>`, found by id, proved by hash.

A verified token is remembered until it expires or anything about grants and credentials changes,
so a commit does not ask the database who sent it.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable

import msgspec

from inver.clock import Clock
from inver.domain.principals import ADMIN, Principal
from inver.errors import TokenExpired, Unauthenticated
from inver.ports import Directory
from inver.secrets import hash_secret
from inver.services.throttle import Throttle
from inver.services.tokens import split_token

CACHE_LIMIT = 10_000
_SCHEME = b"bearer "
_NEVER = 2**63


class TokenAuthenticator:
    def __init__(self, directory: Directory, clock: Clock, throttle: Throttle) -> None:
        self._directory = directory
        self._clock = clock
        self._throttle = throttle
        self._known: dict[bytes, tuple[Principal, int, str]] = {}
        self._used: dict[str, int] = {}

    def __call__(self, presented: bytes | None, client: str) -> Principal | Awaitable[Principal]:
        """`presented` is the value of the Authorization header, `client` the address it came from."""
        if presented is None:
            raise Unauthenticated("a bearer token is needed", fix="send Authorization: Bearer <token>")
        known = self._known.get(presented)
        if known is not None:
            principal, until, token_id = known
            now = self._clock.now_ms()
            if principal.epoch == self._directory.known_epoch and now < until:
                self._used[token_id] = now
                return principal
        return self._verify(presented, client, known is not None)

    async def flush_last_used(self) -> None:
        """Write down when tokens were last used; a minute's delay is fine, a write per request is not."""
        used, self._used = self._used, {}
        if used:
            await self._directory.touch_tokens(used)

    async def _verify(self, presented: bytes, client: str, was_good: bool) -> Principal:
        if not was_good:
            # Somebody who guesses from the same address must not lock out who does not.
            self._throttle.check(client)
        # The epoch is read first: whatever changes after it makes the principal stale.
        epoch = await self._directory.epoch()
        try:
            token_id, secret = _parse(presented)
            stored = await self._directory.token(token_id)
            # Compared even when there is no such token, so that time does not tell.
            expected = stored.hash if stored is not None else hash_secret("")
            matches = hmac.compare_digest(expected, hash_secret(secret))
            now = self._clock.now_ms()
            if stored is None or not matches or stored.revoked_at is not None or stored.disabled:
                raise Unauthenticated("the token is not valid")
            if stored.expires_at is not None and stored.expires_at <= now:
                raise TokenExpired("the token has expired")
        except Unauthenticated:
            self._known.pop(presented, None)
            self._throttle.failed(client)
            raise
        if len(self._known) >= CACHE_LIMIT:
            self._known.clear()
        principal = msgspec.structs.replace(stored.principal, epoch=epoch)
        self._known[presented] = (principal, stored.expires_at or _NEVER, stored.id)
        self._used[stored.id] = now
        return principal


class EverybodyIsAdmin:
    """Authentication switched off: allowed on a loopback address, or when told so by name."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def __call__(self, presented: bytes | None, client: str) -> Principal | Awaitable[Principal]:
        return self._admin()

    async def _admin(self) -> Principal:
        return msgspec.structs.replace(ADMIN, epoch=await self._directory.epoch())

    async def flush_last_used(self) -> None:
        return


def _parse(presented: bytes) -> tuple[str, str]:
    if presented[:7].lower() != _SCHEME:
        raise Unauthenticated("only bearer tokens are accepted")
    parts = split_token(presented[7:].strip().decode("latin-1"))
    if parts is None:
        raise Unauthenticated("the token is not valid")
    return parts
