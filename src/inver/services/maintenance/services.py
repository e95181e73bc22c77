"""Everything of care, built once on one store."""

from __future__ import annotations

from inver.clock import Clock
from inver.ports import Store
from inver.services.access import Access
from inver.services.maintenance.knowledge import Knowledge, PinsOf
from inver.services.maintenance.observer import Observer
from inver.services.maintenance.policies import Policies
from inver.services.maintenance.running import Running
from inver.services.names import Names


class CareServices:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        names: Names,
        access: Access,
        pins: PinsOf,
        lease_seconds: float,
    ) -> None:
        self.now = clock.now_ms
        self.observer = Observer(store, clock)
        self.knowledge = Knowledge(store, clock, names, access, self.observer, pins)
        self.running = Running(
            store, clock, names, access, self.knowledge, self.observer, pins, lease_seconds
        )
        self.policies = Policies(store, clock, names, access)
