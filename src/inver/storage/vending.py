"""Keys to storage for clients."""

from __future__ import annotations

from inver.clock import Clock
from inver.domain.locations import Location
from inver.ports import StorageAccess, StorageCredential
from inver.secrets import Secret
from inver.storage.connect import azure_account
from inver.storage.options import StorageOptions
from inver.storage.signing import directory_sas, sas_moments

LIFETIME_S = 3600
_PERMISSIONS = {StorageAccess.READ: "rl", StorageAccess.READ_WRITE: "racwdlm"}
"""Reading and listing; and adding, creating, writing, deleting and moving besides."""


class Vending:
    """Signatures for one folder, made with the key of an Azure account. Everywhere else clients reach the
    storage by themselves: it is a local folder, or they have keys of their own."""

    def __init__(self, clock: Clock, options: StorageOptions) -> None:
        self._clock = clock
        self._options = options

    async def vend(self, location: Location, access: StorageAccess) -> StorageCredential | None:
        key = self._options.azure_key
        if key is None or location.scheme != "abfss" or location.is_root:
            return None
        container, _, host = location.authority.partition("@")
        account = azure_account(host, self._options)
        now = self._clock.now_ms()
        moments = sas_moments(now, LIFETIME_S)
        sas = directory_sas(account, key, container, location.key, _PERMISSIONS[access], *moments)
        return StorageCredential(expires_at=(now // 1000 + LIFETIME_S) * 1000, sas_token=Secret(sas))
