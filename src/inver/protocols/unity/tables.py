"""Tables in Unity's own dialect: staged, created, found, listed, changed, dropped."""

from __future__ import annotations

import msgspec

from inver.domain.locations import Location
from inver.domain.tables import Format, Table, TableKind
from inver.errors import Invalid, Unsupported
from inver.protocols.http import Request, Response, Route
from inver.protocols.unity import columns as cols
from inver.protocols.unity import wire
from inver.protocols.unity.coding import (
    EMPTY,
    caller,
    decode,
    flag,
    full_name,
    new_name,
    ok,
    page,
    required,
)
from inver.protocols.unity.habits import duckdb_reads, is_duckdb
from inver.protocols.unity.locating import Locating
from inver.services import intents as ask
from inver.services.delta.listing import Listing
from inver.services.delta.tables import DeltaTables
from inver.services.delta.types import Loaded, NewTable
from inver.services.names import TableRef
from inver.services.tables import Tables
from inver.services.transactions import Transactions

_stage = msgspec.json.Decoder(wire.CreateStagingTable).decode
_create = msgspec.json.Decoder(wire.CreateTable).decode
_update = msgspec.json.Decoder(wire.UpdateTable).decode

TABLE = "/tables/{full_name}"


class TableRoutes:
    def __init__(
        self,
        delta: DeltaTables,
        tables: Tables,
        transactions: Transactions,
        listing: Listing,
        locating: Locating,
    ) -> None:
        self._delta = delta
        self._tables = tables
        self._transactions = transactions
        self._listing = listing
        self._locating = locating

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/staging-tables", self.stage),
            Route("POST", "/tables", self.create),
            Route("GET", "/tables", self.list),
            Route("GET", TABLE, self.get),
            Route("PATCH", TABLE, self.update),
            Route("DELETE", TABLE, self.drop),
        ]

    async def stage(self, request: Request) -> Response:
        body = decode(request, _stage)
        asks = caller(request)
        new_name(body.name)
        async with self._locating.inside(asks, body.catalog_name, (body.schema_name,)):
            staged = await self._delta.stage(asks, (body.catalog_name, body.schema_name, body.name))
        return ok(
            wire.StagingTableInfo(
                name=body.name,
                catalog_name=body.catalog_name,
                schema_name=body.schema_name,
                id=staged.id,
                staging_location=staged.location,
            )
        )

    async def create(self, request: Request) -> Response:
        body = decode(request, _create)
        kind = _kind(body.table_type)
        new_name(body.name)
        if body.storage_location is None:
            raise Invalid("storage_location is required", field="storage_location")
        columns = cols.from_infos(body.columns or [])
        make = self._finish if kind is TableKind.MANAGED else self._register
        async with self._locating.inside(caller(request), body.catalog_name, (body.schema_name,)):
            return ok(wire.TableInfo.of(await make(request, body, columns)))

    async def _finish(self, request: Request, body: wire.CreateTable, columns: list[cols.Column]) -> Loaded:
        if body.data_source_format != Format.DELTA:
            raise Invalid("a managed table has the data_source_format DELTA", field="data_source_format")
        assert body.storage_location is not None
        return await self._delta.create(
            caller(request),
            NewTable(
                name=(body.catalog_name, body.schema_name, body.name),
                location=body.storage_location,
                columns=cols.encode(columns) if columns else None,
                properties=body.properties or {},
                comment=body.comment,
                # Not every client marks them; the table's own log always does.
                partition_columns=cols.partition_columns(columns) or None,
            ),
        )

    async def _register(self, request: Request, body: wire.CreateTable, columns: list[cols.Column]) -> Loaded:
        assert body.storage_location is not None
        Location.parse(body.storage_location, field="storage_location")
        form, properties = _format(body.data_source_format, body.properties or {})
        try:
            return await self._delta.register(
                caller(request),
                (body.catalog_name, body.schema_name, body.name),
                body.storage_location,
                form,
                cols.encode(columns),
                properties,
                body.comment,
            )
        except Invalid as error:
            # Elsewhere it is called by a shorter name.
            error.field = "storage_location" if error.field == "location" else error.field
            raise

    async def get(self, request: Request) -> Response:
        asks = caller(request)
        name = full_name(request.args[0], 3)
        async with self._locating.inside(asks, name[0], name[1:2]):
            loaded = await self._delta.load(asks, TableRef(name=name))
        return ok(wire.TableInfo.of(loaded))

    async def list(self, request: Request) -> Response:
        asks = caller(request)
        catalog, schema = required(request, "catalog_name"), required(request, "schema_name")
        columns, properties = not flag(request, "omit_columns"), not flag(request, "omit_properties")

        async def fetch(after: str, limit: int) -> list[Table]:
            return await self._tables.page(asks, catalog, (schema,), after, limit)

        found, token = await page(fetch, request, lambda table: table.name)
        loaded = await self._listing.loaded(asks, found)
        shown = [
            wire.TableInfo.of(each, listed=True, columns=columns, properties=properties) for each in loaded
        ]
        if is_duckdb(request):
            for each in shown:
                if isinstance(each.columns, list) and not duckdb_reads(each.columns):
                    each.columns = []
        return ok(wire.TableList(shown, token))

    async def update(self, request: Request) -> Response:
        asks = caller(request)
        body = decode(request, _update)
        name = full_name(request.args[0], 3)
        for field in ("columns", "properties", "storage_location"):
            if getattr(body, field) is not None:
                fix = "change the table itself with an engine; a commit tells the catalog of it"
                raise Invalid(f"{field} cannot be changed here", field=field, fix=fix)
        intents = _intents(TableRef(name=name), body)
        async with self._locating.inside(asks, name[0], name[1:2]):
            if not intents:
                return ok(wire.TableInfo.of(await self._delta.load(asks, TableRef(name=name))))
            receipt = await self._transactions.decide(asks, intents)
        return ok(wire.TableInfo.of(await self._delta.changed(receipt.results[0].subject)))

    async def drop(self, request: Request) -> Response:
        asks = caller(request)
        name = full_name(request.args[0], 3)
        async with self._locating.inside(asks, name[0], name[1:2]):
            await self._transactions.decide(asks, [ask.DropTable(table=TableRef(name=name))])
        return EMPTY


