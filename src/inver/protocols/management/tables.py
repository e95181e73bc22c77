"""Tables on the wire."""

from __future__ import annotations

import msgspec

from inver.domain.ledger import Receipt
from inver.domain.tables import Table, TableDetails
from inver.domain.uuids import is_uuid
from inver.errors import Invalid
from inver.protocols.http import Request, Response
from inver.protocols.management import wire
from inver.protocols.management.catalogs import SCHEMA
from inver.protocols.management.coding import (
    caller,
    decode,
    encode,
    if_match,
    ok,
    page_size,
    page_start,
    paged,
    schema_path,
    table_name,
    whole,
)
from inver.protocols.management.endpoint import PAGE, Endpoint, Param
from inver.services import intents as ask
from inver.services.names import TableRef
from inver.services.tables import LAST_VERSION, Tables
from inver.services.transactions import Transactions

_create_table = msgspec.json.Decoder(wire.CreateTable).decode
_alter_table = msgspec.json.Decoder(wire.AlterTable).decode
_rename = msgspec.json.Decoder(wire.RenameTable).decode
_undrop = msgspec.json.Decoder(wire.UndropTable).decode

TABLE = SCHEMA + "/tables/{table}"
BY_ID = "/tables/{id}"
_HISTORY = (
    Param("branch", "Which branch; the main one by default."),
    Param("first", "Oldest version to show.", "integer", least=0),
    Param("last", "Newest version to show.", "integer", least=0),
    PAGE[1],
)


