"""Object stores that fail: what was surely not written, what surely was, and what nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest

from inver.domain.locations import Location
from inver.errors import Broken, Invalid, NotFound, OutcomeUnknown, Unavailable
from inver.secrets import Secret
from inver.storage.objects import RemoteStore
from inver.storage.options import StorageOptions
from tests.fixtures.network import CONFLICT, DENIED, FAILURE, Network, running_network

pytestmark = pytest.mark.s3


@pytest.fixture
def network(s3_server) -> Iterator[Network]:
    with running_network(s3_server.port) as network:
        yield network


def open_remote(server, endpoint: str, **changed) -> RemoteStore:
    options = {
        "access_key": server.access_key,
        "secret_key": Secret(server.secret_key),
        "region": server.region,
    }
    root = Location.parse(f"s3://{server.bucket}/{uuid4()}")
    return RemoteStore(root, StorageOptions(endpoint=endpoint, allow_http=True, **{**options, **changed}))


@pytest.fixture
def store(s3_server, network) -> RemoteStore:
    return open_remote(s3_server, f"http://127.0.0.1:{network.port}")


@pytest.mark.parametrize("answer", [FAILURE, b""], ids=["failure", "cut line"])
def test_a_write_whose_success_got_lost_is_not_called_a_defeat(store, network, answer):
    network.after = lambda n: answer if n == 1 else None

    async def scenario() -> None:
        with pytest.raises(OutcomeUnknown):
            await store.put_if_absent("log/1", b"mine")
        assert await store.get("log/1") == b"mine"

    asyncio.run(scenario())


def test_a_write_that_never_arrived_is_sent_again(store, network):
    network.before = lambda n: FAILURE if n == 1 else None
    assert asyncio.run(store.put_if_absent("log/1", b"mine")) is True
    assert network.puts == 2


def test_writers_that_only_met_do_not_lose_to_nobody(store, network):
    network.before = lambda n: CONFLICT if n == 1 else None
    assert asyncio.run(store.put_if_absent("log/1", b"mine")) is True


def test_a_conflict_for_ever_is_no_defeat_either(store, network):
    network.before = lambda n: CONFLICT
    with pytest.raises(Unavailable):
        asyncio.run(store.put_if_absent("log/1", b"mine"))


def test_a_store_that_refuses_us_is_not_asked_again(store, network):
    network.before = lambda n: DENIED
    with pytest.raises(Unavailable) as failed:
        asyncio.run(store.put_if_absent("log/1", b"mine"))
    assert failed.value.__cause__ is not None
    assert network.puts == 1


@pytest.mark.parametrize("answer", [FAILURE, CONFLICT], ids=["failure", "conflict"])
def test_a_plain_write_outlives_a_failure(store, network, answer):
    network.before = lambda n: answer if n < 3 else None

    async def scenario() -> None:
        await store.put("a", b"x")
        assert await store.get("a") == b"x"

    asyncio.run(scenario())


@pytest.mark.parametrize("answer", [FAILURE, CONFLICT], ids=["failure", "conflict"])
def test_a_plain_write_that_keeps_failing_is_unavailable(store, network, answer):
    network.before = lambda n: answer
    with pytest.raises(Unavailable):
        asyncio.run(store.put("a", b"x"))
    assert network.puts == 4


def test_copies_that_were_made_before_a_failure_count(store, network):
    pairs = [(b"%d" % number, f"log/{number}.json") for number in range(4)]
    network.before = lambda n: FAILURE if n > 2 else None
    assert asyncio.run(store.copy_if_absent(pairs)) == 2
    with pytest.raises(OutcomeUnknown):
        asyncio.run(store.copy_if_absent(pairs[2:]))
    network.before = lambda n: None
    assert asyncio.run(store.copy_if_absent(pairs)) == 4


def test_wrong_keys_are_unavailable_and_not_absent(s3_server):
    store = open_remote(s3_server, s3_server.endpoint, secret_key=Secret("wrong-secret-key"))

    async def listing() -> list[str]:
        return [info.path async for info in store.list()]

    for work in (store.get("a"), store.put("a", b""), store.head("a"), store.get_range("a", 0, 1), listing()):
        with pytest.raises(Unavailable) as failed:
            asyncio.run(work)
        assert "wrong-secret-key" not in repr(failed.value.__cause__)


def test_an_object_that_vanishes_is_not_found_by_its_range(s3_server):
    with pytest.raises(NotFound):
        asyncio.run(open_remote(s3_server, s3_server.endpoint).get_range("a", 10, 10))


def test_the_environment_does_not_mix_with_the_options(s3_server, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of somebody else")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    store = open_remote(s3_server, s3_server.endpoint)

    async def scenario() -> None:
        await store.put("a", b"x")
        assert await store.get("a") == b"x"

    asyncio.run(scenario())


def test_a_session_token_is_sent(s3_server):
    store = open_remote(s3_server, s3_server.endpoint, session_token=Secret("not issued by anybody"))
    with pytest.raises(Unavailable):
        asyncio.run(store.head("a"))


def test_keys_that_no_path_can_name(s3_server):
    store = open_remote(s3_server, s3_server.endpoint)
    folder = s3_server.folder / s3_server.bucket / store.root.key

    async def listing() -> list[str]:
        return [info.path async for info in store.list()]

    asyncio.run(store.put("good", b"x"))
    (folder / "back\\slash").write_bytes(b"x")
    assert asyncio.run(listing()) == ["good"]
    (folder / "tab\tulator").write_bytes(b"x")
    with pytest.raises(Broken):
        asyncio.run(listing())


@pytest.mark.parametrize("given", [{"access_key": None}, {"secret_key": None}, {"endpoint": "ftp://x"}])
def test_options_that_do_not_fit_together_are_refused(given):
    options = {"access_key": "a", "secret_key": Secret("b"), "endpoint": "https://x"}
    with pytest.raises(Invalid):
        StorageOptions(**{**options, **given})
