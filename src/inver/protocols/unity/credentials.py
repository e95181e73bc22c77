"""Temporary credentials in Unity's own dialect."""

from __future__ import annotations

from typing import Any

import msgspec

from inver.errors import Invalid, Unsupported
from inver.ports import StorageAccess
from inver.protocols.http import Request, Response, Route
from inver.protocols.unity import wire
from inver.protocols.unity.coding import caller, decode, secret
from inver.services.credentials import Credentials, PathUse, Vended
from inver.services.names import TableRef

_for_table = msgspec.json.Decoder(wire.TableCredentialRequest).decode
_for_path = msgspec.json.Decoder(wire.PathCredentialRequest).decode

_PATH_USES = {f"PATH_{use}": use for use in PathUse}


class CredentialRoutes:
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/temporary-table-credentials", self.for_table),
            Route("POST", "/temporary-path-credentials", self.for_path),
            Route("POST", "/temporary-volume-credentials", self.not_offered),
            Route("POST", "/temporary-model-version-credentials", self.not_offered),
        ]

    async def for_table(self, request: Request) -> Response:
        body = decode(request, _for_table)
        access = table_access(body.operation)
        return secret(
            _shown(await self._credentials.for_table(caller(request), TableRef(body.table_id), access))
        )

    async def for_path(self, request: Request) -> Response:
        body = decode(request, _for_path)
        use = _PATH_USES.get(body.operation)
        if use is None:
            raise Invalid(f"operation must be one of {', '.join(_PATH_USES)}", field="operation")
        return secret(_shown(await self._credentials.for_path(caller(request), body.url, use)))

    def not_offered(self, request: Request) -> Response:
        raise Unsupported("there are no volumes and no models in this catalog")


def table_access(text: str) -> StorageAccess:
    try:
        return StorageAccess(text)
    except ValueError:
        raise Invalid("operation must be READ or READ_WRITE", field="operation") from None


def _shown(vended: Vended) -> dict[str, Any]:
    """A location that clients reach by themselves is told alone."""
    body: dict[str, Any] = {"url": vended.location}
    keys = vended.keys
    if keys is None:
        return body
    body["expiration_time"] = keys.expires_at
    if keys.access_key_id is not None and keys.secret_access_key is not None:
        body["aws_temp_credentials"] = {
            "access_key_id": keys.access_key_id,
            "secret_access_key": keys.secret_access_key.reveal(),
            "session_token": keys.session_token.reveal() if keys.session_token else "",
        }
    elif keys.sas_token is not None:
        body["azure_user_delegation_sas"] = {"sas_token": keys.sas_token.reveal()}
    elif keys.oauth_token is not None:
        body["gcp_oauth_token"] = {"oauth_token": keys.oauth_token.reveal()}
    return body
