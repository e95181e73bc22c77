"""C15: what clients of Lance say of themselves, in headers and again in bodies, is told to nobody.

Every route is called with it: allowed, refused, wrong, and with what is no identity at all.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from inver.server.router import Entry
from tests.fixtures.house import Answer, ask, house
from tests.security.test_every_route import LANCE_ROWS, World, entries, key_of, target

ENDS = ("drop", "deregister", "rename", "delete", "delete_columns")
"""What takes away what the others are about comes last."""
CONTEXT = f"context-{uuid4()}"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with house(tmp_path / "home") as home:
        yield await World(home).build()


def routes(world: World) -> list[tuple[Entry, str]]:
    found = [
        (entry, key_of(entry).replace("/lance", "", 1))
        for entry in entries(world.home)
        if entry.template.startswith("/lance") and not entry.public and entry.method != "HEAD"
    ]
    return sorted(found, key=lambda each: each[0].template.endswith(ENDS))


async def told(
    world: World, identity: Any, context: Any, headers: dict[str, str]
) -> Iterator[tuple[str, Answer]]:
    """What every route answers, where the body says these things beside what the route asks for."""
    found = []
    for entry, key in routes(world):
        row = LANCE_ROWS[key]
        body = row.body(world)
        sent = dict(headers)
        if isinstance(body, dict):
            body = {**body, "identity": identity, "context": context}
        elif isinstance(identity, dict) and "Authorization" not in headers:
            sent["x-api-key"] = str(identity.get("auth_token"))
        answer = await ask(
            world.home.app.public,
            entry.method,
            target(entry, row, world),
            body,
            sent.items(),
            client=str(uuid4()),
            **row.query(world),
        )
        found.append((key, answer))
    return iter(found)


def kept(world: World) -> Iterator[tuple[Path, bytes]]:
    """Everything that is on disk, the database and its log included."""
    for path in world.home.app.settings.home.rglob("*"):
        if path.is_file() and path.name != "admin.token":
            yield path, path.read_bytes()


CONTEXTS: dict[str, Any] = {
    "as the specification has it": {"tenant": CONTEXT, f"header.x-{CONTEXT}": CONTEXT},
    "text": CONTEXT,
    "a list": [CONTEXT, {"deep": CONTEXT}],
    "not of text": {"tenant": {"deep": CONTEXT}},
}


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=list(CONTEXTS))
@pytest.mark.parametrize("who", ["admin", "stranger", "forged", "no identity"])
async def test_c15_who_asks_and_why_is_not_told_on(
    world: World,
    who: str,
    context: Any,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
):
    home = world.home
    headers = {"x-lance-ctx-tenant": CONTEXT, "x-tenant": CONTEXT}
    identity: Any
    if who == "admin":
        secret = (await home.admin.ok("POST", "/tokens", {"label": "lance"}))["token"]
        identity = {"auth_token": secret, "api_key": secret}
    elif who == "stranger":
        person = await home.user("stranger")
        assert person.token is not None
        secret, identity = person.token, {"auth_token": person.token}
    elif who == "forged":
        secret = f"inver_pat_{uuid4().hex}_{uuid4().hex}"
        identity = {"api_key": secret}
    else:
        secret = f"secret-{uuid4()}"
        identity = {"auth_token": [secret], "api_key": {"deep": secret}}
        headers["Authorization"] = f"Bearer {home.admin.token}"
    capfd.readouterr()
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    statuses = set()
    for key, answer in await told(world, identity, context, headers):
        statuses.add(answer.status)
        shown = answer.body.decode(errors="replace") + repr(answer.headers)
        assert secret not in shown, (key, answer)
        assert CONTEXT not in shown, (key, answer)
    expected = {"admin": 200, "stranger": 404, "forged": 401, "no identity": 200}
    assert expected[who] in statuses, statuses
    await home.app.services.followup.step()
    events = repr(await home.events())
    output = capfd.readouterr()
    for place, text in (("events", events), ("log", caplog.text), ("output", output.out + output.err)):
        assert secret not in text, place
        assert CONTEXT not in text, place
    for path, data in kept(world):
        assert secret.encode() not in data, path
        assert CONTEXT.encode() not in data, path
