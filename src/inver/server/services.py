"""Every service, built once on one store and shared by all faces."""

from __future__ import annotations

import os
from collections.abc import Callable

from inver.clock import Clock
from inver.config import Settings
from inver.domain.delta import CommitSummary
from inver.domain.lance import Manifest
from inver.domain.locations import Location
from inver.domain.tables import Format
from inver.ports import LanceEngine, ObjectStore, Store
from inver.services.access import Access
from inver.services.audit import Audit
from inver.services.cascade import Cascade
from inver.services.catalogs import Catalogs
from inver.services.delta.commits import Commits
from inver.services.delta.crossing import DeltaPortions
from inver.services.delta.listing import Listing
from inver.services.delta.places import Places
from inver.services.delta.publishing import Publishing
from inver.services.delta.tables import UNSTAGE, DeltaTables
from inver.services.doctor import Doctor
from inver.services.feed import Feed
from inver.services.followup import FollowUp
from inver.services.grants import Grants
from inver.services.iceberg.files import CLEAN
from inver.services.iceberg.manifests import ManifestReader
from inver.services.iceberg.relations import FORGET
from inver.services.iceberg.services import IcebergServices
from inver.services.lance.crossing import LancePortions
from inver.services.lance.services import LanceServices
from inver.services.names import Names
from inver.services.once import Once
from inver.services.permissions import Permissions
from inver.services.placement import Placement
from inver.services.planning import PURGE
from inver.services.principals import Principals
from inver.services.purging import Purging
from inver.services.search import Search
from inver.services.tables import Tables
from inver.services.throttle import Throttle
from inver.services.tokens import Tokens
from inver.services.transactions import Transactions


class Services:
    """From `open_objects` on, what is given are the adapters that services reach the world through."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        clock: Clock,
        server_id: str,
        warehouse: Location,
        external: tuple[Location, ...],
        open_objects: Callable[[Location], ObjectStore],
        summarize: Callable[[bytes], CommitSummary],
        read_manifest: Callable[[bytes], Manifest],
        lance_engine: LanceEngine,
        iceberg_manifests: ManifestReader,
    ) -> None:
        self.audit = Audit(store, clock)
        self.access = access = Access(store, self.audit)
        self.names = names = Names(store)
        auth = settings.auth
        self.throttle = Throttle(clock, auth.failures, int(auth.failure_interval * 1000))
        self.once = Once(store, clock)
        self.catalogs = Catalogs(store, clock, names, access)
        self.tables = Tables(store, names, access, self.catalogs)
        self.tokens = Tokens(store, clock, access, self.throttle)
        self.principals = Principals(store, clock, access)
        self.grants = Grants(store, clock, names, access)
        self.permissions = Permissions(store, clock, self.grants, access)
        self.cascade = Cascade(store, clock, names, access, settings.hold_ms)
        self.listing = Listing(store, access)
        self.search = Search(store, access)
        self.feed = Feed(store, access)
        self.placement = placement = Placement(warehouse, external)
        self.transactions = Transactions(store, clock, names, access, placement, self.once, settings.hold_ms)
        self.doctor = Doctor(store, clock, access, open_objects, warehouse)
        purging = Purging(store, clock, open_objects)
        self.iceberg = IcebergServices(
            store,
            clock,
            names,
            access,
            self.once,
            self.catalogs,
            self.tables,
            placement,
            open_objects,
            settings.hold_ms,
            settings.iceberg.cache,
            iceberg_manifests,
        )
        self.lance = LanceServices(
            store,
            clock,
            names,
            access,
            self.catalogs,
            self.cascade,
            self.tables,
            self.transactions,
            placement,
            open_objects,
            read_manifest,
            lance_engine,
            settings.lance.adopt_phantoms,
        )
        tasks = {
            PURGE: purging.purge,
            UNSTAGE: purging.unstage,
            FORGET: purging.forget,
            CLEAN: self.iceberg.files.clean,
        }
        self.followup = FollowUp(store, clock, f"{server_id}/{os.getpid()}", tasks)
        places = Places(open_objects)
        self.publishing = Publishing(store, places, settings.delta.publish_after_s)
        verify = settings.delta.verify_commits
        commits = Commits(store, clock, access, self.publishing, places, summarize, verify)
        self.transactions.bring(Format.DELTA, DeltaPortions(commits))
        self.transactions.bring(Format.ICEBERG, self.iceberg.portions)
        self.transactions.bring(Format.LANCE, LancePortions(self.lance.commits))
        self.delta = DeltaTables(
            store,
            clock,
            names,
            access,
            self.transactions,
            placement,
            commits,
            open_objects,
            summarize,
            settings.delta.stage_ms,
        )
