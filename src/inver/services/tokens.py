"""Tokens and client secrets: made, shown once, exchanged, revoked."""

from __future__ import annotations

import hmac
from contextlib import suppress

import msgspec

from inver.clock import Clock
from inver.domain import governance
from inver.domain.grants import Action
from inver.domain.ledger import Transaction
from inver.domain.principals import SYSTEM, PrincipalInfo, Scope
from inver.domain.uuids import is_uuid
from inver.errors import Forbidden, Invalid, NotFound, Stale, Unauthenticated, Unavailable
from inver.ids import new_id
from inver.ports import Store, StoredSecret, StoredToken
from inver.secrets import Secret, hash_secret, new_token_secret
from inver.services.access import METASTORE_CHAIN, Access
from inver.services.context import Caller
from inver.services.throttle import Throttle

PREFIX = "inver_pat_"
ACCESS_TOKEN_MS = 60 * 60 * 1000
DECISIONS = 5
EXPIRED_MS = 7 * 24 * 60 * 60 * 1000
"""A token that has expired is listed for so long, and its holder told why it is refused."""
MAX_LIFETIME_S = 10 * 365 * 24 * 3600


def new_token() -> tuple[str, Secret, str]:
    """Id, what the holder gets, and the hash that is kept."""
    token_id = new_id().replace("-", "")
    secret = new_token_secret().reveal()
    return token_id, Secret(f"{PREFIX}{token_id}_{secret}"), hash_secret(secret)


def split_token(text: str) -> tuple[str, str] | None:
    """Id and secret of a token, if it has the shape of one."""
    token_id, _, secret = text.removeprefix(PREFIX).partition("_")
    if not text.startswith(PREFIX) or not (token_id.isascii() and token_id.isalnum()) or not secret:
        return None
    return token_id, secret


class Issued(msgspec.Struct, frozen=True):
    """A credential that has just been made; its secret is never shown again."""

    id: str
    secret: Secret
    principal: str
    expires_at: int | None


