"""Signed URLs towards a real S3 server, which checks every signature."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import uuid4

import httpx
import obstore
import pytest

from inver.clock import ManualClock
from inver.domain.locations import Location
from inver.errors import Invalid
from inver.ports import SignUrls
from inver.secrets import Secret
from inver.storage.objects import RemoteStore
from inver.storage.options import StorageOptions
from tests.contract.test_storage import ODD_PATHS, PATHS_OUT
from tests.fixtures.s3 import S3Server

pytestmark = pytest.mark.s3

Signer = Callable[..., SignUrls]


@pytest.fixture(scope="module")
def root(s3_server: S3Server) -> Location:
    return Location.parse(f"s3://{s3_server.bucket}/lake of {uuid4()}")


@pytest.fixture(scope="module")
def signer(s3_server: S3Server, root: Location) -> Signer:
    """Signs as a server whose clock is so many seconds behind, and perhaps with another secret."""

    def made(expires_in_s: int = 60, behind_s: int = 0, secret: str = s3_server.secret_key) -> SignUrls:
        options = StorageOptions(
            endpoint=s3_server.endpoint,
            region=s3_server.region,
            access_key=s3_server.access_key,
            secret_key=Secret(secret),
            allow_http=True,
        )
        clock = ManualClock(int((time.time() - behind_s) * 1000))
        return RemoteStore(root, options, clock).url_signer(expires_in_s)

    return made


@pytest.fixture(scope="module")
def stored(s3_server: S3Server, root: Location) -> list[str]:
    store = s3_server.store()
    for path in ODD_PATHS:
        obstore.put(store, f"{root.key}/{path}", path.encode() * 10)
    return ODD_PATHS


def test_every_object_is_read_whole_and_in_parts(signer: Signer, stored: list[str]) -> None:
    with httpx.Client() as client:
        for path, url in zip(stored, signer()(stored), strict=True):
            answer = client.get(url)
            assert (answer.status_code, answer.content) == (200, path.encode() * 10), path
            part = client.get(url, headers={"Range": "bytes=1-4"})
            assert (part.status_code, part.content) == (206, (path.encode() * 10)[1:5]), path


def test_a_url_allows_nothing_but_reading_one_object(signer: Signer, stored: list[str]) -> None:
    one, other = signer()(["a+b", "100%"])
    for method in ("HEAD", "PUT", "DELETE"):
        assert httpx.request(method, one).status_code == 403, method
    assert httpx.get(one.partition("?")[0]).status_code == 403
    moved = f"{other.partition('?')[0]}?{one.partition('?')[2]}"
    assert httpx.get(moved).status_code == 403
    assert httpx.get(one).status_code == 200


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("X-Amz-Expires=60", "X-Amz-Expires=600"),
        ("X-Amz-Date=2", "X-Amz-Date=3"),
        ("Signature=", "Signature=0"),
    ],
)
def test_a_url_that_was_changed_is_refused(signer: Signer, stored: list[str], old: str, new: str) -> None:
    [url] = signer()(["a+b"])
    assert old in url
    assert httpx.get(url.replace(old, new)).status_code in (400, 403)


def test_a_url_ends(signer: Signer, stored: list[str]) -> None:
    assert httpx.get(signer(60, behind_s=30)(["-"])[0]).status_code == 200
    assert httpx.get(signer(60, behind_s=90)(["-"])[0]).status_code == 403
    # Also one that was made yesterday, with the key of that day.
    assert httpx.get(signer(172_800, behind_s=86_400)(["-"])[0]).status_code == 200


def test_another_secret_signs_nothing(signer: Signer, stored: list[str]) -> None:
    assert httpx.get(signer(secret="x" * 40)(["-"])[0]).status_code == 403


@pytest.mark.parametrize("path", PATHS_OUT)
def test_b5_no_path_leads_out_of_the_folder(signer: Signer, path: str) -> None:
    with pytest.raises(Invalid):
        signer()(["a", path])


@pytest.mark.parametrize("seconds", [0, -1, 7 * 24 * 3600 + 1])
def test_a_url_lives_a_bounded_time(signer: Signer, seconds: int) -> None:
    with pytest.raises(Invalid):
        signer(seconds)
    assert signer(7 * 24 * 3600)(["a"])
