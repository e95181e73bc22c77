"""The services of Delta Sharing, built on one store."""

from __future__ import annotations

from collections.abc import Callable

from inver.clock import Clock
from inver.domain.locations import Location
from inver.ports import CredentialVendor, ObjectStore, Store
from inver.services.access import Access
from inver.services.audit import Audit
from inver.services.names import Names
from inver.services.placement import Placement
from inver.services.sharing.answers import Answers
from inver.services.sharing.changes import Changes
from inver.services.sharing.contents import Contents
from inver.services.sharing.door import Door
from inver.services.sharing.files import Files
from inver.services.sharing.iceberg import IcebergLogs
from inver.services.sharing.logs import Logs
from inver.services.sharing.paging import Paging
from inver.services.sharing.queries import Queries
from inver.services.sharing.recipients import Recipients
from inver.services.sharing.rights import Rights
from inver.services.sharing.sealed import Seal
from inver.services.sharing.shares import Shares
from inver.services.sharing.tables import Tables
from inver.services.sharing.vending import Vending
from inver.services.sharing.visits import Visits
from inver.services.throttle import Throttle


class SharingServices:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        names: Names,
        access: Access,
        audit: Audit,
        throttle: Throttle,
        logs: Logs,
        iceberg: IcebergLogs,
        placement: Placement,
        open_objects: Callable[[Location], ObjectStore],
        vendor: CredentialVendor,
    ) -> None:
        rights = Rights(access)
        seal = Seal(store)
        self.tables = Tables(store, audit, logs, iceberg, names, placement, open_objects)
        self.contents = Contents(store, self.tables)
        self.shares = Shares(store, clock, names, access, rights, self.tables.check_filter)
        self.recipients = Recipients(store, clock, access, rights)
        self.door = Door(store, clock, throttle, audit)
        self.files = Files(store, clock, seal, self.door, self.tables.open)
        self.visits = Visits(store, clock)
        self.vending = Vending(vendor)
        paging, answers = Paging(clock, seal), Answers(clock, logs, self.files)
        self.changes = Changes(paging, answers)
        self.queries = Queries(paging, answers, self.changes)
