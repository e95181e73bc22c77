"""Keys to storage for clients."""

from __future__ import annotations

from inver.domain.locations import Location
from inver.ports import StorageAccess, StorageCredential


class NoVending:
    """Clients reach the storage by themselves: it is a local folder, or they have keys of their own."""

    async def vend(self, location: Location, access: StorageAccess) -> StorageCredential | None:
        return None
