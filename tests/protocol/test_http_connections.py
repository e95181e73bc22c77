"""Connections over time: streams, slow and leaving clients, limits on time, stopping."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest

from inver.server.limits import DEFAULTS, Limits
from tests.fixtures.http import Echo, RawClient, Served, application, request, serving
from tests.fixtures.waiting import eventually

SWITCH = ("Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AA", "Upgrade: h2c")


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


class Clock:
    """The server's clock; `ahead` is how far it has been put forward."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in ("http", "listener", "streaming"):
        monkeypatch.setattr(f"inver.server.{module}.monotonic", made)
    return made


# --- streams ---


def test_streams_are_chunked(client: RawClient) -> None:
    answer = client.ask(request("GET", "/echo/stream"))
    assert (answer.header("Transfer-Encoding"), answer.body) == ("chunked", b"onetwothree")
    client.send(request("GET", "/echo/stream") + request("GET", "/echo/body", b"next"))
    assert client.answer().body == b"onetwothree"
    assert client.answer().body == b"next"


@pytest.mark.parametrize("count", [0, 1, 200, 5_000])
def test_what_is_there_in_pieces_is_sent_with_its_length(client: RawClient, count: int) -> None:
    whole = b"".join(bytes([65 + number % 26]) * 1000 for number in range(count))
    target = f"/echo/pieces?count={count}"
    client.send(request("GET", target) + request("GET", "/echo/body", b"next"))
    answer = client.answer()
    assert (answer.header("Content-Length"), answer.body) == (str(len(whole)), whole)
    assert client.answer().body == b"next"
    head = client.ask(request("HEAD", target), method="HEAD")
    assert (head.header("Content-Length"), head.body) == (str(len(whole)), b"")
    last = client.ask(request("GET", target, None, "Connection: close"))
    assert (last.header("Connection"), last.body) == ("close", whole)


def test_http_10_streams_until_the_end(client: RawClient) -> None:
    answer = client.ask(request("GET", "/echo/stream", None, "Connection: keep-alive", version="HTTP/1.0"))
    assert answer.header("Transfer-Encoding") is None
    assert (answer.body, answer.header("Connection")) == (b"onetwothree", "close")


def test_a_stream_that_fails_at_once_is_a_proper_error(client: RawClient) -> None:
    answer = client.ask(request("GET", "/echo/stream-fails"))
    assert (answer.status, answer.json()["error"]) == (404, "NotFound")
    assert client.ask(request("GET", "/echo/body")).status == 200


def test_a_stream_that_breaks_does_not_look_complete(client: RawClient) -> None:
    with pytest.raises((EOFError, ConnectionResetError)):
        client.ask(request("GET", "/echo/stream-breaks"))


def test_a_slow_stream_lives_as_long_as_it_moves(
    client: RawClient, server: Served, echo: Echo, clock: Clock
) -> None:
    assert client.ask(request("GET", "/echo/body")).status == 200
    client.send(request("GET", "/echo/stream-slowly"))
    for piece in (b"a", b"b", b"c", b"d"):
        echo.steps.release()
        client._until(b"1\r\n%b\r\n" % piece)
        clock.ahead += DEFAULTS.idle_time * 2 / 3
        server.sweep(clock())
    client._until(b"0\r\n\r\n")


def test_a_stream_that_no_longer_moves_is_cut(
    client: RawClient, server: Served, echo: Echo, clock: Clock
) -> None:
    echo.steps.release()
    client.send(request("GET", "/echo/stream-slowly"))
    client._until(b"a\r\n")
    eventually(lambda: sweep_later(server, clock))


def sweep_later(server: Served, clock: Clock) -> bool:
    clock.ahead += DEFAULTS.idle_time
    server.sweep(clock())
    return server.listener.connections == 0


def test_a_stream_goes_no_faster_than_its_client(client: RawClient, server: Served, echo: Echo) -> None:
    def stands_still() -> bool:
        before = echo.produced
        server.turn(100)
        return before > 0 and echo.produced == before

    client.send(request("GET", "/echo/endless"))
    eventually(stands_still)  # nobody reads, so nothing is made; else each turn would make a piece
    client.close()
    eventually(lambda: echo.closed == 1)


def test_a_client_that_leaves_stops_the_stream(server: Served, echo: Echo) -> None:
    with server.connect() as client:
        client.send(request("GET", "/echo/endless"))
        client._exactly(1_000_000)
    eventually(lambda: echo.closed == 1)
    eventually(lambda: server.listener.connections == 0)


# --- clients that leave, and clients that are slow ---


def test_a_client_that_leaves_does_not_stop_a_mutation(server: Served, echo: Echo) -> None:
    client = server.connect()
    client.send(request("POST", "/echo/wait", b""))
    eventually(lambda: server.application.in_flight == 1)
    client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    client.close()
    time.sleep(0.1)
    echo.release.set()
    eventually(lambda: echo.finished == 1)
    eventually(lambda: server.listener.connections == 0)


def test_a_client_that_ends_its_side_still_gets_its_answers(client: RawClient) -> None:
    client.send(request("POST", "/echo/coroutine", b"1") + request("POST", "/echo/body", b"2"))
    client.half_close()
    assert [client.answer().body, client.answer().body] == [b"1", b"2"]
    assert client.ended()


