"""Keys of a role to the folder of one table in S3: asked of a token service that checks signatures, given out
through Unity and Delta Sharing, and used by DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import obstore
import pytest
from obstore.exceptions import PermissionDeniedError
from obstore.store import S3Store

from inver.clock import ManualClock, SystemClock
from inver.domain.locations import Location
from inver.errors import Broken, Unavailable
from inver.ports import StorageAccess
from inver.secrets import Secret
from inver.storage.options import StorageOptions
from inver.storage.sts import session_policy
from inver.storage.vending import Vending
from tests.engines.conftest import _client
from tests.fixtures.clients import Client
from tests.fixtures.delta import unity
from tests.fixtures.delta_log import FIELDS, PROTOCOL, LogFolder, add, metadata
from tests.fixtures.duckdb import Duck
from tests.fixtures.moto import BUCKET, REGION, Moto, policy, running_moto
from tests.fixtures.server import InverServer, running_inver
from tests.fixtures.sharing import Provider

ROOT = f"s3://{BUCKET}/root"
ORDERS = f"{ROOT}/orders"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    with running_moto(_client("moto"), tmp_path_factory.mktemp("moto")) as moto:
        yield moto


@pytest.fixture(scope="module")
def server(moto: Moto, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    env = {"INVER_STORAGE__EXTERNAL_ROOTS": ROOT, **moto.settings}
    with running_inver(tmp_path_factory.mktemp("keys") / "home", env=env) as started:
        yield started
        assert moto.secret_key not in started.output


@pytest.fixture(scope="module")
def provider(
    server: InverServer, moto: Moto, deltalake: Client, tmp_path_factory: pytest.TempPathFactory
) -> Provider:
    """With a table `orders` in the bucket, and another folder whose name begins alike."""
    folder = tmp_path_factory.mktemp("orders")
    file = folder / "a.parquet"
    deltalake.run("arrow_client.py", {"parquet": str(file), "first": 0, "count": 3})
    log = LogFolder(folder / "table")
    log.commit(0, PROTOCOL, metadata((), FIELDS[:1]), add("a.parquet", file.stat().st_size))
    store = moto.store(moto.access_key, moto.secret_key)
    for path in log.log.iterdir():
        obstore.put(store, f"root/orders/_delta_log/{path.name}", path.read_bytes())
    obstore.put(store, "root/orders/a.parquet", file.read_bytes())
    obstore.put(store, "root/orders2/secret", b"secret")
    provider = Provider(server)
    body = {"name": "orders", "format": "DELTA", "kind": "EXTERNAL", "location": ORDERS}
    provider.ok("POST", f"/catalogs/{provider.catalog}/schemas/sales/tables", json=body)
    return provider


@pytest.fixture(scope="module")
def http(server: InverServer) -> Iterator[httpx.Client]:
    with unity(server) as client:
        yield client


def table_keys(http: httpx.Client, provider: Provider, operation: str) -> dict[str, Any]:
    found = http.get(f"/tables/{provider.catalog}.sales.orders").raise_for_status().json()
    asked = {"table_id": found["table_id"], "operation": operation}
    told = http.post("/temporary-table-credentials", json=asked).raise_for_status().json()
    assert told["url"] == ORDERS
    return dict(told)


def opened(moto: Moto, keys: dict[str, str]) -> S3Store:
    return moto.store(keys["access_key_id"], keys["secret_access_key"], keys["session_token"])


def test_unity_gives_out_keys_of_one_folder(moto: Moto, http: httpx.Client, provider: Provider):
    reading, writing = (table_keys(http, provider, operation) for operation in ("READ", "READ_WRITE"))
    sessions = {each["access_key_id"]: json.loads(each["policy"]) for each in moto.sessions()}
    for told, access in ((reading, StorageAccess.READ), (writing, StorageAccess.READ_WRITE)):
        keys = told["aws_temp_credentials"]
        assert sessions[keys["access_key_id"]] == json.loads(session_policy(Location.parse(ORDERS), access))
        assert bytes(obstore.get(opened(moto, keys), "root/orders/a.parquet").bytes()).startswith(b"PAR1")
    # The same keys for a while, as long as the same is asked for.
    assert table_keys(http, provider, "READ") == reading
    assert reading["aws_temp_credentials"] != writing["aws_temp_credentials"]
    name = f"/delta/v1/catalogs/{provider.catalog}/schemas/sales/tables/orders/credentials"
    (told_by_v1,) = (
        http.get(name, params={"operation": "READ"}).raise_for_status().json()["storage-credentials"]
    )
    assert reading["aws_temp_credentials"]["access_key_id"] in told_by_v1["config"].values()
    assert told_by_v1["expiration-time-ms"] == reading["expiration_time"]


def test_recipients_get_keys_where_all_of_a_table_is_shared(moto: Moto, provider: Provider):
    share = provider.share({"orders": {}})
    guest = provider.recipient(share)
    told = guest.good("POST", f"{share}.sales.orders/temporary-table-credentials", json={}).json()
    found = told["credentials"]
    keys = found["awsTempCredentials"]
    assert (found["location"], set(keys)) == (ORDERS, {"accessKeyId", "secretAccessKey", "sessionToken"})
    (session,) = (each for each in moto.sessions() if each["access_key_id"] == keys["accessKeyId"])
    assert json.loads(session["policy"])["Statement"][0]["Action"] == ["s3:GetObject"]
    store = moto.store(keys["accessKeyId"], keys["secretAccessKey"], keys["sessionToken"])
    assert obstore.head(store, "root/orders/a.parquet")["size"] > 0
    part = provider.share({"orders": {"history": False}})
    other = provider.recipient(part)
    before = len(moto.sessions())
    refused = other.refused(400, "POST", f"{part}.sales.orders/temporary-table-credentials", json={})
    assert (refused["errorCode"], len(moto.sessions())) == ("UNSUPPORTED_OPERATION", before)


def test_duckdb_reads_with_such_keys(
    moto: Moto, http: httpx.Client, provider: Provider, duckdb: Client, tmp_path: Path
):
    keys = table_keys(http, provider, "READ")["aws_temp_credentials"]
    given = {
        "KEY_ID": keys["access_key_id"],
        "SECRET": keys["secret_access_key"],
        "SESSION_TOKEN": keys["session_token"],
        "REGION": REGION,
        "ENDPOINT": f"127.0.0.1:{moto.port}",
        "URL_STYLE": "path",
    }
    told = ", ".join(f"{name} '{value}'" for name, value in given.items())
    with Duck(duckdb, provider.server, f"{provider.catalog}.sales", tmp_path).session() as session:
        session(f"CREATE SECRET (TYPE s3, {told}, USE_SSL false)")
        # Not the table by its log: the service does not understand signatures of requests that list.
        found = session(f"SELECT id FROM read_parquet('{ORDERS}/a.parquet') ORDER BY id")
        assert found == [[0], [1], [2]]


def test_what_the_policy_allows(moto: Moto, http: httpx.Client, provider: Provider):
    """As the service reads it: here it is the role's own, since the service knows none of sessions."""
    location = Location.parse(ORDERS)
    store = opened(moto, table_keys(http, provider, "READ")["aws_temp_credentials"])
    try:
        moto.allow_role(session_policy(location, StorageAccess.READ))
        assert obstore.get(store, "root/orders/a.parquet").bytes()
        for path in ("root/orders/b", "root/orders2/secret"):
            with pytest.raises(PermissionDeniedError):
                obstore.put(store, path, b"x")
        with pytest.raises(PermissionDeniedError):
            obstore.get(store, "root/orders2/secret")
        moto.allow_role(session_policy(location, StorageAccess.READ_WRITE))
        obstore.put(store, "root/orders/b", b"x")
        obstore.delete(store, "root/orders/b")
        with pytest.raises(PermissionDeniedError):
            obstore.put(store, "root/orders2/secret", b"x")
    finally:
        moto.allow_role(policy("s3:*"))


