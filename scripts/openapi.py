"""Write `docs/reference/openapi.json`: `.venv/bin/python scripts/openapi.py`.

It is what a server gives at `/api/docs/openapi.json`, and it changes with the API's types and routes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from inver.config import Settings
from inver.protocols.http import Request, Response
from inver.server.app import build

TARGET = Path(__file__).resolve().parent.parent / "docs" / "reference" / "openapi.json"


async def document() -> bytes:
    with TemporaryDirectory() as home:
        app = await build(Settings(home=Path(home)))
        try:
            answer = app.public.dispatch(Request("GET", b"/api/docs/openapi.json"))
        finally:
            await app.store.close()
    assert isinstance(answer, Response)
    assert isinstance(answer.body, bytes)
    return answer.body


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_bytes(asyncio.run(document()))
    print(TARGET)
