"""What is counted is documented, and what is documented is counted."""

from __future__ import annotations

import re
from pathlib import Path

from inver.config import Settings
from inver.server.app import build

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


async def test_every_metric_is_on_the_page(tmp_path: Path) -> None:
    app = await build(Settings(home=tmp_path))
    try:
        shown = set(re.findall(r"^# TYPE (\S+)", app.telemetry.render().decode(), re.MULTILINE))
    finally:
        await app.store.close()
    assert shown == set(re.findall(r"^\| `(inver_\w+)`", PAGE.read_text(), re.MULTILINE))
