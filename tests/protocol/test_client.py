"""Both clients against a real server, and against a network that loses answers."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import uuid
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from inver import errors
from inver.client import AsyncClient, Client, Policy, Unreachable, connect, connect_async, securable
from inver.client.types import Event
from tests.fixtures.server import InverServer, running_inver

QUICK = Policy(attempts=4, first_wait=0.01)


@pytest.fixture
def client(shared_inver: InverServer) -> Iterator[Client]:
    with Client(shared_inver.url, shared_inver.token) as client:
        yield client


@pytest.fixture
def catalog(client: Client) -> str:
    """The name of a new catalog with one schema `s`."""
    name = f"c{uuid.uuid4().hex[:12]}"
    client.create_catalog(name)
    client.create_schema([name, "s"])
    return name


def commit(name: str, version: int) -> dict[str, object]:
    return {
        "op": "commit",
        "table": {"name": name.split(".")},
        "version": version,
        "token": str(uuid.uuid4()),
    }


class Proxy:
    """A TCP relay in front of a server. It can lose answers, or end connections after each answer."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lose = 0
        self.connections = 0
        self.requests = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            while request := _message(client):
                self.requests += 1
                server.sendall(request)
                answer = _message(server)
                if self.lose:
                    self.lose -= 1
                    return
                client.sendall(answer)

    def close(self) -> None:
        self._listener.close()


