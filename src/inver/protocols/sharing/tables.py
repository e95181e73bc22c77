"""Versions, metadata, files and changes of shared tables."""

from __future__ import annotations

from typing import Any

from inver.domain.sharing import changes_request, timestamp_parameter, version_parameter
from inver.errors import Invalid
from inver.ports import StorageCredential
from inver.protocols.http import Request, Response, Route
from inver.protocols.sharing.coding import (
    changes_page,
    credentials_body,
    ok,
    params,
    query_body,
    told,
    wanted,
)
from inver.protocols.sharing.listing import table_told
from inver.services.sharing.answers import Told, Wanted
from inver.services.sharing.services import SharingServices
from inver.services.sharing.tables import Looked

TABLE = "/shares/{share}/schemas/{schema}/tables/{table}"
_CHANGES = (
    *("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp"),
    *("includeHistoricalMetadata", "includeHistoricalProtocol"),
)


class TableRoutes:
    def __init__(self, services: SharingServices, public_url: str | None) -> None:
        self._services = services
        self._public_url = public_url
        self.routes = [
            Route("GET", TABLE, self.table, public=True),
            Route("HEAD", TABLE, self.version, public=True),
            Route("GET", TABLE + "/version", self.version, public=True),
            Route("GET", TABLE + "/metadata", self.metadata, public=True),
            Route("POST", TABLE + "/query", self.query, public=True),
            Route("POST", TABLE + "/queries/{id}", self.resume, public=True),
            Route("GET", TABLE + "/changes", self.changes, public=True),
            Route("POST", TABLE + "/temporary-table-credentials", self.credentials, public=True),
        ]

    async def table(self, request: Request) -> Response:
        guest = await self._services.door.enter(request.header(b"authorization"), request.client)
        share, shared, _ = await self._services.tables.find(guest, *request.args)
        await self._services.visits.record(guest, "get-table", share_id=share.id, table_id=shared.table.id)
        return ok({**table_told(share, shared), "format": shared.table.format.lower()})

    async def version(self, request: Request) -> Response:
        looked = await self._look(request)
        given = params(request, "startingTimestamp")
        timestamp = timestamp_parameter(given, "startingTimestamp")
        if timestamp is None:
            version = await looked.latest()
        else:
            version = await looked.starting_version(timestamp)
        await self._record(looked, "get-version", version)
        return Response(200, headers=((b"Delta-Table-Version", b"%d" % version),))

    async def metadata(self, request: Request) -> Response:
        looked, how = await self._look(request), wanted(request, self._public_url)
        given = params(request, "version", "timestamp")
        if len(given) > 1:
            raise Invalid("Please only provide one of: version,timestamp", field="version")
        answer = await self._services.queries.metadata(
            looked, how, version_parameter(given, "version"), timestamp_parameter(given, "timestamp")
        )
        return await self._told(looked, how, answer, "get-metadata")

    async def query(self, request: Request) -> Response:
        looked, how, body = await self._look(request), wanted(request, self._public_url), query_body(request)
        query, page = body.asked(), body.page()
        if how.asked.async_query and page.page_token is None and page.refresh_token is None:
            later = await self._services.queries.later(looked, query)
            if later is not None:
                return await self._told(looked, how, later, "query")
        answer = await self._services.queries.query(looked, how, query, page)
        return await self._told(looked, how, answer, "query")

    async def resume(self, request: Request) -> Response:
        looked = await self._look(request)
        how, body = wanted(request, self._public_url), query_body(request)
        answer = await self._services.queries.resumed(looked, how, request.args[3], body.page())
        return await self._told(looked, how, answer, "query")

    async def changes(self, request: Request) -> Response:
        looked, how = await self._look(request), wanted(request, self._public_url)
        asked = changes_request(params(request, *_CHANGES))
        answer = await self._services.changes.changes(looked, how, asked, changes_page(request))
        return await self._told(looked, how, answer, "query-changes")

    async def credentials(self, request: Request) -> Response:
        looked, body = await self._look(request), credentials_body(request)
        location, keys = await self._services.vending.vend(looked, body.location)
        await self._record(looked, "get-credentials", None)
        return ok({"credentials": {"location": location, **_keys(keys), "expirationTime": keys.expires_at}})

    async def _look(self, request: Request) -> Looked:
        guest = await self._services.door.enter(request.header(b"authorization"), request.client)
        return await self._services.tables.look(guest, *request.args[:3])

    async def _told(self, looked: Looked, how: Wanted, answer: Told, action: str) -> Response:
        await self._record(looked, action, answer.version)
        return told(answer, how)

    async def _record(self, looked: Looked, action: str, version: int | None) -> None:
        await self._services.visits.record(
            looked.guest, action, share_id=looked.share.id, table_id=looked.id, version=version
        )


def _keys(keys: StorageCredential) -> dict[str, Any]:
    if keys.access_key_id is not None and keys.secret_access_key is not None:
        token = keys.session_token.reveal() if keys.session_token is not None else None
        return {
            "awsTempCredentials": {
                "accessKeyId": keys.access_key_id,
                "secretAccessKey": keys.secret_access_key.reveal(),
                "sessionToken": token,
            }
        }
    if keys.sas_token is not None:
        return {"azureUserDelegationSas": {"sasToken": keys.sas_token.reveal()}}
    assert keys.oauth_token is not None
    return {"gcpOauthToken": {"oauthToken": keys.oauth_token.reveal()}}
