"""Shares and recipients on the wire, for who provides them."""

from __future__ import annotations

import msgspec

from inver.domain.shares import ItemKind, Recipient
from inver.errors import Invalid
from inver.protocols.http import Request, Response
from inver.protocols.management import sharing_wire as wire
from inver.protocols.management.coding import caller, decode, ok, page_size, page_start, paged
from inver.protocols.management.endpoint import PAGE, Endpoint
from inver.services.sharing.profiles import activation_url, endpoint, profile
from inver.services.sharing.recipients import Given, Recipients
from inver.services.sharing.shares import NewItem, Shares

_create_share = msgspec.json.Decoder(wire.CreateShare).decode
_add = msgspec.json.Decoder(wire.AddToShare).decode
_grant = msgspec.json.Decoder(wire.GrantShare).decode
_create = msgspec.json.Decoder(wire.CreateRecipient).decode
_alter = msgspec.json.Decoder(wire.AlterRecipient).decode
_rotate = msgspec.json.Decoder(wire.RotateRecipient).decode

SHARE = "/shares/{share}"
RECIPIENT = "/recipients/{recipient}"


class SharingRoutes:
    def __init__(self, shares: Shares, recipients: Recipients, public_url: str | None) -> None:
        self._shares = shares
        self._recipients = recipients
        self._public_url = public_url

    def endpoints(self) -> list[Endpoint]:
        return [*self._share_endpoints(), *self._content_endpoints(), *self._recipient_endpoints()]

    def _share_endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/shares",
                self.list_shares,
                "shares",
                "List shares",
                params=PAGE,
                returns=wire.ShareList,
            ),
            Endpoint(
                "POST",
                "/shares",
                self.create_share,
                "shares",
                "Create a share",
                body=wire.CreateShare,
                returns=wire.ShareShown,
                status=201,
            ),
            Endpoint(
                "GET",
                SHARE,
                self.get_share,
                "shares",
                "Show a share, what it contains and who has it",
                returns=wire.ShareShown,
            ),
            Endpoint("DELETE", SHARE, self.drop_share, "shares", "Drop a share", status=204),
        ]

    def _content_endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "POST",
                SHARE + "/items",
                self.add_item,
                "shares",
                "Put a table or a whole schema into a share",
                body=wire.AddToShare,
                returns=wire.ItemShown,
                status=201,
            ),
            Endpoint(
                "DELETE",
                SHARE + "/schemas/{schema}",
                self.remove_schema,
                "shares",
                "Take a whole schema out of a share",
                status=204,
            ),
            Endpoint(
                "DELETE",
                SHARE + "/schemas/{schema}/tables/{table}",
                self.remove_table,
                "shares",
                "Take a table out of a share",
                status=204,
            ),
            Endpoint(
                "PUT",
                SHARE + RECIPIENT,
                self.grant_share,
                "shares",
                "Give a share to a recipient",
                body=wire.GrantShare,
                status=204,
            ),
            Endpoint(
                "DELETE",
                SHARE + RECIPIENT,
                self.revoke_share,
                "shares",
                "Take a share from a recipient, at once",
                status=204,
            ),
        ]

    def _recipient_endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/recipients",
                self.list_recipients,
                "recipients",
                "List recipients",
                params=PAGE,
                returns=wire.RecipientList,
            ),
            Endpoint(
                "POST",
                "/recipients",
                self.create_recipient,
                "recipients",
                "Create a recipient; its link or profile is shown once",
                body=wire.CreateRecipient,
                returns=wire.NewRecipient,
                status=201,
            ),
            Endpoint(
                "GET",
                RECIPIENT,
                self.get_recipient,
                "recipients",
                "Show a recipient and its credentials",
                returns=wire.RecipientShown,
            ),
            Endpoint(
                "PATCH",
                RECIPIENT,
                self.alter_recipient,
                "recipients",
                "Change the comment of a recipient, or the networks that it may call from",
                body=wire.AlterRecipient,
                returns=wire.RecipientShown,
            ),
            Endpoint("DELETE", RECIPIENT, self.drop_recipient, "recipients", "Drop a recipient", status=204),
            Endpoint(
                "POST",
                RECIPIENT + "/rotate",
                self.rotate_recipient,
                "recipients",
                "Give a recipient new credentials",
                body=wire.RotateRecipient,
                returns=wire.NewRecipient,
                status=201,
            ),
            Endpoint(
                "POST",
                RECIPIENT + "/revoke",
                self.revoke_recipient,
                "recipients",
                "End every credential of a recipient, at once",
                status=204,
            ),
        ]

    async def list_shares(self, request: Request) -> Response:
        limit = page_size(request)
        found = await self._shares.page(caller(request), page_start(request), limit + 1)
        shown, token = paged(found, limit)
        return ok(wire.ShareList([wire.ShareShown.of(share) for share in shown], token))

    async def create_share(self, request: Request) -> Response:
        body = decode(request, _create_share)
        return ok(
            wire.ShareShown.of(await self._shares.create(caller(request), body.name, body.comment)), 201
        )

    async def get_share(self, request: Request) -> Response:
        share = await self._shares.get(caller(request), request.args[0])
        shown = wire.ShareShown.of(share)
        items = await self._shares.items(share)
        shown.items = [wire.ItemShown.of(each.item, each.source) for each in items]
        shown.recipients = [wire.ShareGrantShown.of(g, items) for g in await self._shares.grants(share)]
        return ok(shown)

    async def drop_share(self, request: Request) -> Response:
        await self._shares.drop(caller(request), request.args[0])
        return Response(204)

    async def add_item(self, request: Request) -> Response:
        body = decode(request, _add)
        if body.kind is ItemKind.SCHEMA and (body.start_version or not body.history):
            raise Invalid(
                "start_version and history are of single tables", field="start_version", fix="share the table"
            )
        new = NewItem(
            name=body.name,
            kind=body.kind,
            alias=body.alias,
            start_version=body.start_version,
            history=body.history,
        )
        item = await self._shares.add(caller(request), request.args[0], new)
        return ok(wire.ItemShown.of(item, body.name), 201)

    async def remove_schema(self, request: Request) -> Response:
        await self._shares.remove(caller(request), request.args[0], request.args[1], None)
        return Response(204)

    async def remove_table(self, request: Request) -> Response:
        await self._shares.remove(caller(request), *request.args)
        return Response(204)

    async def grant_share(self, request: Request) -> Response:
        body = decode(request, _grant)
        share, recipient = request.args
        filters = {(each.schema_name, each.table): each.where for each in body.filters}
        await self._shares.grant(caller(request), share, recipient, filters)
        return Response(204)

    async def revoke_share(self, request: Request) -> Response:
        await self._shares.revoke(caller(request), *request.args)
        return Response(204)

    async def list_recipients(self, request: Request) -> Response:
        limit = page_size(request)
        found = await self._recipients.page(caller(request), page_start(request), limit + 1)
        shown, token = paged(found, limit)
        return ok(wire.RecipientList([wire.RecipientShown.of(each) for each in shown], token))

    async def create_recipient(self, request: Request) -> Response:
        body = decode(request, _create)
        given = await self._recipients.create(
            caller(request),
            body.name,
            body.kind,
            comment=body.comment,
            networks=tuple(body.networks),
            lifetime_s=body.expires_in_s,
            activate=body.activate,
        )
        return self._given(request, given)

    async def get_recipient(self, request: Request) -> Response:
        return await self._shown(await self._recipients.get(caller(request), request.args[0]))

    async def alter_recipient(self, request: Request) -> Response:
        body = decode(request, _alter)
        networks = body.networks if isinstance(body.networks, msgspec.UnsetType) else tuple(body.networks)
        return await self._shown(
            await self._recipients.alter(
                caller(request), request.args[0], comment=body.comment, networks=networks
            )
        )

    async def drop_recipient(self, request: Request) -> Response:
        await self._recipients.drop(caller(request), request.args[0])
        return Response(204)

    async def rotate_recipient(self, request: Request) -> Response:
        body = decode(request, _rotate)
        given = await self._recipients.rotate(
            caller(request),
            request.args[0],
            grace_s=body.grace_s,
            lifetime_s=body.expires_in_s,
            activate=body.activate,
        )
        return self._given(request, given)

    async def revoke_recipient(self, request: Request) -> Response:
        await self._recipients.revoke(caller(request), request.args[0])
        return Response(204)

    def _given(self, request: Request, given: Given) -> Response:
        reached = endpoint(request.header(b"host"), self._public_url)
        return ok(
            wire.NewRecipient(
                recipient=wire.RecipientShown.of(given.recipient),
                expires_at=given.expires_at,
                activation_url=activation_url(given, reached),
                profile=profile(given, reached),
            ),
            201,
        )

    async def _shown(self, recipient: Recipient) -> Response:
        shown = wire.RecipientShown.of(recipient)
        stored = await self._recipients.credentials(recipient)
        shown.credentials = [wire.CredentialShown.of(each) for each in stored]
        return ok(shown)
