"""What is asked of GCS and Azure: a listener stands where their hosts would, and notes the requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from inver.domain.locations import Location
from inver.secrets import Secret
from inver.storage.objects import RemoteStore
from inver.storage.options import StorageOptions

SERVICE_ACCOUNT = '{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}'


class Listener(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Absent)
        self.asked: list[tuple[str, str, str]] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Absent(BaseHTTPRequestHandler):
    """Has nothing."""

    server: Listener

    def do_HEAD(self) -> None:
        authorization = self.headers.get("Authorization", "").partition(" ")[0]
        self.server.asked.append((self.command, self.path, authorization))
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        yield listener
        listener.shutdown()
        thread.join()


def test_gcs_is_asked_for_the_object_of_the_bucket(listener):
    options = StorageOptions(
        endpoint=listener.endpoint, allow_http=True, gcs_service_account=Secret(SERVICE_ACCOUNT)
    )
    store = RemoteStore(Location.parse("gs://bucket/root"), options)
    assert asyncio.run(store.head("a/b")) is None
    assert [(method, path) for method, path, _ in listener.asked] == [("HEAD", "/bucket/root%2Fa%2Fb")]


def test_azure_is_asked_for_the_blob_of_the_container_with_the_account_key(listener):
    options = StorageOptions(endpoint=listener.endpoint, allow_http=True, azure_key=Secret("a2V5"))
    store = RemoteStore(Location.parse("abfss://data@acct.dfs.core.windows.net/root"), options)
    assert asyncio.run(store.head("a/b")) is None
    assert listener.asked == [("HEAD", "/data/root/a/b", "SharedKey")]


def test_azure_is_asked_with_the_shared_access_signature(listener):
    options = StorageOptions(
        endpoint=listener.endpoint,
        allow_http=True,
        azure_account="acct",
        azure_sas=Secret("sv=2023-11-03&sig=c2ln"),
    )
    store = RemoteStore(Location.parse("az://data"), options)
    assert asyncio.run(store.head("a")) is None
    assert listener.asked == [("HEAD", "/data/a?sv=2023-11-03&sig=c2ln", "")]


@pytest.mark.parametrize(
    ("path_style", "url"),
    [(True, "https://s3.example/bucket/root/a?"), (False, "https://bucket.s3.example/root/a?")],
)
def test_s3_addresses_the_bucket_by_path_or_by_host(path_style, url):
    options = StorageOptions(
        endpoint="https://s3.example",
        path_style=path_style,
        access_key="id",
        secret_key=Secret("key"),
        session_token=Secret("token"),
    )
    store = RemoteStore(Location.parse("s3://bucket/root"), options)
    [signed] = store.url_signer(60)(["a"])
    assert signed.startswith(url)
    assert "X-Amz-Security-Token=token" in signed
    assert "X-Amz-Expires=60" in signed
