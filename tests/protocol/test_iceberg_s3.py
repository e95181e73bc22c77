"""Iceberg tables on S3 through real HTTP: metadata files as objects, and requests that the server signs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.fixtures.delta import unity
from tests.fixtures.iceberg import SCHEMA, Lake, Table, error, first_commit, kind
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import InverServer, running_inver

pytestmark = pytest.mark.s3

BAD = (400, "BadRequestException")
FORBIDDEN = (403, "ForbiddenException")


@pytest.fixture(scope="module")
def server(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    env = {
        "INVER_STORAGE__WAREHOUSE": f"s3://{s3_server.create_bucket()}/wh",
        **s3_server.settings,
    }
    with running_inver(tmp_path_factory.mktemp("s3") / "home", env=env) as started:
        yield started


@pytest.fixture
def lake(server: InverServer) -> Iterator[Lake]:
    made = Lake(server)
    yield made
    made.close()


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.table("t")


class Bucket:
    """The table's bucket, seen by a client without keys."""

    def __init__(self, s3: S3Server, table: Table) -> None:
        self._s3 = s3
        self._table = table
        location = table.metadata["location"].removeprefix("s3://")
        self.bucket, _, self.folder = location.partition("/")

    def uri(self, key: str, query: str = "") -> str:
        path = quote(f"/{self.bucket}/{key}") if key else f"/{self.bucket}"
        return f"{self._s3.endpoint}{path}{'?' + query if query else ''}"

    def ask(
        self,
        method: str,
        uri: str,
        by: httpx.Client | None = None,
        headers: dict[str, list[str]] | None = None,
        **fields: Any,
    ) -> httpx.Response:
        body = {
            "region": self._s3.region,
            "uri": uri,
            "method": method,
            "headers": headers or {},
            **fields,
        }
        return (by or self._table.lake.admin).post(self._table.url + "/sign", json=body)

    def send(
        self,
        method: str,
        uri: str,
        content: bytes = b"",
        headers: dict[str, list[str]] | None = None,
        signature: httpx.Response | None = None,
    ) -> httpx.Response:
        """Signed, unless it was before, then sent as it was meant with what the signature says."""
        answer = signature or self.ask(method, uri, headers=headers)
        assert answer.status_code == 200, answer.text
        signed = answer.json()
        own = {name.lower(): values for name, values in (headers or {}).items()}
        sent = {name: values[0] for name, values in {**own, **signed["headers"]}.items()}
        return httpx.request(method, signed["uri"], headers=sent, content=content)


@pytest.fixture
def bucket(s3_server: S3Server, table: Table) -> Bucket:
    return Bucket(s3_server, table)


def test_metadata_is_written_to_the_bucket(s3_server: S3Server, table: Table, bucket: Bucket) -> None:
    import obstore

    def read(location: str) -> Any:
        path = location.removeprefix(f"s3://{bucket.bucket}/")
        data = bytes(obstore.get(s3_server.store(bucket.bucket), path).bytes())
        return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)

    for change in (
        table.append(),
        table.set(a="1"),
        table.set(**{"write.metadata.compression-codec": "gzip"}),
    ):
        told = table.commit(change).json()
        assert told["metadata-location"].startswith(f"s3://{bucket.bucket}/wh/")
        assert read(told["metadata-location"]) == told["metadata"]


def test_clients_are_told_how_to_reach_it(s3_server: S3Server, lake: Lake, table: Table) -> None:
    plain = table.load()["config"]
    assert plain == {
        "s3.endpoint": s3_server.endpoint,
        "s3.path-style-access": "true",
        "client.region": s3_server.region,
    }
    assert "remote-signing-config" not in table.load()


