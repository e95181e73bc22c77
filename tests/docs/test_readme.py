"""What the README shows is run as it stands, against a real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.server import InverServer, running_inver

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(README.read_text())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    """A server in `./.inver` of some folder, as the README describes it."""
    with running_inver(tmp_path_factory.mktemp("readme") / ".inver") as started:
        yield started


def run(server: InverServer, command: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INVER_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment |= {"INVER_URL": server.url, "INVER_TOKEN": server.token}
    done = subprocess.run(
        command, cwd=server.home.parent, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell(text: str) -> list[str]:
    return ["bash", "-euo", "pipefail", "-c", text]


def test_every_block_is_of_a_kind_that_is_run() -> None:
    assert [language for language, _ in BLOCKS] == ["sh", "python", "sh"]


def test_the_blocks_in_their_order(server: InverServer) -> None:
    commands, program, request = (text for _, text in BLOCKS)
    assert "inver_pat_" in run(server, shell(commands))
    assert "orders DELTA 0" in run(server, [sys.executable, "-c", program])
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    events = json.loads(run(server, shell(request.replace("curl", "curl -sf", 1))))["events"]
    assert "io.inver.table.committed.v1" in {event["type"] for event in events}
