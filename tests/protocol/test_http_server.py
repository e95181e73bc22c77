"""The HTTP protocol against real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
import time
import zlib
from collections.abc import Iterator

import pytest

from inver.domain.principals import ADMIN, Principal
from inver.errors import Unauthenticated
from inver.protocols.http import Request
from tests.fixtures.http import Echo, Plain, RawClient, Served, application, request, serving

JDK = ("Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAEAAEAAAAIAAAAB", "Upgrade: h2c")


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def server(echo: Echo, loop: str) -> Iterator[Served]:
    with serving(application(echo), loop) as served:
        yield served


@pytest.fixture
def client(server: Served) -> Iterator[RawClient]:
    with server.connect() as connected:
        yield connected


# --- the shape of an answer ---


def test_an_answer_is_complete_and_keeps_the_connection(client: RawClient) -> None:
    for body in (b"", b"x", b"y" * 100_000):
        answer = client.ask(request("POST", "/echo/body", body))
        assert (answer.status, answer.body) == (200, body)
        assert answer.header("Content-Length") == str(len(body))
        assert answer.header("Connection") is None
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", answer.header("Date") or "")


def test_header_names_keep_their_spelling(client: RawClient) -> None:
    answer = client.ask(request("GET", "/echo/etag"))
    assert answer.header("ETag") == '"v1"'
    assert answer.header("Content-Type") == "application/json"


def test_a_get_with_a_body_is_delivered(client: RawClient) -> None:
    assert client.ask(request("GET", "/echo/body", b'{"a": 1}')).body == b'{"a": 1}'


def test_names_are_decoded_once(client: RawClient) -> None:
    assert client.ask(request("GET", "/echo/names/a%2Fb/c+d%2B?x=%2F")).json() == ["a/b", "c d+"]


def test_an_absolute_target_is_a_path(client: RawClient) -> None:
    assert client.ask(request("GET", "http://somewhere:80/echo/names/a/b?c=d")).json() == ["a", "b"]


def test_head_answers_without_a_body(client: RawClient) -> None:
    answer = client.ask(request("HEAD", "/echo/body", b"12345"), method="HEAD")
    assert (answer.status, answer.header("Content-Length")) == (200, "5")
    assert client.ask(request("HEAD", "/echo/head"), method="HEAD").status == 204
    streamed = client.ask(request("HEAD", "/echo/stream"), method="HEAD")
    assert streamed.header("Transfer-Encoding") == "chunked"
    assert client.ask(request("GET", "/echo/body", b"still in step")).body == b"still in step"


def test_no_content_has_no_length(client: RawClient) -> None:
    answer = client.ask(request("GET", "/echo/none"))
    assert (answer.status, answer.header("Content-Length"), answer.header("Content-Type")) == (
        204,
        None,
        None,
    )


def test_large_answers_arrive_whole(client: RawClient) -> None:
    assert client.ask(request("GET", "/echo/large")).body == b"x" * 3_000_000


def test_a_header_cannot_smuggle_another_one(client: RawClient) -> None:
    answer = client.ask(request("GET", "/echo/split"))
    assert (answer.status, answer.header("X-B")) == (500, None)
    assert answer.json()["face"] == "echo"


# --- request ids ---


def test_a_request_id_is_taken_over_or_made(client: RawClient) -> None:
    assert (
        client.ask(request("GET", "/echo/body", None, "X-Request-Id: abc-1")).header("X-Request-Id")
        == "abc-1"
    )
    made = {client.ask(request("GET", "/echo/body")).header("X-Request-Id") for _ in range(3)}
    assert len(made) == 3
    for bad in ("a b", "x" * 129, ""):
        answer = client.ask(request("GET", "/echo/body", None, f"X-Request-Id: {bad}"))
        assert re.fullmatch(r"[0-9a-f]{8}-\d+", answer.header("X-Request-Id") or "")


def test_an_error_carries_the_request_id_too(client: RawClient) -> None:
    answer = client.ask(request("GET", "/nothing", None, "X-Request-Id: abc-2"))
    assert (answer.status, answer.header("X-Request-Id")) == (404, "abc-2")


# --- keep-alive, versions and pipelines ---


def test_http_10_ends_unless_asked_to_stay(server: Served) -> None:
    with server.connect() as client:
        answer = client.ask(request("GET", "/echo/body", version="HTTP/1.0"))
        assert (answer.status, answer.header("Connection")) == (200, "close")
        assert client.ended()
    with server.connect() as client:
        for _ in range(2):
            answer = client.ask(
                request("GET", "/echo/body", None, "Connection: keep-alive", version="HTTP/1.0")
            )
            assert answer.header("Connection") == "keep-alive"
    with server.connect() as client:
        assert client.ask(b"GET /echo/body HTTP/1.0\r\n\r\n").status == 200


def test_connection_close_is_obeyed_and_ignores_what_follows(client: RawClient) -> None:
    both = request("POST", "/echo/body", b"1", "Connection: close") + request("POST", "/echo/body", b"2")
    answer = client.ask(both)
    assert (answer.body, answer.header("Connection")) == (b"1", "close")
    assert client.ended()


def test_pipelined_requests_are_answered_in_order(client: RawClient, echo: Echo) -> None:
    paths = ["/echo/coroutine", "/echo/body", "/echo/future", "/echo/body"] * 5
    client.send(b"".join(request("POST", path, b"%d" % i) for i, path in enumerate(paths)))
    assert [client.answer().body for _ in paths] == [b"%d" % i for i in range(len(paths))]


def test_a_long_pipeline_waits_without_being_read(server: Served, echo: Echo) -> None:
    with server.connect() as client:
        client.send(request("POST", "/echo/wait", b""))
        total = 5000
        body = b"x" * 2000
        sender = threading.Thread(target=client.send, args=[request("POST", "/echo/body", body)] * total)
        sender.start()
        time.sleep(0.3)
        assert sender.is_alive()  # the server has stopped reading, so the sender is stuck
        assert echo.seen == []
        echo.release.set()
        assert client.answer().body == b"waited"
        for _ in range(total):
            assert client.answer().body == body
        sender.join(10)


def test_a_request_may_come_byte_by_byte(client: RawClient) -> None:
    whole = request("POST", "/echo/body", b"hello")
    assert client.ask(*(whole[i : i + 1] for i in range(len(whole)))).body == b"hello"


# --- bodies ---


def test_chunked_bodies(client: RawClient) -> None:
    head = request("POST", "/echo/body", None, "Transfer-Encoding: chunked")
    chunks = (
        b"5;name=value\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\nX-Request-Id: trailer\r\nHost: evil\r\n\r\n"
    )
    for parts in ((head + chunks,), (head, chunks), tuple(bytes([byte]) for byte in head + chunks)):
        answer = client.ask(*parts)
        assert (answer.status, answer.body) == (200, b"hello world")
        assert answer.header("X-Request-Id") != "trailer"


def test_compressed_bodies(client: RawClient) -> None:
    data = json.dumps({"rows": list(range(1000))}).encode()
    for name, compressed in (("gzip", gzip.compress(data)), ("deflate", zlib.compress(data))):
        assert client.ask(request("POST", "/echo/body", compressed, f"Content-Encoding: {name}")).body == data
    assert client.ask(request("POST", "/echo/body", b"", "Content-Encoding: gzip")).body == b""
    assert client.ask(request("POST", "/echo/body", b"as it is")).body == b"as it is"


def test_an_unknown_content_encoding_is_415(client: RawClient) -> None:
    answer = client.ask(request("POST", "/echo/body", b"x", "Content-Encoding: br"))
    assert (answer.status, answer.json()["face"]) == (415, "echo")


def test_expect_100_continue(client: RawClient) -> None:
    head = request("POST", "/echo/body", None, "Expect: 100-continue", "Content-Length: 5")
    assert client.ask(head).status == 100
    assert client.ask(b"hello").body == b"hello"


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(client: RawClient) -> None:
    answer = client.ask(
        request("POST", "/echo/body", None, "Expect: 100-continue", f"Content-Length: {2**40}")
    )
    assert (answer.status, answer.header("Connection")) == (413, "close")
    assert client.ended()


def test_permission_to_send_waits_for_earlier_answers(client: RawClient) -> None:
    head = request("POST", "/echo/body", None, "Expect: 100-continue", "Content-Length: 5")
    client.send(request("POST", "/echo/coroutine", b"first") + head)
    assert client.answer().body == b"first"
    assert client.answer().status == 100
    assert client.ask(b"hello").body == b"hello"


# --- clients that ask to switch to HTTP/2 ---


@pytest.mark.parametrize("pieces", [1, 2, 1000])
@pytest.mark.parametrize("body", [b"", b"x", b"y" * 100_000], ids=["empty", "one byte", "100 kB"])
def test_h2c_upgrades_are_served_as_http_11(client: RawClient, pieces: int, body: bytes) -> None:
    for method in ("POST", "GET", "POST"):
        whole = request(method, "/echo/body", body, *JDK)
        head = whole[: len(whole) - len(body)]
        if pieces == 1:
            answer = client.ask(whole)
        elif pieces == 2:
            answer = client.send(head).ask(body)
        else:
            answer = client.ask(*(whole[i : i + 997] for i in range(0, len(whole), 997)))
        assert (answer.status, answer.body, answer.header("Upgrade")) == (200, body, None)


def test_h2c_upgrades_in_a_pipeline(client: RawClient) -> None:
    asked = [request("POST", "/echo/body", b"%d" % i, *(JDK if i % 3 else ())) for i in range(10)]
    client.send(b"".join(asked))
    assert [client.answer().body for _ in asked] == [b"%d" % i for i in range(10)]


@pytest.mark.parametrize("apart", [False, True])
def test_h2c_upgrades_with_a_chunked_body(client: RawClient, apart: bool) -> None:
    head = request("POST", "/echo/body", None, "Transfer-Encoding: chunked", *JDK)
    chunks = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    for _ in range(3):
        answer = client.send(head).ask(chunks) if apart else client.ask(head + chunks)
        assert (answer.status, answer.body) == (200, b"hello world")
    client.send((head + chunks) * 2 + request("GET", "/echo/body", b"after"))
    assert [client.answer().body for _ in range(3)] == [b"hello world", b"hello world", b"after"]


def test_h2c_upgrade_that_closes(client: RawClient) -> None:
    asked = request("POST", "/echo/body", b"x", "Connection: close, Upgrade, HTTP2-Settings", *JDK[1:])
    assert client.ask(asked).header("Connection") == "close"
    assert client.ended()


def test_h2c_upgrade_with_a_compressed_body(client: RawClient) -> None:
    asked = request("POST", "/echo/body", gzip.compress(b"hello"), "Content-Encoding: gzip", *JDK)
    assert client.ask(asked).body == b"hello"
    damaged = request("POST", "/echo/body", b"not gzip", "Content-Encoding: gzip", *JDK)
    assert client.ask(damaged).status == 400


# --- errors belong to the face that owns the path ---


@pytest.mark.parametrize(
    ("path", "status", "face"),
    [
        ("/nothing", 404, "default"),
        ("/echo/nothing", 404, "echo"),
        ("/echo/other/nothing", 404, "other"),
        ("/echo/names/%zz/b", 400, "echo"),
        ("*", 404, "default"),
        ("/echo/body#fragment", 400, "echo"),
    ],
)
def test_errors_are_rendered_by_the_owner(client: RawClient, path: str, status: int, face: str) -> None:
    answer = client.ask(request("GET", path))
    assert (answer.status, answer.json()["face"]) == (status, face)


def test_a_wrong_method_says_which_are_right(client: RawClient) -> None:
    answer = client.ask(request("DELETE", "/echo/body"))
    assert (answer.status, answer.header("Allow")) == (405, "GET, HEAD, POST")
    assert client.ask(request("GET", "/echo/body")).status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT host:443 HTTP/1.1\r\nHost: host\r\n\r\n",
        b"GET relative HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET //host/x HTTP/1.1\r\nHo st: x\r\n\r\n",
    ],
)
def test_what_is_not_http_is_400_by_the_default_face(client: RawClient, raw: bytes) -> None:
    answer = client.ask(raw)
    assert (answer.status, answer.json()["face"]) == (400, "default")
    assert answer.header("Connection") == "close"
    assert client.ended()


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/0.9"])
def test_other_versions_are_505(client: RawClient, version: str) -> None:
    assert client.ask(request("GET", "/echo/body", version=version)).status == 505


def test_answers_before_a_malformed_request_are_still_sent(client: RawClient) -> None:
    client.send(request("POST", "/echo/coroutine", b"first") + b"nonsense\r\n\r\n")
    assert client.answer().body == b"first"
    assert client.answer().status == 400
    assert client.ended()


def test_unexpected_errors_tell_the_client_nothing(
    client: RawClient, server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/echo/boom", "/echo/boom-later"):
        answer = client.ask(request("POST", path, b"x", "X-Request-Id: find-me"))
        assert (answer.status, answer.json()["message"]) == (500, "internal error")
        assert b"storage" not in answer.body
    assert "find-me" in caplog.text
    assert "cannot talk to storage" in caplog.text
    failures = [
        (failure.request_id, failure.status, failure.error) for failure in server.application.failures
    ]
    assert failures == [("find-me", 500, "RuntimeError")] * 2


def test_a_face_that_cannot_render_still_answers(loop: str) -> None:
    class Mute(Echo):
        def render(self, error: Exception, request: Request | None) -> Plain:  # type: ignore[override]
            raise RuntimeError("no words")

    with serving(application(Mute()), loop) as served, served.connect() as client:
        assert client.ask(request("GET", "/echo/nothing")).status == 500


# --- authentication ---


def test_everything_but_public_routes_is_authenticated(loop: str) -> None:
    def at_once(request: Request) -> Principal:
        if request.header(b"authorization") != b"Bearer good":
            raise Unauthenticated("who are you?")
        return ADMIN

    async def later(request: Request) -> Principal:
        await asyncio.sleep(0.01)
        return at_once(request)

    for authenticate in (at_once, later):
        echo = Echo()
        with (
            serving(application(echo, authenticate=authenticate), loop) as served,
            served.connect() as client,
        ):
            refused = client.ask(request("POST", "/echo/body", b"x"))
            assert (refused.status, refused.json()["face"]) == (401, "echo")
            assert client.ask(request("POST", "/echo/open", b"x")).status == 200
            for path in ("/echo/body", "/echo/coroutine", "/echo/future"):
                answer = client.ask(request("POST", path, b"x", "Authorization: Bearer good"))
                assert (answer.status, answer.body) == (200, b"x")
            assert [seen.principal for seen in echo.seen] == [None, ADMIN]
