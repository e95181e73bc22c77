"""The use cases of Iceberg views."""

from __future__ import annotations

from inver.domain import iceberg
from inver.domain.iceberg import CommitRequest, CreateView
from inver.domain.idempotency import KeyedRequest
from inver.ids import new_id, random_uuid
from inver.services.context import Caller
from inver.services.iceberg.commits import Commits, Loaded
from inver.services.iceberg.files import Files
from inver.services.iceberg.finding import Desk
from inver.services.iceberg.naming import Identifier
from inver.services.iceberg.places import Places
from inver.services.iceberg.relations import Relations


class IcebergViews:
    def __init__(
        self,
        desk: Desk,
        places: Places,
        files: Files,
        commits: Commits,
        relations: Relations,
    ) -> None:
        self._desk = desk
        self._places = places
        self._files = files
        self._commits = commits
        self._relations = relations

    async def create(
        self, caller: Caller, identifier: Identifier, request: CreateView, body: bytes
    ) -> Loaded:
        async def make(keyed: KeyedRequest | None) -> Loaded:
            home, view_id = await self._commits.prepare(caller, identifier, view=True), new_id()
            site = await self._places.chosen(caller, home, view_id, request.location, view=True)
            change = iceberg.new_view(
                request,
                location=site.location.text,
                now_ms=self._desk.now(),
                uuid=view_id,
                file_id=random_uuid(),
            )
            draft = self._commits.drafts.creation(home, identifier, view_id, site, change)
            return await self._commits.make(caller, identifier, draft, keyed)

        made = await self._desk.once(caller, ("create-view", identifier), make, body)
        return await self._relations.shown(caller, identifier, made)

    async def replace(
        self, caller: Caller, identifier: Identifier, request: CommitRequest, body: bytes
    ) -> Loaded:
        async def commit(keyed: KeyedRequest | None) -> Loaded:
            return (await self._commits.commit(caller, [(identifier, request)], keyed, view=True))[0]

        done = await self._desk.once(caller, ("commit-view", identifier), commit, body)
        return await self._relations.shown(caller, identifier, done)

    async def register(self, caller: Caller, identifier: Identifier, metadata_location: str) -> Loaded:
        async def make(keyed: KeyedRequest | None) -> Loaded:
            home = await self._commits.prepare(caller, identifier, view=True)
            file = await self._places.readable(caller, home, metadata_location)
            data = await self._files.read(file)
            change = iceberg.from_view_document(data, metadata_location=metadata_location)
            site = await self._places.adopted(caller, home, change.state.head.location, view=True)
            draft = self._commits.drafts.creation(home, identifier, new_id(), site, change)
            return await self._commits.make(caller, identifier, draft, keyed, write=False)

        request = ("register-view", identifier, metadata_location)
        return await self._relations.shown(caller, identifier, await self._desk.once(caller, request, make))
