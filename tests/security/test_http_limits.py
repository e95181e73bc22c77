"""Attacks on the HTTP layer. Each is answered with a well-formed error of the face it was aimed at."""

from __future__ import annotations

import gzip
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from inver.server.forwarded import Proxies
from inver.server.limits import DEFAULTS, Limits
from tests.fixtures.http import Answer, Echo, RawClient, Served, application, request, serving

JSON = "Content-Type: application/json"
CHUNKED = request("POST", "/echo/body", None, "Transfer-Encoding: chunked")


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def server(echo: Echo) -> Iterator[Served]:
    with serving(application(echo)) as served:
        yield served


@pytest.fixture
def client(server: Served) -> Iterator[RawClient]:
    with server.connect() as connected:
        yield connected


def refused(answer: Answer, status: int, face: str = "echo") -> None:
    assert (answer.status, answer.json()["face"]) == (status, face)


# --- F1: requests that are too much ---


def test_f1_a_declared_body_beyond_32_mib_is_refused_unread(client: RawClient, echo: Echo) -> None:
    refused(client.ask(request("POST", "/echo/body", None, f"Content-Length: {DEFAULTS.body + 1}")), 413)
    assert client.ended()
    assert echo.seen == []


def test_f1_the_answer_survives_a_client_that_keeps_sending(server: Served, echo: Echo) -> None:
    with server.connect() as client:
        client.send(request("POST", "/echo/body", None, "Content-Length: 50000000"), b"x" * 8_000_000)
        refused(client.answer(), 413)
    assert echo.seen == []


def test_f1_a_chunked_body_stops_at_the_limit(echo: Echo) -> None:
    with serving(application(echo, Limits(body=1_000_000))) as served, served.connect() as client:
        chunk = b"%x\r\n%b\r\n" % (100_000, b"x" * 100_000)
        client.send(request("POST", "/echo/body", None, "Transfer-Encoding: chunked"), *[chunk] * 11)
        refused(client.answer(), 413)
    assert echo.seen == []


def test_f1_a_body_of_exactly_the_limit_is_served() -> None:
    with serving(application(limits=Limits(body=1_000_000))) as served, served.connect() as client:
        assert client.ask(request("POST", "/echo/body", b"x" * 1_000_000)).status == 200
        refused(client.ask(request("POST", "/echo/body", b"x" * 1_000_001)), 413)


def test_f1_a_gzip_bomb_stops_at_the_limit(client: RawClient, server: Served, echo: Echo) -> None:
    bomb = gzip.compress(bytes(200_000_000), 9)
    assert len(bomb) < 250_000
    tracemalloc.start()
    try:
        refused(client.ask(request("POST", "/echo/body", bomb, "Content-Encoding: gzip")), 413)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3 * DEFAULTS.body
    assert echo.seen == []


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_f1_json_100k_deep_is_invalid(client: RawClient, echo: Echo, opening: bytes) -> None:
    refused(client.ask(request("POST", "/echo/body", opening * 100_000, JSON)), 400)
    refused(client.ask(request("POST", "/echo/body", b" \r\n\t" + opening * 100_000)), 400)
    refused(
        client.ask(request("POST", "/echo/body", gzip.compress(opening * 100_000), "Content-Encoding: gzip")),
        400,
    )
    assert echo.seen == []


def test_f1_binary_bodies_have_no_depth(client: RawClient) -> None:
    assert client.ask(request("POST", "/echo/body", b"\xff\xff\xff\xff" + b"[" * 1000)).status == 200


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (request("GET", "/echo/" + "x" * 17_000), 414),
        (request("GET", "/echo/body", None, "X-Large: " + "x" * 70_000), 431),
        (request("GET", "/echo/body", None, *(f"X-{i}: y" for i in range(100))), 431),
        (request("GET", "/echo/body", None, *(f"X-{i}: {'y' * 1000}" for i in range(70))), 431),
    ],
)
def test_f1_heads_have_limits(client: RawClient, raw: bytes, status: int) -> None:
    refused(client.ask(raw), status)
    assert client.ended()


