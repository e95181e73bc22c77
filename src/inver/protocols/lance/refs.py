"""Tags, branches and indices of tables."""

from __future__ import annotations

from typing import Any

from inver.domain.grants import Action
from inver.errors import Invalid
from inver.protocols.http import Request, Response, Route
from inver.protocols.lance import wire
from inver.protocols.lance.coding import (
    DATABASE,
    EMPTY,
    branch_of,
    caller,
    limit_of,
    number,
    ok,
    page_of,
    table_body,
    table_id,
    told,
)
from inver.services.lance.refs import BranchFile, Refs, Tag
from inver.services.lance.versions import Versions


class RefRoutes:
    def __init__(self, refs: Refs, versions: Versions) -> None:
        self._refs = refs
        self._versions = versions
        table = "/v1/table/{id}"
        self.routes = [
            Route("POST", f"{table}/tags/list", self.tags),
            Route("POST", f"{table}/tags/version", self.tag),
            Route("POST", f"{table}/tags/create", self.create_tag),
            Route("POST", f"{table}/tags/update", self.update_tag),
            Route("POST", f"{table}/tags/delete", self.delete_tag),
            Route("POST", f"{table}/branches/list", self.branches),
            Route("POST", f"{table}/branches/delete", self.delete_branch),
            Route("POST", f"{table}/index/list", self.indices),
        ]

    async def tags(self, request: Request) -> Response:
        after, limit = page_of(request)
        found, rest = await self._refs.tags(caller(request), table_id(request), after, limit)
        shown = {name: _tag(tag) for name, tag in found.items()}
        if request.header(DATABASE):
            # LanceDB's own client takes the map for the whole answer.
            return ok(shown)
        return told(tags=shown, page_token=rest)

    async def tag(self, request: Request) -> Response:
        name, body = table_body(request, wire.tag_body)
        found = await self._refs.tag_version(caller(request), name, body.tag)
        return told(version=found.version, branch=found.branch or None)

    async def create_tag(self, request: Request) -> Response:
        name, body = table_body(request, wire.tag_body)
        version = _version(body)
        await self._refs.create_tag(caller(request), name, body.tag, version, branch_of(request, body.branch))
        return EMPTY

    async def update_tag(self, request: Request) -> Response:
        name, body = table_body(request, wire.tag_body)
        version = _version(body)
        await self._refs.update_tag(caller(request), name, body.tag, version, branch_of(request, body.branch))
        return EMPTY

    async def delete_tag(self, request: Request) -> Response:
        name, body = table_body(request, wire.tag_body)
        await self._refs.delete_tag(caller(request), name, body.tag)
        return EMPTY

    async def branches(self, request: Request) -> Response:
        after, limit = page_of(request)
        found, rest = await self._refs.branches(caller(request), table_id(request), after, limit)
        return told(branches={name: _branch(file) for name, file in found.items()}, page_token=rest)

    async def delete_branch(self, request: Request) -> Response:
        name, body = table_body(request, wire.branch_body)
        transaction = await self._refs.delete_branch(caller(request), name, body.name)
        return told(transaction_id=str(transaction) if transaction else None)

    async def indices(self, request: Request) -> Response:
        name, body = table_body(request, wire.list_indices)
        table = (await self._versions.find(caller(request), name, Action.LOAD)).table
        branch = branch_of(request, body.branch)
        if table.version == 0 and not branch:
            return told(indexes=[])
        manifest = await self._versions.manifest(table, branch, body.version)
        by_name: dict[str, dict[str, Any]] = {}
        for index in manifest.indices:
            by_name[index.name] = {
                "index_name": index.name,
                "index_uuid": index.uuid,
                "columns": [manifest.columns.get(field, str(field)) for field in index.fields],
                "status": "done",
            }
        after = body.page_token if body.page_token is not None else request.param("page_token") or ""
        limit = limit_of(body.limit if body.limit is not None else number(request, "limit"))
        names = [each for each in sorted(by_name) if each > after]
        rest = names[limit - 1] if len(names) > limit else None
        return told(indexes=[by_name[each] for each in names[:limit]], page_token=rest)


def _version(body: wire.TagBody) -> int:
    if body.version is None:
        raise Invalid("version is needed", field="version")
    return body.version


def _tag(tag: Tag) -> dict[str, Any]:
    shown: dict[str, Any] = {"version": tag.version, "manifestSize": tag.size}
    return {**shown, "branch": tag.branch} if tag.branch else shown


def _branch(file: BranchFile) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "parentVersion": file.parent_version,
        "createAt": file.create_at,
        "manifestSize": file.manifest_size,
    }
    return {**shown, "parentBranch": file.parent_branch} if file.parent_branch else shown
