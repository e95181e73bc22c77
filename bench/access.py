"""What it costs to know who asks and that they may: per commit, when everything is remembered.

`python -m bench.access` measures and prints; `run` gives the figures to whoever asks. The hot path's
own steps run in this process: authenticate a header, find the caller, decide about the table.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from inver.config import Settings
from inver.domain.grants import Action
from inver.domain.principals import Principal, PrincipalKind
from inver.domain.securables import SecurableKind
from inver.domain.tables import Format
from inver.protocols.http import Request
from inver.protocols.management.coding import caller
from inver.server.app import App, build, first_token
from inver.services.context import Caller
from inver.services.grants import SecurableRef
from inver.services.intents import CreateTable
from inver.services.names import TableRef

LIMIT_US = 10.0
TABLES = 64
CALLS = 50_000
GROUPS = 5


def run() -> dict[str, Any]:
    """CPU µs per commit for the administrator, and for a user whose right comes through nested groups."""
    return asyncio.run(_measure())


async def _measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="inver-bench-") as folder:
        app = await build(Settings(home=Path(folder)))
        try:
            token = await first_token(app)
            assert token is not None
            tables, user = await _prepare(app, token)
            return {
                "limit_us": LIMIT_US,
                "administrator_us": await _cost(app, token, tables),
                "user_us": await _cost(app, user, tables),
            }
        finally:
            await app.store.close()


async def _prepare(app: App, token: str) -> tuple[list[str], str]:
    services = app.services
    admin = await _asking(app, token)
    await services.catalogs.create(admin, "main")
    await services.catalogs.create_schema(admin, "main", ("sales",))
    tables = []
    for number in range(TABLES):
        intent = CreateTable(name=("main", "sales", f"t{number}"), format=Format.DELTA)
        receipt = await services.transactions.decide(admin, [intent])
        tables.append(receipt.results[0].subject)
    member = "ana"
    await services.principals.create(admin, member, PrincipalKind.USER)
    issued = await services.tokens.create(admin, member)
    for number in range(GROUPS):
        admin = await _asking(app, token)
        await services.principals.create(admin, f"group{number}", PrincipalKind.GROUP)
        await services.principals.add_member(admin, f"group{number}", member)
        member = f"group{number}"
    for kind, name, privilege in (
        (SecurableKind.CATALOG, ("main",), "USE CATALOG"),
        (SecurableKind.SCHEMA, ("main", "sales"), "USE SCHEMA"),
        (SecurableKind.SCHEMA, ("main", "sales"), "MODIFY"),
    ):
        admin = await _asking(app, token)
        await services.grants.add(admin, member, SecurableRef(kind, name), [privilege])
    return tables, issued.secret.reveal()


async def _cost(app: App, token: str, tables: list[str]) -> float:
    access = app.services.access
    asks = await _asking(app, token)
    for table_id in tables:
        table = await app.services.names.table(TableRef(id=table_id))
        await access.table_chain(asks, table)
    await access.standing(asks)
    authenticate = app.authenticator
    headers = [(b"authorization", f"Bearer {token}".encode())]
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        for number in range(CALLS):
            request = Request("POST", b"/", headers=headers)
            principal = authenticate(headers[0][1], "127.0.0.1")
            assert isinstance(principal, Principal)
            request.principal = principal
            if not access.permitted(caller(request), Action.COMMIT, tables[number % TABLES]):
                raise AssertionError("the facts are not remembered")
        best = min(best, 1e6 * (time.process_time() - started) / CALLS)
    return best


async def _asking(app: App, token: str) -> Caller:
    found = app.authenticator(f"Bearer {token}".encode(), "127.0.0.1")
    return Caller(found if isinstance(found, Principal) else await found)


if __name__ == "__main__":
    json.dump(run(), sys.stdout, indent=2)
    print()