def test_clients_that_let_requests_be_signed(s3_server: S3Server, lake: Lake, table: Table) -> None:
    """In the answers that may hold keys to a table; those of commits have no room for them."""
    signing = {"X-Iceberg-Access-Delegation": "remote-signing"}
    both = {"X-Iceberg-Access-Delegation": "vended-credentials,remote-signing"}
    body, tables = {"schema": SCHEMA}, "/namespaces/ns/tables"
    last = lake.post(f"{table.url}/unregister", None)["metadata-location"]
    for name, answer in {
        "again": lake.admin.post(
            "/namespaces/ns/register", json={"name": "again", "metadata-location": last}, headers=signing
        ),
        "made": lake.admin.post(tables, json={"name": "made", **body}, headers=signing),
        "staged": lake.admin.post(
            tables, json={"name": "staged", "stage-create": True, **body}, headers=both
        ),
        "loaded": lake.admin.get(lake.table("loaded").url, headers=both),
    }.items():
        assert answer.status_code == 200, answer.text
        asked = answer.json()
        place = f"v1/{lake.catalog}{tables}/{name}/sign"
        properties = asked["remote-signing-config"]["properties"]
        if name == "staged":
            place += f"?staged={properties['staged']}"
        assert asked["config"] == {
            **lake.get(f"{tables}/made")["config"],
            "s3.remote-signing-enabled": "true",
            "s3.signer": "S3V4RestSigner",
            "s3.signer.endpoint": place,
            "signer.endpoint": place,
        }
        assert set(properties) == ({"staged"} if name == "staged" else set())
        assert asked["remote-signing-config"]["headers"] == {}
        assert asked["storage-credentials"] == []
        assert s3_server.secret_key not in answer.text
    made = Table(lake, ("ns",), "made")
    assert "remote-signing-config" not in made.commit(made.append(), headers=signing).json()
    plain, signed = (lake.admin.get(made.url, headers=headers).headers["ETag"] for headers in ({}, signing))
    assert plain != signed
    unchanged = lake.admin.get(made.url, headers={**signing, "If-None-Match": signed})
    assert unchanged.status_code == 304


def test_a_staged_table_is_written_to_before_it_is_made(s3_server: S3Server, lake: Lake) -> None:
    url, signing = "/namespaces/ns/tables", {"X-Iceberg-Access-Delegation": "remote-signing"}
    asked = {"name": "s", "schema": SCHEMA, "stage-create": True}
    staged = lake.admin.post(url, json=asked, headers=signing).json()
    kept = staged["remote-signing-config"]["properties"]
    path = staged["metadata"]["location"].removeprefix("s3://")
    body = {
        "region": s3_server.region,
        "uri": f"{s3_server.endpoint}/{path}/data/a.parquet",
        "method": "PUT",
        "headers": {},
        "properties": kept,
    }

    def ask(by: httpx.Client = lake.admin, name: str = "s", **fields: Any) -> httpx.Response:
        return by.post(f"{url}/{name}/sign", json={**body, **fields})

    signed = ask().json()
    headers = {name: values[0] for name, values in signed["headers"].items()}
    assert httpx.put(signed["uri"], headers=headers, content=b"rows").status_code == 200
    # Clients that know of no properties go where they are told to.
    old = {name: value for name, value in body.items() if name != "properties"}
    answer = lake.admin.post(
        f"{lake.base.removesuffix('v1')}{staged['config']['s3.signer.endpoint']}", json=old
    )
    assert answer.status_code == 200, answer.text
    missing = (404, "NoSuchTableException")
    other = lake.table("other").metadata["location"].removeprefix("s3://")
    assert kind(ask(uri=f"{s3_server.endpoint}/{other}/data/a.parquet")) == FORBIDDEN
    assert kind(ask(properties={})) == missing
    assert kind(ask(properties={"staged": kept["staged"][:-2]})) == missing
    assert kind(ask(name="t")) == missing
    assert kind(ask(lake.visitor("CREATE TABLE"))) == missing, "it is not theirs"
    lake.post(f"{url}/s", first_commit(staged["metadata"]))
    assert ask(properties={}).status_code == 200
    names = {
        "source": {"namespace": ["ns"], "name": "s"},
        "destination": {"namespace": ["ns"], "name": "moved"},
    }
    lake.post("/tables/rename", names)
    assert kind(ask()) == missing, "it was made, and is asked for by its name"


def test_signed_requests_work(bucket: Bucket) -> None:
    uri = bucket.uri(f"{bucket.folder}/data/a b+c=1.parquet")
    written = bucket.send("PUT", uri, b"rows", headers={"Content-Type": ["application/octet-stream"]})
    assert written.status_code == 200, written.text
    assert bucket.send("GET", uri).content == b"rows"
    part = bucket.send("GET", uri, headers={"Range": ["bytes=1-2"]})
    assert (part.status_code, part.content) == (206, b"ow")
    assert bucket.send("HEAD", uri).status_code == 200
    listed = bucket.send("GET", bucket.uri("", f"list-type=2&prefix={quote(bucket.folder + '/', safe='')}"))
    assert listed.status_code == 200
    assert "/data/a b+c=1.parquet" in listed.text
    assert bucket.send("DELETE", uri).status_code == 204
    assert bucket.send("GET", uri).status_code == 404


