"""Transactions, after the fact."""

from __future__ import annotations

from inver.errors import Conflict, Invalid
from inver.protocols.http import Request, Response, Route
from inver.protocols.lance import wire
from inver.protocols.lance.coding import caller, decode, mode, ok, split_id
from inver.services.lance.transacting import Transacting
from inver.services.lance.types import Told

STATUSES = ("Succeeded", "Queued", "Running", "Failed", "Canceled")


class TransactionRoutes:
    def __init__(self, transacting: Transacting) -> None:
        self._transacting = transacting
        self.routes = [
            Route("POST", "/v1/transaction/{id}/describe", self.describe),
            Route("POST", "/v1/transaction/{id}/alter", self.alter),
        ]

    async def describe(self, request: Request) -> Response:
        body = decode(request, wire.body)
        return _told(await self._transacting.describe(caller(request), _path(request, body)))

    async def alter(self, request: Request) -> Response:
        body = decode(request, wire.alter_transaction)
        path = _path(request, body)
        if not body.actions:
            raise Invalid("there must be at least one action", field="actions")
        asks = caller(request)
        known = (await self._transacting.describe(asks, path)).properties
        changes: dict[str, str | None] = {}
        for at, action in enumerate(body.actions):
            _apply(action, f"actions[{at}]", {**known, **changes}, changes)
        return _told(await self._transacting.alter(asks, path, changes))


def _apply(
    action: wire.Action, field: str, known: dict[str, str | None], changes: dict[str, str | None]
) -> None:
    given = [each for each in (action.set_status, action.set_property, action.unset_property) if each]
    if len(given) != 1:
        raise Invalid("an action sets a status, or sets or unsets one property", field=field)
    if action.set_status is not None:
        if mode(action.set_status.status, *STATUSES, field=f"{field}.status") != "Succeeded":
            raise Conflict("the transaction has succeeded, which cannot be changed")
    elif action.set_property is not None:
        wanted = action.set_property
        there = known.get(wanted.key) is not None
        how = mode(wanted.mode, "Overwrite", "Fail", "Skip")
        if there and how == "Fail":
            raise Conflict(f"the property {wanted.key!r} is set already")
        if not there or how == "Overwrite":
            changes[wanted.key] = wanted.value or ""
    elif action.unset_property is not None:
        key = action.unset_property.key
        if known.get(key) is None and mode(action.unset_property.mode, "Skip", "Fail") == "Fail":
            raise Invalid(f"the property {key!r} is not set", field=field)
        changes[key] = None


def _path(request: Request, body: wire.Body) -> tuple[str, ...]:
    path = split_id(request, request.args[0])
    if not path:
        raise Invalid("the id of a transaction is needed", field="id")
    if body.id is not None and tuple(body.id) != path:
        raise Invalid("the id in the body is not the id in the path", field="id")
    return path


def _told(shown: Told) -> Response:
    return ok({"status": "SUCCEEDED", "properties": shown.properties})
