"""Tables under their names."""

from __future__ import annotations

from collections.abc import Mapping

from inver.errors import Forbidden, NotFound, Stale
from inver.ports import StorageAccess
from inver.protocols.http import Request, Response, Route
from inver.protocols.lance import answers, wire
from inver.protocols.lance.coding import (
    EMPTY,
    absolute,
    branch_of,
    caller,
    delimiter,
    flag,
    mode,
    number,
    ok,
    opened,
    page_of,
    path_id,
    table_body,
    told,
)
from inver.services.context import Caller
from inver.services.credentials import Credentials
from inver.services.lance.commits import Commits
from inver.services.lance.registering import Registering
from inver.services.lance.tables import LanceTables
from inver.services.lance.types import Declare, Deregister
from inver.services.names import TableRef


class TableRoutes:
    def __init__(
        self,
        tables: LanceTables,
        commits: Commits,
        registering: Registering,
        credentials: Credentials,
        storage: Mapping[str, str],
    ) -> None:
        self._tables = tables
        self._commits = commits
        self._registering = registering
        self._credentials = credentials
        self._storage = storage
        table = "/v1/table/{id}"
        self.routes = [
            Route("GET", "/v1/table", self.list_all),
            Route("POST", f"{table}/declare", self.declare),
            Route("POST", f"{table}/register", self.register),
            Route("POST", f"{table}/describe", self.describe),
            Route("POST", f"{table}/exists", self.exists),
            Route("POST", f"{table}/drop", self.drop),
            Route("POST", f"{table}/deregister", self.deregister),
            Route("POST", f"{table}/rename", self.rename),
            Route("POST", f"{table}/stats", self.stats),
        ]

    async def list_all(self, request: Request) -> Response:
        after, limit = page_of(request)
        between = delimiter(request)
        within = absolute(request, ())
        if within:
            names, rest = await self._tables.page(caller(request), within, after, limit, True)
            return told(tables=names, page_token=rest)
        declared = flag(request, "include_declared", True) is True
        start = tuple(after.split("\x1f")) if after else ()
        found, last = await self._tables.everywhere(caller(request), start, limit, declared)
        shown = [between.join(name) for name in found]
        return told(tables=shown, page_token=None if last is None else "\x1f".join(last))

    async def declare(self, request: Request) -> Response:
        name, body = table_body(request, wire.declare_table)
        asks = caller(request)
        done = await self._commits.commit(asks, [Declare(name, body.location, body.properties or {})])
        placed = done.outcomes[0].placed
        assert placed is not None
        options = await self.options_of_new(asks, placed.table.id, body.vend_credentials)
        return ok({**answers.declared(placed, options), "transaction_id": str(done.transaction)})

    async def register(self, request: Request) -> Response:
        name, body = table_body(request, wire.register_table)
        overwrite = mode(body.mode, "Create", "Overwrite") == "Overwrite"
        placed = await self._registering.register(
            caller(request), name, body.location, body.properties or {}, overwrite
        )
        return told(location=placed.table.location, properties=placed.properties)

    async def describe(self, request: Request) -> Response:
        name, body = table_body(request, wire.describe_table)
        asks = caller(request)
        version = body.version if body.version is not None else number(request, "version")
        shown = await self._tables.describe(asks, name, version, body.tag, branch_of(request, body.branch))
        uri = body.with_table_uri or flag(request, "with_table_uri") or False
        detailed = body.load_detailed_metadata or flag(request, "load_detailed_metadata") or False
        options = await self.options(asks, shown.placed.table.id, body.vend_credentials)
        return opened(request, ok(answers.described(shown, options, uri, detailed)))

    async def exists(self, request: Request) -> Response:
        name, body = table_body(request, wire.at_version)
        await self._tables.exists(caller(request), name, body.version)
        return EMPTY

    async def drop(self, request: Request) -> Response:
        name, _ = table_body(request, wire.body)
        placed, transaction = await self._tables.drop(caller(request), name)
        return ok({**answers.left(placed, path_id(request)), "transaction_id": str(transaction)})

    async def deregister(self, request: Request) -> Response:
        name, _ = table_body(request, wire.body)
        done = await self._commits.commit(caller(request), [Deregister(name)])
        placed = done.outcomes[0].placed
        assert placed is not None
        return ok({**answers.left(placed, path_id(request)), "transaction_id": str(done.transaction)})

    async def rename(self, request: Request) -> Response:
        name, body = table_body(request, wire.rename_table)
        space = name[:-1] if body.new_namespace_id is None else absolute(request, body.new_namespace_id)
        transaction = await self._tables.rename(caller(request), name, (*space, body.new_table_name))
        # A table that has the name already is left alone, and nothing is decided.
        return told(transaction_id=str(transaction) if transaction else None)

    async def stats(self, request: Request) -> Response:
        name, body = table_body(request, wire.at_version)
        shown = await self._tables.describe(
            caller(request), name, body.version, None, branch_of(request, body.branch)
        )
        return ok(answers.stats(shown.totals))

    async def options_of_new(self, asks: Caller, table_id: str, wanted: bool | None) -> dict[str, str]:
        """The same for a table that was just declared, which no further look may make undone.

        It may be gone again, even by the same batch, and grants may change at any time.
        """
        try:
            return await self.options(asks, table_id, wanted)
        except (NotFound, Stale):
            return {}

    async def options(self, asks: Caller, table_id: str, wanted: bool | None) -> dict[str, str]:
        """Keys for writing to who may write, else for reading; a client may want none."""
        if wanted is False:
            return {}
        ref = TableRef(id=table_id)
        for access in (StorageAccess.READ_WRITE, StorageAccess.READ):
            try:
                vended = await self._credentials.for_table(asks, ref, access)
                known = self._storage if vended.location.startswith("s3") else {}
                return {**known, **answers.storage_options(vended)}
            except Forbidden:
                continue
        return {}
