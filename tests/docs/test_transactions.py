"""What the guide to transactions shows is run as it stands, with the real libraries."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import inver
from tests.fixtures.clients import ClientMissing, client
from tests.fixtures.server import running_inver

PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_guide(tmp_path: Path) -> None:
    try:
        python = client("crossing").python
    except ClientMissing as missing:
        pytest.skip(str(missing))
    with running_inver(tmp_path / ".inver") as server:
        for path, body in (("/catalogs", {"name": "main"}), ("/catalogs/main/schemas", {"path": ["sales"]})):
            assert server.call("POST", path, json=body).status_code == 201
        environment = {name: value for name, value in os.environ.items() if not name.startswith("INVER_")}
        environment |= {"INVER_URL": server.url, "INVER_TOKEN": server.token}
        environment["PYTHONPATH"] = str(Path(inver.__file__).resolve().parents[1])
        printed = []
        for block in BLOCKS:
            done = subprocess.run(
                [str(python), "-c", block],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            printed.append(done.stdout)
        cursor = server.call("GET", "/cursors/nightly").json()
    first, second = printed
    assert re.fullmatch(r"transaction \d+\n", first)
    assert cursor["value"] == "2026-11-16"
    assert "main.sales.words: " in second
    assert "lost to transaction" in second or "is transaction" in second
    assert second.endswith("vectors are still at version 1\n")
