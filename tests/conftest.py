"""Fixtures of all tests. Servers start with the first test that asks for them and end with the session."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import cache

import httpx
import pytest
from hypothesis import HealthCheck, settings

from tests.fixtures.postgres import PostgresMissing, PostgresServer, running_postgres
from tests.fixtures.s3 import S3Missing, S3Server, running_s3
from tests.fixtures.server import database, inver, shared_inver
from tests.fixtures.waiting import PATIENCE_S

__all__ = ["database", "inver", "shared_inver"]

# What is asked of a server is answered, however busy the machine is.
for _wait in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, _wait, PATIENCE_S)

# To read the world's certificates takes longer than most requests, and none of them needs those.
pytest.MonkeyPatch().setattr(
    "httpx._transports.default.create_ssl_context", cache(httpx._config.create_ssl_context)
)

# The same examples every time, however slow the machine is.
settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """`async def` tests and fixtures run on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    try:
        with running_postgres() as server:
            yield server
    except PostgresMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A fresh database for one test."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    try:
        with running_s3() as server:
            yield server
    except S3Missing as missing:
        pytest.skip(str(missing))


# A run in the background of a shell ignores Ctrl-C, and so would every program that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
