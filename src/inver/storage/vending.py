"""Keys to storage for clients."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from inver.clock import Clock
from inver.domain.locations import Location
from inver.ports import StorageAccess, StorageCredential
from inver.secrets import Secret
from inver.storage.connect import azure_account
from inver.storage.options import StorageOptions
from inver.storage.signing import directory_sas, sas_moments

if TYPE_CHECKING:
    from inver.storage.sts import Role

LIFETIME_S = 3600
_PERMISSIONS = {StorageAccess.READ: "rl", StorageAccess.READ_WRITE: "racwdlm"}
"""Reading and listing; and adding, creating, writing, deleting and moving besides."""
_MAX_KEPT = 10_000


class Vending:
    """For one folder each: signatures made with the key of an Azure account, and keys of a role in S3.
    Everywhere else clients reach the storage by themselves: it is a local folder, or they have keys of their
    own."""

    def __init__(self, clock: Clock, options: StorageOptions) -> None:
        self._clock = clock
        self._options = options
        self._role: Role | None = None
        if options.sts_role is not None:
            from inver.storage.sts import Role

            self._role = Role(clock, options, options.sts_role)
        self._kept: OrderedDict[tuple[str, StorageAccess], StorageCredential] = OrderedDict()

    async def vend(self, location: Location, access: StorageAccess) -> StorageCredential | None:
        if location.is_root:
            return None
        if location.scheme == "s3" and self._role is not None:
            return await self._taken_on(self._role, location, access)
        key = self._options.azure_key
        if key is None or location.scheme != "abfss":
            return None
        container, _, host = location.authority.partition("@")
        account = azure_account(host, self._options)
        now = self._clock.now_ms()
        moments = sas_moments(now, LIFETIME_S)
        sas = directory_sas(account, key, container, location.key, _PERMISSIONS[access], *moments)
        return StorageCredential(expires_at=(now // 1000 + LIFETIME_S) * 1000, sas_token=Secret(sas))

    async def _taken_on(self, role: Role, location: Location, access: StorageAccess) -> StorageCredential:
        """Whoever may do the same with the same folder gets the same keys, for the first half of their life.
        They say nothing of who that is, and who may have them is decided each time before."""
        key = location.prefix, access
        kept = self._kept.get(key)
        if kept is None or kept.expires_at - self._clock.now_ms() < LIFETIME_S * 500:
            kept = self._kept[key] = await role.take_on(location, access, LIFETIME_S)
            self._kept.move_to_end(key)
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return kept
