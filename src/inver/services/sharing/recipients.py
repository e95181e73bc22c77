"""Recipients and their credentials, as the provider handles them."""

from __future__ import annotations

import msgspec

from inver.clock import Clock
from inver.domain import shares as ops
from inver.domain.grants import Action
from inver.domain.ledger import Transaction
from inver.domain.shares import CredentialKind, Recipient, RecipientKind, check_shared_name, parse_networks
from inver.errors import Invalid
from inver.ids import new_id
from inver.ports import Store, StoredCredential
from inver.secrets import Secret, hash_secret, new_token_secret
from inver.services.access import Access, missing
from inver.services.context import Caller
from inver.services.sharing.rights import Rights

TOKEN_PREFIX = "inver_rcp_"
SECRET_PREFIX = "inver_rcps_"
DAY_S = 24 * 3600
DEFAULT_LIFETIME_S = 90 * DAY_S
MAX_LIFETIME_S = 366 * DAY_S
ACTIVATION_LIFETIME_S = 3 * DAY_S
MAX_GRACE_S = 30 * DAY_S


def new_credential(prefix: str) -> tuple[str, Secret, str]:
    """Id, what the holder gets, and the hash that is kept."""
    credential_id = new_id().replace("-", "")
    secret = new_token_secret().reveal()
    return credential_id, Secret(f"{prefix}{credential_id}_{secret}"), hash_secret(secret)


def split_credential(text: str, prefix: str) -> tuple[str, str] | None:
    """Id and secret, if it has the shape of one."""
    credential_id, _, secret = text.removeprefix(prefix).partition("_")
    if not text.startswith(prefix) or not (credential_id.isascii() and credential_id.isalnum()) or not secret:
        return None
    return credential_id, secret


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A recipient with what it was just given; none of the secrets is ever shown again."""

    recipient: Recipient
    expires_at: int
    token: Secret | None = None
    activation: Secret | None = None
    client_secret: Secret | None = None


class Recipients:
    def __init__(self, store: Store, clock: Clock, access: Access, rights: Rights) -> None:
        self._store = store
        self._clock = clock
        self._access = access
        self._rights = rights

    async def page(self, caller: Caller, after: str, limit: int) -> list[Recipient]:
        subjects = (await self._access.standing(caller)).subjects
        everything = await self._rights.sees_all(caller)
        found: list[Recipient] = []
        while len(found) < limit:
            some = await self._store.recipients(after, limit)
            found += [each for each in some if everything or each.owner in subjects]
            if len(some) < limit:
                break
            after = some[-1].name
        return found[:limit]

    async def get(self, caller: Caller, name: str) -> Recipient:
        return await self._recipient(caller, name, change=False)

    async def credentials(self, recipient: Recipient) -> list[StoredCredential]:
        """For a recipient that the caller has been shown; access tokens come and go by themselves."""
        found = await self._store.credentials_of(recipient.id)
        return [each for each in found if each.kind is not CredentialKind.ACCESS]

    async def create(
        self,
        caller: Caller,
        name: str,
        kind: RecipientKind = RecipientKind.TOKEN,
        *,
        comment: str | None = None,
        networks: tuple[str, ...] = (),
        lifetime_s: int | None = None,
        activate: bool = True,
    ) -> Given:
        """With `activate` the recipient fetches its token by a link, else the token is given at once."""
        await self._rights.require(caller, Action.CREATE_RECIPIENT)
        check_shared_name(name, "name", dots=True)
        recipient_id = new_id()
        made = ops.CreateRecipient(
            id=recipient_id,
            name=name,
            kind=kind,
            comment=comment,
            networks=parse_networks(networks, "networks"),
        )
        return await self._give(caller, made, recipient_id, kind, lifetime_s, activate)

    async def alter(
        self,
        caller: Caller,
        name: str,
        *,
        comment: str | None | msgspec.UnsetType = msgspec.UNSET,
        networks: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET,
    ) -> Recipient:
        found = await self._recipient(caller, name)
        checked = (
            networks if isinstance(networks, msgspec.UnsetType) else parse_networks(networks, "networks")
        )
        await self._decide(caller, ops.AlterRecipient(id=found.id, comment=comment, networks=checked))
        return await self._now(found.id)

    async def rotate(
        self,
        caller: Caller,
        name: str,
        *,
        grace_s: int = 0,
        lifetime_s: int | None = None,
        activate: bool = True,
    ) -> Given:
        """New credentials; what it has had ends when the grace is over."""
        if not 0 <= grace_s <= MAX_GRACE_S:
            raise Invalid(f"grace_s must be from 0 to {MAX_GRACE_S}", field="grace_s")
        found = await self._recipient(caller, name)
        until = self._clock.now_ms() + grace_s * 1000
        rotated = ops.RotateRecipient(recipient_id=found.id, until=until)
        return await self._give(caller, rotated, found.id, found.kind, lifetime_s, activate)

    async def revoke(self, caller: Caller, name: str) -> None:
        found = await self._recipient(caller, name)
        await self._decide(caller, ops.RevokeRecipient(recipient_id=found.id))

    async def drop(self, caller: Caller, name: str) -> None:
        found = await self._recipient(caller, name)
        await self._decide(caller, ops.DropRecipient(id=found.id))

    async def _give(
        self,
        caller: Caller,
        first: ops.Sharing,
        recipient_id: str,
        kind: RecipientKind,
        lifetime_s: int | None,
        activate: bool,
    ) -> Given:
        if kind is RecipientKind.OAUTH:
            made, prefix = CredentialKind.SECRET, SECRET_PREFIX
        elif activate:
            made, prefix = CredentialKind.ACTIVATION, ""
        else:
            made, prefix = CredentialKind.TOKEN, TOKEN_PREFIX
        lifetime = DEFAULT_LIFETIME_S if lifetime_s is None else lifetime_s
        if not 1 <= lifetime <= MAX_LIFETIME_S:
            raise Invalid(f"expires_in_s must be from 1 to {MAX_LIFETIME_S}", field="expires_in_s")
        now = self._clock.now_ms()
        until: int | None = now + lifetime * 1000
        expires_at = now + lifetime * 1000
        if made is CredentialKind.ACTIVATION:
            expires_at = now + min(lifetime, ACTIVATION_LIFETIME_S) * 1000
        else:
            until = None
        credential_id, secret, hashed = new_credential(prefix)
        added = ops.AddCredential(
            id=credential_id,
            recipient_id=recipient_id,
            kind=made,
            hash=hashed,
            expires_at=expires_at,
            token_until=until,
        )
        await self._decide(caller, first, added)
        return Given(
            recipient=await self._now(recipient_id),
            expires_at=expires_at,
            token=secret if made is CredentialKind.TOKEN else None,
            activation=secret if made is CredentialKind.ACTIVATION else None,
            client_secret=secret if made is CredentialKind.SECRET else None,
        )

    async def _recipient(self, caller: Caller, name: str, *, change: bool = True) -> Recipient:
        found = await self._store.recipient_by_name(name)
        return await self._rights.require_found(caller, found, "recipient", name, change=change)

    async def _now(self, recipient_id: str) -> Recipient:
        """After a change that may have made the caller's own standing an old one."""
        found = await self._store.recipient_by_id(recipient_id)
        if found is None:
            raise missing("recipient", recipient_id)
        return found

    async def _decide(self, caller: Caller, *operations: ops.Sharing) -> None:
        me = caller.principal
        await self._store.decide(Transaction(me.id, self._clock.now_ms(), operations, epoch=me.epoch))
