from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.clock import ManualClock
from inver.errors import Broken
from inver.storage.signing import UrlSigner

KEY = bytes(range(32))
PATH = "/data/with space/100%/ü+x?y#z.parquet"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def signer(clock) -> UrlSigner:
    return UrlSigner(KEY, "https://inver.example/files/", clock)


def test_a_url_is_valid_until_it_expires(signer, clock):
    parts = urlsplit(signer.sign(PATH, signer.now_s() + 10))
    assert (parts.scheme, parts.netloc) == ("https", "inver.example")
    assert unquote(parts.path) == "/files" + PATH
    assert "+" not in parts.path
    assert signer.verify(PATH, parts.query)
    clock.advance(9_999)
    assert signer.verify(PATH, parts.query)
    clock.advance(1)
    assert not signer.verify(PATH, parts.query)


def test_a_signature_holds_for_one_path_one_expiry_and_one_key(signer):
    expires = signer.now_s() + 10
    query = urlsplit(signer.sign(PATH, expires)).query
    assert not signer.verify(PATH + "2", query)
    assert not signer.verify(PATH[:-1], query)
    assert not signer.verify(PATH, query.replace(str(expires), str(expires + 1)))
    other = UrlSigner(KEY[::-1], "https://inver.example/files")
    assert not other.verify(PATH, query)


@pytest.mark.parametrize(
    "change",
    [
        lambda query: "",
        lambda query: query + "&x=y",
        lambda query: query + "&" + query,
        lambda query: "&".join(reversed(query.split("&"))),
        lambda query: query.upper(),
        lambda query: query[:-1],
        lambda query: query + "\n",
        lambda query: query.replace("expires=", "expires=+"),
        lambda query: query.replace("expires=", "expires=-"),
        lambda query: query.replace("1", "١"),
    ],
)
def test_a_query_in_any_other_form_is_refused(signer, change):
    query = urlsplit(signer.sign(PATH, signer.now_s() + 10)).query
    assert signer.verify(PATH, query)
    assert not signer.verify(PATH, change(query))


@given(st.text(), st.text())
def test_no_query_makes_it_fail(path, query):
    assert UrlSigner(KEY, "https://inver.example").verify(path, query) is False


@pytest.mark.parametrize(
    ("key", "base_url"),
    [
        (b"short", "https://inver.example"),
        (KEY, "inver.example"),
        (KEY, "file:///files"),
        (KEY, "https://inver.example/?a=b"),
    ],
)
def test_a_weak_key_or_a_wrong_base_is_a_broken_configuration(key, base_url):
    with pytest.raises(Broken) as broken:
        UrlSigner(key, base_url)
    assert "short" not in str(broken.value)
