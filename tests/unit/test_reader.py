"""However the network cuts a stream of requests, the same requests come out of it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from inver.protocols.http import Request
from inver.server.limits import DEFAULTS
from inver.server.reader import IDLE, Reader

SWITCH = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA\r\nUpgrade: h2c\r\n"


def encoded(number: int, body: bytes, chunked: bool, switch: bool) -> bytes:
    head = b"POST /%d?q=%d HTTP/1.1\r\nHost: x\r\nX-Number: %d\r\n" % (number, number, number)
    head += SWITCH if switch else b""
    if not chunked:
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
    pieces = [body[start : start + 7] for start in range(0, len(body), 7)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"%bTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % (head, chunks)


def read(data: bytes, cuts: list[int]) -> list[Request]:
    reader = Reader(DEFAULTS, lambda given: "id", "peer", None)
    for start, end in pairwise([0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]):
        reader.feed(data[start:end], 0.0)
    assert reader.phase == IDLE
    requests = []
    for request, keep, legacy, refusal in reader.messages:
        assert (keep, legacy, refusal) == (True, False, None)
        requests.append(request)
    return requests


@given(
    st.lists(st.tuples(st.binary(max_size=50), st.booleans(), st.booleans()), max_size=6),
    st.lists(st.integers(0, 10_000), max_size=30),
)
def test_cuts_do_not_matter(asked: list[tuple[bytes, bool, bool]], cuts: list[int]) -> None:
    data = b"".join(encoded(number, *parts) for number, parts in enumerate(asked))
    requests = read(data, cuts)
    assert [request.body for request in requests] == [body for body, _, _ in asked]
    for number, request in enumerate(requests):
        expected = b"%d" % number
        assert (request.raw_path, request.query_string) == (b"/" + expected, b"q=" + expected)
        assert request.header(b"x-number") == expected


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_any_bytes_are_read_or_refused(data: bytes, cuts: list[int]) -> None:
    reader = Reader(DEFAULTS, lambda given: "id", "peer", None)
    for start, end in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        if not reader.closed:
            reader.feed(data[start:end], 0.0)
    assert sum(refusal is not None for _, _, _, refusal in reader.messages) <= 1
