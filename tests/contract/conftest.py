"""The store on each backend, for the suites that every store passes unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.fixtures.lake import Lake, new_lake
from tests.fixtures.ledger import Backend, Book, opened
from tests.fixtures.postgres import PostgresServer

BACKENDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(scope="session")
def emptied_url(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for many tests, each of which finds it as a migration leaves it."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Each backend; nothing is open yet."""
    url = request.getfixturevalue("emptied_url") if request.param == "postgres" else None
    return Backend(tmp_path, url)


@pytest.fixture
async def book(backend: Backend) -> AsyncIterator[Book]:
    """An open store with the catalog `main` and the schema `main.sales`, on each backend."""
    async with opened(backend) as book:
        yield book


@pytest.fixture
async def lake(book: Book, tmp_path: Path) -> Lake:
    return await new_lake(book, tmp_path)


@pytest.fixture
async def servers(emptied_url: str, tmp_path: Path) -> AsyncIterator[tuple[Book, Book, Book]]:
    """Three stores on one PostgreSQL database, as three servers have them."""
    backend = Backend(tmp_path, emptied_url)
    async with opened(backend) as first:
        yield first, first.on(await backend.open()), first.on(await backend.open())
