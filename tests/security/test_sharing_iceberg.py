"""What a recipient of an Iceberg table cannot reach. Tests are named by the ids of the attack list.

Manifests are written by others: what they name is not what may be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest

from tests.fixtures.iceberg_sharing import Ice, IcedTable
from tests.fixtures.sharing import DELTA, Provider, provider

__all__ = ["provider"]

SECRET = b"secret of another table"


@pytest.fixture
def ice(provider: Provider) -> Iterator[Ice]:
    made = Ice(provider)
    yield made
    made.close()


@pytest.fixture
def other(ice: Ice) -> IcedTable:
    """A table that is not shared, with a file."""
    table = ice.iced()
    (table.table.folder / "data").mkdir()
    (table.table.folder / "data" / "secret.parquet").write_bytes(SECRET)
    return table


HOSTILE = [
    "{other}/data/secret.parquet",
    "{own}/../{name}/data/secret.parquet",
    "{own}/data/../../{name}/data/secret.parquet",
    "{own}/%2e%2e/{name}/data/secret.parquet",
    "{own}/data/./secret.parquet",
    "{own}//data/secret.parquet",
    "{own}/link/data/secret.parquet",
    "{own}/link.parquet",
    "/etc/passwd",
    "file:///etc/passwd",
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_b11_a_manifest_cannot_lead_out_of_its_table(ice: Ice, other: IcedTable, hostile: str):
    table = ice.iced()
    folder, foreign = table.table.folder, other.table.folder
    os.symlink(foreign, folder / "link")
    os.symlink(foreign / "data" / "secret.parquet", folder / "link.parquet")
    (folder / "data").mkdir()
    (folder / "data" / "good.parquet").write_bytes(b"good")
    path = hostile.format(own=table.location, other=other.location, name=foreign.name)
    table.append("good", table.file("bad") | {"file_path": path})
    guest = table.shared()
    answer = guest.ask("POST", f"{table.name}/query", json={})
    if answer.status_code == 200:
        urls = [line["file"]["url"] for line in guest.lines("POST", f"{table.name}/query", json={})[2:]]
        found = [httpx.get(url) for url in urls]
        assert [each.status_code for each in found].count(200) == 1, "the hostile one was served"
        assert {each.content for each in found if each.status_code == 200} == {b"good"}
    else:
        assert answer.status_code == 400
    assert str(foreign) not in answer.text


def test_b11_deletes_of_another_table_are_not_read(ice: Ice, other: IcedTable):
    table = ice.iced()
    table.append("a")
    table.delete(table.file("d", content=1) | {"file_path": f"{other.location}/data/secret.parquet"})
    guest = table.shared()
    told = guest.refused(400, "POST", f"{table.name}/query", json={}, headers=DELTA)
    assert other.location not in told["message"]
    assert "secret" not in told["message"]


def test_c9_what_is_before_the_shared_versions_stays_hidden(ice: Ice):
    table = ice.iced()
    table.append("gone")
    table.commit([table.writer.manifest([table.file("kept")])], "overwrite", keep=False)
    guest = table.shared(start_version=2)
    path, before = table.name, moment_before(table)
    answers = [
        guest.ask("POST", f"{path}/query", json={"version": 1}),
        guest.ask("POST", f"{path}/query", json={"timestamp": before}),
        guest.ask("POST", f"{path}/query", json={"startingVersion": 1}),
        guest.ask("GET", f"{path}/metadata", params={"version": 1}),
        guest.ask("GET", f"{path}/metadata", params={"timestamp": before}),
        guest.ask("GET", f"{path}/changes", params={"startingVersion": 1}),
        guest.ask("POST", f"{path}/temporary-table-credentials", json={}),
    ]
    assert [answer.status_code for answer in answers] == [400] * 7
    assert not any("gone.parquet" in answer.text for answer in answers)
    assert "kept.parquet" in guest.good("POST", f"{path}/query", json={}).text


def moment_before(table: IcedTable) -> str:
    return datetime.fromtimestamp(table.times[1] / 1000, UTC).isoformat().replace("+00:00", "Z")


def test_c18_a_table_that_is_not_shared_is_told_like_one_that_is_not_there(ice: Ice, other: IcedTable):
    table = ice.iced()
    guest = table.shared()
    share, schema, _ = table.name.split(".")
    for rest in ("version", "metadata", "changes?startingVersion=0"):
        there = guest.get(f"{share}.{schema}.{other.short}/{rest}")
        absent = guest.get(f"{share}.{schema}.nothing/{rest}")
        assert there.status_code == absent.status_code == 404
        assert there.text.replace(other.short, "nothing") == absent.text


def test_c17_urls_end_with_the_share(ice: Ice, provider: Provider):
    table = ice.iced()
    (table.table.folder / "data").mkdir()
    (table.table.folder / "data" / "a.parquet").write_bytes(b"rows")
    table.append("a")
    guest = table.shared()
    (url,) = [line["file"]["url"] for line in guest.lines("POST", f"{table.name}/query", json={})[2:]]
    assert httpx.get(url).content == b"rows"
    share = table.name.partition(".")[0]
    provider.ok("DELETE", f"/shares/{share}/schemas/sales/tables/{table.short}")
    assert httpx.get(url).status_code == 403
