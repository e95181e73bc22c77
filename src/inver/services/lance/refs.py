"""Tags and branches of a Lance table, as their files on storage say.

Clients write these files by themselves, so they are where the truth is; nothing of them is kept
besides. A tag is made by a write that fails if the file is there.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import quote, unquote

import msgspec

from inver.clock import Clock
from inver.domain import ledger
from inver.domain.grants import Action
from inver.domain.lance import WrongState, check_branch, folder_of
from inver.domain.ledger import MAIN, Transaction
from inver.domain.tables import Table
from inver.errors import AlreadyExists, Invalid, NotFound
from inver.ports import ObjectStore, Store
from inver.services.access import missing
from inver.services.context import Caller
from inver.services.lance.finding import Finding
from inver.services.lance.importing import BRANCHES, TAGS, branch_path
from inver.services.lance.manifests import Manifests
from inver.services.lance.types import TableId
from inver.services.lance.versions import Versions

MAX_TAG_BYTES = 200
_PARTS = ("_versions", "data", "_transactions", "_deletions", "_indices")
T = TypeVar("T")


class TagFile(msgspec.Struct, frozen=True, rename="camel"):
    branch: str | None
    version: int
    manifest_size: int
    created_at: str | None = None
    updated_at: str | None = None
    metadata: dict[str, str] = {}


class BranchFile(msgspec.Struct, frozen=True, rename="camel"):
    parent_branch: str | None
    parent_version: int
    create_at: int
    manifest_size: int
    metadata: dict[str, str] = {}


class Tag(msgspec.Struct, frozen=True):
    version: int
    branch: str
    size: int


_tag = msgspec.json.Decoder(TagFile).decode
_branch = msgspec.json.Decoder(BranchFile).decode


class Refs:
    def __init__(
        self, store: Store, clock: Clock, finding: Finding, manifests: Manifests, versions: Versions
    ) -> None:
        self._store = store
        self._clock = clock
        self._finding = finding
        self._manifests = manifests
        self._versions = versions

    # --- tags ---

    async def tag(self, table: Table, name: str) -> Tag:
        try:
            data = await self._manifests.objects(table).get(_tag_path(name))
        except NotFound:
            raise missing("tag", name) from None
        file = _decoded(data, _tag, name)
        return Tag(file.version, file.branch or MAIN, file.manifest_size)

    async def tag_version(self, caller: Caller, name: TableId, tag: str) -> Tag:
        return await self.tag((await self._finding.table(caller, name, Action.LOAD)).table, tag)

    async def tags(
        self, caller: Caller, name: TableId, after: str, limit: int
    ) -> tuple[dict[str, Tag], str | None]:
        table = (await self._finding.table(caller, name, Action.LOAD)).table
        names = await self._names(self._manifests.objects(table), TAGS)
        shown, rest = _page(names, after, limit)
        return {each: await self.tag(table, each) for each in shown}, rest

    async def create_tag(self, caller: Caller, name: TableId, tag: str, version: int, branch: str) -> None:
        table = (await self._finding.table(caller, name, Action.COMMIT)).table
        now = self._now()
        file = await self._tag_file(table, version, branch, now, now)
        if not await self._manifests.objects(table).put_if_absent(_tag_path(tag), msgspec.json.encode(file)):
            raise AlreadyExists(f"tag {tag!r} already exists", kind="tag")

    async def update_tag(self, caller: Caller, name: TableId, tag: str, version: int, branch: str) -> None:
        table = (await self._finding.table(caller, name, Action.COMMIT)).table
        objects = self._manifests.objects(table)
        try:
            known = _decoded(await objects.get(_tag_path(tag)), _tag, tag)
        except NotFound:
            raise missing("tag", tag) from None
        file = await self._tag_file(table, version, branch, known.created_at, self._now())
        await objects.put(_tag_path(tag), msgspec.json.encode(file))

    async def delete_tag(self, caller: Caller, name: TableId, tag: str) -> None:
        table = (await self._finding.table(caller, name, Action.COMMIT)).table
        if not await self._manifests.objects(table).delete(_tag_path(tag)):
            raise missing("tag", tag)

    async def _tag_file(
        self, table: Table, version: int, branch: str, created: str | None, updated: str
    ) -> TagFile:
        record = await self._versions.record(table, branch, version)
        size = msgspec.json.decode(record.body)["size"]
        return TagFile(branch or None, version, size, created, updated)

    # --- branches ---

    async def branch_names(self, objects: ObjectStore) -> list[str]:
        return await self._names(objects, BRANCHES)

    async def branches(
        self, caller: Caller, name: TableId, after: str, limit: int
    ) -> tuple[dict[str, BranchFile], str | None]:
        table = (await self._finding.table(caller, name, Action.LOAD)).table
        objects = self._manifests.objects(table)
        shown, rest = _page(sorted(await self.branch_names(objects)), after, limit)
        return {each: _decoded(await objects.get(branch_path(each)), _branch, each) for each in shown}, rest

    async def delete_branch(self, caller: Caller, name: TableId, branch: str) -> int:
        """The catalog forgets it first; its files follow."""
        table = (await self._finding.table(caller, name, Action.COMMIT)).table
        if check_branch(branch) == MAIN:
            raise Invalid("main is a branch that every table has", field="name")
        objects = self._manifests.objects(table)
        for other in await self.branch_names(objects):
            if other != branch:
                parent = _decoded(await objects.get(branch_path(other)), _branch, other).parent_branch
                if parent == branch:
                    raise WrongState(f"branch {other!r} was made from {branch!r}")
        number = 0
        if await self._store.branch(table.id, branch) is not None:
            principal = caller.principal
            receipt = await self._store.decide(
                Transaction(
                    principal.id,
                    self._clock.now_ms(),
                    (ledger.DropBranch(table_id=table.id, branch=branch),),
                    epoch=principal.epoch,
                )
            )
            number = receipt.transaction
        elif await objects.head(branch_path(branch)) is None:
            raise missing("branch", branch)
        await objects.delete(branch_path(branch))
        # A branch whose name continues this one's lies in the same folder, and stays.
        for part in _PARTS:
            async for found in objects.list(f"{folder_of(branch).removesuffix('_versions/')}{part}"):
                await objects.delete(found.path)
        return number

    async def _names(self, objects: ObjectStore, folder: str) -> list[str]:
        return [
            unquote(found.path[len(folder) + 1 :].removesuffix(".json"))
            async for found in objects.list(folder)
            if found.path.endswith(".json")
        ]

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat().replace("+00:00", "Z")


def _tag_path(name: str) -> str:
    plain = bool(name) and all(character.isalnum() or character in "._-" for character in name)
    dots = ".." in name or name.startswith(".") or name.endswith((".", ".lock"))
    if not plain or dots or len(name.encode()) > MAX_TAG_BYTES:
        raise Invalid(f"{name[:100]!r} is not the name of a tag", field="tag")
    return f"{TAGS}/{quote(name, safe='')}.json"


def _page(names: list[str], after: str, limit: int) -> tuple[list[str], str | None]:
    rest = [name for name in sorted(names) if name > after]
    return rest[:limit], rest[limit - 1] if len(rest) > limit else None


def _decoded(data: bytes, decode: Callable[[bytes], T], name: str) -> T:
    try:
        return decode(data)
    except msgspec.DecodeError:
        raise WrongState(f"the file of {name!r} on storage cannot be read") from None