def test_a_signature_is_kept_for_other_reads_of_the_object(bucket: Bucket) -> None:
    """As Iceberg's Java library does, by method and URL alone."""
    uri = bucket.uri(f"{bucket.folder}/data/a")
    assert bucket.send("PUT", uri, b"rows").status_code == 200

    def read(number: int, part: str | None) -> dict[str, list[str]]:
        mine = {"amz-sdk-invocation-id": [f"id{number}"], "x-amz-te": ["append-md5"]}
        return mine if part is None else {**mine, "Range": [part]}

    kept = bucket.ask("GET", uri, headers=read(0, "bytes=1-2"))
    found = [
        bucket.send("GET", uri, headers=read(number, part), signature=kept).content
        for number, part in enumerate(("bytes=1-2", "bytes=3-", None))
    ]
    assert found == [b"ow", b"s", b"rows"]
    kept = bucket.ask("HEAD", uri, headers=read(0, None))
    for number in range(2):
        assert bucket.send("HEAD", uri, headers=read(number, None), signature=kept).status_code == 200


def test_how_long_a_signature_may_be_kept(bucket: Bucket) -> None:
    uri = bucket.uri(f"{bucket.folder}/data/x")
    assert bucket.ask("GET", uri).headers["Cache-Control"] == "private"
    assert bucket.ask("PUT", uri).headers["Cache-Control"] == "no-cache"


def test_b9_objects_of_others(lake: Lake, bucket: Bucket) -> None:
    other = Bucket(bucket._s3, lake.table("other"))
    folder = bucket.folder
    for key in (
        f"{other.folder}/data/x",
        f"{folder}2/data/x",
        f"{folder}-x",
        "wh/x",
        "x",
        folder,
    ):
        assert kind(bucket.ask("GET", bucket.uri(key))) == FORBIDDEN, key
        assert kind(bucket.ask("PUT", bucket.uri(key))) == FORBIDDEN, key
    for key in (f"{folder}/../{other.folder.rpartition('/')[2]}/x", f"{folder}//x", f"{folder}/./x"):
        assert kind(bucket.ask("GET", bucket.uri(key))) == BAD, key
    encoded = bucket.uri("").rstrip("/") + f"/{folder}/%2e%2e/x"
    assert kind(bucket.ask("GET", encoded)) == BAD
    elsewhere = bucket.uri(f"{folder}/x").replace(bucket._s3.endpoint, "http://evil.example.com")
    assert kind(bucket.ask("GET", elsewhere)) == BAD
    foreign = bucket.uri(f"{folder}/x").replace(f"/{bucket.bucket}/", f"/{bucket._s3.bucket}/")
    assert kind(bucket.ask("GET", foreign)) == FORBIDDEN


def test_b8_listings_and_parameters(bucket: Bucket) -> None:
    folder = quote(bucket.folder, safe="")
    parent = quote(bucket.folder.rpartition("/")[0] + "/", safe="")
    for query in (
        f"list-type=2&prefix={folder}",
        f"list-type=2&prefix={parent}",
        "list-type=2",
        "list-type=2&prefix=",
    ):
        assert kind(bucket.ask("GET", bucket.uri("", query))) == FORBIDDEN, query
    inside = bucket.uri(f"{bucket.folder}/x")
    for method, uri in (
        ("GET", bucket.uri("", f"list-type=2&prefix={folder}%2F&versions")),
        ("GET", bucket.uri("", f"prefix={folder}%2F")),
        ("GET", bucket.uri("", f"list-type=2&prefix={folder}%2F&prefix=")),
        ("GET", bucket.uri("")),
        ("PUT", bucket.uri("")),
        ("DELETE", bucket.uri("")),
        ("GET", inside + "?list-type=2"),
        ("GET", inside + "?acl"),
        ("PUT", inside + "?acl"),
        ("PUT", inside + "?tagging"),
        ("PUT", inside + "?uploadId=1"),
        ("POST", inside),
        ("POST", inside + "?select&select-type=2"),
        ("PATCH", inside),
        ("OPTIONS", inside),
    ):
        assert kind(bucket.ask(method, uri)) == BAD, (method, uri)


