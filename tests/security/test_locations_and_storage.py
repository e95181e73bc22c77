"""Attacks on locations and on the stores behind them; each test carries the id of its attack."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.locations import Location
from inver.errors import Forbidden, Invalid, InverError
from inver.secrets import Secret
from inver.storage.local import LocalStore
from inver.storage.objects import RemoteStore
from inver.storage.open import open_store
from inver.storage.options import StorageOptions

OUTSIDE = b"not yours"

segments = st.sampled_from(["orders", "orders2", "Orders", "orders_", "orders%", "o%", "_rders", "é", "a"])
locations = st.lists(segments, max_size=4).map(lambda parts: Location.parse("/".join(["s3://b", *parts])))


async def paths(store, prefix: str = "") -> list[str]:
    return [info.path async for info in store.list(prefix)]


def every_access(store, path: str):
    """Each way to touch an object, ready to be awaited."""
    return [
        store.get(path),
        store.get_range(path, 0, 100),
        store.head(path),
        store.put(path, b"overwritten"),
        store.put_if_absent(path, b"overwritten"),
        store.delete(path),
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A storage root, with a file and a folder beside it that belong to somebody else."""
    root = tmp_path / "warehouse"
    root.mkdir()
    (tmp_path / "secret").write_bytes(OUTSIDE)
    (tmp_path / "warehouse2").mkdir()
    (tmp_path / "warehouse2" / "secret").write_bytes(OUTSIDE)
    return root


@pytest.fixture
def store(root):
    location = Location.parse(str(root))
    yield LocalStore(location)
    assert (root.parent / "secret").read_bytes() == OUTSIDE
    assert sorted(os.listdir(root.parent)) == ["secret", "warehouse", "warehouse2"]
    assert os.listdir(root.parent / "warehouse2") == ["secret"]
    assert (root.parent / "warehouse2" / "secret").read_bytes() == OUTSIDE


def test_b5_a_prefix_ends_at_a_whole_segment():
    orders = Location.parse("s3://b/orders")
    assert orders.prefix == "s3://b/orders/"
    for other in ("s3://b/orders2", "s3://b/orders2/x", "s3://b/orders.bak", "s3://b/Orders", "s3://b/order"):
        assert not orders.contains(Location.parse(other))
        assert not orders.overlaps(Location.parse(other))


def test_b5_buckets_and_hosts_are_whole_too():
    assert not Location.parse("s3://b").contains(Location.parse("s3://bucket/x"))
    account = Location.parse("abfss://c@acct.dfs.core.windows.net")
    assert not account.contains(Location.parse("abfss://c@acct.dfs.core.windows.net.evil.example/x"))


def test_b5_listing_stays_within_the_folder(store):
    async def scenario() -> None:
        for path in ("orders/a", "orders2/a", "orders"[:-1] + "/a"):
            await store.put(path, b"x")
        assert await paths(store, "orders") == ["orders/a"]

    asyncio.run(scenario())


@given(st.lists(locations, max_size=12), locations)
def test_b6_a_scan_of_the_database_finds_exactly_the_overlaps(stored, asked):
    database = sqlite3.connect(":memory:")
    try:
        database.execute("CREATE TABLE place (prefix TEXT PRIMARY KEY) WITHOUT ROWID")
        rows = [(location.prefix,) for location in stored]
        database.executemany("INSERT OR IGNORE INTO place VALUES (?)", rows)
        above = [ancestor.prefix for ancestor in asked.ancestors()]
        marks = ", ".join("?" * len(above))
        found = database.execute(
            f"SELECT prefix FROM place WHERE prefix >= ? AND prefix < ? OR prefix IN ({marks})",
            (*asked.scan_range(), *above),
        ).fetchall()
    finally:
        database.close()
    assert {prefix for (prefix,) in found} == {place.prefix for place in stored if place.overlaps(asked)}


