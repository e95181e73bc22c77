"""Changes that are made, and overtaken before they can be shown: nobody is told that they were not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from inver.domain.ledger import Receipt, Transaction
from inver.domain.tables import Format
from inver.errors import OutcomeUnknown
from inver.services.catalogs import Changes
from inver.services.context import Caller
from inver.services.intents import AlterTable, DropTable
from inver.services.names import TableRef
from tests.fixtures.ledger import Book, as_admin, build_services, change

Act = Callable[[], Awaitable[Any]]


class Hurried:
    """A store with somebody beside it who acts as soon as the next decision is made."""

    def __init__(self, book: Book) -> None:
        self._store = book.store
        self._act: Act | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def then(self, act: Act) -> None:
        self._act = act

    async def decide(self, transaction: Transaction) -> Receipt:
        receipt = await self._store.decide(transaction)
        act, self._act = self._act, None
        if act is not None:
            await act()
        return receipt


class Outrun:
    def __init__(self, book: Book, folder: Path) -> None:
        self.book = book
        self.store = Hurried(book)
        self.folder = folder
        self.others = build_services(book.store, book.clock, folder)
        self.services: Any = build_services(self.store, book.clock, folder)

    async def asks(self, use_case: Callable[[Caller], Awaitable[Any]]) -> Any:
        return await as_admin(self.book.store, use_case)

    async def overtaken(
        self, use_case: Callable[[Caller], Awaitable[Any]], act: Callable[[Caller], Awaitable[Any]]
    ) -> None:
        self.store.then(lambda: self.asks(act))
        with pytest.raises(OutcomeUnknown):
            await self.asks(use_case)


@pytest.fixture
def outrun(book: Book, tmp_path: Path) -> Outrun:
    return Outrun(book, tmp_path)


async def test_a_catalog_that_is_dropped_or_renamed_at_once(outrun: Outrun):
    catalogs, others = outrun.services.catalogs, outrun.others.catalogs
    await outrun.overtaken(lambda me: catalogs.create(me, "new"), lambda me: others.drop(me, "new", None))
    await outrun.asks(lambda me: others.create(me, "new"))
    await outrun.overtaken(
        lambda me: catalogs.alter(me, "new", Changes(comment="mine"), None),
        lambda me: others.alter(me, "new", Changes(name="other"), None),
    )
    assert (await outrun.asks(lambda me: others.get(me, "other"))).comment == "mine"


async def test_a_schema_that_is_dropped_or_renamed_at_once(outrun: Outrun):
    catalogs, others = outrun.services.catalogs, outrun.others.catalogs
    await outrun.asks(lambda me: others.create(me, "c"))
    await outrun.overtaken(
        lambda me: catalogs.create_schema(me, "c", ("s",)),
        lambda me: others.drop_schema(me, "c", ("s",), None),
    )
    await outrun.asks(lambda me: others.create_schema(me, "c", ("s",)))
    await outrun.overtaken(
        lambda me: catalogs.alter_schema(me, "c", ("s",), Changes(comment="mine"), None),
        lambda me: others.alter_schema(me, "c", ("s",), Changes(name="other"), None),
    )
    assert (await outrun.asks(lambda me: others.schema(me, "c", ("other",)))).comment == "mine"


async def test_a_table_that_is_dropped_at_once(outrun: Outrun):
    name = ("c", "s", "t")
    place = f"file://{outrun.folder}/external/t"
    drop = DropTable(table=TableRef(name=name))
    await outrun.asks(lambda me: outrun.others.catalogs.create(me, "c"))
    await outrun.asks(lambda me: outrun.others.catalogs.create_schema(me, "c", ("s",)))
    await outrun.overtaken(
        lambda me: outrun.services.delta.register(me, name, place, Format.DELTA),
        lambda me: outrun.others.transactions.decide(me, [drop]),
    )
    made = await outrun.asks(lambda me: outrun.others.delta.register(me, name, place, Format.DELTA))
    altered = AlterTable(table=TableRef(name=name), comment="mine")
    receipt = await change(outrun.others, outrun.book.store, altered)
    assert receipt.results[0].subject == made.table.id
    await change(outrun.others, outrun.book.store, drop)
    with pytest.raises(OutcomeUnknown):
        await outrun.services.delta.changed(made.table.id)