@pytest.mark.parametrize(
    ("start", "more", "status", "face"),
    [
        (b"GET /echo/", b"x", 414, "echo"),
        (b"GET /echo/body HTTP/1.1\r\nX-Large: ", b"x", 431, "echo"),
        (b"GET /echo/body HTTP/1.1\r\n", b"X-Many: y\r\n", 431, "echo"),
        (request("POST", "/echo/body", None, "Transfer-Encoding: chunked") + b"1;", b"x", 431, "echo"),
        (request("POST", "/echo/body", None, "Transfer-Encoding: chunked") + b"0\r\nX: ", b"x", 431, "echo"),
        (
            request("POST", "/echo/body", None, "Transfer-Encoding: chunked") + b"0\r\n",
            b"X: y\r\n",
            431,
            "echo",
        ),
    ],
)
def test_f1_heads_and_trailers_that_never_end_are_cut(
    client: RawClient, start: bytes, more: bytes, status: int, face: str
) -> None:
    client.send(start)
    for _ in range(40):
        client.send(more * (10_000 // len(more)))
        time.sleep(0.001)
    refused(client.answer(), status)


# --- request smuggling: whatever two parsers could see differently is refused ---


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 5"),
        ("Content-Length: 5", "Content-Length: 5"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5, 5",),
        ("Content-Length: +5",),
        ("Content-Length: 0x5",),
        ("Content-Length : 5",),
        ("Content-Length: -5",),
        ("Content-Length: 99999999999999999999999999",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding : chunked",),
        ("X: y\r\n Transfer-Encoding: chunked",),
        ("X: y\nTransfer-Encoding: chunked",),
        ("X: y\rTransfer-Encoding: chunked",),
        ("Host: other",),
    ],
)
def test_smuggling_by_framing_is_refused(client: RawClient, echo: Echo, headers: tuple[str, ...]) -> None:
    hidden = request("POST", "/echo/body", b"hidden")
    answer = client.ask(request("POST", "/echo/body", None, *headers) + b"0\r\n\r\n" + hidden)
    assert answer.status in (400, 501)
    assert answer.json()["face"] == "echo"
    assert client.ended()
    assert echo.seen == []


@pytest.mark.parametrize(
    "chunks",
    [
        b"5\nhello\n0\n\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    ],
)
def test_smuggling_by_chunks_is_refused(client: RawClient, echo: Echo, chunks: bytes) -> None:
    hidden = request("POST", "/echo/body", b"hidden")
    answer = client.ask(CHUNKED + chunks + hidden)
    refused(answer, 400)
    assert client.ended()
    assert echo.seen == []


def test_smuggling_by_http_10_chunks_is_refused(client: RawClient, echo: Echo) -> None:
    asked = request("POST", "/echo/body", None, "Transfer-Encoding: chunked", version="HTTP/1.0")
    refused(client.ask(asked + b"0\r\n\r\n"), 400)


def test_smuggling_by_upgrade_is_refused(client: RawClient, echo: Echo) -> None:
    """What follows the head is the body, by its length, whatever protocol the client hoped for."""
    hidden = request("POST", "/echo/body", b"hidden")
    asked = request("POST", "/echo/body", hidden, "Connection: Upgrade", "Upgrade: websocket")
    assert client.ask(asked).body == hidden
    assert len(echo.seen) == 1


def test_a_missing_host_is_refused(client: RawClient) -> None:
    refused(client.ask(b"GET /echo/body HTTP/1.1\r\n\r\n"), 400)


# --- F2: forwarded headers ---

FORGED = (
    "X-Forwarded-For: 203.0.113.9",
    "X-Forwarded-Host: evil.example",
    "X-Forwarded-Proto: https",
    "X-Forwarded-Prefix: /echo/other",
    "Forwarded: for=203.0.113.9;host=evil.example",
)


def test_f2_forwarded_headers_are_ignored(client: RawClient) -> None:
    assert client.ask(request("GET", "/echo/client", None, *FORGED)).body == b"127.0.0.1"


def test_f2_forwarded_headers_are_ignored_from_other_networks() -> None:
    with serving(application(), trusted_proxies=["10.0.0.0/8"]) as served, served.connect() as client:
        assert client.ask(request("GET", "/echo/client", None, *FORGED)).body == b"127.0.0.1"


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        (FORGED, "203.0.113.9"),
        ((), "127.0.0.1"),
        (("Forwarded: for=203.0.113.9",), "127.0.0.1"),
        (("X-Forwarded-For: 198.51.100.1, 203.0.113.9",), "203.0.113.9"),
        (("X-Forwarded-For: 198.51.100.1, 203.0.113.9, 10.1.2.3",), "203.0.113.9"),
        (("X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 203.0.113.9, 10.1.2.3"), "203.0.113.9"),
        (("X-Forwarded-For: 10.9.9.9, 10.1.2.3",), "10.9.9.9"),
        (("X-Forwarded-For: not an address, 10.1.2.3",), "10.1.2.3"),
        (("X-Forwarded-For: 203.0.113.9:5555",), "203.0.113.9"),
        (("X-Forwarded-For: [2001:db8::1]:5555",), "2001:db8::1"),
        (("X-Forwarded-For: 2001:db8::1",), "2001:db8::1"),
        (("X-Forwarded-For: ::ffff:203.0.113.9",), "203.0.113.9"),
        (("X-Forwarded-For: ",), "127.0.0.1"),
    ],
)
def test_f2_forwarded_headers_of_trusted_proxies_name_the_client(headers: tuple[str, ...], seen: str) -> None:
    networks = ["127.0.0.0/8", "10.0.0.0/8"]
    with serving(application(), trusted_proxies=networks) as served, served.connect() as client:
        assert client.ask(request("GET", "/echo/client", None, *headers)).body.decode() == seen


def test_f2_a_mapped_peer_is_the_same_peer() -> None:
    assert Proxies(["10.0.0.0/8"]).trusts("::ffff:10.1.2.3")
    assert not Proxies(["10.0.0.0/8"]).trusts("::ffff:11.1.2.3")
    assert not Proxies(["10.0.0.0/8"]).trusts("")


# --- C15: secrets in logs ---

SECRET = "inver_pat_0123456789abcdef"


@pytest.mark.parametrize("path", ["/echo/boom", "/echo/boom-later"])
def test_c15_no_header_or_body_reaches_the_log(
    client: RawClient, server: Served, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    headers = (f"Authorization: Bearer {SECRET}", "Cookie: session=not-for-logs", "X-Request-Id: r-1")
    answer = client.ask(request("POST", path, b'{"password": "hunter2!"}', *headers))
    assert answer.status == 500
    assert "r-1" in caplog.text  # something was logged
    assert "RuntimeError" in caplog.text
    for secret in (SECRET, "not-for-logs", "hunter2!"):
        assert secret not in caplog.text
        assert secret.encode() not in answer.body
        assert secret not in repr(list(server.application.failures))


def test_c15_broken_streams_log_no_secret(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises((EOFError, ConnectionResetError)):
        client.ask(request("GET", "/echo/stream-breaks", None, f"Authorization: Bearer {SECRET}"))
    assert "the disk is gone" in caplog.text
    assert SECRET not in caplog.text
