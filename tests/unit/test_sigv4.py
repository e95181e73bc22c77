"""Signatures of requests to S3, beside those that AWS documents, and URIs read literally."""

from __future__ import annotations

import pytest

from inver.clock import ManualClock
from inver.errors import Invalid
from inver.secrets import Secret
from inver.storage.sigv4 import SigV4

# From Amazon's own description of the algorithm: GET of a range of test.txt in examplebucket.
MOMENT = 1_369_353_600_000
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def signer(endpoint: str | None = None, session: str | None = None) -> SigV4:
    return SigV4(
        ManualClock(MOMENT),
        "AKIAIOSFODNN7EXAMPLE",
        Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        None if session is None else Secret(session),
        endpoint,
        "us-east-1",
    )


def test_a_signature_that_amazon_documents() -> None:
    headers = signer().sign(
        "GET",
        "https://examplebucket.s3.amazonaws.com/test.txt",
        "us-east-1",
        {"range": "bytes=0-9", "x-amz-content-sha256": EMPTY},
    )
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )
    assert headers["x-amz-date"] == "20130524T000000Z"


def test_a_listing_that_amazon_documents() -> None:
    headers = signer().sign(
        "GET",
        "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J",
        "us-east-1",
        {"x-amz-content-sha256": EMPTY},
    )
    assert headers["authorization"].endswith(
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    )


def test_a_session_is_part_of_what_is_signed() -> None:
    headers = signer(session="token").sign("GET", "https://b.s3.amazonaws.com/k", "r", {})
    assert headers["x-amz-security-token"] == "token"
    assert "x-amz-security-token" in headers["authorization"]
    assert headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"


@pytest.mark.parametrize(
    ("endpoint", "uri", "expected"),
    [
        (None, "https://b.s3.amazonaws.com/a/b%20c", ("b", "a/b c", {})),
        (None, "https://b.c.s3.eu-west-1.amazonaws.com/k?uploads", ("b.c", "k", {"uploads": ""})),
        (None, "https://s3.amazonaws.com/b/k", ("b", "k", {})),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000/b/k?a=1&b=%2F", ("b", "k", {"a": "1", "b": "/"})),
        ("http://store:9000", "http://b.store:9000/k", ("b", "k", {})),
        ("http://store:9000", "http://store:9000/b", ("b", "", {})),
    ],
)
def test_what_a_uri_is_about(
    endpoint: str | None, uri: str, expected: tuple[str, str, dict[str, str]]
) -> None:
    target = signer(endpoint).target(uri)
    assert (target.bucket, target.key, target.query) == expected


@pytest.mark.parametrize(
    "uri",
    [
        "http://b.s3.amazonaws.com/k",
        "https://evil.example.com/b/k",
        "https://b.s3.amazonaws.com.evil.example.com/k",
        "https://user@b.s3.amazonaws.com/k",
        "https://b.s3.amazonaws.com/k#x",
        "https://b.s3.amazonaws.com/k?a=1&a=2",
        "https://b.s3.amazonaws.com/k?a=1&%61=2",
        "https://b.s3.amazonaws.com/%ff",
        "https://b.s3.amazonaws.com/%zz",
        "https://b.s3.amazonaws.com/a b",
        "https://b.s3.amazonaws.com/a\tb",
        "https://b.s3.amazonaws.com",
        "ftp://b.s3.amazonaws.com/k",
        "b/k",
        "",
    ],
)
def test_uris_that_are_not_ours(uri: str) -> None:
    with pytest.raises(Invalid):
        signer().target(uri)
    with pytest.raises(Invalid):
        signer("http://127.0.0.1:9000").target(uri)
