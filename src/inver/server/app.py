"""The composition root: the one place that knows what stands behind every port."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from ipaddress import ip_address
from pathlib import Path

import msgspec

from inver.auth.tokens import EverybodyIsAdmin, TokenAuthenticator
from inver.clock import Clock, SystemClock
from inver.config import Settings
from inver.domain.delta import CommitSummary
from inver.domain.governance import CreateToken
from inver.domain.lance import Manifest
from inver.domain.ledger import Transaction
from inver.domain.locations import Location
from inver.domain.principals import ADMIN, SYSTEM, Principal, Scope
from inver.errors import Broken
from inver.formats import iceberg_deletes, iceberg_manifests
from inver.formats.delta_first import write_first
from inver.formats.lance_engine import PylanceEngine
from inver.formats.sharing_answers import SharedLogs
from inver.ids import new_id
from inver.ports import ObjectStore, RequestSigner, Store
from inver.protocols import iceberg, lance, sharing, unity
from inver.protocols.docs.routes import Docs
from inver.protocols.http import Face, Request
from inver.protocols.management.care import CareRoutes
from inver.protocols.management.catalogs import CatalogRoutes
from inver.protocols.management.changes import ChangeRoutes
from inver.protocols.management.doctor import DoctorRoutes
from inver.protocols.management.grants import GrantRoutes
from inver.protocols.management.identity import IdentityRoutes
from inver.protocols.management.natives import Natives
from inver.protocols.management.routes import Management
from inver.protocols.management.scheduler import SchedulerRoutes
from inver.protocols.management.sharing import SharingRoutes
from inver.protocols.management.tables import TableRoutes
from inver.server.application import Application
from inver.server.care import CareWorker
from inver.server.health import Livez, Metrics, Readyz
from inver.server.limits import Limits
from inver.server.listener import Listener, listen
from inver.server.peers import Peers
from inver.server.router import Router
from inver.server.services import Services
from inver.server.telemetry import Telemetry
from inver.services.credentials import Credentials
from inver.services.scheduling import Scheduling
from inver.services.sharing.iceberg import IcebergLogs
from inver.services.sharing.services import SharingServices
from inver.services.tokens import new_token, split_token
from inver.storage.options import StorageOptions
from inver.storage.vending import Vending

log = logging.getLogger("inver.server")


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
        # Clients get locations back, and to them a folder is a file: URI.
        warehouse = Location.parse(settings.warehouse, field="storage.warehouse")
        self._warehouse = Location.parse(warehouse.canonical)
        self._external = tuple(
            Location.parse(root, field="storage.external_roots") for root in settings.external_roots
        )
        given = msgspec.structs.asdict(settings.storage)
        del given["warehouse"]
        self._storage = StorageOptions(**given)
        self.services = services = Services(
            settings,
            store,
            clock,
            server_id,
            self._warehouse,
            self._external,
            self.open_objects,
            _summarize,
            write_first,
            _read_manifest,
            PylanceEngine(settings.lance.threads, _lance_storage(settings)),
            iceberg_manifests,
        )
        self.authenticator: TokenAuthenticator | EverybodyIsAdmin = EverybodyIsAdmin(store)
        if settings.auth.enabled:
            self.authenticator = TokenAuthenticator(store, clock, services.throttle)
        authenticate = self.authenticator
        vending = Vending(clock, self._storage)
        logs = SharedLogs(settings.home / "cache" / "delta")
        self.sharing = SharingServices(
            store,
            clock,
            services.names,
            services.access,
            services.audit,
            services.throttle,
            logs,
            IcebergLogs(store, services.iceberg.states, services.iceberg.planning, iceberg_deletes, logs),
            services.placement,
            self.open_objects,
            vending,
        )
        self.care_worker = CareWorker(settings, store, clock)
        management = self._management(server_id)
        credentials = Credentials(store, services.names, services.access, services.placement, vending)
        faces: list[Face] = [management, self._iceberg(credentials), *self._unity(server_id, credentials)]
        faces.append(self._lance(credentials))
        faces.append(sharing.Sharing(self.sharing, settings.public_url))
        faces.append(Docs(lambda: _document(management)))
        checks = {"database": store.ping}
        self.telemetry = Telemetry()
        self.public = Application(
            Router([*faces, Livez(), Readyz(checks)], default=management),
            lambda request: authenticate(lance.presented(request), request.client),
            msgspec.convert(settings.limits, Limits, from_attributes=True),
        )
        self.private = Application(
            Router([Metrics(self.telemetry), Livez(), Readyz(checks)], default=management), _nobody
        )
        self.peers: Peers | None = None
        self._measure()

    def _management(self, server_id: str) -> Management:
        services = self.services
        database = "sqlite" if self.settings.database is None else "postgresql"
        return Management(
            [
                CatalogRoutes(services.catalogs),
                TableRoutes(services.tables, services.transactions),
                ChangeRoutes(
                    services.transactions,
                    services.feed,
                    f"urn:inver:{server_id}",
                    database,
                    Natives(unity.decode_commit, lance.decode_operation),
                ),
                IdentityRoutes(services.principals, services.tokens),
                GrantRoutes(services.grants, services.search),
                DoctorRoutes(services.doctor),
                CareRoutes(services.care),
                SchedulerRoutes(Scheduling(services.access, self.care_worker.told)),
                SharingRoutes(self.sharing.shares, self.sharing.recipients, self.settings.public_url),
            ]
        )

    def _iceberg(self, credentials: Credentials) -> Face:
        services = self.services.iceberg
        tables = iceberg.TableRoutes(
            services.tables,
            services.table_relations,
            services.reports,
            services.signing(_request_signer(self.settings)),
            credentials,
            _client_storage(self.settings),
        )
        rooms: list[iceberg.Room] = [
            iceberg.NamespaceRoutes(services.namespaces),
            tables,
            iceberg.PlanRoutes(services.planning, tables.vended),
            iceberg.ViewRoutes(services.views, services.view_relations),
        ]
        old = self.settings.iceberg.expired_as_419
        tokens = self.services.tokens
        return iceberg.Iceberg(tokens, self.authenticator, services.namespaces, rooms, old)

    def _lance(self, credentials: Credentials) -> Face:
        services = self.services.lance
        told = _lance_clients(self.settings)
        tables = lance.TableRoutes(services.tables, services.commits, services.registering, credentials, told)
        rooms: list[lance.Room] = [
            lance.NamespaceRoutes(services.spaces, services.tables),
            tables,
            lance.VersionRoutes(services.commits, services.versions, tables),
            lance.RefRoutes(services.refs, services.versions),
            lance.TransactionRoutes(services.transacting),
            lance.DataRoutes(services.data),
        ]
        return lance.Lance(rooms, self.services.tokens)

    def _unity(self, server_id: str, credentials: Credentials) -> list[Face]:
        services = self.services
        delta, tables, transactions = services.delta, services.tables, services.transactions
        locating = unity.Locating(services.catalogs)
        rooms: list[unity.Room] = [
            unity.CatalogRoutes(services.catalogs, services.cascade, self.store.names_of),
            unity.TableRoutes(delta, tables, transactions, services.listing, locating),
            unity.CommitRoutes(delta),
            unity.CredentialRoutes(credentials),
            unity.PermissionRoutes(services.permissions, server_id),
        ]
        v1 = unity.DeltaRoutes(delta, tables, transactions, services.catalogs, credentials, locating)
        control = unity.ControlRoutes(services.principals, services.tokens, self.authenticator)
        return [unity.Unity(rooms), unity.DeltaV1(v1), unity.UnityControl(control)]

    def share_metrics(self, folder: Path, number: int) -> None:
        """Let the workers of one server add up their counters in a folder of theirs."""
        self.peers = Peers(folder, number, self.telemetry)

    def _measure(self) -> None:
        telemetry, services = self.telemetry, self.services
        manifests = services.lance.finalizing
        telemetry.watch(self.public.meters)
        for name, about, read in (
            ("inver_commit_queue", "Commits that wait for their decision.", lambda: self.store.queued),
            ("inver_http_in_flight", "Requests being answered.", lambda: self.public.in_flight),
            ("inver_care_worker_running", "Workers of care that run.", lambda: self.care_worker.running),
        ):
            telemetry.gauge(name, about, read)
        for name, about, read in (
            ("inver_followup_done_total", "Follow-up items done.", lambda: services.followup.done),
            ("inver_followup_failed_total", "Follow-up tries that failed.", lambda: services.followup.failed),
            ("inver_published_total", "Delta commits published.", lambda: services.publishing.published),
            ("inver_publish_failed_total", "Delta tables not published.", lambda: services.publishing.failed),
            ("inver_lance_finalized_total", "Lance manifests finalized.", lambda: manifests.finalized),
            ("inver_lance_finalize_failed_total", "Lance manifests not finalized.", lambda: manifests.failed),
            ("inver_care_worker_restarts_total", "Workers restarted.", lambda: self.care_worker.restarts),
            ("inver_care_folded_total", "Events folded into health.", lambda: services.care.observer.folded),
            ("inver_audit_dropped_total", "Denials too many to record.", lambda: services.audit.dropped),
        ):
            telemetry.counter(name, about, read)

    def open_objects(self, location: Location) -> ObjectStore:
        from inver.storage.open import open_store as open_objects

        return open_objects(location, self._storage, allowed_roots=(self._warehouse, *self._external))


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
        services = app.services
        self._background = [
            asyncio.ensure_future(services.followup.run()),
            asyncio.ensure_future(services.publishing.run()),
            asyncio.ensure_future(services.iceberg.settling.run()),
            asyncio.ensure_future(services.lance.finalizing.run()),
            asyncio.ensure_future(services.care.observer.run()),
            asyncio.ensure_future(_every(300, services.once.forget)),
            asyncio.ensure_future(_every(300, services.tokens.forget)),
            asyncio.ensure_future(_every(300, services.iceberg.planning.forget)),
            asyncio.ensure_future(_every(1, services.audit.flush)),
            asyncio.ensure_future(_every(1, app.sharing.visits.flush)),
            asyncio.ensure_future(_every(60, app.sharing.door.flush_last_used)),
            asyncio.ensure_future(_every(60, app.authenticator.flush_last_used)),
        ]
        if app.peers is not None:
            self._background.append(asyncio.ensure_future(_every(1, app.peers.share)))

    async def stop(self) -> None:
        """Accepted requests are answered, then everything is closed."""
        await self.app.care_worker.stop()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self.app.store.end_waits()
        await self.public.stop(self.app.settings.grace_s)
        if self.private is not None:
            await self.private.stop(1.0)
        services = self.app.services
        for finish in (
            services.audit.flush,
            self.app.sharing.visits.flush,
            self.app.sharing.door.flush_last_used,
            services.lance.finalizing.let_go,
            self.app.authenticator.flush_last_used,
        ):
            with suppress(Exception):
                await finish()
        await self.app.store.close()


async def start(app: App, public: socket.socket, private: socket.socket | None) -> Running:
    """Serve on bound sockets; of several workers only one has the private one."""
    listener = await listen(app.public, bound=public, trusted_proxies=app.settings.trusted_proxies)
    probes = None if private is None else await listen(app.private, bound=private)
    gc.collect()
    gc.freeze()
    # What a request leaves behind is freed by its reference counts; cycles are rare and can wait.
    gc.set_threshold(20_000, 20, 20)
    return Running(app, listener, probes)


def write_ready_file(path: Path, url: str, management_url: str) -> None:
    """In one step, so that whoever waits for it never reads half of it."""
    body = msgspec.json.encode({"url": url, "management_url": management_url, "pid": os.getpid()})
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(body)
    temporary.replace(path)


def _summarize(data: bytes) -> CommitSummary:
    return _delta_summarizer()(data)


@cache
def _delta_summarizer() -> Callable[[bytes], CommitSummary]:
    from inver.formats.delta_commit import summarize

    return summarize


def _read_manifest(data: bytes) -> Manifest:
    from inver.formats.lance_manifest import read_manifest

    return read_manifest(data)


def _lance_clients(settings: Settings) -> dict[str, str]:
    """What Lance's clients need to know of an S3 store besides keys."""
    storage = settings.storage
    found = {
        "aws_endpoint": storage.endpoint,
        "aws_region": storage.region,
        "aws_allow_http": "true" if storage.allow_http else None,
    }
    return {name: value for name, value in found.items() if value}


