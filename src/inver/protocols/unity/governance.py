"""Permissions and the metastore in Unity's own dialect, and the control API: tokens and who one is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import parse_qs

import msgspec

from inver.domain.grants import Privilege
from inver.domain.principals import PrincipalInfo
from inver.domain.securables import METASTORE_ID, SecurableKind
from inver.errors import Invalid, Unsupported
from inver.protocols.http import Request, Response, Route
from inver.protocols.oauth import (
    CLIENT_CREDENTIALS,
    ISSUED_TYPE,
    TOKEN_EXCHANGE,
    Authenticate,
    answer_token_request,
    renew,
)
from inver.protocols.unity import wire
from inver.protocols.unity.coding import caller, decode, encode, full_name, ok, secret
from inver.services.access import missing
from inver.services.grants import SecurableRef
from inver.services.permissions import Held, PermissionChange, Permissions
from inver.services.principals import Principals
from inver.services.tokens import ACCESS_TOKEN_MS, Tokens

_update = msgspec.json.Decoder(wire.UpdatePermissions).decode

PERMISSIONS = "/permissions/{securable_type}/{full_name}"
_TOKEN_TYPES = {
    # Command lines call whatever they hold an id token.
    "subject_token_type": (ISSUED_TYPE, "urn:ietf:params:oauth:token-type:id_token"),
    "requested_token_type": (ISSUED_TYPE,),
}
_FORGET = ((b"Set-Cookie", b"UC_TOKEN=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"),)
_SPOKEN = frozenset(
    {
        Privilege.CREATE_CATALOG,
        Privilege.USE_CATALOG,
        Privilege.CREATE_SCHEMA,
        Privilege.USE_SCHEMA,
        Privilege.CREATE_TABLE,
        Privilege.SELECT,
        Privilege.MODIFY,
        Privilege.CREATE_FUNCTION,
        Privilege.EXECUTE,
        Privilege.CREATE_VOLUME,
        Privilege.READ_VOLUME,
        Privilege.CREATE_MODEL,
        Privilege.CREATE_EXTERNAL_LOCATION,
        Privilege.READ_FILES,
        Privilege.WRITE_FILES,
        Privilege.CREATE_EXTERNAL_TABLE,
        Privilege.CREATE_EXTERNAL_VOLUME,
        Privilege.CREATE_MANAGED_STORAGE,
        Privilege.CREATE_STORAGE_CREDENTIAL,
    }
)
_PARTS = {SecurableKind.CATALOG: 1, SecurableKind.SCHEMA: 2}


class PermissionRoutes:
    def __init__(self, permissions: Permissions, metastore_id: str) -> None:
        self._permissions = permissions
        self._metastore_id = metastore_id

    def routes(self) -> list[Route]:
        return [
            Route("GET", PERMISSIONS, self.get),
            Route("PATCH", PERMISSIONS, self.update),
            Route("GET", "/metastore_summary", self.metastore),
        ]

    async def get(self, request: Request) -> Response:
        principal = request.param("principal") or None
        held = await self._permissions.on(caller(request), self._ref(request), principal)
        return ok(_listed(held))

    async def update(self, request: Request) -> Response:
        body = decode(request, _update)
        changes = [
            PermissionChange(change.principal, tuple(change.add or ()), tuple(change.remove or ()))
            for change in body.changes
        ]
        return ok(_listed(await self._permissions.change(caller(request), self._ref(request), changes)))

    async def metastore(self, request: Request) -> Response:
        await self._permissions.require_known(caller(request))
        return ok({"metastore_id": self._metastore_id})

    def _ref(self, request: Request) -> SecurableRef:
        kind, name = request.args
        try:
            securable = SecurableKind(kind.lower())
        except ValueError:
            raise Invalid(f"{kind!r} is not a type of securable here", field="securable_type") from None
        if securable is SecurableKind.METASTORE:
            if name not in (self._metastore_id, METASTORE_ID, "metastore"):
                raise missing("metastore", name)
            return SecurableRef(securable)
        return SecurableRef(securable, full_name(name, _PARTS.get(securable, 3)))


class ControlRoutes:
    """What lies below /api/1.0/unity-control."""

    def __init__(self, principals: Principals, tokens: Tokens, authenticate: Authenticate) -> None:
        self._principals = principals
        self._tokens = tokens
        self._authenticate = authenticate

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/auth/tokens", self.token, public=True),
            Route("POST", "/auth/logout", self.logout, public=True),
            Route("GET", "/scim2/Me", self.me),
        ]

    async def token(self, request: Request) -> Response:
        """Client credentials, or one of our own tokens for a fresh one; no other issuer is known here."""
        try:
            form = parse_qs(request.body.decode(), keep_blank_values=True, max_num_fields=64)
        except (UnicodeDecodeError, ValueError):
            form = {}
        if form.get("grant_type") != [TOKEN_EXCHANGE]:
            return await answer_token_request(request, self._tokens, (CLIENT_CREDENTIALS, TOKEN_EXCHANGE))
        if ext := request.param("ext"):
            # A cookie would be sent back to a server that looks for tokens in one header only.
            raise Unsupported(
                f"ext={ext[:100]} is not offered: tokens are taken from the Authorization header alone",
                fix="leave ext out, and keep the token that the answer holds",
            )
        subject = form.get("subject_token", [])
        if len(subject) != 1 or not subject[0].isascii():
            raise Invalid("subject_token is required once", field="subject_token")
        form.setdefault("requested_token_type", [ISSUED_TYPE])
        for name, known in _TOKEN_TYPES.items():
            if form.get(name, []) not in ([each] for each in known):
                raise Invalid(f"{name} must be {' or '.join(known)}", field=name)
        for name in ("actor_token", "actor_token_type"):
            if name in form:
                raise Invalid(f"{name} is not offered: nobody acts for another here", field=name)
        issued = await renew(subject[0], request, self._tokens, self._authenticate)
        body = {
            "access_token": issued.secret.reveal(),
            "issued_token_type": ISSUED_TYPE,
            "token_type": "Bearer",
            "expires_in": ACCESS_TOKEN_MS // 1000,
        }
        return secret(body)

    def logout(self, request: Request) -> Response:
        """Tokens are shown in a header and revoked by their holder; a cookie is only forgotten."""
        return Response(200, b"{}", headers=_FORGET)

    async def me(self, request: Request) -> Response:
        info, _ = await self._principals.myself(caller(request))
        return Response(200, encode(_scim(info)), b"application/scim+json")


def _listed(held: Sequence[Held]) -> wire.PermissionsList:
    found: dict[str, wire.PrivilegeAssignment] = {}
    for each in sorted(held, key=lambda each: (each.principal, each.privilege)):
        assignment = found.setdefault(each.principal, wire.PrivilegeAssignment(each.principal, []))
        known = each.privilege in _SPOKEN
        (assignment.privileges if known else assignment.further_privileges).append(each.privilege)
    return wire.PermissionsList(list(found.values()))


def _scim(info: PrincipalInfo) -> dict[str, object]:
    created = datetime.fromtimestamp(info.created_at / 1000, UTC).isoformat().replace("+00:00", "Z")
    return {
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
        "id": info.id,
        "userName": info.name,
        "displayName": info.name,
        "emails": [{"value": info.name, "primary": True}],
        "active": not info.disabled,
        "meta": {"resourceType": "User", "created": created, "lastModified": created},
    }