def _intents(table: TableRef, body: wire.UpdateTable) -> list[ask.Intent]:
    """Only what is asked for: who renames a table has not altered it."""
    assert table.name is not None
    found: list[ask.Intent] = []
    if body.comment is not msgspec.UNSET or body.owner is not None:
        owner = msgspec.UNSET if body.owner is None else body.owner
        found.append(ask.AlterTable(table=table, comment=body.comment, owner=owner))
    if body.new_name is not None:
        to = (*table.name[:2], new_name(body.new_name, "new_name"))
        found.append(ask.RenameTable(table=table, to=to))
    return found


def _kind(text: str) -> TableKind:
    if text in ("VIEW", "MATERIALIZED_VIEW", "STREAMING_TABLE", "METRIC_VIEW"):
        raise Unsupported(f"a {text} cannot be made here")
    try:
        return TableKind(text)
    except ValueError:
        raise Invalid("table_type must be MANAGED or EXTERNAL", field="table_type") from None


def _format(text: str | None, properties: dict[str, str]) -> tuple[Format, dict[str, str]]:
    """The format, and the properties without the one that tells it."""
    if text == wire.LANCE_FORMAT and properties.get(wire.MARK, "").upper() == Format.LANCE:
        return Format.LANCE, {name: value for name, value in properties.items() if name != wire.MARK}
    try:
        return Format(text or ""), properties
    except ValueError:
        raise Invalid(
            f"data_source_format must be one of {', '.join(Format)}", field="data_source_format"
        ) from None
