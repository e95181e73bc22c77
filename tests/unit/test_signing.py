"""Signed URLs beside those that Amazon documents and that the clouds' own libraries make."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import obstore
import pytest

from inver.clock import ManualClock
from inver.domain.locations import Location
from inver.errors import Invalid, Unsupported
from inver.ports import StorageAccess
from inver.secrets import Secret
from inver.storage import signing
from inver.storage.connect import connect
from inver.storage.objects import RemoteStore
from inver.storage.options import StorageOptions
from inver.storage.signing import AMAZON, GOOGLE, Keys
from inver.storage.vending import Vending

AMAZON_KEYS = Keys("AKIAIOSFODNN7EXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"))
AMAZON_MOMENT = 1_369_353_600_000
AZURE_KEY = Secret("c2VjcmV0IGtleSBvZiB0aGUgYWNjb3VudA==")
AZURE_MOMENT = 1_704_067_200_000
GOOGLE_MOMENT = 1_549_011_600_000
ODD = "day=2024-01-01 00%3A00/ü+é日本🐟~*'()!$&,;:@?#[]{}|^`<>\".parquet"
ODD_ENCODED = (
    "day%3D2024-01-01%2000%253A00/%C3%BC%2B%C3%A9%E6%97%A5%E6%9C%AC%F0%9F%90%9F~%2A%27%28%29%21%24%26%2C%3B"
    "%3A%40%3F%23%5B%5D%7B%7D%7C%5E%60%3C%3E%22.parquet"
)


def query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query, strict_parsing=True))


def options(**given: Any) -> StorageOptions:
    keys = {"access_key": AMAZON_KEYS.id, "secret_key": AMAZON_KEYS.secret, "region": "us-east-1"}
    return StorageOptions(**{**keys, **given})


def test_the_url_that_amazon_documents():
    folder = "https://examplebucket.s3.amazonaws.com/"
    [url] = signing.v4_urls(AMAZON, AMAZON_KEYS, "us-east-1", folder, AMAZON_MOMENT, 86_400)(["test.txt"])
    assert url == (
        f"{folder}test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
        "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )


@pytest.mark.parametrize(
    ("folder", "region", "token", "expires", "signature"),
    [
        (
            "https://bucket.s3.eu-central-1.amazonaws.com/lake/",
            "eu-central-1",
            "tok+/=en",
            3600,
            "7ca7663c51c73822772d300dfccc8b2b699289c33b772eaf5fb77257f2fc2221",
        ),
        (
            "http://127.0.0.1:9000/bucket/lake/",
            "us-east-1",
            None,
            60,
            "8f4b131a55dd01f7210dd82bf9be3370db3cc97bcc8d5658453849841584cbc8",
        ),
    ],
)
def test_the_signature_that_botocore_makes(folder, region, token, expires, signature):
    keys = Keys(AMAZON_KEYS.id, AMAZON_KEYS.secret, None if token is None else Secret(token))
    [url] = signing.v4_urls(AMAZON, keys, region, folder, AMAZON_MOMENT, expires)([ODD])
    assert url.startswith(f"{folder}{ODD_ENCODED}?")
    assert query(url)["X-Amz-Signature"] == signature
    assert query(url).get("X-Amz-Security-Token") == token


def test_the_signature_that_googles_library_makes():
    keys = Keys("GOOGTS7C7FUP3AIRVJTE2BCD", Secret("bGoa+V7g/yqDXvKRqq+JTFn4uQZbPiQJo4pf9RzJ"))
    given = StorageOptions(gcs_hmac_id=keys.id, gcs_hmac_secret=keys.secret)
    sign = signing.url_signer(Location.parse("gs://bucket/lake"), given, GOOGLE_MOMENT, 3600)
    assert sign is not None
    [url] = sign([ODD])
    assert url == (
        f"https://storage.googleapis.com/bucket/lake/{ODD_ENCODED}?X-Goog-Algorithm=GOOG4-HMAC-SHA256"
        "&X-Goog-Credential=GOOGTS7C7FUP3AIRVJTE2BCD%2F20190201%2Fauto%2Fstorage%2Fgoog4_request"
        "&X-Goog-Date=20190201T090000Z&X-Goog-Expires=3600&X-Goog-SignedHeaders=host"
        "&X-Goog-Signature=ba28afa41297b7b70531c3b2c6890c08ff01270fba3931ad0f6042c099d74d9b"
    )
    assert GOOGLE.name == "GOOG4"


def test_the_signature_that_azures_library_makes():
    """It starts a quarter of an hour ago, since no two clocks agree."""
    given = StorageOptions(azure_key=AZURE_KEY)
    root = Location.parse("abfss://data@acct.dfs.core.windows.net/root")
    sign = signing.url_signer(root, given, AZURE_MOMENT, 3600)
    assert sign is not None
    [url] = sign([ODD])
    assert url.startswith(f"https://acct.blob.core.windows.net/data/root/{ODD_ENCODED}?")
    assert query(url) == {
        "sv": "2023-11-03",
        "st": "2023-12-31T23:45:00Z",
        "se": "2024-01-01T01:00:00Z",
        "sr": "b",
        "sp": "r",
        "sig": "nRYr6+rOWUsW3bUUVfgHdvD9ROK4REWQmaIcSJxzaHc=",
    }


@pytest.mark.parametrize(
    ("folder", "access", "expected"),
    [
        ("root/orders", StorageAccess.READ, "rl 2 nDyBR8tKvR+H3bgxizItNMLv1WQX4x1QxEWN3UdSVo8="),
        ("root/a b/ü", StorageAccess.READ_WRITE, "racwdlm 3 Ch9LAlH+VKLM+r10Aq5zlbScreiZkIUHwvUhMstBU6o="),
    ],
)
@pytest.mark.anyio
async def test_keys_to_one_folder_as_azures_library_makes_them(folder, access, expected):
    vending = Vending(ManualClock(AZURE_MOMENT + 500), StorageOptions(azure_key=AZURE_KEY))
    location = Location.parse(f"abfss://data@acct.dfs.core.windows.net/{folder}")
    keys = await vending.vend(location, access)
    assert keys is not None
    assert keys.expires_at == AZURE_MOMENT + 3_600_000
    assert keys.sas_token is not None
    told = query("?" + keys.sas_token.reveal())
    assert f"{told['sp']} {told['sdd']} {told['sig']}" == expected
    assert (told["sr"], told["st"], told["se"]) == ("d", "2023-12-31T23:45:00Z", "2024-01-01T01:00:00Z")
    assert "sig" not in repr(keys)


@pytest.mark.parametrize(
    ("location", "given"),
    [
        ("abfss://data@acct.dfs.core.windows.net", {"azure_key": AZURE_KEY}),
        ("abfss://data@acct.dfs.core.windows.net/orders", {"azure_sas": Secret("sig=x")}),
        ("s3://bucket/orders", {"access_key": "id", "secret_key": Secret("key"), "azure_key": AZURE_KEY}),
        ("gs://bucket/orders", {"azure_key": AZURE_KEY}),
        ("file:///orders", {"azure_key": AZURE_KEY}),
    ],
)
@pytest.mark.anyio
async def test_nothing_is_given_out_that_opens_more_than_one_folder(location, given):
    vending = Vending(ManualClock(AZURE_MOMENT), StorageOptions(**given))
    assert await vending.vend(Location.parse(location), StorageAccess.READ) is None


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ({}, "https://s3.us-east-1.amazonaws.com/bucket/"),
        ({"path_style": False}, "https://bucket.s3.us-east-1.amazonaws.com/"),
        ({"endpoint": "https://s3.example:9000/"}, "https://s3.example:9000/bucket/"),
        ({"endpoint": "https://S3.example:443/pre", "path_style": False}, "https://bucket.s3.example/pre/"),
        ({"endpoint": "http://[::1]:80", "allow_http": True}, "http://[::1]/bucket/"),
        ({"session_token": Secret("tok+/=")}, "https://s3.us-east-1.amazonaws.com/bucket/"),
    ],
)
@pytest.mark.parametrize("folder", ["", "lake of/ü"])
def test_the_urls_are_those_that_obstore_makes(given, base, folder):
    root = Location.parse(f"s3://bucket/{folder}")
    paths = ["a/b.parquet", "day=1/a b+c%.parquet", ODD]
    theirs = obstore.sign(connect(root, options(**given), retries=0), "GET", paths, timedelta(seconds=60))
    for path, their in zip(paths, theirs, strict=True):
        # Both are made at the moment that theirs names.
        moment = query(their)["X-Amz-Date"]
        day = (int(moment[:4]), int(moment[4:6]), int(moment[6:8]))
        now_ms = _ms(*day, int(moment[9:11]), int(moment[11:13]), int(moment[13:15]))
        sign = signing.url_signer(root, options(**given), now_ms, 60)
        assert sign is not None
        [ours] = sign([path])
        assert ours.startswith(base)
        assert ours.partition("?")[0] == their.partition("?")[0]
        assert query(ours) == query(their)


def _ms(*parts: int) -> int:
    from datetime import UTC, datetime

    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type, misc]


def test_a_key_signs_for_one_day_and_one_region():
    made = {
        signing.v4_key(AMAZON, Secret(secret), day, region)
        for secret in ("a", "b")
        for day in ("20130524", "20130525")
        for region in ("us-east-1", "us-east-2")
    }
    assert len(made) == 8


@pytest.mark.parametrize(
    ("location", "given"),
    [
        ("s3://bucket/x", {"access_key": "id", "secret_key": Secret("key")}),
        ("s3://bucket/x", {"region": "us-east-1"}),
        ("gs://bucket/x", {"gcs_service_account": Secret("{}")}),
        ("abfss://data@acct.dfs.core.windows.net/x", {}),
        ("abfss://data@acct.dfs.core.windows.net/x", {"azure_sas": Secret("sig=x")}),
    ],
)
def test_what_is_not_configured_is_left_to_the_providers_chain(location, given):
    given = StorageOptions(**given)
    assert signing.url_signer(Location.parse(location), given, AMAZON_MOMENT, 60) is None


def test_a_signature_cannot_sign_others():
    given = StorageOptions(azure_sas=Secret("sv=2023-11-03&sig=c2ln"))
    store = RemoteStore(Location.parse("abfss://data@acct.dfs.core.windows.net/x"), given)
    with pytest.raises(Unsupported) as unsupported:
        store.url_signer(60)
    assert "c2ln" not in str(unsupported.value)


def test_half_an_hmac_key_is_a_broken_configuration():
    with pytest.raises(Invalid):
        StorageOptions(gcs_hmac_id="id")
    with pytest.raises(Invalid):
        StorageOptions(gcs_hmac_secret=Secret("key"))


# --- the key of a Google service account ---

P = int(
    "e66f8a5c06bc61f6b69b5d7e65b22e07714d6769af5b7dbf7c16b1aa3a2ce9cdbef0fabe4fe0123109941219b3c30c32"
    "c85f0197f5d4b7ece95f3018aca8bf6f730a35c3f9e6b77e6c7893029a5a27a2f25cb0c2e1f82c8073251b9daa99a9b4"
    "cedd53c4eae6bceee40bef54f49707e9ac695a00c8130182a5cbb1f4cb6ba667",
    16,
)
Q = int(
    "bcd577206ec59dae90591909d860d10b1fb30482f8673d752e73aa484060e25e10f0863ebf55c6ecc1f727d465ffdbb9"
    "a79adb026dfe3ce6983cd8718d2c062da1924608e3cc4c13c97e323a094360eeda995858a4282656919b8e51ba724bf1"
    "566d5ac663ac63f13cd260dd0d561f238340fbe003fb9a40a6bfe0691c2f1cd9",
    16,
)
E = 65_537


def _length(count: int) -> bytes:
    if count < 128:
        return bytes([count])
    return bytes([0x81, count]) if count < 256 else b"\x82" + count.to_bytes(2, "big")


def _number(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "big")
    return b"\x02" + _length(len(data)) + data


def private_key() -> str:
    """PKCS #1, from its two primes."""
    d = pow(E, -1, (P - 1) * (Q - 1))
    numbers = (0, P * Q, E, d, P, Q, d % (P - 1), d % (Q - 1), pow(Q, -1, P))
    body = b"".join(map(_number, numbers))
    text = base64.encodebytes(b"\x30" + _length(len(body)) + body).decode()
    return f"-----BEGIN RSA PRIVATE KEY-----\n{text}-----END RSA PRIVATE KEY-----\n"


@pytest.mark.parametrize("path", ["a/b.parquet", ODD])
def test_a_service_account_signs_the_object_that_is_meant(path):
    account = {"client_email": "a@b.example", "private_key": private_key(), "private_key_id": "1"}
    given = StorageOptions(gcs_service_account=Secret(json.dumps(account)))
    store = RemoteStore(Location.parse("gs://bucket/lake"), given)
    [url] = store.url_signer(60)([path])
    parts = urlsplit(url)
    assert (parts.netloc, parts.fragment) == ("storage.googleapis.com", "")
    assert unquote(parts.path) == f"/bucket/lake/{path}"
    fields = query(url)
    signature = int(fields.pop("X-Goog-Signature"), 16)
    canonical = "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted(fields.items()))
    request = f"GET\n{parts.path}\n{canonical}\nhost:{parts.netloc}\n\nhost\nUNSIGNED-PAYLOAD"
    moment = fields["X-Goog-Date"]
    scope = f"{moment[:8]}/auto/storage/goog4_request"
    text = f"GOOG4-RSA-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    # What a holder of the public key finds in the signature: padding, the name of the hash, the hash.
    found = pow(signature, E, P * Q)
    assert found & (2**256 - 1) == int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