def options(moto: Moto, **other: Any) -> StorageOptions:
    given = {
        "endpoint": moto.endpoint,
        "sts_endpoint": moto.endpoint,
        "sts_role": moto.role,
        "allow_http": True,
        "region": REGION,
        "access_key": moto.access_key,
        "secret_key": Secret(moto.secret_key),
    }
    return StorageOptions(**{**given, **other})


@pytest.mark.anyio
async def test_keys_are_made_anew_in_the_second_half_of_their_life(moto: Moto):
    clock = ManualClock(SystemClock().now_ms())
    vending = Vending(clock, options(moto))
    location = Location.parse(ORDERS)
    first = await vending.vend(location, StorageAccess.READ)
    assert first is not None
    assert HOUR_MS - 60_000 < first.expires_at - clock.now_ms() < HOUR_MS + 60_000
    clock.advance(first.expires_at - clock.now_ms() - HOUR_MS // 2)
    assert await vending.vend(location, StorageAccess.READ) is first
    clock.advance(1)
    again = await vending.vend(location, StorageAccess.READ)
    assert again is not None
    assert again.access_key_id != first.access_key_id
    assert await vending.vend(Location.parse(f"s3://{BUCKET}"), StorageAccess.READ) is None


@pytest.mark.anyio
async def test_what_goes_wrong(moto: Moto):
    location = Location.parse(ORDERS)
    with pytest.raises(Broken, match="SignatureDoesNotMatch"):
        await Vending(SystemClock(), options(moto, secret_key=Secret("x" * 40))).vend(
            location, StorageAccess.READ
        )
    with pytest.raises(Unavailable, match="ConnectionRefused"):
        await Vending(SystemClock(), options(moto, sts_endpoint="http://127.0.0.1:1")).vend(
            location, StorageAccess.READ
        )
