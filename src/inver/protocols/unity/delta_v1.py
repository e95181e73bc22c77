"""The routes of delta/v1."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager

import msgspec

from inver.domain import delta
from inver.domain.ledger import Receipt
from inver.domain.tables import Format, Table, TableKind
from inver.errors import Invalid, NotFound, OutcomeUnknown, PreconditionFailed, Refused
from inver.protocols.http import Request, Response, Route, then
from inver.protocols.unity import columns as cols
from inver.protocols.unity import delta_answers as answers
from inver.protocols.unity import delta_wire as wire
from inver.protocols.unity.coding import caller, decode, ok, required, secret
from inver.protocols.unity.credentials import table_access
from inver.protocols.unity.delta_updates import Updating, plain_proposal, read_update
from inver.protocols.unity.locating import Locating
from inver.services import intents as ask
from inver.services.catalogs import Catalogs
from inver.services.context import Caller
from inver.services.credentials import Credentials
from inver.services.delta.tables import DeltaTables
from inver.services.delta.types import Loaded, NewTable, Proposal, Snapshot
from inver.services.names import TableRef
from inver.services.tables import Tables
from inver.services.transactions import Transactions

_stage = msgspec.json.Decoder(wire.Stage).decode
_create = msgspec.json.Decoder(wire.Create).decode
_update = msgspec.json.Decoder(wire.Update).decode
_rename = msgspec.json.Decoder(wire.Rename).decode
_metrics = msgspec.json.Decoder(wire.Metrics).decode

PROTOCOL_VERSION = "1.0"
# A client names the newest version it speaks of each major one, and speaks those before it.
_SPOKEN = re.compile(r"1\.[0-9]+").fullmatch
SCHEMA = "/catalogs/{catalog}/schemas/{schema}"
TABLE = SCHEMA + "/tables/{table}"


class DeltaRoutes:
    def __init__(
        self,
        delta: DeltaTables,
        tables: Tables,
        transactions: Transactions,
        catalogs: Catalogs,
        credentials: Credentials,
        locating: Locating,
    ) -> None:
        self._delta = delta
        self._tables = tables
        self._transactions = transactions
        self._catalogs = catalogs
        self._credentials = credentials
        self._locating = locating
        self._loaded = answers.LoadedTables()

    def routes(self) -> list[Route]:
        return [Route("GET", "/config", self.config), *self._advertised()]

    def _advertised(self) -> list[Route]:
        return [
            Route("POST", SCHEMA + "/staging-tables", self.stage),
            Route("POST", SCHEMA + "/tables", self.create),
            Route("GET", TABLE, self.load),
            Route("POST", TABLE, self.update),
            Route("DELETE", TABLE, self.drop),
            Route("HEAD", TABLE, self.exists),
            Route("POST", TABLE + "/rename", self.rename),
            Route("GET", TABLE + "/credentials", self.credentials),
            Route("POST", TABLE + "/metrics", self.metrics),
            Route("GET", "/staging-tables/{table_id}/credentials", self.staged_credentials),
            Route("GET", "/temporary-path-credentials", self.path_credentials),
        ]

    async def config(self, request: Request) -> Response:
        await self._catalogs.get(caller(request), required(request, "catalog"))
        versions = required(request, "protocol-versions")
        if not any(_SPOKEN(each.strip()) for each in versions.split(",")):
            raise Invalid(
                f"no version of {versions[:100]!r} is spoken here; {PROTOCOL_VERSION} is",
                field="protocol-versions",
            )
        endpoints = [f"{route.method} /v1{route.template}" for route in self._advertised()]
        return ok({"endpoints": endpoints, "protocol-version": PROTOCOL_VERSION})

    async def stage(self, request: Request) -> Response:
        asks = caller(request)
        body = decode(request, _stage)
        async with self._inside(request):
            staged = await self._delta.stage(asks, (*request.args, body.name))
        vended = await self._credentials.for_staged(asks, staged.id)
        return secret(answers.staged_table(staged, vended))

    async def create(self, request: Request) -> Response:
        body = decode(request, _create)
        columns = cols.from_struct(body.columns)
        if body.partition_columns is not None:
            columns = cols.partitioned(columns, body.partition_columns)
        if body.table_type not in (TableKind.MANAGED, TableKind.EXTERNAL):
            raise Invalid("table-type must be MANAGED or EXTERNAL", field="table-type")
        make = self._finish if body.table_type == TableKind.MANAGED else self._register
        async with self._inside(request):
            loaded = await make(request, body, columns)
        return await self._changed(caller(request), loaded.table.id)

    async def _register(self, request: Request, body: wire.Create, columns: list[cols.Column]) -> Loaded:
        return await self._delta.register(
            caller(request),
            (*request.args, body.name),
            body.location,
            Format.DELTA,
            cols.encode(columns),
            delta.stored_properties(body.properties),
            body.comment,
            delta.DeltaHead(
                protocol=body.protocol.protocol(),
                partition_columns=tuple(body.partition_columns or ()),
                domains=body.domain_metadata.domains() if body.domain_metadata else {},
                updated_timestamp=body.last_commit_timestamp_ms,
                uniform=body.uniform.uniform() if body.uniform else None,
                managed=False,
            ),
        )

    async def _finish(self, request: Request, body: wire.Create, columns: list[cols.Column]) -> Loaded:
        return await self._delta.create(
            caller(request),
            NewTable(
                name=(*request.args, body.name),
                location=body.location,
                columns=cols.encode(columns),
                properties=body.properties,
                comment=body.comment,
                protocol=body.protocol.protocol(),
                partition_columns=None if body.partition_columns is None else tuple(body.partition_columns),
                domains=body.domain_metadata.domains() if body.domain_metadata else {},
                timestamp=body.last_commit_timestamp_ms,
                uniform=body.uniform.uniform() if body.uniform else None,
            ),
        )

    async def load(self, request: Request) -> Response:
        asks = caller(request)
        try:
            return self._answer(await self._delta.snapshot(asks, request.args))
        except NotFound:
            async with self._inside(request):
                raise

    def update(self, request: Request) -> Awaitable[Response]:
        asks = caller(request)
        body = decode(request, _update)
        proposal = plain_proposal(body)
        proposed = None if proposal is None else self._delta.propose_to(asks, request.args, proposal)
        if proposal is None or proposed is None:
            return self._updated(request, asks, read_update(body))

        def finish(receipt: Receipt | None) -> Response | Awaitable[Response]:
            after = self._delta.followed(asks, proposal, receipt)
            return self._changed(asks, proposal.table_id) if after is None else self._answer(after)

        return then(proposed, finish)

    async def _updated(self, request: Request, asks: Caller, update: Updating) -> Response:
        try:
            table = await self._table(request)
            answers.require_delta(table)
            if table.id != update.uuid:
                raise PreconditionFailed(f"the name stands for the table {table.id} now")
        except Refused:
            info = update.info
            if info is None or not await self._delta.has_happened(asks, update.uuid, info):
                raise
            # It was sent before, under the name that the table had then.
            return await self._changed(asks, update.uuid)
        return await self._proposed(asks, update.proposal(table))

    async def _proposed(self, asks: Caller, proposal: Proposal) -> Response:
        await self._delta.propose(asks, proposal)
        return await self._changed(asks, proposal.table_id)

    async def _changed(self, asks: Caller, table_id: str) -> Response:
        try:
            return self._answer(await self._delta.changed_snapshot(asks, table_id))
        except NotFound:
            # It is applied; to say that the table is not there would say that it is not.
            raise OutcomeUnknown("the request is applied, and the table was dropped after it") from None

    async def exists(self, request: Request) -> Response:
        await self._table(request)
        return Response(204)

    async def drop(self, request: Request) -> Response:
        asks = caller(request)
        async with self._inside(request):
            await self._transactions.decide(asks, [ask.DropTable(table=TableRef(name=request.args))])
        return Response(204)

    async def rename(self, request: Request) -> Response:
        asks = caller(request)
        body = decode(request, _rename)
        intent = ask.RenameTable(table=TableRef(name=request.args), to=(*request.args[:2], body.new_name))
        async with self._inside(request):
            await self._transactions.decide(asks, [intent])
        return Response(204)

    async def credentials(self, request: Request) -> Response:
        asks = caller(request)
        access = table_access(required(request, "operation"))
        async with self._inside(request):
            vended = await self._credentials.for_table(asks, TableRef(name=request.args), access)
        return secret({"storage-credentials": [answers.storage_credential(vended)]})

    async def staged_credentials(self, request: Request) -> Response:
        vended = await self._credentials.for_staged(caller(request), request.args[0])
        return secret({"storage-credentials": [answers.storage_credential(vended)]})

    async def path_credentials(self, request: Request) -> Response:
        access = table_access(required(request, "operation"))
        vended = await self._credentials.for_new_table(caller(request), required(request, "location"), access)
        return secret({"storage-credentials": [answers.storage_credential(vended)]})

    async def metrics(self, request: Request) -> Response:
        body = decode(request, _metrics)
        table = await self._table(request)
        answers.require_delta(table)
        if table.id != body.table_id.lower():
            raise Invalid("table-id is not the id of the table in the path", field="table-id")
        if body.report is not None and body.report.commit_report is not None:
            await self._delta.report(caller(request), table.id, None, body.report.commit_report.report())
        return Response(204)

    def _inside(self, request: Request) -> AbstractAsyncContextManager[None]:
        return self._locating.inside(caller(request), request.args[0], request.args[1:2])

    async def _table(self, request: Request) -> Table:
        asks = caller(request)
        async with self._inside(request):
            return await self._tables.get(asks, TableRef(name=request.args))

    def _answer(self, snapshot: Snapshot) -> Response:
        return Response(200, self._loaded.answer(snapshot))
