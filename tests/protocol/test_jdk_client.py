"""The JDK's HttpClient asks for `h2c` on every cleartext request; its bodies must arrive all the same."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from inver.protocols.http import Request, Response
from tests.fixtures.http import Echo, Served, application, serving

SOURCE = Path(__file__).parent / "jdk" / "EchoClient.java"


class Counting(Echo):
    """Remembers over which connections its requests came."""

    served: Served

    def __init__(self) -> None:
        super().__init__()
        self.connections: set[object] = set()

    def body(self, request: Request) -> Response:
        self.connections |= self.served.listener._hub.connections
        return super().body(request)


@pytest.fixture(scope="module")
def java() -> str:
    found = shutil.which("java")
    if found is None:
        pytest.skip("java is not on the PATH")
    modules = subprocess.run([found, "--list-modules"], capture_output=True, text=True, check=False).stdout
    if "jdk.compiler@" not in modules:
        pytest.skip("java has no compiler module (jdk.compiler), so it cannot run a source file")
    return found


@pytest.mark.java
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_bodies_of_the_jdk_client_arrive(java: str, loop: str) -> None:
    echo = Counting()
    with serving(application(echo), loop) as served:
        echo.served = served
        command = [java, str(SOURCE), f"http://127.0.0.1:{served.port}/echo/body"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert (ran.returncode, ran.stdout.strip()) == (0, "all bodies came back"), ran.stderr
    assert (len(echo.seen), len(echo.connections)) == (25, 1)
    # Without this the test would pass with a client that never asks, and show nothing.
    assert all(seen.header(b"upgrade") == b"h2c" for seen in echo.seen[:21])
    assert {len(seen.body) for seen in echo.seen} == {0, 1, 17, 1000, 100_000}
