"""The composition root: the one place that knows what stands behind every port."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import msgspec

from inver.auth.tokens import EverybodyIsAdmin, TokenAuthenticator
from inver.clock import Clock, SystemClock
from inver.config import Settings
from inver.domain.delta import CommitSummary
from inver.domain.governance import CreateToken
from inver.domain.ledger import Transaction
from inver.domain.locations import Location
from inver.domain.principals import ADMIN, SYSTEM, Principal, Scope
from inver.errors import Broken
from inver.ids import new_id
from inver.ports import ObjectStore, Store
from inver.protocols.http import Request
from inver.protocols.management.catalogs import CatalogRoutes
from inver.protocols.management.changes import ChangeRoutes
from inver.protocols.management.doctor import DoctorRoutes
from inver.protocols.management.grants import GrantRoutes
from inver.protocols.management.identity import IdentityRoutes
from inver.protocols.management.routes import Management
from inver.protocols.management.tables import TableRoutes
from inver.server.application import Application
from inver.server.health import Livez, Metrics, Readyz
from inver.server.limits import Limits
from inver.server.listener import Listener, listen
from inver.server.router import Router
from inver.server.telemetry import Telemetry
from inver.services.access import Access
from inver.services.audit import Audit
from inver.services.catalogs import Catalogs
from inver.services.delta.commits import Commits
from inver.services.delta.publishing import Publishing
from inver.services.delta.tables import UNSTAGE, DeltaTables
from inver.services.doctor import Doctor
from inver.services.feed import Feed
from inver.services.followup import FollowUp
from inver.services.grants import Grants
from inver.services.names import Names
from inver.services.once import Once
from inver.services.placement import Placement
from inver.services.principals import Principals
from inver.services.purging import Purging
from inver.services.search import Search
from inver.services.tables import Tables
from inver.services.throttle import Throttle
from inver.services.tokens import Tokens, new_token, split_token
from inver.services.transactions import PURGE, Transactions


async def open_store(settings: Settings) -> Store:
    if settings.database is None:
        from inver.stores.sqlite import SqliteStore

        return await SqliteStore.open(settings.database_file)
    from inver.stores.postgres import PostgresStore

    return await PostgresStore.open(settings.database)


async def migrate(database: str, check: bool = False) -> tuple[int, int]:
    from inver.stores.postgres import PostgresStore

    return await PostgresStore.migrate(database, check)


class App:
    """A store, the services on it, and the applications of both listeners."""

    def __init__(self, settings: Settings, store: Store, server_id: str, clock: Clock) -> None:
        self.settings = settings
        self.store = store
        self._warehouse = Location.parse(settings.warehouse, field="storage.warehouse")
        self._external = tuple(
            Location.parse(root, field="storage.external_roots") for root in settings.external_roots
        )
        self.audit = Audit(store, clock)
        access = Access(store, self.audit)
        names = Names(store)
        auth = settings.auth
        throttle = Throttle(clock, auth.failures, int(auth.failure_interval * 1000))
        catalogs = Catalogs(store, clock, names, access)
        tables = Tables(store, names, access, catalogs)
        tokens = Tokens(store, clock, access, throttle)
        self.once = Once(store, clock)
        placement = Placement(self._warehouse, self._external)
        transactions = Transactions(store, clock, names, access, placement, self.once, settings.hold_ms)
        purging = Purging(store, clock, self.open_objects)
        tasks = {PURGE: purging.purge, UNSTAGE: purging.unstage}
        self.followup = FollowUp(store, clock, f"{server_id}/{os.getpid()}", tasks)
        self.publishing = Publishing(store, self.open_objects, settings.delta.publish_after_s)
        commits = Commits(
            store,
            clock,
            access,
            self.publishing,
            self.open_objects,
            _summarize,
            settings.delta.verify_commits,
        )
        self.delta = DeltaTables(
            store,
            clock,
            names,
            access,
            transactions,
            placement,
            commits,
            self.open_objects,
            _summarize,
            settings.delta.stage_ms,
        )
        database = "sqlite" if settings.database is None else "postgresql"
        management = Management(
            [
                CatalogRoutes(catalogs),
                TableRoutes(tables, transactions),
                ChangeRoutes(transactions, Feed(store, access), f"urn:inver:{server_id}", database),
                IdentityRoutes(Principals(store, clock, access), tokens),
                GrantRoutes(Grants(store, clock, names, access), Search(store, access)),
                DoctorRoutes(Doctor(store, clock, access, self.open_objects, self._warehouse)),
            ]
        )
        self.authenticator: TokenAuthenticator | EverybodyIsAdmin = EverybodyIsAdmin(store)
        if settings.auth.enabled:
            self.authenticator = TokenAuthenticator(store, clock, throttle)
        authenticate = self.authenticator
        checks = {"database": store.ping}
        telemetry = Telemetry()
        self.public = Application(
            Router([management, Livez(), Readyz(checks)], default=management),
            lambda request: authenticate(request.header(b"authorization"), request.client),
            msgspec.convert(settings.limits, Limits, from_attributes=True),
        )
        self.private = Application(
            Router([Metrics(telemetry), Livez(), Readyz(checks)], default=management), _nobody
        )
        telemetry.watch(self.public.meters)
        telemetry.gauge("inver_commit_queue", "Commits that wait for their decision.", lambda: store.queued)
        telemetry.gauge("inver_http_in_flight", "Requests being answered.", lambda: self.public.in_flight)
        telemetry.counter("inver_followup_done_total", "Follow-up items done.", lambda: self.followup.done)
        telemetry.counter(
            "inver_followup_failed_total", "Follow-up attempts that failed.", lambda: self.followup.failed
        )

    def open_objects(self, location: Location) -> ObjectStore:
        from inver.storage.open import open_store as open_objects
        from inver.storage.options import StorageOptions

        given = msgspec.structs.asdict(self.settings.storage)
        del given["warehouse"]
        roots = (self._warehouse, *self._external)
        return open_objects(location, StorageOptions(**given), allowed_roots=roots)


async def build(settings: Settings, clock: Clock | None = None) -> App:
    clock = clock or SystemClock()
    require_safe_address(settings)
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    warehouse = Location.parse(settings.warehouse, field="storage.warehouse")
    if warehouse.is_local:
        os.makedirs(warehouse.local_path, exist_ok=True)
    store = await open_store(settings)
    try:
        server_id = await store.remember("server_id", new_id())
        return App(settings, store, server_id, clock)
    except BaseException:
        await store.close()
        raise


def require_safe_address(settings: Settings) -> None:
    """Without authentication everybody who reaches the port owns the catalog."""
    if settings.auth.enabled or settings.auth.allow_insecure or is_loopback(settings.host):
        return
    raise Broken(
        f"authentication is off, and other machines can reach {settings.host}",
        fix="switch auth.enabled on, listen on 127.0.0.1, or set auth.allow_insecure if you mean it",
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def first_token(app: App) -> str | None:
    """Make the admin's token on the first start; returns it only then, to be shown once."""
    path = app.settings.token_file
    with suppress(FileNotFoundError):
        known = split_token(path.read_text().strip())
        if known is not None and await app.store.token(known[0]) is not None:
            return None
    token_id, token, hashed = new_token()
    operation = CreateToken(
        id=token_id, principal_id=ADMIN.id, hash=hashed, label="first start", scope=Scope.ALL, expires_at=None
    )
    await app.store.decide(Transaction(SYSTEM.id, SystemClock().now_ms(), (operation,)))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(descriptor, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token.reveal() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return token.reveal()


class Running:
    """A server that accepts connections."""

    def __init__(self, app: App, public: Listener, private: Listener | None) -> None:
        self.app = app
        self.public = public
        self.private = private
        self._background = [
            asyncio.ensure_future(app.followup.run()),
            asyncio.ensure_future(app.publishing.run()),
            asyncio.ensure_future(_forget_keys(app.once)),
        ]

    async def stop(self) -> None:
        """Accepted requests are answered, then everything is closed."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self.app.store.end_waits()
        await self.public.stop(self.app.settings.grace_s)
        if self.private is not None:
            await self.private.stop(1.0)
        await self.app.store.close()


async def start(app: App, public: socket.socket, private: socket.socket | None) -> Running:
    """Serve on bound sockets; of several workers only one has the private one."""
    listener = await listen(app.public, bound=public, trusted_proxies=app.settings.trusted_proxies)
    probes = None if private is None else await listen(app.private, bound=private)
    gc.collect()
    gc.freeze()
    return Running(app, listener, probes)


def write_ready_file(path: Path, url: str, management_url: str) -> None:
    """In one step, so that whoever waits for it never reads half of it."""
    body = msgspec.json.encode({"url": url, "management_url": management_url, "pid": os.getpid()})
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(body)
    temporary.replace(path)


def _summarize(data: bytes) -> CommitSummary:
    from inver.formats.delta_commit import summarize

    return summarize(data)


def _nobody(request: Request) -> Principal:
    raise AssertionError("every route of the management listener is public")


async def _forget_keys(once: Once) -> None:
    while True:
        await asyncio.sleep(300)
        with suppress(Exception):
            await once.forget()