class TableRoutes:
    def __init__(self, tables: Tables, transactions: Transactions) -> None:
        self._tables = tables
        self._transactions = transactions

    def endpoints(self) -> list[Endpoint]:
        return [*self._endpoints_of_schemas(), *self._endpoints_by_name(), *self._endpoints_by_id()]

    def _endpoints_of_schemas(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                SCHEMA + "/tables",
                self.list_tables,
                "tables",
                "List the tables of a schema that the caller may see",
                params=PAGE,
                returns=wire.TableList,
            ),
            Endpoint(
                "POST",
                SCHEMA + "/tables",
                self.create_table,
                "tables",
                "Create a table, or register an external one",
                body=wire.CreateTable,
                returns=wire.TableInfo,
                status=201,
                keyed=True,
            ),
            Endpoint(
                "GET",
                SCHEMA + "/dropped",
                self.list_dropped,
                "tables",
                "List dropped tables that can still come back",
                params=(PAGE[1],),
                returns=wire.TableList,
            ),
        ]

    def _endpoints_by_name(self) -> list[Endpoint]:
        return [
            Endpoint("GET", TABLE, self.get_table, "tables", "Show a table", returns=wire.TableInfo),
            Endpoint(
                "PATCH",
                TABLE,
                self.alter_table,
                "tables",
                "Change a table's comment, properties, columns or owner",
                body=wire.AlterTable,
                returns=wire.TableInfo,
                etag=True,
                keyed=True,
            ),
            Endpoint(
                "DELETE",
                TABLE,
                self.drop_table,
                "tables",
                "Drop a table; it can come back until its hold time ends",
                status=204,
                etag=True,
                keyed=True,
            ),
            Endpoint(
                "GET",
                TABLE + "/commits",
                self.table_history,
                "tables",
                "Show a table's versions, newest first",
                params=_HISTORY,
                returns=wire.History,
            ),
            Endpoint(
                "GET",
                TABLE + "/metrics",
                self.table_metrics,
                "tables",
                "Show what clients measured of their commits",
                params=(PAGE[1],),
                returns=wire.ReportList,
            ),
            Endpoint(
                "POST",
                TABLE + "/rename",
                self.rename_table,
                "tables",
                "Rename a table, also into another schema",
                body=wire.RenameTable,
                returns=wire.TableInfo,
                keyed=True,
            ),
        ]

    def _endpoints_by_id(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET", BY_ID, self.get_table_by_id, "tables", "Show a table by id", returns=wire.TableInfo
            ),
            Endpoint(
                "GET",
                BY_ID + "/commits",
                self.history_by_id,
                "tables",
                "Show a table's versions by id",
                params=_HISTORY,
                returns=wire.History,
            ),
            Endpoint(
                "POST",
                BY_ID + "/undrop",
                self.undrop_table,
                "tables",
                "Bring a dropped table back",
                body=wire.UndropTable,
                returns=wire.TableInfo,
                keyed=True,
            ),
        ]

    async def list_tables(self, request: Request) -> Response:
        limit = page_size(request)
        found = await self._tables.page(
            caller(request), request.args[0], schema_path(request.args[1]), page_start(request), limit + 1
        )
        shown, token = paged(found, limit)
        return ok(wire.TableList([wire.TableInfo.of(item) for item in shown], token))

    async def list_dropped(self, request: Request) -> Response:
        found = await self._tables.dropped(
            caller(request), request.args[0], schema_path(request.args[1]), page_size(request)
        )
        return ok(wire.TableList([wire.TableInfo.of(item) for item in found], None))

    async def create_table(self, request: Request) -> Response:
        body = decode(request, _create_table)
        name = (request.args[0], *schema_path(request.args[1]), body.name)
        receipt = await self._transactions.decide(caller(request), [body.intent(name)])
        return await self._changed(request, receipt, 201)

    async def get_table(self, request: Request) -> Response:
        return await self._table(request, table_name(request))

    async def get_table_by_id(self, request: Request) -> Response:
        return await self._table(request, TableRef(id=request.args[0]))

    async def alter_table(self, request: Request) -> Response:
        body = decode(request, _alter_table)
        columns = body.columns
        intent = ask.AlterTable(
            table=table_name(request),
            expect_etag=if_match(request),
            comment=body.comment,
            properties=body.properties,
            columns=columns if isinstance(columns, msgspec.UnsetType) else encode(columns),
            owner=body.owner,
        )
        receipt = await self._transactions.decide(caller(request), [intent])
        return await self._changed(request, receipt)

    async def drop_table(self, request: Request) -> Response:
        intent = ask.DropTable(table=table_name(request), expect_etag=if_match(request))
        await self._transactions.decide(caller(request), [intent])
        return Response(204)

    async def rename_table(self, request: Request) -> Response:
        body = decode(request, _rename)
        intent = ask.RenameTable(table=table_name(request), to=body.to)
        receipt = await self._transactions.decide(caller(request), [intent])
        return await self._changed(request, receipt)

    async def undrop_table(self, request: Request) -> Response:
        body = decode(request, _undrop)
        table_id = request.args[0]
        if not is_uuid(table_id):
            raise Invalid("a table id is a UUID", field="id")
        intent = ask.UndropTable(table_id=table_id, to=body.to)
        receipt = await self._transactions.decide(caller(request), [intent])
        return await self._changed(request, receipt)

    async def table_history(self, request: Request) -> Response:
        return await self._history(request, table_name(request))

    async def table_metrics(self, request: Request) -> Response:
        found = await self._tables.reports(caller(request), table_name(request), page_size(request))
        return ok(wire.ReportList([wire.ReportInfo.of(report) for report in found]))

    async def history_by_id(self, request: Request) -> Response:
        return await self._history(request, TableRef(id=request.args[0]))

    async def _history(self, request: Request, ref: TableRef) -> Response:
        first = whole(request.param("first") or "0", "first")
        last = whole(request.param("last") or str(LAST_VERSION), "last")
        branch = request.param("branch") or ""
        commits = await self._tables.history(caller(request), ref, branch, first, last, page_size(request))
        return ok(wire.History([wire.CommitInfo.of(commit) for commit in commits]))

    async def _table(self, request: Request, ref: TableRef) -> Response:
        asks = caller(request)
        table = await self._tables.get(asks, ref)
        return await self._shown(table, await self._tables.details(asks, table))

    async def _changed(self, request: Request, receipt: Receipt, status: int = 200) -> Response:
        return await self._shown(*await self._tables.changed(caller(request), receipt), status)

    async def _shown(self, table: Table, details: TableDetails | None, status: int = 200) -> Response:
        info = wire.TableInfo.of(table, details, await self._tables.full_name(table))
        return ok(info, status, table.etag)
