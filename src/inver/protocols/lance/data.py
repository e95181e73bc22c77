"""Operations on the data of tables: written, changed, searched, and what goes with that."""

from __future__ import annotations

from typing import Any

import msgspec

from inver.errors import Invalid, Unsupported
from inver.protocols.http import Request, Response, Route
from inver.protocols.http import decode as decode_body
from inver.protocols.lance import data_wire, wire
from inver.protocols.lance.coding import (
    branch_of,
    caller,
    decode,
    flag,
    mode,
    ok,
    opened,
    table_body,
    table_id,
    told,
)
from inver.services.lance.data import Data

ARROW_FILE = b"application/vnd.apache.arrow.file"
SECONDS = 600.0
"""Work on data takes as long as the data is large."""


class DataRoutes:
    def __init__(self, data: Data) -> None:
        self._data = data
        offered = {
            "create": self.create,
            "insert": self.insert,
            "merge_insert": self.merge,
            "update": self.update,
            "delete": self.delete,
            "count_rows": self.count,
            "query": self.query,
            "explain_plan": self.explain,
            "analyze_plan": self.analyze,
            "restore": self.restore,
            "add_columns": self.add_columns,
            "alter_columns": self.alter_columns,
            "drop_columns": self.drop_columns,
            "schema_metadata/update": self.schema_metadata,
            "update_field_metadata": self.field_metadata,
            "branches/create": self.create_branch,
            "create_index": self.create_index,
            "create_scalar_index": self.create_index,
            "index/{index_name}/stats": self.index_stats,
            "index/{index_name}/drop": self.drop_index,
        }
        self.routes = [
            *(
                Route("POST", f"/v1/table/{{id}}/{ending}", handler, timeout=SECONDS)
                for ending, handler in offered.items()
            ),
            Route("POST", "/v1/table/{id}/backfill_column", self.not_offered),
            Route("POST", "/v1/materialized_view/{id}/create", self.not_offered),
            Route("POST", "/v1/materialized_view/{id}/refresh", self.not_offered),
        ]

    async def not_offered(self, request: Request) -> Response:
        await self._data.known(caller(request))
        raise Unsupported("this needs a service that keeps computing beside the tables, which Inver has not")

    # --- writing ---

    async def create(self, request: Request) -> Response:
        how = mode(request.param("mode"), "Create", "ExistOk", "Overwrite")
        properties = _map(request, "properties")
        placed, version = await self._data.create(
            caller(request), table_id(request), request.body, how, properties
        )
        answer = told(
            location=placed.table.location,
            version=version,
            properties=placed.properties,
            storage_options={},
        )
        return opened(request, answer)

    async def insert(self, request: Request) -> Response:
        how = mode(request.param("mode"), "Append", "Overwrite")
        done = await self._data.change(
            caller(request),
            table_id(request),
            "write",
            branch_of(request),
            reads=False,
            data=request.body,
            mode=how.lower(),
        )
        return ok({"version": done["version"], "num_inserted_rows": done["rows"]})

    async def merge(self, request: Request) -> Response:
        # Newer clients repeat the parameter, older ones have one with commas.
        on = [part for text in request.query.get("on", ()) for part in text.split(",") if part]
        if not on:
            raise Invalid("on is needed: the column by which rows match", field="on")
        done = await self._data.change(
            caller(request),
            table_id(request),
            "merge",
            branch_of(request),
            data=request.body,
            on=on,
            update=flag(request, "when_matched_update_all") is True,
            update_if=request.param("when_matched_update_all_filt"),
            insert=flag(request, "when_not_matched_insert_all") is True,
            delete=flag(request, "when_not_matched_by_source_delete") is True,
            delete_if=request.param("when_not_matched_by_source_delete_filt"),
        )
        return ok(
            {
                "version": done["version"],
                "num_updated_rows": done["updated"],
                "num_inserted_rows": done["inserted"],
                "num_deleted_rows": done["deleted"],
            }
        )

    async def update(self, request: Request) -> Response:
        name, body = table_body(request, data_wire.update)
        if not body.updates:
            raise Invalid("updates is empty", field="updates")
        updates = dict(body.updates)
        if len(updates) < len(body.updates):
            raise Invalid("updates has a column twice", field="updates")
        done = await self._data.change(
            caller(request),
            name,
            "update",
            branch_of(request, body.branch),
            updates=updates,
            predicate=body.predicate,
        )
        # LanceDB's own client knows the count by the other name.
        return ok({"version": done["version"], "updated_rows": done["rows"], "rows_updated": done["rows"]})

    async def delete(self, request: Request) -> Response:
        name, body = table_body(request, data_wire.delete)
        done = await self._data.change(
            caller(request), name, "delete", branch_of(request, body.branch), predicate=body.predicate
        )
        return ok({"version": done["version"], "num_deleted_rows": done["rows"]})

    async def restore(self, request: Request) -> Response:
        name, body = table_body(request, data_wire.restore)
        branch = branch_of(request, body.branch)
        done = await self._data.change(caller(request), name, "restore", branch, version=body.version)
        return ok(done)

    # --- reading ---

    async def count(self, request: Request) -> Response:
        name, body = table_body(request, data_wire.count)
        counted = await self._data.read(
            caller(request),
            name,
            "count",
            branch_of(request, body.branch),
            body.version,
            predicate=body.predicate or body.filter,
        )
        return ok(counted)

    async def query(self, request: Request) -> Response:
        name, body = table_body(request, data_wire.query)
        branch = branch_of(request, body.branch)
        found = await self._data.read(
            caller(request), name, "query", branch, body.version, asked=body.asked()
        )
        return Response(200, found, ARROW_FILE)

    async def explain(self, request: Request) -> Response:
        name, body = table_body(request, data_wire.plan)
        version, branch = _where(request, body)
        asked = body.query.asked()
        return ok(
            await self._data.read(
                caller(request), name, "explain", branch, version, asked=asked, verbose=body.verbose
            )
        )

    async def analyze(self, request: Request) -> Response:
        name = table_id(request)
        given = decode(request, msgspec.json.Decoder(dict[str, Any]).decode)
        # The specification sends the query itself, LanceDB's own client puts it into a cover.
        inner = given["query"] if isinstance(given.get("query"), dict) else given
        body = decode_body(msgspec.json.encode(inner), data_wire.query)
        return ok(
            await self._data.read(
                caller(request),
                name,
                "analyze",
                branch_of(request, body.branch),
                body.version,
                asked=body.asked(),
            )
        )

    # --- the schema ---

    async def add_columns(self, request: Request) -> Response:
        name, body = table_body(request, data_wire.add_columns)
        columns = {}
        for at, column in enumerate(body.new_columns):
            if column.expression is None:
                raise Unsupported(f"new_columns[{at}]: only columns with an expression are offered")
            columns[column.name] = column.expression
        if not columns:
            raise Invalid("new_columns is empty", field="new_columns")
        branch = branch_of(request, body.branch)
        return ok(await self._data.change(caller(request), name, "add_columns", branch, columns=columns))

    async def alter_columns(self, request: Request) -> Response:
        name, body = table_body(request, data_wire.alter_columns)
        if not body.alterations:
            raise Invalid("alterations is empty", field="alterations")
        if any(each.virtual_column is not None for each in body.alterations):
            raise Unsupported("virtual columns are not offered")
        given = [msgspec.structs.asdict(each) for each in body.alterations]
        branch = branch_of(request, body.branch)
        return ok(await self._data.change(caller(request), name, "alter_columns", branch, alterations=given))

    async def drop_columns(self, request: Request) -> Response:
        name, body = table_body(request, data_wire.drop_columns)
        if not body.columns:
            raise Invalid("columns is empty", field="columns")
        branch = branch_of(request, body.branch)
        return ok(
            await self._data.change(caller(request), name, "drop_columns", branch, columns=body.columns)
        )

    async def schema_metadata(self, request: Request) -> Response:
        given = decode(request, data_wire.schema_metadata)
        return ok(
            await self._data.change(
                caller(request), table_id(request), "schema_metadata", branch_of(request), metadata=given
            )
        )

    async def field_metadata(self, request: Request) -> Response:
        name, body = table_body(request, data_wire.field_metadata)
        if not body.updates:
            raise Invalid("updates is empty", field="updates")
        given = [msgspec.structs.asdict(each) for each in body.updates]
        branch = branch_of(request, body.branch)
        return ok(await self._data.change(caller(request), name, "field_metadata", branch, updates=given))

    # --- branches and indices ---

    async def create_branch(self, request: Request) -> Response:
        name, body = table_body(request, wire.branch_body)
        new = branch_of(request, body.name)
        if not new:
            raise Invalid("main is a branch that every table has", field="name")
        await self._data.change(
            caller(request),
            name,
            "create_branch",
            branch_of(request, body.from_branch),
            name=new,
            version=body.from_version,
        )
        return ok({})

    async def create_index(self, request: Request) -> Response:
        name, body = table_body(request, data_wire.create_index)
        done = await self._data.change(
            caller(request),
            name,
            "create_index",
            branch_of(request, body.branch),
            column=body.column,
            kind=body.index_type,
            name=body.name,
            distance=body.distance_type or body.metric_type,
            settings=body.settings(),
        )
        return ok(done)

    async def index_stats(self, request: Request) -> Response:
        name, body = table_body(request, wire.at_version)
        branch = branch_of(request, body.branch)
        return ok(
            await self._data.read(
                caller(request), name, "index_stats", branch, body.version, name=request.args[1]
            )
        )

    async def drop_index(self, request: Request) -> Response:
        name, body = table_body(request, wire.at_version)
        branch = branch_of(request, body.branch)
        return ok(await self._data.change(caller(request), name, "drop_index", branch, name=request.args[1]))


def _where(request: Request, body: data_wire.Plan) -> tuple[int | None, str]:
    version = body.version if body.version is not None else body.query.version
    return version, branch_of(request, body.branch or body.query.branch)


def _map(request: Request, name: str) -> dict[str, str]:
    text = request.param(name)
    if not text:
        return {}
    try:
        return data_wire.text_map(text.encode())
    except msgspec.DecodeError:
        raise Invalid(f"{name} must be a JSON object of texts", field=name) from None
