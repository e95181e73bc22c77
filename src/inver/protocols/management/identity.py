"""Principals, groups and credentials on the wire."""

from __future__ import annotations

import msgspec

from inver.domain import governance
from inver.domain.principals import PrincipalInfo, PrincipalKind
from inver.errors import Invalid
from inver.protocols.http import Request, Response
from inver.protocols.management import identity_wire as wire
from inver.protocols.management.coding import caller, decode, if_match, ok, page_size, page_start, paged
from inver.protocols.management.endpoint import PAGE, Endpoint, Param
from inver.protocols.oauth import answer_token_request
from inver.services.principals import Principals
from inver.services.tokens import Tokens

_create = msgspec.json.Decoder(wire.CreatePrincipal).decode
_alter = msgspec.json.Decoder(wire.AlterPrincipal).decode
_create_token = msgspec.json.Decoder(wire.CreateToken).decode
_create_secret = msgspec.json.Decoder(wire.CreateSecret).decode

PRINCIPAL = "/principals/{name}"
MEMBER = "/groups/{group}/members/{principal}"


class IdentityRoutes:
    def __init__(self, principals: Principals, tokens: Tokens) -> None:
        self._principals = principals
        self._tokens = tokens

    def endpoints(self) -> list[Endpoint]:
        kind = Param("kind", "Only users, service accounts or groups.", choices=tuple(PrincipalKind))
        return [
            *self._principal_endpoints(kind),
            *self._group_endpoints(),
            *self._credential_endpoints(),
        ]

    def _principal_endpoints(self, kind: Param) -> list[Endpoint]:
        return [
            Endpoint(
                "GET", "/whoami", self.whoami, "principals", "Show who the caller is", returns=wire.Whoami
            ),
            Endpoint(
                "GET",
                "/principals",
                self.list_principals,
                "principals",
                "List principals",
                params=(kind, *PAGE),
                returns=wire.PrincipalList,
            ),
            Endpoint(
                "POST",
                "/principals",
                self.create,
                "principals",
                "Create a user, a service account or a group",
                body=wire.CreatePrincipal,
                returns=wire.PrincipalShown,
                status=201,
            ),
            Endpoint(
                "GET",
                PRINCIPAL,
                self.get,
                "principals",
                "Show a principal with its groups and members",
                returns=wire.PrincipalShown,
            ),
            Endpoint(
                "PATCH",
                PRINCIPAL,
                self.alter,
                "principals",
                "Disable or enable a principal, or change its comment",
                body=wire.AlterPrincipal,
                returns=wire.PrincipalShown,
                etag=True,
            ),
            Endpoint(
                "DELETE",
                PRINCIPAL,
                self.delete,
                "principals",
                "Delete a principal with its credentials, memberships and grants",
                status=204,
            ),
        ]

    def _group_endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/groups/{group}/members",
                self.members,
                "groups",
                "List the direct members of a group",
                returns=wire.MemberList,
            ),
            Endpoint("PUT", MEMBER, self.add_member, "groups", "Put a principal into a group", status=204),
            Endpoint(
                "DELETE", MEMBER, self.remove_member, "groups", "Take a principal out of a group", status=204
            ),
        ]

    def _credential_endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "POST",
                "/tokens",
                self.create_token,
                "tokens",
                "Make a token; it is shown once",
                body=wire.CreateToken,
                returns=wire.NewToken,
                status=201,
            ),
            Endpoint(
                "GET",
                "/tokens",
                self.list_tokens,
                "tokens",
                "List the tokens of a principal",
                params=(Param("principal", "Whose; the caller's by default."),),
                returns=wire.TokenList,
            ),
            Endpoint(
                "DELETE",
                "/tokens/{id}",
                self.revoke_token,
                "tokens",
                "Revoke a token at once, on every server",
                status=204,
            ),
            Endpoint(
                "POST",
                PRINCIPAL + "/secrets",
                self.create_secret,
                "tokens",
                "Make a client secret for OAuth; at most two live at a time",
                body=wire.CreateSecret,
                returns=wire.NewSecret,
                status=201,
            ),
            Endpoint(
                "GET",
                PRINCIPAL + "/secrets",
                self.list_secrets,
                "tokens",
                "List the client secrets of a principal",
                returns=wire.SecretList,
            ),
            Endpoint(
                "DELETE",
                PRINCIPAL + "/secrets/{id}",
                self.revoke_secret,
                "tokens",
                "Revoke a client secret",
                status=204,
            ),
            Endpoint(
                "POST",
                "/oauth/token",
                self.oauth_token,
                "tokens",
                "Exchange client credentials for an access token (RFC 6749, form encoded)",
                returns=wire.AccessToken,
                public=True,
            ),
        ]

    async def whoami(self, request: Request) -> Response:
        info, groups = await self._principals.myself(caller(request))
        return ok(wire.Whoami(info.id, info.name, info.kind, [group.name for group in groups]))

    async def list_principals(self, request: Request) -> Response:
        limit = page_size(request)
        found = await self._principals.page(
            caller(request), _kind(request.param("kind")), page_start(request), limit + 1
        )
        shown, token = paged(found, limit)
        return ok(wire.PrincipalList([wire.PrincipalShown.of(info) for info in shown], token))

    async def create(self, request: Request) -> Response:
        body = decode(request, _create)
        info = await self._principals.create(caller(request), body.name, body.kind, body.comment)
        return ok(wire.PrincipalShown.of(info), 201, info.etag)

    async def get(self, request: Request) -> Response:
        return await self._shown(await self._principals.get(caller(request), request.args[0]))

    async def alter(self, request: Request) -> Response:
        body = decode(request, _alter)
        asks = caller(request)
        info = await self._principals.get(asks, request.args[0])
        change = governance.AlterPrincipal(
            id=info.id, expect_etag=if_match(request), disabled=body.disabled, comment=body.comment
        )
        return await self._shown(await self._principals.alter(asks, info.name, change))

    async def delete(self, request: Request) -> Response:
        await self._principals.delete(caller(request), request.args[0])
        return Response(204)

    async def members(self, request: Request) -> Response:
        members = await self._principals.members(caller(request), request.args[0])
        return ok(wire.MemberList([wire.PrincipalShown.of(member) for member in members]))

    async def add_member(self, request: Request) -> Response:
        await self._principals.add_member(caller(request), *request.args)
        return Response(204)

    async def remove_member(self, request: Request) -> Response:
        await self._principals.remove_member(caller(request), *request.args)
        return Response(204)

    async def create_token(self, request: Request) -> Response:
        body = decode(request, _create_token)
        made = await self._tokens.create(
            caller(request), body.principal, body.label, body.scope, body.expires_in_s
        )
        shown = wire.NewToken(
            made.secret.reveal(), made.id, made.principal, body.label, body.scope, made.expires_at
        )
        return ok(shown, 201)

    async def list_tokens(self, request: Request) -> Response:
        found = await self._tokens.of(caller(request), request.param("principal"))
        return ok(wire.TokenList([wire.TokenShown.of(token) for token in found]))

    async def revoke_token(self, request: Request) -> Response:
        await self._tokens.revoke(caller(request), request.args[0])
        return Response(204)

    async def create_secret(self, request: Request) -> Response:
        body = decode(request, _create_secret)
        made = await self._tokens.create_secret(
            caller(request), request.args[0], body.label, body.expires_in_s
        )
        return ok(wire.NewSecret(made.id, made.principal, made.secret.reveal(), made.expires_at), 201)

    async def list_secrets(self, request: Request) -> Response:
        found = await self._tokens.secrets(caller(request), request.args[0])
        return ok(wire.SecretList([wire.SecretShown.of(secret) for secret in found]))

    async def revoke_secret(self, request: Request) -> Response:
        await self._tokens.revoke_secret(caller(request), *request.args)
        return Response(204)

    async def oauth_token(self, request: Request) -> Response:
        return await answer_token_request(request, self._tokens)

    async def _shown(self, info: PrincipalInfo) -> Response:
        shown = wire.PrincipalShown.of(info)
        shown.groups = [group.name for group in await self._principals.groups_of(info)]
        if info.kind is PrincipalKind.GROUP:
            shown.members = [member.name for member in await self._principals.members_of(info)]
        return ok(shown, etag=info.etag)


def _kind(text: str | None) -> PrincipalKind | None:
    if text is None:
        return None
    try:
        return PrincipalKind(text)
    except ValueError:
        raise Invalid(
            f"{text!r} is not a kind of principal", field="kind", fix="user, service or group"
        ) from None
