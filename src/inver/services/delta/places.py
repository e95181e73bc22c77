"""Where managed tables lie. A table's location never changes, so it is found out once."""

from __future__ import annotations

from collections.abc import Callable

from inver.domain.locations import Location
from inver.domain.tables import Table
from inver.ports import ObjectStore

LIMIT = 20_000
REMOTE_LIMIT = 256
"""Each holds connections of its own."""


class Place:
    """A table's own folder, and how to read and write in it."""

    __slots__ = ("location", "objects")

    def __init__(self, location: Location, objects: ObjectStore) -> None:
        self.location = location
        self.objects = objects

    def is_at(self, given: str | None) -> bool:
        """Whether a client means this place; None means that it does not say."""
        location = self.location
        if given is None or given == location.text or given == location.canonical:
            return True
        return Location.parse(given, field="table_uri").prefix == location.prefix


class Places:
    def __init__(self, open_objects: Callable[[Location], ObjectStore]) -> None:
        self._open = open_objects
        self._known: dict[str, Place] = {}
        self._remote = 0

    def known(self, table_id: str) -> Place | None:
        return self._known.get(table_id)

    def of(self, table: Table) -> Place:
        place = self._known.get(table.id)
        if place is None:
            location = Location.parse(table.location)
            place = Place(location, self._open(location))
            self._remember(table.id, place)
        return place

    def _remember(self, table_id: str, place: Place) -> None:
        self._remote += not place.location.is_local
        if len(self._known) >= LIMIT or self._remote > REMOTE_LIMIT:
            self._known.clear()
            self._remote = int(not place.location.is_local)
        self._known[table_id] = place
