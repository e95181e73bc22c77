"""Grants, their explanation, and search on the wire."""

from __future__ import annotations

import msgspec

from inver.domain.grants import parse_action
from inver.domain.securables import SecurableKind
from inver.errors import Invalid
from inver.protocols.http import Request, Response
from inver.protocols.management import identity_wire as wire
from inver.protocols.management.coding import SEPARATOR, caller, decode, ok, page_size
from inver.protocols.management.endpoint import PAGE, Endpoint, Param
from inver.services.grants import Grants, NamedGrant, SecurableRef
from inver.services.search import MAX_RESULTS, Search

_change = msgspec.json.Decoder(wire.ChangeGrants).decode
_explain = msgspec.json.Decoder(wire.AskExplanation).decode


class GrantRoutes:
    def __init__(self, grants: Grants, search: Search) -> None:
        self._grants = grants
        self._search = search

    def endpoints(self) -> list[Endpoint]:
        which = (
            Param("kind", "Kind of the securable.", choices=tuple(SecurableKind)),
            Param("name", "Its names, joined by U+001F."),
            Param("principal", "Only grants to this principal; alone: everything it was given."),
        )
        return [
            Endpoint(
                "GET",
                "/grants",
                self.list,
                "grants",
                "List grants on a securable, or to a principal",
                params=which,
                returns=wire.GrantList,
            ),
            Endpoint(
                "POST",
                "/grants",
                self.add,
                "grants",
                "Grant privileges",
                body=wire.ChangeGrants,
                returns=wire.GrantList,
            ),
            Endpoint(
                "POST",
                "/grants/revoke",
                self.revoke,
                "grants",
                "Take privileges back",
                body=wire.ChangeGrants,
                returns=wire.GrantList,
            ),
            Endpoint(
                "POST",
                "/grants/explain",
                self.explain,
                "grants",
                "Say why a principal may or may not do something",
                body=wire.AskExplanation,
                returns=wire.Explanation,
            ),
            Endpoint(
                "GET",
                "/search",
                self.search,
                "search",
                "Search names and columns",
                params=(
                    Param("q", "What the name contains.", required=True),
                    Param("kind", "Only securables of this kind.", choices=tuple(SecurableKind)),
                    PAGE[0],
                    Param(
                        "max_results",
                        "How many at most; 100 by default.",
                        "integer",
                        least=1,
                        most=MAX_RESULTS,
                    ),
                ),
                returns=wire.SearchResults,
            ),
        ]

    async def list(self, request: Request) -> Response:
        principal = request.param("principal")
        kind = request.param("kind")
        if kind is None:
            if principal is None:
                raise Invalid("say on what or to whom", field="kind", fix="give kind and name, or principal")
            return ok(_grants(await self._grants.of(caller(request), principal)))
        name = request.param("name")
        ref = SecurableRef(_kind(kind), tuple(name.split(SEPARATOR)) if name else ())
        return ok(_grants(await self._grants.on(caller(request), ref, principal)))

    async def add(self, request: Request) -> Response:
        body = decode(request, _change)
        found = await self._grants.add(caller(request), body.principal, _ref(body.securable), body.privileges)
        return ok(_grants(found))

    async def revoke(self, request: Request) -> Response:
        body = decode(request, _change)
        found = await self._grants.remove(
            caller(request), body.principal, _ref(body.securable), body.privileges
        )
        return ok(_grants(found))

    async def explain(self, request: Request) -> Response:
        body = decode(request, _explain)
        ref = _ref(body.securable)
        asks = caller(request)
        decision = await self._grants.explain(asks, body.principal, body.action, ref)
        target = (await self._grants.chain(asks, ref))[0]
        return ok(
            wire.Explanation(
                decision.allowed,
                body.principal,
                parse_action(body.action),
                wire.SecurableShown(target.kind, list(target.name), target.id),
                list(decision.because),
                list(decision.missing),
            )
        )

    async def search(self, request: Request) -> Response:
        text = request.param("q")
        if text is None:
            raise Invalid("what to search for is missing", field="q", fix="add ?q=...")
        kind = request.param("kind")
        limit = page_size(request, most=MAX_RESULTS)
        key, _, last = (request.param("page_token") or "").partition(SEPARATOR)
        hits = await self._search.find(
            caller(request), text, None if kind is None else _kind(kind), (key, last), limit + 1
        )
        token = None
        if len(hits) > limit:
            found = hits[limit - 1].found
            token = found.key + SEPARATOR + found.id
        shown = [
            wire.SearchHit(
                hit.found.kind,
                hit.found.id,
                list(hit.name),
                "column" if hit.found.column else "name",
                hit.found.column,
            )
            for hit in hits[:limit]
        ]
        return ok(wire.SearchResults(shown, token))


def _ref(name: wire.SecurableName) -> SecurableRef:
    return SecurableRef(name.kind, name.name)


def _kind(text: str) -> SecurableKind:
    try:
        return SecurableKind(text)
    except ValueError:
        raise Invalid(
            f"{text!r} is not a kind of securable", field="kind", fix="one of " + ", ".join(SecurableKind)
        ) from None


def _grants(grants: list[NamedGrant]) -> wire.GrantList:
    return wire.GrantList(
        [
            wire.GrantShown(
                grant.principal,
                grant.row.privilege,
                wire.SecurableShown(grant.row.kind, list(grant.securable), grant.row.securable_id),
                grant.row.granted_at,
                grant.granted_by,
            )
            for grant in grants
        ]
    )
