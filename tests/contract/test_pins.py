"""Who still needs a table as it was, asked of each store."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from inver.domain import ledger
from inver.domain import shares as sh
from inver.domain.care import Pin
from inver.domain.delta import DeltaHead, Uniform
from inver.domain.tables import Format
from inver.ids import new_id
from inver.services.maintenance.pins import Pins
from inver.storage.local import LocalStore
from tests.fixtures.ledger import Book, append

pytestmark = pytest.mark.anyio


async def pins(book: Book, table_id: str) -> set[Pin]:
    return set(await Pins(book.store, LocalStore).of(await book.table(table_id)))


async def share(book: Book, name: str, kind: sh.ItemKind, securable: str, **fields: object) -> str:
    share_id = new_id()
    item = sh.ShareItem(
        id=new_id(),
        share_id=share_id,
        kind=kind,
        securable_id=securable,
        schema_name="sales",
        table_name="orders" if kind is sh.ItemKind.TABLE else None,
        **fields,  # type: ignore[arg-type]
    )
    await book.decide(sh.CreateShare(id=share_id, name=name), sh.AddToShare(item=item))
    return share_id


async def test_a_table_that_nobody_looks_back_at(book):
    table, other = await book.create_table(), await book.create_table("other")
    await share(book, "out", sh.ItemKind.TABLE, other)
    await book.decide(ledger.MoveCursor(name=f"flow/{other}", expect=None, value="3"))
    assert await pins(book, table) == set()


async def test_shares_with_a_history(book):
    table = await book.create_table()
    out = await share(book, "out", sh.ItemKind.TABLE, table, start_version=4)
    await share(book, "now", sh.ItemKind.TABLE, table, history=False)
    await share(book, "all", sh.ItemKind.SCHEMA, book.schema)
    assert await pins(book, table) == {Pin(reason="share out", version=4), Pin(reason="share all", version=0)}
    await book.decide(sh.DropShare(id=out))
    assert await pins(book, table) == {Pin(reason="share all", version=0)}


async def test_cursors_that_name_the_table(book):
    table = await book.create_table()
    name = f"flow/{table}/to-lance"
    await book.decide(
        ledger.MoveCursor(name=name, expect=None, value="7"),
        ledger.MoveCursor(name=f"{table}%_", expect=None, value="yesterday"),
        ledger.MoveCursor(name="orders", expect=None, value="1"),
    )
    unclear = Pin(reason=f"cursor {table}%_, whose value is no version", version=0)
    assert await pins(book, table) == {Pin(reason=f"cursor {name}", version=7), unclear}
    await book.decide(ledger.MoveCursor(name=name, expect="7", value=None))
    assert await pins(book, table) == {unclear}


@pytest.mark.parametrize(("base", "version"), [(None, 5), (3, 3)])
async def test_iceberg_metadata_of_a_delta_table(book, base, version):
    head = DeltaHead(uniform=Uniform("s3://b/metadata/v1.metadata.json", 5, 1, base))
    table = await book.create_table(head=msgspec.json.encode(head))
    assert await pins(book, table) == {Pin(reason="Iceberg metadata", version=version)}


async def test_tags_and_branches_of_an_iceberg_table(book):
    head = {
        "kind": "table",
        "format-version": 2,
        "uuid": "u",
        "location": "s3://b/t",
        "refs": {
            "main": {"snapshot-id": 3, "type": "branch"},
            "audit": {"snapshot-id": 2, "type": "branch"},
            "eoy": {"snapshot-id": 1, "type": "tag"},
        },
    }
    table = await book.create_table(format=Format.ICEBERG, head=msgspec.json.encode(head))
    parts = tuple(
        ledger.Part(
            "snapshot",
            str(number),
            number,
            b'{"snapshot-id":%d,"timestamp-ms":1,"sequence-number":%d}' % (number, number + 10),
        )
        for number in (1, 2, 3)
    )
    await book.decide(append(table, 1, head=msgspec.json.encode(head), parts=parts))
    assert await pins(book, table) == {
        Pin(reason="branch audit at snapshot 2", version=12, alone=True),
        Pin(reason="tag eoy at snapshot 1", version=11, alone=True),
    }


async def test_tags_and_branches_of_a_lance_table(book, tmp_path: Path):
    folder = tmp_path / "lance"
    table = await book.create_table(format=Format.LANCE, location=str(folder), version=0)
    await book.decide(append(table, 1), append(table, 2))
    await book.decide(ledger.CreateBranch(table_id=table, branch="dev", version=1))
    assert await pins(book, table) == {Pin(reason="branch dev", version=1, alone=True)}
    tags = folder / "_refs" / "tags"
    tags.mkdir(parents=True)
    (tags / "v1.json").write_text('{"branch": null, "version": 2, "manifestSize": 7}')
    (tags / "odd.json").write_text("{")
    assert await pins(book, table) == {
        Pin(reason="branch dev", version=1, alone=True),
        Pin(reason="tag v1", version=2, alone=True),
        Pin(reason="tag odd, which cannot be read", version=0),
    }
