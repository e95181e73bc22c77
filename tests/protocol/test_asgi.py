"""The same application, hosted by whoever speaks ASGI."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from inver.protocols.http import Face
from inver.server.application import Application
from inver.server.asgi import Asgi
from inver.server.health import Livez, Metrics, Readyz
from inver.server.limits import Limits
from inver.server.router import Router
from inver.server.telemetry import Telemetry
from tests.fixtures.http import Echo, Plain, application


def ask(app: Application, method: str, path: str, **options: Any) -> httpx.Response:
    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(Asgi(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **options)

    return asyncio.run(run())


def test_requests_are_answered() -> None:
    app = application()
    for path in ("/echo/body", "/echo/coroutine", "/echo/future"):
        answer = ask(app, "POST", path, content=b"hello", headers={"X-Request-Id": "abc"})
        assert (answer.status_code, answer.content) == (200, b"hello")
        assert (answer.headers["x-request-id"], answer.headers["content-length"]) == ("abc", "5")


def test_names_are_decoded_once() -> None:
    assert ask(application(), "GET", "/echo/names/a%2Fb/c+d?x=y").json() == ["a/b", "c d"]


def test_a_server_without_raw_paths_is_good_enough() -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "GET", "path": "/echo/names/ä/b c", "headers": []}
    asyncio.run(Asgi(application())(scope, receive, send))
    assert sent[1]["body"] == b'["\\u00e4", "b c"]'


def test_streams_are_streamed() -> None:
    assert ask(application(), "GET", "/echo/stream").content == b"onetwothree"
    assert ask(application(), "HEAD", "/echo/stream").content == b""
    assert ask(application(), "GET", "/echo/stream-fails").status_code == 404


def test_head_and_no_content_have_no_body() -> None:
    head = ask(application(), "HEAD", "/echo/body", content=b"12345")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "5", b"")
    none = ask(application(), "GET", "/echo/none")
    assert (none.status_code, "content-length" in none.headers) == (204, False)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"content": b"x" * 101}, 413),
        ({"content": gzip.compress(b"x" * 101), "headers": {"Content-Encoding": "gzip"}}, 413),
        ({"content": b"x", "headers": {"Content-Encoding": "br"}}, 415),
        ({"content": b"[" * 70}, 400),
        ({"headers": {"X-Large": "x" * 500}}, 431),
        ({"params": {"x": "y" * 200}}, 414),
    ],
)
def test_the_limits_are_the_same(options: dict[str, Any], status: int) -> None:
    limits = Limits(body=100, head=400, url=100)
    answer = ask(application(limits=limits), "POST", "/echo/body", **options)
    assert (answer.status_code, answer.json()["face"]) == (status, "echo")


def test_the_time_limit_is_the_same() -> None:
    answer = ask(application(limits=Limits(request_time=0.05)), "POST", "/echo/wait")
    assert (answer.status_code, answer.json()["error"]) == (504, "OutcomeUnknown")


def test_lifespan_is_passed_through() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def life() -> AsyncIterator[None]:
        seen.append("up")
        yield
        seen.append("down")

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "lifespan"}

    async def send(event: MutableMapping[str, Any]) -> None:
        seen.append(event["type"])

    asyncio.run(Asgi(application(), life)({"type": "lifespan"}, receive, send))
    assert seen == ["up", "lifespan.startup.complete", "down", "lifespan.shutdown.complete"]


def test_a_lifespan_that_fails_says_so() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def life() -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "lifespan"}

    async def send(event: MutableMapping[str, Any]) -> None:
        seen.append(event["type"])

    with pytest.raises(RuntimeError, match="no database"):
        asyncio.run(Asgi(application(), life)({"type": "lifespan"}, receive, send))
    assert seen == ["lifespan.startup.failed"]


# --- probes and metrics ---


def probes(**checks: Any) -> Application:
    telemetry = Telemetry()
    faces: list[Face] = [Echo(), Livez(), Readyz(checks, patience_s=0.1), Metrics(telemetry)]
    app = Application(Router(faces, Plain("default", ())), lambda request: pytest.fail("probes are public"))
    telemetry.watch(app.meters)
    telemetry.gauge("inver_things", 'How many "things"\nthere are.', lambda: 3, {"kind": 'a"b\\c\n'})
    telemetry.gauge("inver_broken", "A number that cannot be read.", lambda: 1 / 0)
    telemetry.counter("inver_done_total", "What was done.", lambda: 7)
    return app


async def good() -> None:
    return None


async def bad() -> None:
    raise ConnectionError("postgres://user:secret@host")


async def stuck() -> None:
    await asyncio.sleep(60)


def test_livez_asks_nobody() -> None:
    answer = ask(probes(store=bad), "GET", "/livez")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


def test_readyz_names_what_is_missing_and_no_more() -> None:
    assert ask(probes(store=good), "GET", "/readyz").json() == {"status": "ready", "checks": {"store": "ok"}}
    answer = ask(probes(store=good, files=bad, queue=stuck), "GET", "/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {"store": "ok", "files": "ConnectionError", "queue": "TimeoutError"}
    assert "secret" not in answer.text


def test_probes_render_their_own_errors() -> None:
    assert ask(probes(), "POST", "/livez").json()["error"]["code"] == 405
    assert ask(probes(), "GET", "/readyz/deeper").json()["error"]["code"] == 404


def test_metrics_are_prometheus_text() -> None:
    app = probes()
    ask(app, "GET", "/livez")
    ask(app, "GET", "/livez")
    ask(app, "GET", "/echo/no-such-path")
    answer = ask(app, "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'inver_http_requests_total{method="GET",route="/livez",status="200"} 2' in lines
    assert 'inver_http_requests_total{method="GET",route="/echo/*",status="404"} 1' in lines
    assert 'inver_http_request_duration_seconds_bucket{method="GET",route="/livez",le="+Inf"} 2' in lines
    assert 'inver_http_request_duration_seconds_count{method="GET",route="/livez"} 2' in lines
    assert "# TYPE inver_things gauge" in lines
    assert '# HELP inver_things How many "things"\\nthere are.' in lines
    assert 'inver_things{kind="a\\"b\\\\c\\n"} 3.0' in lines
    assert "inver_broken NaN" in lines
    assert "inver_done_total 7.0" in lines
    assert "no-such-path" not in answer.text


def test_two_applications_are_one_series() -> None:
    telemetry = Telemetry()
    apps = [probes(), probes()]
    for app in apps:
        telemetry.watch(app.meters)
        ask(app, "GET", "/livez")
    shown = telemetry.render().decode()
    assert 'inver_http_requests_total{method="GET",route="/livez",status="200"} 2\n' in shown
    assert shown.count('_count{method="GET",route="/livez"}') == 1


def test_a_metric_is_registered_once_and_well_named() -> None:
    telemetry = Telemetry()
    telemetry.gauge("inver_x", "x", lambda: 1, {"a": "1"})
    telemetry.gauge("inver_x", "x", lambda: 1, {"a": "2"})
    for name, labels in (("inver_x", {"a": "1"}), ("bad name", {}), ("inver_y", {"bad-label": "1"})):
        with pytest.raises(ValueError, match=name):
            telemetry.gauge(name, "x", lambda: 1, labels)
    with pytest.raises(ValueError, match="twice"):
        telemetry.counter("inver_x", "x", lambda: 1, {"a": "3"})