def test_headers_that_reach_further_than_the_uri(bucket: Bucket) -> None:
    uri = bucket.uri(f"{bucket.folder}/x")
    for name in ("x-amz-copy-source", "X-Amz-Acl", "x-amz-grant-read", "x-amz-website-redirect-location"):
        assert kind(bucket.ask("PUT", uri, headers={name: ["x"]})) == FORBIDDEN, name
    for name, value in (("x y", "z"), ("x-a", "a\r\nb"), ("", "x")):
        assert kind(bucket.ask("PUT", uri, headers={name: [value]})) == BAD, (name, value)
    # The keys of the client's own are left out.
    signed = bucket.ask("GET", uri, headers={"Authorization": ["mine"], "x-amz-security-token": ["mine"]})
    assert "mine" not in signed.text


def test_deleting_many(lake: Lake, bucket: Bucket) -> None:
    def body(*keys: str) -> str:
        objects = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
        return f"<Delete><Quiet>true</Quiet>{objects}</Delete>"

    uri = bucket.uri("", "delete")
    other = Bucket(bucket._s3, lake.table("other"))
    inside = [f"{bucket.folder}/a", f"{bucket.folder}/b&amp;c"]
    assert bucket.ask("POST", uri, body=body(*inside)).status_code == 200
    assert kind(bucket.ask("POST", uri, body=body(*inside, f"{other.folder}/a"))) == FORBIDDEN
    for text in (None, "", body(), "<Delete><Object><Key>x</Key><!-- --></Object></Delete>", "<x/>"):
        assert kind(bucket.ask("POST", uri, body=text)) == BAD, text


def test_signing_takes_rights(lake: Lake, table: Table, bucket: Bucket) -> None:
    uri = bucket.uri(f"{bucket.folder}/data/x")
    reader, sees, stranger = lake.visitor("SELECT"), lake.visitor("BROWSE"), lake.person()
    assert bucket.ask("GET", uri, reader).status_code == 200
    assert kind(bucket.ask("PUT", uri, reader)) == FORBIDDEN
    assert kind(bucket.ask("DELETE", uri, reader)) == FORBIDDEN
    assert kind(bucket.ask("GET", uri, sees)) == FORBIDDEN
    assert kind(bucket.ask("GET", uri, stranger)) == (404, "NoSuchTableException")
    assert kind(bucket.ask("GET", uri, provider="gcs")) == BAD
    assert error(lake.admin.post(table.url + "/sign", json={}))[:2] == BAD


def test_tables_in_folders_are_not_signed_for(tmp_path: Path) -> None:
    with running_inver(tmp_path / "home") as server:
        lake = Lake(server)
        table = lake.table("t")
        body = {"region": "r", "uri": "https://s3.amazonaws.com/b/k", "method": "GET", "headers": {}}
        told = lake.admin.post(table.url + "/sign", json=body)
        assert kind(told) == BAD
        asked = lake.admin.get(table.url, headers={"X-Iceberg-Access-Delegation": "remote-signing"}).json()
        assert asked["config"] == {}
        assert "remote-signing-config" not in asked
        lake.close()


def test_a_folder_below_the_root_of_the_catalog_is_a_place_for_tables(
    lake: Lake, s3_server: S3Server
) -> None:
    """Also for whoever asks for the keys, though it lies below no root for external tables."""
    bucket = s3_server.create_bucket()
    name = f"rooted-{bucket}"
    lake.management("POST", "/catalogs", {"name": name, "storage_root": f"s3://{bucket}/own"})
    namespaces = f"{lake.base}/{name}/namespaces"
    lake.admin.post(namespaces, json={"namespace": ["ns"]}).raise_for_status()
    body = {"name": "t", "schema": SCHEMA, "location": f"s3://{bucket}/own/mine"}
    tables = namespaces + "/ns/tables"
    asks = {"X-Iceberg-Access-Delegation": "vended-credentials"}
    made = lake.admin.post(tables, json=body, headers=asks)
    assert made.status_code == 200, made.text
    assert lake.admin.get(f"{tables}/t", headers=asks).status_code == 200
    assert lake.admin.get(f"{tables}/t/credentials").status_code == 200
    with unity(lake.server) as admin:
        shown = admin.get(f"/tables/{name}.ns.t").json()
        assert (shown["table_type"], shown["storage_location"]) == ("EXTERNAL", body["location"])
        for path, asked in (
            ("/temporary-table-credentials", {"table_id": shown["table_id"], "operation": "READ_WRITE"}),
            ("/temporary-path-credentials", {"url": f"{body['location']}/data", "operation": "PATH_READ"}),
        ):
            answer = admin.post(path, json=asked)
            assert answer.status_code == 200, answer.text
