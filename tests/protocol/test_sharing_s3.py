"""A shared table in an object store: read from its log there, its files by presigned URLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import obstore
import pytest

from tests.fixtures.delta_log import PROTOCOL, LogFolder, add, metadata
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import InverServer, running_inver
from tests.fixtures.sharing import Provider

NAME = "day=1/a b+c%.parquet"


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.create_bucket()


@pytest.fixture(scope="module")
def server(
    s3_server: S3Server, bucket: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InverServer]:
    env = {
        "INVER_STORAGE__EXTERNAL_ROOTS": f"s3://{bucket}/lake",
        **s3_server.settings,
    }
    with running_inver(tmp_path_factory.mktemp("s3") / "home", env=env) as started:
        yield started


def test_files_are_read_by_presigned_urls(
    server: InverServer, s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    log = LogFolder(tmp_path / "orders")
    encoded = "day=1/a%20b+c%25.parquet"
    log.commit(0, PROTOCOL, metadata(), add(encoded, 5))
    store = s3_server.store(bucket)
    for path in log.log.iterdir():
        obstore.put(store, f"lake/orders/_delta_log/{path.name}", path.read_bytes())
    obstore.put(store, f"lake/orders/{NAME}", b"12345")
    obstore.put(store, "lake/orders2/secret", b"67890")
    provider = Provider(server)
    body = {"name": "orders", "format": "DELTA", "kind": "EXTERNAL", "location": f"s3://{bucket}/lake/orders"}
    provider.ok("POST", f"/catalogs/{provider.catalog}/schemas/sales/tables", json=body)
    share = provider.share({"orders": {}})
    guest = provider.recipient(share)
    lines = guest.lines("POST", f"{share}.sales.orders/query", json={})
    url = lines[2]["file"]["url"]
    assert "X-Amz-Signature=" in url
    assert httpx.get(url).content == b"12345"
    part = httpx.get(url, headers={"Range": "bytes=1-2"})
    assert (part.status_code, part.content) == (206, b"23")
    # It opens one object and nothing else, and nothing but reading.
    other = url.replace(urlsplit(url).path, f"/{bucket}/lake/orders2/secret")
    assert httpx.get(other).status_code == 403
    assert httpx.put(url, content=b"x").status_code == 403
    assert httpx.delete(url).status_code == 403
    told = guest.refused(400, "POST", f"{share}.sales.orders/temporary-table-credentials", json={})
    assert told["errorCode"] == "UNSUPPORTED_OPERATION"