@pytest.mark.parametrize(
    ("sent", "face"),
    [
        (b"GET /echo/body HTTP/1.1\r\nHost: x\r\nX-Sl", "echo"),
        (b"PO", "default"),
        (request("POST", "/echo/body", None, "Content-Length: 10") + b"12345", "echo"),
        (request("POST", "/echo/body", None, "Transfer-Encoding: chunked") + b"5\r\n12345\r\n", "echo"),
        (request("POST", "/echo/body", None, "Content-Length: 10", *SWITCH) + b"12345", "echo"),
    ],
)
def test_slow_requests_are_408(loop: str, sent: bytes, face: str) -> None:
    limits = Limits(head_time=0.2, idle_time=0.2)
    with serving(application(limits=limits), loop) as served, served.connect() as client:
        answer = client.ask(sent)
        assert (answer.status, answer.json()["face"]) == (408, face)
        assert client.ended()


def test_a_trickle_does_not_extend_the_time_for_headers(loop: str) -> None:
    limits = Limits(head_time=0.3, head=2**30, headers=2**30)
    with serving(application(limits=limits), loop) as served, served.connect() as client:
        client.send(b"GET /echo/body HTTP/1.1\r\nHost: x\r\n")
        while not client.answered():
            client.send(b"X: y\r\n")
            time.sleep(0.05)
        assert client.answer().status == 408


def test_idle_connections_are_closed(loop: str) -> None:
    with serving(application(limits=Limits(keep_alive=0.2)), loop) as served, served.connect() as client:
        assert client.ask(request("GET", "/echo/body")).status == 200
        assert client.ended()


def test_a_client_that_does_not_read_its_stream_is_dropped(loop: str) -> None:
    echo = Echo()
    limits = Limits(idle_time=0.3)
    with serving(application(echo, limits), loop) as served, served.connect() as client:
        client.send(request("GET", "/echo/endless"))
        eventually(lambda: echo.closed == 1)


@pytest.mark.parametrize(("method", "status"), [("POST", 504), ("GET", 503), ("HEAD", 503)])
def test_handlers_have_a_time_limit(loop: str, method: str, status: int) -> None:
    echo = Echo()
    with serving(application(echo, Limits(request_time=0.2)), loop) as served, served.connect() as client:
        answer = client.ask(request(method, "/echo/wait"), method=method)
        assert answer.status == status
        if method == "POST":
            assert (answer.json()["error"], answer.json()["face"]) == ("OutcomeUnknown", "echo")
        assert client.ask(request("GET", "/echo/body")).status == 200
        assert (echo.finished, served.application.in_flight) == (0, 0)


def test_a_route_may_have_its_own_time_limit(loop: str) -> None:
    echo = Echo()
    with serving(application(echo, Limits(request_time=0.1)), loop) as served, served.connect() as client:
        client.send(request("POST", "/echo/patient", b""))
        eventually(lambda: served.application.in_flight == 1)
        with served.connect() as other:  # one that came later, and has the common limit
            assert other.ask(request("POST", "/echo/wait", b"")).status == 504
        echo.release.set()
        assert client.answer().body == b"waited"


def test_too_many_connections_are_refused(loop: str) -> None:
    with serving(application(limits=Limits(connections=2)), loop) as served:
        first, second = served.connect(), served.connect()
        assert first.ask(request("GET", "/echo/body")).status == 200
        assert second.ask(request("GET", "/echo/body")).status == 200
        with served.connect() as third:
            answer = third.ask(request("GET", "/echo/body"))
            assert (answer.status, answer.json()["error"]) == (503, "Overloaded")
            assert answer.header("Retry-After") == "1"
            assert third.ended()
        first.close()
        eventually(lambda: served.listener.connections == 1)
        with served.connect() as fourth:
            assert fourth.ask(request("GET", "/echo/body")).status == 200
        second.close()


# --- stopping ---


def test_stopping_answers_what_is_in_flight(loop: str) -> None:
    echo = Echo()
    with serving(application(echo), loop) as served:
        idle, busy = served.connect(), served.connect()
        assert idle.ask(request("GET", "/echo/body")).status == 200
        busy.send(request("POST", "/echo/wait", b"") + request("POST", "/echo/body", b"never begun"))
        eventually(lambda: served.application.in_flight == 1)
        stopping = asyncio.run_coroutine_threadsafe(served.listener.stop(10), served.loop)
        assert idle.ended()
        with pytest.raises(ConnectionRefusedError):
            served.connect()
        echo.release.set()
        answer = busy.answer()
        assert (answer.body, answer.header("Connection")) == (b"waited", "close")
        assert busy.ended()
        busy.close()
        idle.close()
        stopping.result(10)
        assert echo.seen[1:] == []


def test_stopping_right_after_a_connect_leaves_nothing_open() -> None:
    """Only on uvloop: asyncio's own server fails an assertion for connections it is just accepting."""
    for _ in range(20):
        with serving(application(), "uvloop") as served, served.connect():
            pass


def test_stopping_waits_no_longer_than_it_was_told(loop: str) -> None:
    echo = Echo()
    with serving(application(echo), loop) as served, served.connect() as client:
        client.send(request("POST", "/echo/wait", b""))
        eventually(lambda: served.application.in_flight == 1)
        served.do(served.listener.stop(0.2))
        assert not echo.release.is_set()
        assert client.answer().json()["error"] == "OutcomeUnknown"
        assert served.listener.connections == 0


# --- counters ---


def test_requests_are_counted_by_template(client: RawClient, server: Served) -> None:
    client.ask(request("GET", "/echo/names/a/b"))
    client.ask(request("GET", "/echo/names/c/d"))
    client.ask(request("POST", "/echo/coroutine", b""))
    client.ask(request("GET", "/echo/secret-path"))
    counted = {
        (meter.method, meter.route): meter.statuses for meter in server.application.meters() if meter.statuses
    }
    assert counted == {
        ("GET", "/echo/names/{a}/{b}"): {200: 2},
        ("POST", "/echo/coroutine"): {200: 1},
        ("GET", "/echo/*"): {404: 1},
    }