@given(locations, locations)
def test_b6_locations_overlap_exactly_if_one_is_a_segment_prefix_of_the_other(one, other):
    first, second = one.canonical.split("/"), other.canonical.split("/")
    shorter = min(len(first), len(second))
    assert one.overlaps(other) == (first[:shorter] == second[:shorter])


@pytest.mark.parametrize("spelling", ["s3://b/t", "s3://b/t/", "s3a://b/t", "s3n://b/t///"])
def test_b6_every_spelling_is_stored_alike(spelling):
    assert Location.parse(spelling).prefix == "s3://b/t/"


@pytest.mark.parametrize(
    "text",
    [
        # What parsers of URLs drop without a word.
        "s3://bu\tcket/a",
        "s3://bucket/a\nb",
        "s3://bucket/a\r",
        "\ts3://bucket/a",
        " s3://bucket/a",
        "s3://bucket/a ",
        "s3://bucket/a\x00b",
        "s3://bucket/a\x7f",
        "s3://bucket/a\x85",
        # What nobody sees.
        "s3://bucket/a\u200b",
        "s3://bucket/\u202etxt",
        "s3://bucket/a\ufeff",
        "s3://bucket/a\u00ad",
        "s3://bucket/a\U000e0041\U000e0042",
        "s3://bucket/a\u2028b",
        "s3://bucket/a\ud800",
        # Segments that lead elsewhere.
        "s3://bucket/a/../b",
        "s3://bucket/..",
        "s3://bucket/./a",
        "s3://bucket/a/.",
        "s3://bucket//a",
        "s3://bucket/a//b",
        "file:////etc",
        "//etc/passwd",
        "/data/../etc",
        # The same, encoded.
        "s3://bucket/%2e%2e/a",
        "s3://bucket/%2E%2e/a",
        "s3://bucket/.%2E/a",
        "s3://bucket/a%2fb",
        "s3://bucket/a%2Fb",
        "s3://bucket/a%5cb",
        "s3://bucket/a%5Cb",
        "s3://bucket/a%00",
        "s3%3a//bucket/a",
        "s3://%62ucket/a",
        # Another authority than it seems.
        "s3://user@bucket/a",
        "s3://user:password@bucket/a",
        "s3://bucket@evil.example/a",
        "s3://bucket:443/a",
        "s3://bucket./a",
        "s3://.bucket/a",
        "s3://../a",
        "s3://buc..ket/a",
        "s3://[::1]/a",
        "s3://bücket/a",
        "s3://bucket*/a",
        "gs://user@bucket/a",
        "abfss://c@acct.dfs.core.windows.net./a",
        "abfss://c@d@acct.dfs.core.windows.net/a",
        "abfss://c@acct:443/a",
        "file://localhost/a",
        "file://evil.example/share",
        "file:a",
        # More than a path.
        "s3://bucket/a?versionId=1",
        "s3://bucket/a#b",
        "s3://bucket?x",
        "s3://bucket#x",
        # Other separators.
        "s3://bucket\\a",
        "s3://bucket/a\\..\\b",
        "s3:\\\\bucket\\a",
        "\\\\server\\share",
        "C:\\data",
        # No bound.
        "s3://bucket/" + "a/" * 3000,
        "s3://bucket/" + "é" * 2050,
    ],
)
def test_b10_what_could_mean_two_things_is_refused(text):
    with pytest.raises(Invalid) as refused:
        Location.parse(text, field="location")
    assert refused.value.field == "location"
    assert refused.value.message.isprintable()


@given(st.text(max_size=60))
def test_b10_any_text_is_a_location_byte_for_byte_or_refused(text):
    for candidate in (text, f"s3://bucket/{text}", f"file:///{text}", f"abfss://{text}"):
        try:
            location = Location.parse(candidate)
        except Invalid:
            continue
        if not location.is_root:
            assert candidate.rstrip("/").endswith("/" + location.key)
        assert Location.parse(location.canonical) == location


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "../warehouse2/secret",
        "a/../../secret",
        "..",
        ".",
        "./secret",
        "/etc/passwd",
        "//etc/passwd",
        "a//b",
        "",
        "..\\secret",
        "a\x00/../secret",
        "../secret\x00",
        "\ud800",
    ],
)
def test_b11_no_path_leads_out_of_the_root(store, path):
    for work in every_access(store, path):
        with pytest.raises(Invalid):
            asyncio.run(work)
    if path:
        with pytest.raises(Invalid):
            asyncio.run(paths(store, path))