class Tokens:
    def __init__(self, store: Store, clock: Clock, access: Access, throttle: Throttle) -> None:
        self._store = store
        self._clock = clock
        self._access = access
        self._throttle = throttle

    async def create(
        self,
        caller: Caller,
        principal: str | None,
        label: str = "",
        scope: Scope = Scope.ALL,
        expires_in_s: int | None = None,
    ) -> Issued:
        """For oneself, and for others by who manages principals."""
        holder = await self._holder(caller, principal, Action.MANAGE_PRINCIPALS)
        return await self._issue(
            caller.principal.id, caller.principal.epoch, holder, label, scope, expires_in_s
        )

    async def of(self, caller: Caller, principal: str | None) -> list[StoredToken]:
        holder = await self._holder(caller, principal, Action.READ_PRINCIPALS)
        return await self._store.tokens(holder.id)

    async def forget(self) -> int:
        """Drop the tokens that expired long ago; clients get a new one every hour."""
        return await self._store.forget_tokens(self._clock.now_ms() - EXPIRED_MS)

    async def revoke(self, caller: Caller, token_id: str) -> None:
        token = await self._store.token(token_id)
        if token is not None and token.principal.id == caller.principal.id:
            await self._access.require_own(caller, Action.MANAGE_PRINCIPALS)
        else:
            try:
                await self._access.require(caller, Action.READ_PRINCIPALS, METASTORE_CHAIN)
            except Forbidden:
                raise NotFound("the token does not exist", kind="token") from None
            await self._access.require(caller, Action.MANAGE_PRINCIPALS, METASTORE_CHAIN)
        await self._decide(caller, governance.RevokeToken(id=token_id))

    async def create_secret(
        self, caller: Caller, principal: str, label: str = "", expires_in_s: int | None = None
    ) -> Issued:
        holder = await self._holder(caller, principal, Action.MANAGE_PRINCIPALS)
        secret = Secret("inver_secret_" + new_token_secret().reveal())
        secret_id = new_id()
        expires_at = self._expiry(expires_in_s)
        await self._decide(
            caller,
            governance.CreateSecret(
                id=secret_id,
                principal_id=holder.id,
                hash=hash_secret(secret),
                label=label,
                expires_at=expires_at,
            ),
        )
        return Issued(secret_id, secret, holder.id, expires_at)

    async def secrets(self, caller: Caller, principal: str) -> list[StoredSecret]:
        holder = await self._holder(caller, principal, Action.READ_PRINCIPALS)
        return await self._store.secrets(holder.id)

    async def revoke_secret(self, caller: Caller, principal: str, secret_id: str) -> None:
        holder = await self._holder(caller, principal, Action.MANAGE_PRINCIPALS)
        await self._decide(caller, governance.RevokeSecret(id=secret_id, principal_id=holder.id))

    async def exchange(self, client_id: str, client_secret: str, scope: Scope, source: str) -> Issued:
        """OAuth 2.0 client credentials: a principal's id or name and one of its live secrets."""
        self._throttle.check(source)
        for _ in range(DECISIONS):
            # The epoch is read first, so that a secret that is revoked meanwhile makes no token.
            epoch = await self._store.epoch()
            holder = await self._proved(client_id, client_secret)
            if holder is None:
                self._throttle.failed(source)
                raise Unauthenticated("the client id or secret is not valid")
            with suppress(Stale):
                return await self._issue(SYSTEM.id, epoch, holder, "oauth", scope, ACCESS_TOKEN_MS // 1000)
        raise Unavailable("grants are changing too fast; send the request again")

    async def _proved(self, client_id: str, client_secret: str) -> PrincipalInfo | None:
        """The principal whose secret this is, if it may use it now."""
        if is_uuid(client_id):
            holder = await self._store.principal_by_id(client_id.lower())
        else:
            holder = await self._store.principal_by_name(client_id)
        given = hash_secret(client_secret)
        now = self._clock.now_ms()
        matches = False
        # Every secret is compared, and one is when there is none, so that time does not tell.
        for stored in await self._store.secrets(holder.id) if holder is not None else ():
            live = stored.revoked_at is None and (stored.expires_at is None or stored.expires_at > now)
            matches |= hmac.compare_digest(stored.hash, given) and live
        hmac.compare_digest(hash_secret(""), given)
        return holder if holder is not None and matches and not holder.disabled else None

    async def _issue(
        self,
        by: str,
        epoch: int,
        holder: PrincipalInfo,
        label: str,
        scope: Scope,
        expires_in_s: int | None,
    ) -> Issued:
        token_id, token, hashed = new_token()
        expires_at = self._expiry(expires_in_s)
        operation = governance.CreateToken(
            id=token_id,
            principal_id=holder.id,
            hash=hashed,
            label=label,
            scope=scope,
            expires_at=expires_at,
        )
        await self._store.decide(Transaction(by, self._clock.now_ms(), (operation,), epoch=epoch))
        return Issued(token_id, token, holder.name, expires_at)

    def _expiry(self, expires_in_s: int | None) -> int | None:
        if expires_in_s is None:
            return None
        if not 1 <= expires_in_s <= MAX_LIFETIME_S:
            raise Invalid(f"expires_in_s must be from 1 to {MAX_LIFETIME_S}", field="expires_in_s")
        return self._clock.now_ms() + expires_in_s * 1000

    async def _holder(self, caller: Caller, name: str | None, action: Action) -> PrincipalInfo:
        """The principal that credentials are for: oneself, or anybody for who manages principals."""
        if name is None:
            name = caller.principal.name
        holder = await self._store.principal_by_name(name)
        if holder is None or holder.id != caller.principal.id:
            await self._access.require(caller, action, METASTORE_CHAIN)
        else:
            await self._access.require_own(caller, action)
        if holder is None:
            raise NotFound(f"principal {name!r} does not exist", kind="principal")
        return holder

    async def _decide(self, caller: Caller, operation: governance.Governance) -> None:
        await self._store.decide(
            Transaction(caller.principal.id, self._clock.now_ms(), (operation,), epoch=caller.principal.epoch)
        )
