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
from inver.services.delta.making import Making, WriteFirst
from inver.services.delta.places import Places
from inver.services.delta.publishing import Publishing
from inver.services.delta.staged import StagedCommits
from inver.services.delta.tables import UNSTAGE, DeltaTables
from inver.services.doctor import Doctor
from inver.services.feed import Feed
from inver.services.followup import FollowUp
from inver.services.grants import Grants
from inver.services.iceberg.files import CLEAN
from inver.services.iceberg.manifests import ManifestReader
from inver.services.iceberg.relations import FORGET
from inver.services.iceberg.services import IcebergServices
from inver.services.lance import cleaning as lance
from inver.services.lance.crossing import LancePortions
from inver.services.lance.services import LanceServices
from inver.services.maintenance.pins import Pins
from inver.services.maintenance.services import CareServices
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
        write_first: WriteFirst,
        read_manifest: Callable[[bytes], Manifest],
        lance_engine: LanceEngine,
        iceberg_manifests: ManifestReader,
    ) -> None:
        self._store, self._clock = store, clock
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
        self.care = CareServices(
            store, clock, names, access, Pins(store, open_objects).of, settings.care.lease
        )
        self.iceberg = self._iceberg(settings, open_objects, iceberg_manifests)
        self.lance = self._lance(settings, open_objects, read_manifest, lance_engine)
        self.delta = self._delta(settings, open_objects, summarize, write_first)
        purging = Purging(store, clock, open_objects)
        tasks = {
            PURGE: purging.purge,
            UNSTAGE: purging.unstage,
            FORGET: purging.forget,
            CLEAN: self.iceberg.files.clean,
            lance.CLEAN: self.lance.cleaning.clean,
            lance.UNPLACE: self.lance.cleaning.unplace,
        }
        self.followup = FollowUp(store, clock, f"{server_id}/{os.getpid()}", tasks)

    def _iceberg(
        self,
        settings: Settings,
        open_objects: Callable[[Location], ObjectStore],
        iceberg_manifests: ManifestReader,
    ) -> IcebergServices:
        made = IcebergServices(
            self._store,
            self._clock,
            self.names,
            self.access,
            self.once,
            self.catalogs,
            self.tables,
            self.placement,
            open_objects,
            settings.hold_ms,
            settings.iceberg.cache,
            iceberg_manifests,
        )
        self.transactions.bring(Format.ICEBERG, made.portions)
        return made

    def _lance(
        self,
        settings: Settings,
        open_objects: Callable[[Location], ObjectStore],
        read_manifest: Callable[[bytes], Manifest],
        lance_engine: LanceEngine,
    ) -> LanceServices:
        made = LanceServices(
            self._store,
            self._clock,
            self.names,
            self.access,
            self.catalogs,
            self.cascade,
            self.tables,
            self.transactions,
            self.placement,
            open_objects,
            read_manifest,
            lance_engine,
            settings.lance.adopt_phantoms,
            settings.lance.stage_ms,
        )
        self.transactions.bring(Format.LANCE, LancePortions(made.commits))
        return made

    def _delta(
        self,
        settings: Settings,
        open_objects: Callable[[Location], ObjectStore],
        summarize: Callable[[bytes], CommitSummary],
        write_first: WriteFirst,
    ) -> DeltaTables:
        places = Places(open_objects)
        self.publishing = Publishing(self._store, places, summarize, settings.delta.publish_after_s)
        verify = settings.delta.verify_commits
        staged = StagedCommits(self._store, summarize)
        commits = Commits(self._store, self._clock, self.access, self.publishing, places, staged, verify)
        tables = DeltaTables(
            self._store,
            self._clock,
            self.names,
            self.access,
            self.transactions,
            self.placement,
            commits,
            open_objects,
            staged,
            settings.delta.stage_ms,
        )
        making = Making(self._store, self._clock, tables, open_objects, write_first, summarize)
        self.transactions.bring(Format.DELTA, DeltaPortions(commits, making))
        return tables