def _message(sock: socket.socket) -> bytes:
    """One whole request or answer; empty at the end of the connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = sock.recv(1 << 16)
        if not piece:
            return b""
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    missing = (int(length[1]) if length else 0) - len(body)
    while missing > 0:
        piece = sock.recv(missing)
        missing -= len(piece)
        received += piece
    return received


@pytest.fixture
def proxy(shared_inver: InverServer) -> Iterator[Proxy]:
    proxy = Proxy(shared_inver.url)
    yield proxy
    proxy.close()


# --- operations ---


def test_catalogs(client: Client) -> None:
    name = f"c{uuid.uuid4().hex[:12]}"
    made = client.create_catalog(name, comment="first", properties={"a": "1"})
    assert (made.name, made.comment, made.properties) == (name, "first", {"a": "1"})
    assert client.catalog(name.upper()) == made
    changed = client.alter_catalog(name, comment=None, if_match=made.etag)
    assert (changed.comment, changed.properties) == (None, {"a": "1"})
    with pytest.raises(errors.Conflict):
        client.alter_catalog(name, comment="late", if_match=made.etag)
    assert name in [found.name for found in client.catalogs(page_size=2)]
    renamed = client.alter_catalog(name, new_name=name + "x")
    assert (renamed.id, renamed.name) == (made.id, name + "x")
    name = renamed.name
    client.delete_catalog(name)
    with pytest.raises(errors.NotFound):
        client.catalog(name)


def test_schemas(client: Client, catalog: str) -> None:
    client.create_schema([catalog, "s", "a.b"])
    assert [found.path for found in client.schemas(catalog)] == [["s"]]
    assert [found.path for found in client.schemas([catalog, "s"])] == [["s", "a.b"]]
    assert client.schema(f"{catalog}.s.`a.b`").name == "a.b"
    assert client.alter_schema([catalog, "s"], properties={"k": "v"}).properties == {"k": "v"}
    with pytest.raises(errors.NotEmpty):
        client.delete_schema([catalog, "s"])
    assert client.alter_schema([catalog, "s", "a.b"], new_name="c.d").path == ["s", "c.d"]
    client.delete_schema([catalog, "s", "c.d"])


def test_tables(client: Client, catalog: str) -> None:
    name = f"{catalog}.s.t"
    made = client.create_table(name, "iceberg", comment="x", columns=[{"name": "id", "type": "long"}])
    assert (made.full_name, made.format, made.version) == ([catalog, "s", "t"], "ICEBERG", 0)
    assert client.table_by_id(made.id) == client.table(name)
    changed = client.alter_table(name, properties={"k": "v"}, if_match=made.etag)
    assert changed.properties == {"k": "v"}
    assert changed.comment == "x"
    renamed = client.rename_table(name, [catalog, "s", "u"])
    assert (renamed.id, renamed.name) == (made.id, "u")
    client.drop_table([catalog, "s", "u"])
    assert [found.id for found in client.dropped_tables([catalog, "s"])] == [made.id]
    back = client.undrop_table(made.id, name)
    assert back.full_name == [catalog, "s", "t"]
    assert [found.name for found in client.tables([catalog, "s"])] == ["t"]


def test_external_tables(client: Client, catalog: str, shared_inver: InverServer) -> None:
    place = shared_inver.home.with_name("external") / catalog
    made = client.create_table(f"{catalog}.s.e", "delta", location=str(place), version=3)
    assert (made.kind, made.version, Path(made.location)) == ("EXTERNAL", 3, place)


def test_transactions_and_history(client: Client, catalog: str) -> None:
    name = f"{catalog}.s.t"
    made = client.create_table(name, "delta")
    receipt = client.transact([commit(name, 1)])
    assert [(result.id, result.version) for result in receipt.results] == [(made.id, 1)]
    assert receipt.replayed is False
    info = client.transaction(receipt.transaction)
    assert [event.type for event in info.events] == ["io.inver.table.committed.v1"]
    client.transact([commit(name, 2)])
    assert [found.version for found in client.history(name, first=1, last=2)] == [2, 1]
    assert [found.version for found in client.history(name, limit=1)] == [2]
    with pytest.raises(errors.Conflict) as caught:
        client.transact([commit(name, 2)])
    assert caught.value.conflicts[0].winner is not None


def test_cursors(client: Client) -> None:
    name = f"flow-{uuid.uuid4()}"
    with pytest.raises(errors.NotFound):
        client.cursor(name)
    client.transact([{"op": "move-cursor", "cursor": name, "expect": None, "value": "17"}])
    assert client.cursor(name).value == "17"


def test_lists_go_over_pages(client: Client, catalog: str) -> None:
    names = [f"t{number}" for number in range(7)]
    client.transact(
        [{"op": "create-table", "name": [catalog, "s", name], "format": "DELTA"} for name in names]
    )
    assert [found.name for found in client.tables([catalog, "s"], page_size=3)] == names


def test_events_are_read_and_followed(client: Client, catalog: str) -> None:
    def names(events: Iterator[Event]) -> Iterator[str]:
        return (event.data["name"] for event in events if event.type == "io.inver.table.created.v1")

    start = client.info().last_event
    client.create_table(f"{catalog}.s.t", "lance")
    assert list(names(client.events(start, page_size=1))) == ["t"]
    later = threading.Timer(0.3, lambda: client.create_table(f"{catalog}.s.u", "lance"))
    later.start()
    assert list(islice(names(client.events(start, follow=True)), 2)) == ["t", "u"]
    later.join()


def test_identity(client: Client) -> None:
    user, group = (f"p{uuid.uuid4().hex[:12]}" for _ in range(2))
    assert client.whoami().name == "admin"
    client.create_principal(user, comment="a person")
    client.create_principal(group, "group")
    client.add_member(group, user)
    assert [member.name for member in client.members(group)] == [user]
    assert client.principal(user).groups == [group]
    assert client.principal(group).members == [user]
    assert user in [found.name for found in client.principals(kind="user", page_size=2)]
    assert client.alter_principal(user, disabled=True).disabled is True
    client.alter_principal(user, disabled=False)
    client.remove_member(group, user)
    client.delete_principal(group)
    client.delete_principal(user)
    with pytest.raises(errors.NotFound):
        client.principal(user)


def test_tokens(client: Client, shared_inver: InverServer) -> None:
    name = f"p{uuid.uuid4().hex[:12]}"
    client.create_principal(name, "service")
    made = client.create_token(name, label="test", scope="read", expires_in_s=60)
    with Client(shared_inver.url, made.token) as other:
        assert other.whoami().name == name
    assert [(found.label, found.scope) for found in client.tokens(name)] == [("test", "read")]
    client.revoke_token(made.id)
    with Client(shared_inver.url, made.token) as other, pytest.raises(errors.Unauthenticated):
        other.whoami()


def test_client_secrets(client: Client, shared_inver: InverServer) -> None:
    name = f"p{uuid.uuid4().hex[:12]}"
    client.create_principal(name, "service")
    made = client.create_secret(name, label="airflow")
    with Client(shared_inver.url) as nobody:
        access = nobody.access_token(made.client_id, made.client_secret)
    with Client(shared_inver.url, access.access_token) as service:
        assert service.whoami().name == name
    assert [found.label for found in client.secrets(name)] == ["airflow"]
    client.revoke_secret(name, made.id)
    assert all(found.revoked_at for found in client.secrets(name))


def test_grants(client: Client, catalog: str, shared_inver: InverServer) -> None:
    name = f"p{uuid.uuid4().hex[:12]}"
    client.create_principal(name)
    client.create_table(f"{catalog}.s.t", "delta")
    table = securable(f"{catalog}.s.t")
    assert client.explain(name, "read", table).allowed is False
    client.grant(name, ["USE CATALOG"], securable(catalog))
    client.grant(name, ["USE SCHEMA", "SELECT"], securable([catalog, "s"]))
    explained = client.explain(name, "read", table)
    assert (explained.allowed, explained.missing) == (True, [])
    held = [(item.privilege, item.securable.name) for item in client.grants(principal=name)]
    assert sorted(held) == [
        ("SELECT", [catalog, "s"]),
        ("USE CATALOG", [catalog]),
        ("USE SCHEMA", [catalog, "s"]),
    ]
    assert [item.privilege for item in client.revoke(name, ["SELECT"], securable([catalog, "s"]))] == [
        "USE SCHEMA"
    ]
    with Client(shared_inver.url, client.create_token(name).token) as other, pytest.raises(errors.Forbidden):
        other.create_schema([catalog, "more"])


def test_search(client: Client, catalog: str) -> None:
    word = f"w{uuid.uuid4().hex[:12]}"
    client.create_table(f"{catalog}.s.{word}", "delta")
    client.create_table(f"{catalog}.s.t", "delta", columns=[{"name": f"{word}_id"}])
    found = list(client.search(word, page_size=1))
    assert {(hit.name[-1], hit.matched) for hit in found} == {(word, "name"), ("t", "column")}


def test_the_doctor(client: Client) -> None:
    found = client.doctor()
    assert [check for check in found.checks if check.status == "failed"] == []
    assert found.healthy


# --- errors ---


def test_errors_come_back_as_they_were_raised(
    client: Client, catalog: str, shared_inver: InverServer
) -> None:
    with pytest.raises(errors.Invalid) as caught:
        client.create_table(f"{catalog}.s.t", "delta", location="relative")
    assert str(caught.value.field).endswith("location")
    assert caught.value.fix is not None
    assert getattr(caught.value, "request_id", None)
    with pytest.raises(errors.AlreadyExists):
        client.create_principal("admin")
    with Client(shared_inver.url, "inver_pat_x_y") as stranger, pytest.raises(errors.Unauthenticated):
        stranger.info()


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with Client(f"http://127.0.0.1:{port}", policy=QUICK) as client, pytest.raises(Unreachable):
            client.info()


def test_a_name_that_does_not_resolve() -> None:
    with (
        Client("http://no.such.host.invalid", policy=Policy(attempts=1)) as client,
        pytest.raises(Unreachable),
    ):
        client.info()


# --- lost answers ---


def test_a_lost_answer_is_replayed(
    shared_inver: InverServer, proxy: Proxy, client: Client, catalog: str
) -> None:
    name = f"{catalog}.s.t"
    client.create_table(name, "delta")
    with Client(proxy.url, shared_inver.token, policy=QUICK) as shaky:
        proxy.lose = 2
        receipt = shaky.transact([commit(name, 1)])
        assert receipt.replayed is True
        assert receipt.results[0].version == 1
        assert proxy.requests == 3
        proxy.lose = 1
        assert shaky.create_table(f"{catalog}.s.u", "lance").name == "u"
        proxy.lose = 1
        shaky.drop_table(f"{catalog}.s.u")
    assert client.table(name).version == 1
    assert len(client.history(name)) == 1


def test_a_change_without_a_key_is_sent_once(shared_inver: InverServer, proxy: Proxy, client: Client) -> None:
    name = f"c{uuid.uuid4().hex[:12]}"
    with Client(proxy.url, shared_inver.token, policy=QUICK) as shaky:
        proxy.lose = 1
        with pytest.raises(errors.OutcomeUnknown):
            shaky.create_catalog(name)
    assert proxy.requests == 1
    assert client.catalog(name).name == name


def test_connections_are_kept(shared_inver: InverServer, proxy: Proxy) -> None:
    with Client(proxy.url, shared_inver.token) as client:
        for _ in range(5):
            client.info()
        assert (proxy.connections, proxy.requests) == (1, 5)


def test_a_connection_that_the_server_ended_is_not_used(tmp_path: Path) -> None:
    """A change without a key must not be lost to a connection that was gone before it was sent."""
    with (
        running_inver(tmp_path / "home") as server,
        Client(server.url, server.token, policy=Policy(attempts=1)) as client,
    ):
        client.info()
        server.stop()
        server.arguments = ("--port", server.url.rpartition(":")[2])
        server.start()
        client.create_catalog("main")


def test_threads_share_a_client(client: Client) -> None:
    failures: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(20):
                assert client.info().name == "inver"
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# --- on an event loop ---


async def test_the_same_operations_awaited(shared_inver: InverServer) -> None:
    name = f"c{uuid.uuid4().hex[:12]}"
    async with AsyncClient(shared_inver.url, shared_inver.token) as client:
        await client.create_catalog(name)
        await client.create_schema([name, "s"])
        await asyncio.gather(*(client.create_table([name, "s", f"t{n}"], "delta") for n in range(5)))
        found = [item.name async for item in client.tables([name, "s"], page_size=2)]
        assert found == [f"t{n}" for n in range(5)]
        with pytest.raises(errors.NotEmpty):
            await client.delete_catalog(name)
        receipt = await client.transact([commit(f"{name}.s.t0", 1)])
        assert (await client.transaction(receipt.transaction)).by
        with pytest.raises(errors.Conflict):
            await client.transact([commit(f"{name}.s.t0", 1)])


async def test_events_are_followed_on_an_event_loop(shared_inver: InverServer) -> None:
    name = f"c{uuid.uuid4().hex[:12]}"
    async with AsyncClient(shared_inver.url, shared_inver.token) as client:
        start = (await client.info()).last_event
        later = asyncio.get_running_loop().call_later(
            0.2, lambda: waiting.append(asyncio.ensure_future(make()))
        )
        waiting: list[asyncio.Future[None]] = []

        async def make() -> None:
            await client.create_catalog(name)

        async for event in client.events(start, follow=True):
            if event.data.get("name") == name:
                break
        later.cancel()
        await asyncio.gather(*waiting)


async def test_a_lost_answer_is_replayed_on_an_event_loop(
    shared_inver: InverServer, proxy: Proxy, client: Client, catalog: str
) -> None:
    name = f"{catalog}.s.t"
    client.create_table(name, "delta")
    async with AsyncClient(proxy.url, shared_inver.token, policy=QUICK) as shaky:
        proxy.lose = 1
        receipt = await shaky.transact([commit(name, 1)])
        assert receipt.replayed is True
        assert (await shaky.table(name)).version == 1
        assert proxy.connections == 2


async def test_nobody_there_on_an_event_loop() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        async with AsyncClient(f"http://127.0.0.1:{port}", policy=QUICK) as client:
            with pytest.raises(Unreachable):
                await client.info()


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5\r\nthree\r\n3;x=y\r\n an\r\n0\r\nTrailer: 1\r\n\r\n",
            b"three an",
        ),
        (b"HTTP/1.0 200 OK\r\n\r\nall until the end", b"all until the end"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
    ],
)
async def test_every_framing_of_an_answer_is_read(answer: bytes, body: bytes) -> None:
    from inver.client.core import Request
    from inver.client.streams import Streams
    from inver.client.transport import Address

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        streams = Streams(Address.parse(f"http://127.0.0.1:{port}"))
        response = await streams.send(Request("GET", "/", {}, None, 5.0))
        await streams.close()
    assert response.body == body


# --- finding the server ---


async def test_a_home_folder_is_enough(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running_inver(home) as server:
        with connect(home=home) as client:
            assert client.url == server.url
            assert client.whoami().name == "admin"
        async with connect_async(home=home) as other:
            assert (await other.whoami()).name == "admin"
        assert server.stop() == 0
        assert not (home / "server.json").exists()
        with pytest.raises(Unreachable):
            connect(home=home)