def _lance_storage(settings: Settings) -> dict[str, str]:
    """How the library of Lance reaches an S3 store from here."""
    storage = settings.storage
    found = {
        "aws_access_key_id": storage.access_key,
        "aws_secret_access_key": storage.secret_key and storage.secret_key.reveal(),
        "aws_session_token": storage.session_token and storage.session_token.reveal(),
    }
    return {**_lance_clients(settings), **{name: value for name, value in found.items() if value}}


def _request_signer(settings: Settings) -> RequestSigner | None:
    storage = settings.storage
    if storage.access_key is None or storage.secret_key is None:
        return None
    from inver.storage.sigv4 import SigV4

    return SigV4(
        SystemClock(),
        storage.access_key,
        storage.secret_key,
        storage.session_token,
        storage.endpoint,
        storage.region,
    )


def _client_storage(settings: Settings) -> dict[str, str]:
    """What Iceberg's clients need to know of an S3 store besides keys."""
    storage = settings.storage
    told: dict[str, str] = {}
    if storage.endpoint is not None:
        told["s3.endpoint"] = storage.endpoint
        told["s3.path-style-access"] = "true" if storage.path_style else "false"
    if storage.region is not None:
        told["client.region"] = storage.region
    return told


def _document(management: Management) -> bytes:
    from inver.protocols.management.openapi import encode

    return encode(management.endpoints)


def _nobody(request: Request) -> Principal:
    raise AssertionError("every route of the management listener is public")


async def _every(seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception:
            # Bookkeeping that can wait for its next turn.
            log.exception("background work failed")
