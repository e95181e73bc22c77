"""Tables: created, loaded, committed, renamed, dropped."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import quote

import msgspec

from inver.domain import iceberg
from inver.domain.grants import Action
from inver.domain.locations import Location
from inver.domain.tables import Table
from inver.errors import Refused, Stale
from inver.protocols.http import Request, Response, Route
from inver.protocols.iceberg import wire
from inver.protocols.iceberg.answers import (
    SIGNING,
    VENDED,
    Keys,
    delegation_of,
    etag,
    listing,
    mode_of,
    table_answer,
    unchanged,
)
from inver.protocols.iceberg.coding import (
    DONE,
    NAMESPACE,
    SEPARATOR,
    TABLE,
    TABLES,
    caller,
    care_of,
    decode,
    flag,
    identifier,
    namespace,
    ok,
)
from inver.services.credentials import Credentials, Vended
from inver.services.iceberg.commits import Loaded
from inver.services.iceberg.naming import Identifier
from inver.services.iceberg.relations import Relations
from inver.services.iceberg.reports import Reports
from inver.services.iceberg.signing import READS, STAGED, Signing, SignRequest
from inver.services.iceberg.tables import IcebergTables

_rename = msgspec.json.Decoder(wire.Rename).decode
_sign = msgspec.json.Decoder(SignRequest).decode
_report = msgspec.json.Decoder(wire.Report).decode
_register = msgspec.json.Decoder(wire.Register).decode


class TableRoutes:
    """`storage` is what clients of S3 need to know besides keys: endpoint, region, addressing."""

    def __init__(
        self,
        tables: IcebergTables,
        relations: Relations,
        reports: Reports,
        signing: Signing,
        credentials: Credentials,
        storage: Mapping[str, str],
    ) -> None:
        self._tables = tables
        self._relations = relations
        self._reports = reports
        self._signing = signing
        self._credentials = credentials
        self._storage = storage

    def routes(self) -> list[Route]:
        return [
            Route("GET", TABLES, self.names),
            Route("POST", TABLES, self.create),
            Route("POST", NAMESPACE + "/register", self.register),
            Route("GET", TABLE, self.load),
            Route("HEAD", TABLE, self.exists),
            Route("POST", TABLE, self.commit),
            Route("DELETE", TABLE, self.drop),
            Route("POST", TABLE + "/unregister", self.unregister),
            Route("GET", TABLE + "/credentials", self.credentials),
            Route("POST", TABLE + "/metrics", self.report),
            Route("POST", TABLE + "/sign", self.sign),
            Route("POST", "/v1/{prefix}/tables/rename", self.rename),
            Route("POST", "/v1/{prefix}/transactions/commit", self.transact),
        ]

    async def names(self, request: Request) -> Response:
        return await listing(request, self._relations)

    async def create(self, request: Request) -> Response:
        asks, (catalog, path) = caller(request), namespace(request)
        body = decode(request, iceberg.decode_create_table)
        name = Identifier(catalog, path, body.name)
        if not body.stage_create:
            made = await self._tables.create(asks, name, body, request.body)
            return await self._answer(request, name, made)
        staged = await self._tables.stage(asks, name, body)
        location, vended, signing = staged.state.head.location, None, None
        if VENDED in delegation_of(request):
            vended = await self._credentials.for_new(Location.parse(location))
        if SIGNING in delegation_of(request):
            signing = {STAGED: await self._signing.staged(asks, name, staged.table_id, location)}
        return table_answer(staged, self._keys(request, name, location, vended, signing))

    async def register(self, request: Request) -> Response:
        asks, (catalog, path) = caller(request), namespace(request)
        body = decode(request, _register)
        name = Identifier(catalog, path, body.name)
        loaded = await self._tables.register(asks, name, body.metadata_location, body.overwrite)
        return await self._answer(request, name, loaded)

    async def load(self, request: Request) -> Response:
        asks, name, mode = caller(request), identifier(request), mode_of(request)
        table = await self._relations.find(asks, name, Action.LOAD)
        keys = self._keys(request, name, table.location, await self._vend(request, table))
        tag = etag(table.id, table.version, mode, keys)
        if unchanged(request, tag):
            return Response(304, headers=((b"ETag", tag),))
        return table_answer(await self._relations.load(table), keys, mode)

    async def exists(self, request: Request) -> Response:
        await self._relations.exists(caller(request), identifier(request))
        return DONE

    async def commit(self, request: Request) -> Response:
        body = decode(request, iceberg.decode_commit)
        if run := care_of(request):
            body = iceberg.marked(body, run)
        loaded = await self._tables.commit(caller(request), identifier(request), body, request.body)
        return table_answer(loaded, None)

    async def transact(self, request: Request) -> Response:
        catalog = request.args[0]
        run = care_of(request)
        changes = [
            (
                Identifier(catalog, change.identifier.namespace, change.identifier.name),
                iceberg.marked(change, run) if run else change,
            )
            for change in decode(request, iceberg.decode_transaction)
            if change.identifier is not None
        ]
        await self._tables.transact(caller(request), catalog, changes, request.body)
        return DONE

    async def drop(self, request: Request) -> Response:
        purge = flag(request, "purgeRequested")
        await self._relations.drop(caller(request), identifier(request), purge)
        return DONE

    async def unregister(self, request: Request) -> Response:
        return table_answer(await self._relations.unregister(caller(request), identifier(request)), None)

    async def rename(self, request: Request) -> Response:
        body, catalog = decode(request, _rename), request.args[0]
        asks = caller(request)
        await self._relations.rename(asks, body.source.within(catalog), body.destination.within(catalog))
        return DONE

    async def report(self, request: Request) -> Response:
        body = decode(request, _report)
        asks, name = caller(request), identifier(request)
        await self._reports.add(asks, name, body.report_type, body.snapshot_id, request.body)
        return DONE

    async def sign(self, request: Request) -> Response:
        body = decode(request, _sign)
        if staged := request.param(STAGED):
            body = msgspec.structs.replace(body, properties={STAGED: staged, **body.properties})
        signed = await self._signing.sign(caller(request), identifier(request), body)
        # A read may be repeated with the same signature for a while; a change is signed each time.
        kept = b"private" if body.method in READS else b"no-cache"
        return ok(signed, ((b"Cache-Control", kept),))

    async def credentials(self, request: Request) -> Response:
        asks, name = caller(request), identifier(request)
        table = await self._relations.find(asks, name, Action.READ)
        vended = await self._credentials.by_right(asks, table)
        keys = self._keys(request, name, table.location, vended)
        return ok({"storage-credentials": keys.credentials}, ((b"Cache-Control", b"no-store"),))

    async def vended(self, request: Request) -> list[dict[str, object]]:
        """Keys to the files of the table that a request is about, if it asks for some."""
        if VENDED not in delegation_of(request):
            return []
        name = identifier(request)
        table = await self._relations.find(caller(request), name, Action.READ)
        return self._keys(request, name, table.location, await self._vend(request, table)).credentials

    async def _answer(self, request: Request, name: Identifier, loaded: Loaded) -> Response:
        """What was made is there, and its keys are what its maker may have now.

        Were the request started over because rights have changed meanwhile, it would find its own table
        in its way; so who cannot be given keys at once asks for them when they are needed.
        """
        vended = None
        if VENDED in delegation_of(request):
            with suppress(Stale, Refused):
                table = await self._relations.find(caller(request), name, Action.LOAD)
                vended = await self._vend(request, table)
        return table_answer(loaded, self._keys(request, name, loaded.state.head.location, vended))

    async def _vend(self, request: Request, table: Table) -> Vended | None:
        if VENDED not in delegation_of(request):
            return None
        return await self._credentials.by_right(caller(request), table)

    def _keys(
        self,
        request: Request,
        name: Identifier,
        location: str,
        vended: Vended | None,
        signing: Mapping[str, str] | None = None,
    ) -> Keys:
        parts = (name.catalog, SEPARATOR.join(name.namespace), name.name)
        prefix, path, table = (quote(part, safe="") for part in parts)
        url = f"v1/{prefix}/namespaces/{path}/tables/{table}"
        signs = self._signing.offered(location)
        return Keys(location, delegation_of(request), vended, self._storage, url, signs, signing)
