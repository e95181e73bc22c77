"""A plan of care over a whole catalog, and what it costs to keep up what it is made from.

`python -m bench.care_plan` measures and prints; `run` gives the figures to whoever asks. Every table
has commits that left it in need of something, so that nothing of the plan is cheap for want of work.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from inver.domain import ledger
from inver.domain.health import DAY_MS
from inver.domain.principals import ADMIN
from inver.domain.tables import Format, TableKind
from inver.ids import new_id
from tests.fixtures.care import MIB, commit, counts
from tests.fixtures.house import House, Person, house
from tests.fixtures.postgres import PostgresMissing, running_postgres

TABLES = 10_000
SCHEMAS = 100
BOUND_S = 2.0
ROUNDS = 3


def run(tables: int = TABLES) -> dict[str, Any]:
    """By store: seconds of a plan, the slowest of some, and microseconds to take in one commit."""
    figures: dict[str, Any] = {"tables": tables, "bound_s": BOUND_S}
    figures["sqlite"] = asyncio.run(_measure(None, tables))
    try:
        with running_postgres() as server:
            figures["postgres"] = asyncio.run(_measure(server.create_database(), tables))
    except PostgresMissing as missing:
        figures["postgres"] = {"missing": str(missing)}
    return figures


def slowest(figures: dict[str, Any]) -> float:
    stores = [figures[store] for store in ("sqlite", "postgres") if "missing" not in figures[store]]
    return max(float(store[name]) for store in stores for name in ("administrator_s", "user_s", "next_s"))


async def _measure(database: str | None, tables: int) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="inver-bench-"))
        home = await stack.enter_async_context(house(Path(folder), database))
        await _fill(home, tables)
        events = await home.app.store.last_event()
        cpu = time.process_time()
        await home.app.services.care.observer.catch_up(events)
        folding = (time.process_time() - cpu) / events
        home.clock.advance(30 * DAY_MS)
        user = await home.user("ana")
        await home.grant("ana", ["USE CATALOG", "USE SCHEMA", "SELECT", "MAINTAIN"], "catalog", "main")
        return {
            "fold_us": folding * 1e6,
            "administrator_s": await _slowest(lambda: _plan(home.admin, tables)),
            "user_s": await _slowest(lambda: _plan(user, tables)),
            "next_s": await _slowest(lambda: _next(user)),
        }


async def _fill(home: House, tables: int) -> None:
    store, now = home.app.store, home.clock.now_ms()
    catalog = new_id()
    schemas = [new_id() for _ in range(SCHEMAS)]
    made: list[ledger.Operation] = [ledger.CreateCatalog(id=catalog, name="main")]
    made += [
        ledger.CreateSchema(id=schema, catalog_id=catalog, parent_id=catalog, name=f"s{number}")
        for number, schema in enumerate(schemas)
    ]
    for number in range(tables):
        table = new_id()
        made.append(
            ledger.CreateTable(
                id=table,
                schema_id=schemas[number % SCHEMAS],
                name=f"t{number}",
                format=Format.DELTA,
                kind=TableKind.MANAGED,
                location=f"s3://warehouse/{table}",
                location_key=f"s3://warehouse/{table}/",
                version=-1,
                head=b"{}",
            )
        )
        sizes = [(1 + number % 7) * MIB] * (10 + number % 90)
        made.append(commit(table, 0, counts(*sizes, rows=1000)))
        made.append(commit(table, 1, counts(removed=(sizes[0],), deletes=1, deleted_rows=number % 400)))
    for start in range(0, len(made), ledger.MAX_OPERATIONS):
        some = tuple(made[start : start + ledger.MAX_OPERATIONS])
        await store.decide(ledger.Transaction(ADMIN.id, now, some))


async def _plan(who: Person, tables: int) -> None:
    plan = await who.ok("GET", "/care/plan", max_results=100)
    assert plan["count"] >= tables, plan["count"]


async def _next(who: Person) -> None:
    assert (await who.ok("POST", "/care/runs/next", {"worker": "bench"}))["ticket"] is not None


async def _slowest(work: Callable[[], Awaitable[None]]) -> float:
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:])), indent=2))