def test_b11_encoded_dots_are_only_a_strange_name(store, root):
    asyncio.run(store.put("%2e%2e/secret", b"inside"))
    assert (root / "%2e%2e" / "secret").read_bytes() == b"inside"


def test_b11_symlink_out_of_root(store, root):
    (root / "file").symlink_to("../secret")
    (root / "folder").symlink_to("../warehouse2")
    (root / "absolute").symlink_to(root.parent / "warehouse2", target_is_directory=True)
    (root / "real").mkdir()
    (root / "real" / "folder").symlink_to("../../warehouse2")
    for path in ("folder/secret", "absolute/secret", "real/folder/secret", "folder/new", "folder/a/b"):
        for work in every_access(store, path):
            with pytest.raises(Invalid, match="symbolic link"):
                asyncio.run(work)
    for work in (store.get("file"), store.get_range("file", 0, 9), store.head("file"), store.delete("file")):
        with pytest.raises(Invalid, match="symbolic link"):
            asyncio.run(work)
    with pytest.raises(Invalid, match="symbolic link"):
        asyncio.run(store.put_if_absent("file", b"overwritten"))
    # Replacing the link itself touches nothing outside.
    asyncio.run(store.put("file", b"inside"))
    assert (root / "file").read_bytes() == b"inside"
    assert not (root / "file").is_symlink()


def test_b11_symlinks_within_the_root_are_not_followed_either(store, root):
    asyncio.run(store.put("tenant-1/data", b"x"))
    (root / "tenant-2").symlink_to("tenant-1")
    with pytest.raises(Invalid, match="symbolic link"):
        asyncio.run(store.get("tenant-2/data"))
    with pytest.raises(Invalid, match="symbolic link"):
        asyncio.run(paths(store, "tenant-2"))


def test_b11_listings_do_not_walk_through_links(store, root):
    (root / "up").symlink_to("..")
    (root / "loop").symlink_to(".")
    (root / "file").symlink_to("../secret")
    (root / "dangling").symlink_to("nowhere")
    asyncio.run(store.put("real", b"x"))
    assert asyncio.run(paths(store)) == ["real"]


def test_b11_a_folder_that_turns_into_a_link_at_the_wrong_moment(store, root):
    """An attacker with access to the folder swaps it for a link, again and again."""
    asyncio.run(store.put("folder/secret", b"inside"))
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (root / "folder").rename(root / "aside")
            with suppress(FileExistsError):
                (root / "folder").symlink_to("../warehouse2")
                time.sleep(0)
                (root / "folder").unlink()
            # The store may have made the folder anew while it was away.
            shutil.rmtree(root / "folder", ignore_errors=True)
            with suppress(OSError):
                (root / "aside").rename(root / "folder")
            shutil.rmtree(root / "aside", ignore_errors=True)

    async def attack() -> set[bytes]:
        seen = set()
        for _ in range(400):
            try:
                await store.put("folder/secret", b"inside")
                seen.add(await store.get("folder/secret"))
            except InverError:
                continue
        return seen

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        seen = asyncio.run(attack())
    finally:
        stop.set()
        attacker.join()
    assert seen <= {b"inside"}


