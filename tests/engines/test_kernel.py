"""Delta Kernel's own client of Unity Catalog, in both dialects that it speaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from inver.domain.locations import Location
from tests.fixtures.delta import DeltaTable, new_schema
from tests.fixtures.jvm import JvmMissing, Kernel, running_kernel
from tests.fixtures.lines import Failed
from tests.fixtures.server import InverServer
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kernel(
    server: InverServer, http: httpx.Client, dialect: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kernel]:
    new_schema(http, f"lake.kernel_{dialect}")
    home: Path = tmp_path_factory.mktemp("kernel")
    try:
        with running_kernel(home, server.url, server.token, "lake", f"kernel_{dialect}", dialect) as kernel:
            yield kernel
    except JvmMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def table(kernel: Kernel, http: httpx.Client, dialect: str, request: pytest.FixtureRequest) -> DeltaTable:
    """A table that Kernel has created."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    made = kernel("create", name)
    return DeltaTable(http, f"lake.kernel_{dialect}.{name}", made["id"], made["location"], ())


def short(table: DeltaTable) -> str:
    return table.name.split(".")[2]


def await_published(table: DeltaTable, version: int) -> None:
    eventually(
        lambda: version in table.published and not table.load()["commits"],
        lambda: (table.published, table.load()["commits"]),
    )


def test_a_table_is_created_and_loaded(kernel, table):
    assert kernel("open", "a", short(table)) == 0
    assert kernel("read", "a") == []
    loaded = table.load()
    assert loaded["latest-table-version"] == 0
    assert loaded["metadata"]["table-uuid"] == table.id
    assert loaded["metadata"]["properties"]["delta.feature.catalogManaged"] == "supported"
    assert Path(Location.parse(table.location).local_path).is_dir()


def test_rows_are_inserted_and_read(kernel, table):
    kernel("open", "a", short(table))
    assert kernel("insert", "a", 0, 3, 0) == 1
    assert kernel("open", "a", short(table)) == 1
    assert kernel("insert", "a", 3, 2, 0) == 2
    assert kernel("open", "a", short(table)) == 2
    assert kernel("read", "a") == [0, 1, 2, 3, 4]


def test_an_older_version_is_read(kernel, table):
    for version in range(3):
        kernel("open", "a", short(table))
        kernel("insert", "a", version, 1, 0)
    assert kernel("open", "old", short(table), 2) == 2
    assert kernel("read", "old") == [0, 1]
    with pytest.raises(Failed, match="latest version ratified by UC is 3"):
        kernel("open", "future", short(table), 9)


def test_who_is_not_first_is_told_so(kernel, table):
    kernel("open", "a", short(table))
    kernel("open", "b", short(table))
    assert kernel("insert", "a", 0, 1, 0) == 1
    with pytest.raises(Failed) as refused:
        kernel("insert", "b", 1, 1, 0)
    assert refused.value.kind in ("ConcurrentWriteException", "MaxCommitRetryLimitReachedException")
    assert table.load()["latest-table-version"] == 1


def test_who_is_not_first_rebases_on_what_is_published(kernel, table):
    """Kernel looks for the commit that won in the log itself, and gives up where it is not there yet."""
    kernel("open", "a", short(table))
    kernel("open", "b", short(table))
    assert kernel("insert", "a", 0, 1, 0) == 1
    kernel("open", "a", short(table))
    kernel("publish", "a")
    assert kernel("insert", "b", 1, 1, 5) == 2
    kernel("open", "c", short(table))
    assert kernel("read", "c") == [0, 1]


def test_commits_are_published_and_checkpointed(kernel, table):
    for version in range(3):
        kernel("open", "a", short(table))
        kernel("insert", "a", version, 1, 0)
    kernel("open", "a", short(table))
    assert kernel("publish", "a") == 3
    assert table.published == [0, 1, 2, 3]
    kernel("checkpoint", "a")
    assert list((table.folder / "_delta_log").glob("*.checkpoint*"))
    kernel("open", "b", short(table))
    assert kernel("read", "b") == [0, 1, 2]


def test_the_catalog_publishes_what_its_writer_left(kernel, table):
    kernel("open", "a", short(table))
    assert kernel("insert", "a", 0, 1, 0) == 1
    await_published(table, 1)
    assert table.load()["commits"] == []
    kernel("open", "a", short(table))
    assert kernel("read", "a") == [0]
    assert kernel("insert", "a", 1, 1, 0) == 2


def test_properties_are_changed(kernel, table):
    kernel("open", "a", short(table))
    assert kernel("set", "a", "team", "blue") == 1
    kernel("open", "a", short(table))
    assert kernel("properties", "a")["team"] == "blue"
    assert table.load()["metadata"]["properties"]["team"] == "blue"


def test_a_table_that_is_not_there(kernel):
    with pytest.raises(Failed) as missing:
        kernel("open", "a", "nowhere")
    assert "404" in missing.value.message or missing.value.kind == "NoSuchTableException"
