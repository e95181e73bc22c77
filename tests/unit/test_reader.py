"""However the network cuts a stream of requests, the same requests come out of it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from inver.protocols.http import Request
from inver.server.limits import DEFAULTS
from inver.server.reader import IDLE, Heads, Reader

SWITCH = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA\r\nUpgrade: h2c\r\n"


def encoded(number: int, body: bytes, chunked: bool, switch: bool) -> bytes:
    head = b"POST /%d?q=%d HTTP/1.1\r\nHost: x\r\nX-Number: %d\r\n" % (number, number, number)
    head += SWITCH if switch else b""
    if not chunked:
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
    pieces = [body[start : start + 7] for start in range(0, len(body), 7)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"%bTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % (head, chunks)


def new_reader(heads: Heads) -> Reader:
    return Reader(DEFAULTS, lambda given: "id", "peer", None, heads)


def read(data: bytes, cuts: list[int]) -> list[Request]:
    reader = new_reader(Heads())
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
    reader = new_reader(Heads())
    for start, end in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        if not reader.closed:
            reader.feed(data[start:end], 0.0)
    assert sum(refusal is not None for _, _, _, refusal in reader.messages) <= 1


class Forgetful(Heads):
    def keep(self, head: bytes, request: Request, length: int) -> None:
        pass


# Whole requests, halves of them, and what may stand between two.
PIECES = (
    b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /a HTTP/1.1\nHost: x\n\n",
    b"GET /a HTTP/1.0\r\nHost: x\r\n\r\n",
    b"GET /a HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /b?q HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n",
    b"POST /b?q HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
    b"POST /b?q HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
    b"POST /b?q HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n" + SWITCH + b"\r\nbody",
    b"POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nbody",
    b"body",
    b"\r\n",
    b"\r\n\r\n",
)


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=3).map(b"".join), max_size=12))
@example([PIECES[0], b"\r\n\r\n", b"\r\n\r\n"])
def test_a_head_that_is_remembered_means_the_same(chunks: list[bytes]) -> None:
    heads = Heads()
    for _ in range(2):
        remembering, forgetful = new_reader(heads), new_reader(Forgetful())
        for chunk in chunks:
            for reader in (remembering, forgetful):
                if not reader.closed:
                    reader.feed(chunk, 0.0)
            assert seen(remembering) == seen(forgetful)


def seen(reader: Reader) -> tuple[object, ...]:
    messages = [
        (
            *(request.method, request.raw_path, request.query_string, request.headers, request.body),
            *(request.client, request.request_id, keep, legacy, str(refusal)),
        )
        for request, keep, legacy, refusal in reader.messages
    ]
    return messages, reader.phase, reader.closed, reader.expects


def test_what_keeps_the_connection_open_is_remembered() -> None:
    for connection in (b"", b"Connection: keep-alive\r\n"):
        heads = Heads()
        head = b"GET / HTTP/1.1\r\nHost: x\r\n%b\r\n" % connection
        new_reader(heads).feed(head, 0.0)
        assert heads.find(head) is not None


def test_heads_are_forgotten_when_there_are_too_many_or_they_are_too_long() -> None:
    heads = Heads()
    reader = new_reader(heads)
    for number in range(Heads.MOST + 1):
        reader.feed(encoded(number, b"", False, False), 0.0)
    assert heads.find(encoded(0, b"", False, False)) is None
    assert heads.find(encoded(Heads.MOST, b"", False, False)) is not None
    long = b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: %b\r\n\r\n" % (b"x" * Heads.LONGEST)
    reader.feed(long, 0.0)
    assert heads.find(long) is None
    assert len(reader.messages) == Heads.MOST + 2
