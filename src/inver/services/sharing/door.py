"""Recipients at the door: bearer tokens, OAuth client credentials, activation links.

Users' credentials open nothing here, and recipients' open nothing elsewhere.
"""

from __future__ import annotations

import hmac
from contextlib import suppress

import msgspec

from inver.clock import Clock
from inver.domain import shares as ops
from inver.domain.grants import Action
from inver.domain.ledger import Transaction
from inver.domain.principals import Scope
from inver.domain.shares import CredentialKind, Recipient, RecipientKind, may_call_from
from inver.domain.uuids import is_uuid
from inver.errors import Forbidden, NotFound, Stale, Unauthenticated, Unavailable
from inver.ports import Store, StoredCredential
from inver.secrets import hash_secret
from inver.services.audit import Audit
from inver.services.sharing.recipients import (
    DEFAULT_LIFETIME_S,
    SECRET_PREFIX,
    TOKEN_PREFIX,
    Given,
    new_credential,
    split_credential,
)
from inver.services.throttle import Throttle
from inver.services.tokens import ACCESS_TOKEN_MS, DECISIONS, Issued

_BEARER = b"bearer "
_GOOD = frozenset({CredentialKind.TOKEN, CredentialKind.ACCESS})


class Guest(msgspec.Struct, frozen=True):
    """A recipient as it was let in, where it calls from, and the state of rights in which that was right."""

    recipient: Recipient
    client: str
    epoch: int


class Door:
    def __init__(self, store: Store, clock: Clock, throttle: Throttle, audit: Audit) -> None:
        self._store = store
        self._clock = clock
        self._throttle = throttle
        self._audit = audit
        self._used: dict[str, int] = {}

    async def enter(self, presented: bytes | None, client: str) -> Guest:
        """`presented` is the value of the Authorization header."""
        if presented is None:
            raise Unauthenticated("a bearer token is needed", fix="send Authorization: Bearer <token>")
        # The epoch is read first: whatever changes after it makes the guest stale.
        epoch = await self._store.epoch()
        try:
            stored = await self._proved(presented)
        except Unauthenticated:
            # Who guesses from the same address must not lock out who does not.
            self._throttle.check(client)
            self._throttle.failed(client)
            raise
        self._used[stored.id] = self._clock.now_ms()
        self.require_network(stored.recipient, client)
        return Guest(stored.recipient, client, epoch)

    def require_network(self, recipient: Recipient, client: str) -> None:
        if not may_call_from(recipient.networks, client):
            self._audit.denied(recipient.id, Action.READ, recipient.id)
            raise Forbidden(f"recipient {recipient.name!r} may not call from this address")

    async def flush_last_used(self) -> None:
        used, self._used = self._used, {}
        if used:
            await self._store.touch_credentials(used)

    async def exchange(self, client_id: str, client_secret: str, scope: Scope, source: str) -> Issued:
        """OAuth 2.0 client credentials: a recipient's id and one of its live secrets."""
        self._throttle.check(source)
        for _ in range(DECISIONS):
            # The epoch is read first, so that a secret that is revoked meanwhile makes no token.
            epoch = await self._store.epoch()
            holder = await self._client(client_id, client_secret)
            if holder is None or not may_call_from(holder.networks, source):
                self._throttle.failed(source)
                raise Unauthenticated("the client id or secret is not valid")
            expires_at = self._clock.now_ms() + ACCESS_TOKEN_MS
            token_id, token, hashed = new_credential(TOKEN_PREFIX)
            added = ops.AddCredential(
                id=token_id,
                recipient_id=holder.id,
                kind=CredentialKind.ACCESS,
                hash=hashed,
                expires_at=expires_at,
            )
            with suppress(Stale):
                await self._decide(holder.id, epoch, added)
                return Issued(token_id, token, holder.name, expires_at)
        raise Unavailable("grants are changing too fast; send the request again")

    async def activate(self, code: str, client: str) -> Given:
        """Exchange an activation link for a token; it is good once."""
        self._throttle.check(client)
        for _ in range(DECISIONS):
            epoch = await self._store.epoch()
            try:
                link = await self._activation(code)
            except NotFound:
                self._throttle.failed(client)
                raise
            self.require_network(link.recipient, client)
            until = link.token_until or self._clock.now_ms() + DEFAULT_LIFETIME_S * 1000
            token_id, token, hashed = new_credential(TOKEN_PREFIX)
            used = ops.UseActivation(id=link.id, recipient_id=link.recipient.id)
            added = ops.AddCredential(
                id=token_id,
                recipient_id=link.recipient.id,
                kind=CredentialKind.TOKEN,
                hash=hashed,
                expires_at=until,
            )
            with suppress(Stale):
                await self._decide(link.recipient.id, epoch, used, added)
                return Given(recipient=link.recipient, expires_at=until, token=token)
        raise Unavailable("grants are changing too fast; send the request again")

    async def _proved(self, presented: bytes) -> StoredCredential:
        if presented[:7].lower() != _BEARER:
            raise Unauthenticated("only bearer tokens are accepted")
        parts = split_credential(presented[7:].strip().decode("latin-1"), TOKEN_PREFIX)
        stored = await self._store.credential(parts[0]) if parts else None
        # Compared even when there is no such token, so that time does not tell.
        expected = stored.hash if stored is not None else hash_secret("")
        matches = hmac.compare_digest(expected, hash_secret(parts[1] if parts else "."))
        if stored is None or not matches or stored.kind not in _GOOD or stored.revoked_at is not None:
            raise Unauthenticated("the token is not valid")
        if stored.recipient.revoked_at is not None:
            raise Unauthenticated("the token is not valid")
        if stored.expires_at <= self._clock.now_ms():
            raise Unauthenticated("the token has expired")
        return stored

    async def _client(self, client_id: str, client_secret: str) -> Recipient | None:
        holder = await self._store.recipient_by_id(client_id.lower()) if is_uuid(client_id) else None
        parts = split_credential(client_secret, SECRET_PREFIX)
        stored = await self._store.credential(parts[0]) if parts else None
        expected = stored.hash if stored is not None else hash_secret("")
        matches = hmac.compare_digest(expected, hash_secret(parts[1] if parts else "."))
        if holder is None or stored is None or not matches or stored.recipient.id != holder.id:
            return None
        live = stored.revoked_at is None and stored.expires_at > self._clock.now_ms()
        good = stored.kind is CredentialKind.SECRET and holder.kind is RecipientKind.OAUTH
        return holder if live and good and holder.revoked_at is None else None

    async def _activation(self, code: str) -> StoredCredential:
        parts = split_credential(code, "")
        stored = await self._store.credential(parts[0]) if parts else None
        expected = stored.hash if stored is not None else hash_secret("")
        matches = hmac.compare_digest(expected, hash_secret(parts[1] if parts else "."))
        live = stored is not None and stored.revoked_at is None and stored.expires_at > self._clock.now_ms()
        if (
            stored is None
            or not matches
            or not live
            or stored.kind is not CredentialKind.ACTIVATION
            or stored.recipient.revoked_at is not None
        ):
            raise NotFound("the activation link is not valid, or was used before", kind="activation")
        return stored

    async def _decide(self, by: str, epoch: int, *operations: ops.Sharing) -> None:
        # Recipients are no principals; what they do by themselves is done in their own name.
        await self._store.decide(Transaction(by, self._clock.now_ms(), operations, epoch=epoch))
