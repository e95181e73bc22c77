"""A managed Delta table on S3, from its first commit to its end, while writes fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from inver.domain.delta import CommitInfo
from inver.domain.ledger import Receipt
from inver.domain.locations import Location
from inver.errors import Broken, Conflict, OutcomeUnknown
from inver.ports import ObjectStore
from inver.secrets import Secret
from inver.services import intents as ask
from inver.services.names import TableRef
from inver.storage.objects import RemoteStore
from inver.storage.options import StorageOptions
from tests.fixtures.lake import Lake, staged_lake
from tests.fixtures.ledger import HOLD_MS, Book, as_admin, build_services, change, outcomes
from tests.fixtures.network import FAILURE, Network, running_network
from tests.fixtures.s3 import S3Server

pytestmark = pytest.mark.s3


class Bucket:
    def __init__(self, server: S3Server, network: Network) -> None:
        self._bucket = server.bucket
        self._options = StorageOptions(
            endpoint=f"http://127.0.0.1:{network.port}",
            allow_http=True,
            access_key=server.access_key,
            secret_key=Secret(server.secret_key),
            region=server.region,
        )

    def open(self, location: Location) -> ObjectStore:
        """The folder of the same name in the bucket."""
        name = location.text.rstrip("/").rpartition("/")[2]
        return RemoteStore(Location.parse(f"s3://{self._bucket}/{name}"), self._options)


@pytest.fixture
def network(s3_server: S3Server) -> Iterator[Network]:
    with running_network(s3_server.port) as network:
        yield network


async def stage(lake: Lake, objects: ObjectStore, version: int) -> CommitInfo:
    info = lake.stage(version)
    path = f"_delta_log/_staged_commits/{info.file_name}"
    await objects.put(path, (lake.log.parent / path).read_bytes())
    return info


async def test_nothing_of_a_table_is_lost_while_writes_fail(
    book: Book, tmp_path: Path, s3_server: S3Server, network: Network
):
    bucket = Bucket(s3_server, network)
    services = build_services(book.store, book.clock, tmp_path, open_objects=bucket.open)
    lake, new = await staged_lake(book, services)
    objects = bucket.open(Location.parse(lake.location))
    first = f"_delta_log/{0:020d}.json"
    await objects.put(first, (lake.log.parent / first).read_bytes())
    await as_admin(book.store, lambda caller: services.delta.create(caller, new))
    won: dict[int, CommitInfo] = {}
    for version in range(1, 6):
        infos = [await stage(lake, objects, version) for _ in range(3)]
        answers = await outcomes(*(lake.propose(info) for info in (*infos, *infos)))
        [winner] = {at % 3 for at, each in enumerate(answers) if isinstance(each, Receipt)}
        assert sum(isinstance(each, Receipt) for each in answers) == 2
        assert sum(isinstance(each, Conflict) for each in answers) == 4
        won[version] = infos[winner]

    async def published() -> int:
        return (await book.table(lake.id)).published

    network.before = lambda number: FAILURE
    with pytest.raises(OutcomeUnknown):
        await services.publishing.publish(lake.id)
    assert await published() == 0
    sent = network.puts
    network.before = lambda number: FAILURE if number > sent + 2 else None
    with pytest.raises(OutcomeUnknown):
        await services.publishing.publish(lake.id)
    assert await published() == 2
    network.before = lambda number: None
    foreign = f"_delta_log/{4:020d}.json"
    await objects.put(foreign, b"{}\n")
    with pytest.raises(Broken, match="is not the commit that was ratified"):
        await services.publishing.publish(lake.id)
    assert await published() == 3
    await objects.delete(foreign)
    # Two servers at once, of which one answer gets lost.
    network.after = lambda number: b"" if number % 2 else None
    other = build_services(book.store, book.clock, tmp_path, open_objects=bucket.open)
    await outcomes(*(each.publishing.publish(lake.id) for each in (services, other)))
    network.after = lambda number: None
    await services.publishing.publish(lake.id)
    assert await published() == 5
    for version, info in won.items():
        staged = await objects.get(f"_delta_log/_staged_commits/{info.file_name}")
        assert await objects.get(f"_delta_log/{version:020d}.json") == staged

    await change(services, book.store, ask.DropTable(table=TableRef(id=lake.id)))
    book.clock.advance(HOLD_MS)
    async with asyncio.timeout(60):
        assert await services.followup.step() == 1
    assert services.followup.failed == 0
    assert [found.path async for found in objects.list()] == []
