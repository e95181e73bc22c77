"""Transactions, events and cursors on the wire."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec

from inver import __version__
from inver.domain.ledger import Receipt
from inver.errors import Invalid
from inver.protocols.http import Request, Response
from inver.protocols.management import change_wire as wire
from inver.protocols.management.coding import caller, decode, encode, ok, page_size, then, whole
from inver.protocols.management.endpoint import Endpoint, Param
from inver.protocols.management.natives import Natives
from inver.services.feed import MAX_EVENTS, MAX_WAIT_S, Feed
from inver.services.intents import Intent
from inver.services.transactions import Transactions

_transaction = msgspec.json.Decoder(wire.TransactionRequest).decode
_FEED = (
    Param("after", "Events past this sequence number; 0 by default.", "integer", least=0),
    Param("limit", "How many at most; 100 by default.", "integer", least=1, most=MAX_EVENTS),
    Param(
        "wait",
        "Seconds to wait for the first event when there is none yet; 0 by default.",
        "integer",
        least=0,
        most=int(MAX_WAIT_S),
    ),
)


class ChangeRoutes:
    """`natives` read requests in the words of a format's own protocol."""

    def __init__(
        self, transactions: Transactions, feed: Feed, source: str, database: str, natives: Natives
    ) -> None:
        self._transactions = transactions
        self._feed = feed
        self._source = source
        self._database = database
        self._natives = natives

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "POST",
                "/transactions",
                self.transact,
                "transactions",
                "Decide operations on any number of tables of any format as one",
                body=wire.TransactionRequest,
                returns=wire.TransactionResult,
                keyed=True,
            ),
            Endpoint(
                "GET",
                "/transactions/{id}",
                self.get_transaction,
                "transactions",
                "Show what a transaction did",
                returns=wire.TransactionInfo,
            ),
            Endpoint(
                "GET",
                "/events",
                self.events,
                "events",
                "Read the event feed from any point on",
                params=_FEED,
                returns=wire.EventList,
                timeout=MAX_WAIT_S + 10,
            ),
            Endpoint(
                "GET",
                "/cursors/{cursor}",
                self.get_cursor,
                "transactions",
                "Show where a cursor stands",
                returns=wire.CursorInfo,
            ),
            Endpoint(
                "GET",
                "/info",
                self.info,
                "server",
                "Show what this server is",
                returns=wire.ServerInfo,
            ),
        ]

    def transact(self, request: Request) -> Awaitable[Response]:
        """The hot path: a commit of tables given by id makes no coroutine and no task."""
        body = decode(request, _transaction)
        intents: list[Intent] = []
        for index, operation in enumerate(body.operations):
            try:
                if isinstance(operation, wire.NativeOp):
                    intents.append(self._natives.read(operation))
                else:
                    intents.append(operation.intent())
            except Invalid as error:
                place = f"operations[{index}].{error.field or 'commit'}"
                raise Invalid(error.message, field=place, fix=error.fix) from None
        return then(self._transactions.decide(caller(request), intents, numbered=True), _result)

    async def get_transaction(self, request: Request) -> Response:
        number = whole(request.args[0], "id")
        events = await self._transactions.get(caller(request), number)
        return ok(
            wire.TransactionInfo(
                str(number),
                events[0].at,
                events[0].by,
                [wire.CloudEvent.of(event, self._source) for event in events],
            )
        )

    async def events(self, request: Request) -> Response:
        after = whole(request.param("after") or "0", "after")
        limit = page_size(request, "limit", MAX_EVENTS)
        wait = whole(request.param("wait") or "0", "wait")
        if wait > MAX_WAIT_S:
            raise Invalid(f"wait is at most {MAX_WAIT_S:.0f} seconds", field="wait")
        events = await self._feed.after(caller(request), after, limit, wait)
        following = events[-1].seq if events else after
        return ok(wire.EventList([wire.CloudEvent.of(e, self._source) for e in events], str(following)))

    async def get_cursor(self, request: Request) -> Response:
        name = request.args[0]
        return ok(wire.CursorInfo(name, await self._feed.cursor(caller(request), name)))

    async def info(self, request: Request) -> Response:
        last = await self._feed.last(caller(request))
        return ok(wire.ServerInfo("inver", __version__, self._database, str(last)))


def _result(receipt: Receipt) -> Response:
    return Response(200, encode(wire.TransactionResult.of(receipt)))
