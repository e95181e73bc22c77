"""Keys to the folder of a shared table, where its storage can give them out."""

from __future__ import annotations

from inver.domain.locations import Location
from inver.domain.tables import Format
from inver.errors import Invalid, Unsupported
from inver.ports import CredentialVendor, StorageAccess, StorageCredential
from inver.services.sharing.tables import Looked


class Vending:
    def __init__(self, vendor: CredentialVendor) -> None:
        self._vendor = vendor

    async def vend(self, looked: Looked, location: str | None) -> tuple[str, StorageCredential]:
        """Such keys open every version and every partition, so nothing of it may be held back."""
        shared = looked.shared
        place = Location.parse(shared.table.location)
        if location is not None and Location.parse(location, field="location").prefix != place.prefix:
            raise Invalid("location is not the location of this table", field="location")
        if shared.table.format is not Format.DELTA:
            raise Unsupported(
                f"the folder of table {looked.shown} is not that of a Delta table",
                fix="read it by URLs, which is what a query gives",
            )
        if not shared.history or shared.start_version or looked.partitions is not None:
            raise Unsupported(
                f"only a part of table {looked.shown} is shared, and keys to its folder would open all of it",
                fix="read it by URLs, which is what a query gives",
            )
        vended = await self._vendor.vend(place, StorageAccess.READ)
        if vended is None:
            raise Unsupported(
                f"the storage of table {looked.shown} gives out no keys",
                fix="read it by URLs, which is what a query gives",
            )
        return place.text, vended
