"""Pages of a large schema, for people who see all of it and for people who see a little.

`python -m bench.listing` measures and prints; `run` gives the figures to whoever asks. Requests go
through the whole application in this process, so that a page's time is its own and not a socket's.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.fixtures.crowded import Crowded, crowded
from tests.fixtures.house import Person
from tests.fixtures.postgres import PostgresMissing, running_postgres

TABLES = 100_000
GRANTS = 10_000
PAGE = 100
BOUND_MS = 50.0
BOUND = ("all, as an administrator", "all, by SELECT on the schema", "many, one by one", "a few")
"""Who is never to wait longer for a page; the others are told."""


def run(seconds: float = 3.0, tables: int = TABLES, grants: int = GRANTS) -> dict[str, Any]:
    """By store and by who asks: milliseconds of the first page, of the median, and of the slowest.

    `first_ms` includes finding out what somebody holds; the others are about pages after that.
    """
    figures: dict[str, Any] = {"tables": tables, "grants": grants, "page": PAGE, "bound_ms": BOUND_MS}
    figures["sqlite"] = asyncio.run(_measure(None, seconds, tables, grants))
    try:
        with running_postgres() as server:
            url = server.create_database()
            figures["postgres"] = asyncio.run(_measure(url, seconds, tables, grants))
    except PostgresMissing as missing:
        figures["postgres"] = {"missing": str(missing)}
    return figures


def slowest(figures: dict[str, Any]) -> float:
    """The worst median of a page, which is what is held against the bound."""
    stores = [figures[store] for store in ("sqlite", "postgres") if "missing" not in figures[store]]
    return max(float(store[who]["median_ms"]) for store in stores for who in BOUND)


async def _measure(database: str | None, seconds: float, tables: int, grants: int) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="inver-bench-"))
        place = await stack.enter_async_context(crowded(Path(folder), database, tables, grants))
        return {name: await _pages(place, who, seconds) for name, who in place.people.items()}


async def _pages(place: Crowded, who: Person, seconds: float) -> dict[str, float]:
    """From the beginning to the end, and again, until the time is over."""
    # A change of grants makes everybody's facts be read anew.
    await place.home.grant("everyone", ["BROWSE"], "catalog", "other")
    await place.home.revoke("everyone", ["BROWSE"], "catalog", "other")
    times: list[float] = []
    token: str | None = ""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        page = await who.ok("GET", place.target, max_results=PAGE, page_token=token or "")
        times.append((time.perf_counter() - start) * 1000)
        token = page["next_page_token"]
    later = times[1:]
    return {
        "first_ms": round(times[0], 2),
        "median_ms": round(statistics.median(later), 2),
        "p99_ms": round(sorted(later)[int(len(later) * 0.99)], 2),
        "pages": len(times),
    }


if __name__ == "__main__":
    print(json.dumps(run(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0), indent=2))
