"""Everything that Lance tables need, built once and shared by all who ask."""

from __future__ import annotations

from collections.abc import Callable

from inver.clock import Clock
from inver.domain.lance import Manifest
from inver.domain.locations import Location
from inver.ports import LanceEngine, ObjectStore, Store
from inver.services.access import Access
from inver.services.cascade import Cascade
from inver.services.catalogs import Catalogs
from inver.services.lance.cleaning import Cleaning
from inver.services.lance.commits import Commits
from inver.services.lance.data import Data
from inver.services.lance.finalizing import Finalizing
from inver.services.lance.finding import Finding
from inver.services.lance.importing import Importing
from inver.services.lance.manifests import Manifests
from inver.services.lance.phantoms import Phantoms
from inver.services.lance.refs import Refs
from inver.services.lance.registering import Registering
from inver.services.lance.spaces import Spaces
from inver.services.lance.tables import LanceTables
from inver.services.lance.transacting import Transacting
from inver.services.lance.versions import Versions
from inver.services.names import Names
from inver.services.placement import Placement
from inver.services.tables import Tables
from inver.services.transactions import Transactions


class LanceServices:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        names: Names,
        access: Access,
        catalogs: Catalogs,
        cascade: Cascade,
        tables: Tables,
        transactions: Transactions,
        placement: Placement,
        open_objects: Callable[[Location], ObjectStore],
        read_manifest: Callable[[bytes], Manifest],
        engine: LanceEngine,
        adopt_phantoms: bool,
        stage_ms: int,
    ) -> None:
        finding = Finding(store, access)
        manifests = Manifests(open_objects, read_manifest)
        self.finalizing = finalizing = Finalizing(store, clock, manifests)
        self.cleaning = cleaning = Cleaning(store, clock, manifests, stage_ms)
        importing = Importing(store, clock, manifests)
        phantoms = Phantoms(store, clock, manifests, finalizing, adopt_phantoms)
        self.versions = versions = Versions(store, finding, manifests, finalizing, importing)
        self.refs = refs = Refs(store, clock, finding, manifests, versions)
        self.commits = Commits(
            store,
            clock,
            names,
            access,
            placement,
            finding,
            manifests,
            finalizing,
            phantoms,
            importing,
            cleaning,
        )
        self.registering = Registering(store, clock, names, access, placement, manifests, refs, open_objects)
        self.tables = LanceTables(store, access, transactions, catalogs, tables, finding, versions, refs)
        self.data = Data(finding, versions, self.commits, cleaning, engine)
        self.spaces = Spaces(access, catalogs, cascade)
        self.transacting = Transacting(store, access, finding)
