"""Everything that serves Iceberg's clients, built once and sharing one memory of states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from inver.clock import Clock
from inver.domain.locations import Location
from inver.ports import ObjectStore, Store
from inver.services.access import Access
from inver.services.catalogs import Catalogs
from inver.services.iceberg.commits import Commits
from inver.services.iceberg.crossing import IcebergPortions
from inver.services.iceberg.drafts import Drafts
from inver.services.iceberg.files import Files
from inver.services.iceberg.finding import Desk, Finder
from inver.services.iceberg.manifests import ManifestReader, Manifests
from inver.services.iceberg.namespaces import Namespaces
from inver.services.iceberg.places import Places
from inver.services.iceberg.planning import Planning
from inver.services.iceberg.relations import Relations
from inver.services.iceberg.reports import Reports
from inver.services.iceberg.sealing import Seal
from inver.services.iceberg.settling import Settling
from inver.services.iceberg.signing import Signing
from inver.services.iceberg.states import States
from inver.services.iceberg.tables import IcebergTables
from inver.services.iceberg.views import IcebergViews
from inver.services.names import Names
from inver.services.once import Once
from inver.services.placement import Placement
from inver.services.tables import Tables


class IcebergServices:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        names: Names,
        access: Access,
        once: Once,
        catalogs: Catalogs,
        tables: Tables,
        placement: Placement,
        open_objects: Callable[[Location], ObjectStore],
        hold_ms: int,
        cache: int,
        manifests: ManifestReader,
    ) -> None:
        self.files = files = Files(open_objects)
        self.states = states = States(store, cache)
        self.finder = finder = Finder(store, names, access)
        desk = Desk(store, clock, access, once)
        places = Places(store, access, placement)
        self.settling = Settling(store, states, files)
        drafts = Drafts(access, finder, desk, states, places)
        commits = Commits(finder, desk, states, files, self.settling, drafts)
        self.portions = IcebergPortions(commits, files)
        self.namespaces = Namespaces(store, catalogs, finder, desk)
        self.table_relations, self.view_relations = (
            Relations(store, access, tables, finder, desk, states, files, hold_ms, view)
            for view in (False, True)
        )
        self.tables = IcebergTables(finder, desk, places, files, commits, self.table_relations)
        self.reports = Reports(store, access, finder, desk)
        seal = Seal(store)
        self.signing = partial(Signing, finder, places, clock, seal)
        self.planning = Planning(
            store,
            clock,
            self.table_relations,
            Manifests(store, placement, open_objects, manifests),
            seal,
        )
        self.views = IcebergViews(desk, places, files, commits, self.view_relations)
