"""The servers that tests run against behave as the tests assume."""

from __future__ import annotations

import sys
from datetime import timedelta

import asyncpg
import httpx
import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError
from obstore.store import S3Store

from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import running
from tests.fixtures.s3 import S3Server


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("listen_addresses", "127.0.0.1"),
    ],
)
async def test_postgres_is_durable_and_local(postgres_server: PostgresServer, setting: str, value: str):
    connection = await asyncpg.connect(postgres_server.url)
    try:
        assert await connection.fetchval("SELECT current_setting($1)", setting) == value
    finally:
        await connection.close()


@pytest.mark.postgres
async def test_each_database_is_empty(postgres_server: PostgresServer):
    for _ in range(2):
        url = postgres_server.create_database()
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("CREATE TABLE leftover (id int)")
        finally:
            await connection.close()
        postgres_server.drop_database(url)


@pytest.mark.s3
def test_s3_has_one_winner_of_a_conditional_put(s3_server: S3Server):
    store = s3_server.store(s3_server.create_bucket())
    obstore.put(store, "a/b", b"first", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "a/b", b"second", mode="create")
    assert obstore.get(store, "a/b").bytes() == b"first"


@pytest.mark.s3
def test_s3_checks_signatures(s3_server: S3Server):
    obstore.put(s3_server.store(), "signed", b"data")
    stranger = S3Store(
        s3_server.bucket,
        endpoint=s3_server.endpoint,
        access_key_id=s3_server.access_key,
        secret_access_key="wrong",
        region=s3_server.region,
        client_options={"allow_http": True},
    )
    with pytest.raises(PermissionDeniedError):
        obstore.get(stranger, "signed")

    url = obstore.sign(s3_server.store(), "GET", "signed", expires_in=timedelta(minutes=1))
    assert httpx.get(url).content == b"data"
    assert httpx.get(url.replace("/signed?", "/other?")).status_code == 403


def test_a_server_that_ends_at_once_shows_its_log(tmp_path):
    command = [sys.executable, "-c", "import sys; sys.exit('no such disk')"]
    with (
        pytest.raises(RuntimeError, match="no such disk"),
        running(command, log=tmp_path / "log", answers=lambda: False),
    ):
        pass


def test_a_server_is_stopped_when_its_user_fails(tmp_path):
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        pytest.raises(ZeroDivisionError),
        running(command, log=tmp_path / "log", answers=lambda: True) as process,
    ):
        raise ZeroDivisionError
    assert process.returncode is not None