def test_b11_a_link_cannot_hide_in_the_root_that_a_client_chose(root):
    """The administrator's folder may be a link; what clients name below it may not."""
    allowed = Location.parse(str(root))
    (root / "escape").symlink_to("../warehouse2")
    escaped = open_store(allowed.join("escape"), StorageOptions(), allowed_roots=[allowed])
    for work in (escaped.get("secret"), escaped.put("new", b""), escaped.head("secret"), paths(escaped)):
        with pytest.raises(Invalid, match="symbolic link"):
            asyncio.run(work)

    entrance = root.parent / "entrance"
    entrance.symlink_to(root)
    trusted = Location.parse(str(entrance))
    inside = open_store(trusted.join("table"), StorageOptions(), allowed_roots=[trusted])
    asyncio.run(inside.put("a", b"x"))
    assert (root / "table" / "a").read_bytes() == b"x"


def test_b11_a_pipe_does_not_hang_a_reader(store, root):
    os.mkfifo(root / "pipe")
    with pytest.raises(InverError):
        asyncio.run(asyncio.wait_for(store.get("pipe"), 5))


@pytest.mark.parametrize(
    "text",
    [
        "http://169.254.169.254/latest/meta-data/iam/",
        "https://internal.example/metadata.json",
        "ftp://example/x",
        "gopher://example/x",
        "data:text/plain,x",
        "jar:file:/x",
        "hdfs://namenode/x",
        "unix:/var/run/docker.sock",
        "javascript:x",
    ],
)
def test_f4_only_known_schemes_are_locations(text):
    with pytest.raises(Invalid):
        Location.parse(text)


@pytest.mark.parametrize("place", ["/etc", "file:///", "file:/proc/self", "{root}2", "{root}/.."])
def test_f4_local_files_only_below_configured_roots(root, place):
    allowed = [Location.parse(str(root))]
    with pytest.raises((Forbidden, Invalid)):
        open_store(Location.parse(place.format(root=root)), StorageOptions(), allowed_roots=allowed)
    inside = open_store(allowed[0].join("table"), StorageOptions(), allowed_roots=allowed)
    assert inside.root == allowed[0].join("table")


def test_f4_without_configured_roots_there_are_no_local_files(root):
    with pytest.raises(Forbidden):
        open_store(Location.parse(str(root)), StorageOptions())


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://169.254.169.254",
        "file:///etc",
        "169.254.169.254",
        "https://",
        "https://user:hunter2@host",
        "https://host?x",
        "https://host#x",
        "https://ho st",
        "https://ho\nst",
    ],
)
def test_f4_an_endpoint_is_an_encrypted_url_unless_an_administrator_says_otherwise(endpoint):
    with pytest.raises(Invalid) as refused:
        StorageOptions(endpoint=endpoint)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "authority",
    [
        "c@evil.example",
        "c@acct.dfs.core.windows.net.evil.example",
        "c@localhost",
        "c@other.dfs.core.windows.net",
    ],
)
def test_f4_a_location_cannot_send_credentials_to_another_host(authority):
    options = StorageOptions(azure_account="acct", azure_key=Secret("a2V5"))
    with pytest.raises(Invalid):
        RemoteStore(Location.parse(f"abfss://{authority}/x"), options)


@pytest.mark.parametrize("authority", ["c@acct.dfs.core.windows.net", "c@acct.blob.core.windows.net", "c"])
def test_f4_the_configured_account_is_the_one_that_is_asked(authority):
    store = RemoteStore(
        Location.parse(f"abfss://{authority}/x y"),
        StorageOptions(azure_account="acct", azure_key=Secret("a2V5")),
    )
    url = urlsplit(store.url_signer(60)(["a"])[0])
    assert (url.scheme, url.netloc, url.path) == ("https", "acct.blob.core.windows.net", "/c/x%20y/a")


def test_storage_options_do_not_show_their_secrets():
    options = StorageOptions(
        access_key="public",
        secret_key=Secret("hunter2"),
        session_token=Secret("hunter2"),
        gcs_service_account=Secret("hunter2"),
        azure_key=Secret("hunter2"),
        azure_sas=Secret("hunter2"),
    )
    assert "hunter2" not in repr(options)
    assert "public" in repr(options)
