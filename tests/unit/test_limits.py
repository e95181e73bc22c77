from __future__ import annotations

import gzip
import json
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.errors import Invalid, TooLarge
from inver.protocols.http import BadMessage
from inver.server.limits import DEFAULTS, Inflater, Limits, check_depth, check_head, inflater


def inflate(encoding: bytes, data: bytes, limits: Limits = DEFAULTS, step: int = 7) -> bytes:
    engine = inflater(encoding, limits)
    assert isinstance(engine, Inflater)
    for start in range(0, len(data), step):
        engine.feed(data[start : start + step])
    return engine.finish()


@given(st.binary(max_size=2000), st.integers(1, 3000))
def test_compressed_bodies_come_out_as_they_were(data: bytes, step: int) -> None:
    assert inflate(b"gzip", gzip.compress(data), step=step) == data
    assert inflate(b"X-GZip", gzip.compress(data), step=step) == data
    assert inflate(b"deflate", zlib.compress(data), step=step) == data


def test_the_limit_counts_bytes_after_decompression() -> None:
    limits = Limits(body=1000)
    assert len(inflate(b"gzip", gzip.compress(b"x" * 1000), limits)) == 1000
    with pytest.raises(TooLarge):
        inflate(b"gzip", gzip.compress(b"x" * 1001), limits)


# Without the time, so that a test has the same name whenever it is collected.
HELLO = gzip.compress(b"hello", mtime=0)


@pytest.mark.parametrize(
    "data",
    [
        HELLO[:-1],
        HELLO + b"x",
        HELLO + HELLO,
        b"hello, I am not compressed",
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_damaged_bodies_are_invalid(data: bytes, step: int) -> None:
    with pytest.raises(Invalid):
        inflate(b"gzip", data, step=step)


@pytest.mark.parametrize("encoding", [b"br", b"zstd", b"gzip, gzip", b"compress"])
def test_unknown_encodings_are_unsupported_media(encoding: bytes) -> None:
    with pytest.raises(BadMessage) as caught:
        inflater(encoding, DEFAULTS)
    assert caught.value.status == 415


def test_no_encoding_needs_no_work() -> None:
    assert inflater(b"identity", DEFAULTS) is None
    assert inflater(b"", DEFAULTS) is None
    assert inflate(b"gzip", b"") == b""


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]" * 1000,
        b"{}",
        nested(64),
        b"[" + b",".join([nested(63)] * 100) + b"]",
        json.dumps({"text": "[" * 1000, "quote": '"[' * 100, "back": '\\"[{' * 100}).encode(),
        b'{"a": "' + b"\\\\" * 99 + b'", "b": [' + b"{}," * 99 + b"{}]}",
        b"\xff\xff\xff\xff" + b"[" * 1000,
        b"ARROW1" + b"{" * 1000,
        b"]" * 1000,
    ],
)
def test_what_is_not_too_deep_passes(body: bytes) -> None:
    check_depth(body, 64)


@pytest.mark.parametrize(
    "body",
    [
        nested(65),
        nested(100_000),
        b"[" * 100_000,
        b" \n\t" + b"[" * 100,
        b'{"a":' * 65 + b"1" + b"}" * 65,
        b'[{"a":' * 33 + b"1" + b"}]" * 33,
        b"[" + b",".join([nested(64)] * 100) + b"]",
        b'["]]]]", ' * 65 + b"1" + b"]" * 65,
        b'["\\"]]]]", ' * 65,
    ],
)
def test_what_is_too_deep_is_invalid(body: bytes) -> None:
    with pytest.raises(Invalid) as caught:
        check_depth(body, 64)
    assert caught.value.field == "body"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max((depth_of(inner) for inner in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((depth_of(inner) for inner in value), default=0)
    return 0


@given(JSON, st.integers(1, 6), st.booleans())
def test_depth_is_exact(value: object, limit: int, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    if depth_of(value) > limit:
        with pytest.raises(Invalid):
            check_depth(body, limit)
    else:
        check_depth(body, limit)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b'\\"' * 1_000_000,
        b'["' + b'\\"' * 1_000_000,
        b"[" + b'"' * 1_000_001,
        b"[" * 100 + b'"' + b"\\" * 1_000_001,
    ],
)
def test_strings_that_never_end_cost_no_more_than_others(body: bytes) -> None:
    """If each quote began a search of its own, this would take hours."""
    with suppress(Invalid):
        check_depth(body + b"[" * 65, 64)


def test_heads_have_a_size_and_a_count() -> None:
    limits = Limits(url=10, head=100, headers=3)
    check_head(10, [(b"a", b"b")] * 3, limits)
    for url, headers, status in ((11, [], 414), (1, [(b"a", b"b")] * 4, 431), (1, [(b"a", b"b" * 96)], 431)):
        with pytest.raises(BadMessage) as caught:
            check_head(url, headers, limits)
        assert caught.value.status == status
