"""Versions of tables, one at a time and many in one batch."""

from __future__ import annotations

from typing import Any

from inver.domain.lance import check_branch
from inver.errors import Invalid
from inver.protocols.http import Request, Response, Route
from inver.protocols.http import decode as decode_body
from inver.protocols.lance import answers, wire
from inver.protocols.lance.coding import (
    absolute,
    branch_of,
    caller,
    decode,
    flag,
    limit_of,
    number,
    ok,
    table_body,
    told,
)
from inver.protocols.lance.tables import TableRoutes
from inver.services.lance.commits import Commits
from inver.services.lance.types import (
    CreateVersion,
    Declare,
    DeleteVersions,
    Deregister,
    Item,
    Outcome,
    TableId,
)
from inver.services.lance.versions import Versions

KINDS = ("declare_table", "create_table_version", "delete_table_versions", "deregister_table")


class VersionRoutes:
    def __init__(self, commits: Commits, versions: Versions, tables: TableRoutes) -> None:
        self._commits = commits
        self._versions = versions
        self._tables = tables
        table = "/v1/table/{id}/version"
        self.routes = [
            Route("POST", f"{table}/list", self.list),
            Route("POST", f"{table}/create", self.create),
            Route("POST", f"{table}/describe", self.describe),
            Route("POST", f"{table}/delete", self.delete),
            Route("POST", "/v1/table/version/batch-create", self.batch_create),
            Route("POST", "/v1/table/batch-commit", self.batch_commit),
        ]

    async def list(self, request: Request) -> Response:
        name, body = table_body(request, wire.list_versions)
        token = body.page_token if body.page_token is not None else request.param("page_token")
        given = body.limit if body.limit is not None else number(request, "limit")
        newest = body.descending if body.descending is not None else flag(request, "descending")
        shown, rest = await self._versions.page(
            caller(request),
            name,
            branch_of(request, body.branch),
            _after(token),
            limit_of(given),
            newest is True,
        )
        return told(
            versions=[answers.version(each) for each in shown],
            page_token=None if rest is None else str(rest),
        )

    async def create(self, request: Request) -> Response:
        name, body = table_body(request, wire.create_version)
        done = await self._commits.commit(caller(request), [_create(name, body, request)])
        return ok({**_result(done.outcomes[0]), "transaction_id": str(done.transaction)})

    async def describe(self, request: Request) -> Response:
        name, body = table_body(request, wire.at_version)
        branch = branch_of(request, body.branch)
        version = body.version if body.version is not None else number(request, "version")
        shown = await self._versions.describe(caller(request), name, version, branch)
        return ok({"version": answers.version(shown)})

    async def delete(self, request: Request) -> Response:
        name, body = table_body(request, wire.delete_versions)
        done = await self._commits.commit(caller(request), [_delete(name, body, request)])
        return ok({**_result(done.outcomes[0]), "transaction_id": str(done.transaction)})

    async def batch_create(self, request: Request) -> Response:
        body = decode(request, wire.batch_create)
        items: list[Item] = [
            _create(_named(request, entry, f"entries[{at}]"), entry) for at, entry in enumerate(body.entries)
        ]
        done = await self._commits.commit(caller(request), items)
        return ok(
            {
                "versions": [_result(outcome)["version"] for outcome in done.outcomes],
                "transaction_id": str(done.transaction),
            }
        )

    async def batch_commit(self, request: Request) -> Response:
        body = decode(request, wire.batch_commit)
        asks = caller(request)
        kinds: list[str] = []
        items: list[Item] = []
        for at, operation in enumerate(body.operations):
            try:
                kinds.append(_kind(operation, f"operations[{at}]"))
                items.append(_item(request, operation, f"operations[{at}].{kinds[at]}"))
            except Invalid as error:
                error.operation = at
                raise
        done = await self._commits.commit(asks, items)
        results = []
        for kind, item, outcome in zip(kinds, items, done.outcomes, strict=True):
            result = _result(outcome)
            if isinstance(item, Deregister) and outcome.placed is not None:
                result = answers.left(outcome.placed, item.id)
            elif outcome.placed is not None:
                options = await self._tables.options_of_new(asks, outcome.placed.table.id, None)
                result = answers.declared(outcome.placed, options)
            results.append({kind: result})
        return ok({"results": results, "transaction_id": str(done.transaction)})


def decode_operation(body: bytes) -> Item:
    """An operation that is part of a greater transaction."""
    operation = decode_body(body, wire.operation)
    return _item(None, operation, _kind(operation, "operation"))


def _kind(operation: wire.Operation, field: str) -> str:
    given = [kind for kind in KINDS if getattr(operation, kind) is not None]
    if len(given) != 1:
        raise Invalid(f"an operation is exactly one of {', '.join(KINDS)}", field=field)
    return given[0]


def _item(request: Request | None, operation: wire.Operation, field: str) -> Item:
    if operation.declare_table is not None:
        declare = operation.declare_table
        return Declare(_named(request, declare, field), declare.location, declare.properties or {})
    if operation.create_table_version is not None:
        return _create(_named(request, operation.create_table_version, field), operation.create_table_version)
    if operation.delete_table_versions is not None:
        return _delete(
            _named(request, operation.delete_table_versions, field), operation.delete_table_versions
        )
    assert operation.deregister_table is not None
    return Deregister(_named(request, operation.deregister_table, field))


def _named(request: Request | None, body: wire.Body, field: str) -> TableId:
    if not body.id or not all(body.id):
        raise Invalid("the id of a table is needed", field=f"{field}.id")
    return tuple(body.id) if request is None else absolute(request, tuple(body.id))


def _create(name: TableId, body: wire.CreateVersion, request: Request | None = None) -> CreateVersion:
    scheme = None
    if body.naming_scheme is not None:
        if body.naming_scheme.upper() not in ("V1", "V2"):
            raise Invalid("naming_scheme is V1 or V2", field="naming_scheme")
        scheme = body.naming_scheme.upper() == "V2"
    branch = check_branch(body.branch) if request is None else branch_of(request, body.branch)
    return CreateVersion(
        name, body.version, body.manifest_path, body.manifest_size, body.metadata or {}, scheme, branch
    )


def _delete(name: TableId, body: wire.DeleteVersions, request: Request | None = None) -> DeleteVersions:
    ranges = []
    for at, each in enumerate(body.ranges):
        if each.start_version < 0 or each.end_version < -1:
            raise Invalid("versions are not negative; only the end may be -1", field=f"ranges[{at}]")
        ranges.append((each.start_version, None if each.end_version == -1 else each.end_version))
    branch = check_branch(body.branch) if request is None else branch_of(request, body.branch)
    return DeleteVersions(name, tuple(ranges), branch)


def _result(outcome: Outcome) -> dict[str, Any]:
    if outcome.version is not None:
        return {"version": answers.version(outcome.version)}
    if outcome.placed is not None:
        return answers.declared(outcome.placed, {})
    return {"deleted_count": outcome.deleted or 0}


def _after(token: str | None) -> int | None:
    if not token:
        return None
    if not (token.isascii() and token.isdigit() and len(token) < 19):
        raise Invalid("page_token is not one that was given out", field="page_token")
    return int(token)
