"""The official client on a table in an object store, whose files it reads by URLs that are signed here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

from tests.engines.conftest import _client
from tests.engines.test_sharing_client import FEED, FORMATS, Shop, timeless
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import InverServer, running_inver

pytestmark = pytest.mark.s3

TYPES = {"id": "long", "place": "string"}
# What a URL can be misread by.
PLACES = ["a b", "a+b", "100%", "50%25", "ü/é", "x?y#z", "k=v&w", "日本🐟", "~.'()!*", None]


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.create_bucket()


@pytest.fixture(scope="module")
def server(
    s3_server: S3Server, bucket: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InverServer]:
    env = {
        "INVER_STORAGE__EXTERNAL_ROOTS": f"s3://{bucket}/lake",
        "INVER_STORAGE__ENDPOINT": s3_server.endpoint,
        "INVER_STORAGE__ALLOW_HTTP": "true",
        "INVER_STORAGE__REGION": s3_server.region,
        "INVER_STORAGE__ACCESS_KEY": s3_server.access_key,
        "INVER_STORAGE__SECRET_KEY": s3_server.secret_key,
    }
    with running_inver(tmp_path_factory.mktemp("presigned") / "home", env=env) as started:
        yield started


@pytest.fixture(scope="module")
def shop(
    server: InverServer, s3_server: S3Server, bucket: str, tmp_path_factory: pytest.TempPathFactory
) -> Shop:
    """A table that was written beside the store and then put into it, shared."""
    shop = Shop(server, _client("delta_sharing"), tmp_path_factory.mktemp("profile"))
    rows = [(number, place) for number, place in enumerate(PLACES)]
    folder = Path(shop.folder("places"))
    shop.do(
        shop.write("places", rows, TYPES, partition_by=["place"], configuration=FEED),
        {"do": "update", "folder": str(folder), "where": "id % 2 = 0", "new": {"id": "id + 100"}},
    )
    store = s3_server.store(bucket)
    for path in folder.rglob("*"):
        if path.is_file():
            obstore.put(store, f"lake/the places/{path.relative_to(folder)}", path)
    location = f"s3://{bucket}/lake/the places"
    body = {"name": "places", "format": "DELTA", "kind": "EXTERNAL", "location": location}
    shop.provider.ok("POST", f"/catalogs/{shop.provider.catalog}/schemas/sales/tables", json=body)
    shop.publish("places", register=False)
    return shop


@pytest.mark.parametrize("how", FORMATS)
def test_rows_and_changes_are_what_is_in_the_folder(shop: Shop, how: dict[str, Any]) -> None:
    table, folder = shop.name("places"), shop.folder("places")
    loaded, changed = shop.do(
        {"do": "load", "table": table, **how},
        {"do": "changes", "table": table, "starting_version": 0, **how},
    )
    rows, changes = shop.do(
        {"do": "folder_rows", "folder": folder},
        {"do": "kernel_changes", "folder": folder, "start": 0, "end": 1},
    )
    assert len(rows) == len(PLACES)
    assert loaded == rows
    assert timeless(changed) == timeless(changes)
