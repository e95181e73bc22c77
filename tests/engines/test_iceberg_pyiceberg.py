"""PyIceberg on the catalog, and the same on Iceberg's reference, which shows that the suite is right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fixtures.clients import Client
from tests.fixtures.iceberg_clients import (
    PyIceberg,
    is_reference,
    running_pyiceberg,
)
from tests.fixtures.lines import Failed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WRITERS = 3
EACH = 8

_numbers = count(1)


@pytest.fixture(scope="module")
def ice(
    pyiceberg: Client, iceberg_catalog: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PyIceberg]:
    with running_pyiceberg(pyiceberg, tmp_path_factory.mktemp("client"), iceberg_catalog) as ice:
        yield ice


@pytest.fixture
def namespace(ice: PyIceberg, request: pytest.FixtureRequest) -> list[str]:
    """A new one, named after the test."""
    name = f"{request.node.originalname}_{next(_numbers)}"
    ice("create_namespace", [name])
    return [name]


@pytest.fixture
def table(ice: PyIceberg, namespace: list[str]) -> list[str]:
    """An empty table."""
    ice("create", [*namespace, "t"])
    return [*namespace, "t"]


def path(location: str) -> Path:
    return Path(urlsplit(location).path)


# --- namespaces ---


def test_namespaces(ice, namespace):
    [name] = namespace
    with pytest.raises(Failed, match="NamespaceAlreadyExistsError"):
        ice("create_namespace", [name])
    assert [name] in ice("namespaces", [])
    ice("create_namespace", [name, "inner"], properties={"owner": "us", "old": "1"})
    assert ice("namespaces", [name]) == [[name, "inner"]]
    updated = ice(
        "update_namespace", [name, "inner"], removals=["old", "never"], updates={"owner": "you", "new": "2"}
    )
    assert {word: sorted(keys) for word, keys in updated.items()} == {
        "removed": ["old"],
        "updated": ["new", "owner"],
        "missing": ["never"],
    }
    properties = ice("namespace_properties", [name, "inner"])
    assert {key: properties.get(key) for key in ("owner", "new", "old")} == {
        "owner": "you",
        "new": "2",
        "old": None,
    }
    with pytest.raises(Failed, match="NamespaceNotEmptyError"):
        ice("drop_namespace", [name])
    ice("drop_namespace", [name, "inner"])
    ice("drop_namespace", [name])
    assert [name] not in ice("namespaces", [])
    with pytest.raises(Failed, match="NoSuchNamespaceError"):
        ice("drop_namespace", [name])


def test_a_table_needs_its_namespace(ice, iceberg_catalog: dict[str, str]):
    if is_reference(iceberg_catalog):
        pytest.skip("the reference makes tables in namespaces that are not there")
    with pytest.raises(Failed, match="NoSuchNamespaceError"):
        ice("create", ["nowhere", "t"])


# --- tables ---


def test_create_load_list(ice, namespace):
    uuid = ice("create", [*namespace, "t"], properties={"team": "blue"})
    described = ice("describe", [*namespace, "t"])
    assert described["uuid"] == uuid
    assert described["format_version"] == 2
    assert described["columns"] == [[1, "id"], [2, "name"]]
    assert described["properties"]["team"] == "blue"
    assert (described["snapshots"], described["current"], described["refs"]) == ([], None, {})
    assert path(described["metadata_location"]).exists()
    assert ice("tables", namespace) == [[*namespace, "t"]]
    assert ice("exists", [*namespace, "t"])
    assert not ice("exists", [*namespace, "other"])
    with pytest.raises(Failed, match="TableAlreadyExistsError"):
        ice("create", [*namespace, "t"])
    with pytest.raises(Failed, match="NoSuchTableError"):
        ice("describe", [*namespace, "other"])


@pytest.mark.parametrize("version", [1, 2])
def test_format_versions(ice, namespace, version):
    table = [*namespace, f"v{version}"]
    ice("create", table, properties={"format-version": str(version)})
    assert ice("describe", table)["format_version"] == version
    ice("append", table, rows=[[1, "a"]])
    if version == 1:
        ice("upgrade", table, version=2)
        assert ice("describe", table)["format_version"] == 2
        ice("append", table, rows=[[2, "b"]])
        assert ice("scan", table) == [[1, "a"], [2, "b"]]


def test_create_and_fill_at_once(ice, namespace):
    ice("create_in_transaction", [*namespace, "t"], rows=[[1, "a"]])
    assert ice("scan", [*namespace, "t"]) == [[1, "a"]]
    described = ice("describe", [*namespace, "t"])
    assert described["properties"]["made"] == "at once"
    assert len(described["snapshots"]) == 1


def test_rename(ice, table, namespace):
    ice("append", table, rows=[[1, "a"]])
    before = ice("describe", table)
    ice("create_namespace", [f"{namespace[0]}_other"])
    moved = [f"{namespace[0]}_other", "moved"]
    ice("rename", table, to=moved)
    assert not ice("exists", table)
    after = ice("describe", moved)
    assert (after["uuid"], after["location"], after["metadata_location"]) == (
        before["uuid"],
        before["location"],
        before["metadata_location"],
    )
    ice("append", moved, rows=[[2, "b"]])
    assert ice("scan", moved) == [[1, "a"], [2, "b"]]
    with pytest.raises(Failed, match="NoSuchTableError"):
        ice("rename", table, to=[*namespace, "again"])
    ice("create", table)
    with pytest.raises(Failed, match="TableAlreadyExistsError"):
        ice("rename", table, to=moved)
    with pytest.raises(Failed, match=r"NoSuchNamespaceError|NoSuchTableError"):
        ice("rename", table, to=["nowhere", "t"])


def test_drop_and_purge(ice, table, namespace):
    ice("append", table, rows=[[1, "a"]])
    folder = path(ice("describe", table)["location"])
    assert list(folder.rglob("*.parquet"))
    ice("drop", table)
    assert ice("tables", namespace) == []
    assert list(folder.rglob("*.parquet"))
    with pytest.raises(Failed, match="NoSuchTableError"):
        ice("drop", table)
    ice("create", table)
    ice("drop", table, purge=True)
    assert not ice("exists", table)


# --- rows ---


def test_append_overwrite_delete(ice, table):
    ice("append", table, rows=[[1, "a"], [2, "b"]])
    ice("append", table, rows=[[3, "c"]])
    assert ice("scan", table) == [[1, "a"], [2, "b"], [3, "c"]]
    assert ice("scan", table, where="id > 1 and name != 'c'") == [[2, "b"]]
    ice("delete", table, where="id = 2")
    assert ice("scan", table) == [[1, "a"], [3, "c"]]
    ice("overwrite", table, rows=[[30, "C"]], where="id = 3")
    assert ice("scan", table) == [[1, "a"], [30, "C"]]
    ice("overwrite", table, rows=[[7, "z"]])
    assert ice("scan", table) == [[7, "z"]]
    assert ice("upsert", table, rows=[[7, "y"], [8, "new"]], on=["id"]) == [1, 1]
    assert ice("scan", table) == [[7, "y"], [8, "new"]]
    described = ice("describe", table)
    assert described["operations"][:2] == ["append", "append"]
    assert described["current"] == described["snapshots"][-1]
    assert described["metadata_log"] >= 6
    assert ice("scan", table, snapshot=described["snapshots"][1]) == [[1, "a"], [2, "b"], [3, "c"]]


def test_everything_in_one_commit(ice, table):
    before = ice("describe", table)["metadata_log"]
    ice("at_once", table, rows=[[1, "a"]], column="extra")
    described = ice("describe", table)
    assert described["metadata_log"] == before + 1
    assert [name for _, name in described["columns"]] == ["id", "name", "extra"]
    assert described["properties"]["step"] == "done"
    assert ice("scan", table) == [[1, "a", None]]


def test_concurrent_appends(ice, table, pyiceberg, iceberg_catalog, tmp_path):
    """Each writer finds the others before it again and again, and builds its commit anew."""
    ice("properties", table, updates={"commit.retry.num-retries": "100", "commit.retry.min-wait-ms": "5",
        "commit.retry.max-wait-ms": "200"}, removals=[])  # fmt: skip
    with ExitStack() as stack:
        writers = [
            stack.enter_context(running_pyiceberg(pyiceberg, tmp_path, iceberg_catalog))
            for _ in range(WRITERS)
        ]
        for number, writer in enumerate(writers):
            writer.start("append_each", table, first=100 * number, count=EACH)
        for writer in writers:
            writer.end()
    ids = [id for id, _ in ice("scan", table)]
    assert sorted(ids) == [100 * number + each for number in range(WRITERS) for each in range(EACH)]
    described = ice("describe", table)
    assert len(described["snapshots"]) == len(described["history"]) == WRITERS * EACH


# --- schema, partitions, order, properties ---


def test_schema_evolution(ice, table):
    ice("append", table, rows=[[1, "a"]])
    ice("alter", table, changes=[["add_column", "price", "double"], ["rename_column", "name", "label"]])
    ice("append", table, rows=[[2, "b", 2.5]])
    assert ice("scan", table) == [[1, "a", None], [2, "b", 2.5]]
    ice("alter", table, changes=[["move_first", "price"], ["delete_column", "label"]])
    assert ice("describe", table)["columns"] == [[3, "price"], [1, "id"]]
    ice("alter", table, changes=[["add_column", "label", "string"]])
    # A new column of an old name is another column.
    assert ice("describe", table)["columns"] == [[3, "price"], [1, "id"], [4, "label"]]
    assert ice("scan", table, where="label is not null") == []


def test_partition_evolution(ice, table):
    ice("append", table, rows=[[1, "a"]])
    ice("partition", table, changes=[["add_identity", "name"]])
    ice("append", table, rows=[[2, "b"], [3, "c"]])
    assert ice("describe", table)["partition"] == [["name", "identity"]]
    ice("partition", table, changes=[["remove_field", "name"], ["add_field", "id", "bucket[4]", "b"]])
    ice("append", table, rows=[[4, "d"]])
    described = ice("describe", table)
    assert ["b", "bucket[4]"] in described["partition"]
    assert ice("scan", table) == [[1, "a"], [2, "b"], [3, "c"], [4, "d"]]
    assert ice("scan", table, where="name = 'c'") == [[3, "c"]]
    ice("delete", table, where="name = 'b'")
    assert ice("scan", table) == [[1, "a"], [3, "c"], [4, "d"]]


def test_sort_order_and_properties(ice, table):
    ice("sort", table, column="name")
    assert ice("describe", table)["sort"] == ["identity"]
    ice("properties", table, updates={"a": "1", "b": "2"}, removals=[])
    ice("properties", table, updates={"a": "3"}, removals=["b"])
    properties = ice("describe", table)["properties"]
    assert (properties["a"], properties.get("b")) == ("3", None)


# --- snapshots ---


def test_branches_and_tags(ice, table):
    ice("append", table, rows=[[1, "a"]])
    [first] = ice("describe", table)["snapshots"]
    ice("refs", table, changes=[["create_tag", first, "begin"], ["create_branch", first, "dev"]])
    ice("append", table, rows=[[2, "b"]], branch="dev")
    ice("append", table, rows=[[3, "c"]])
    assert ice("scan", table, ref="begin") == [[1, "a"]]
    assert ice("scan", table, ref="dev") == [[1, "a"], [2, "b"]]
    assert ice("scan", table) == [[1, "a"], [3, "c"]]
    refs = ice("describe", table)["refs"]
    assert {name: kind for name, (kind, _) in refs.items()} == {
        "main": "branch",
        "dev": "branch",
        "begin": "tag",
    }
    ice("refs", table, changes=[["remove_tag", "begin"], ["remove_branch", "dev"]])
    assert list(ice("describe", table)["refs"]) == ["main"]
    with pytest.raises(Failed):
        ice("scan", table, ref="dev")


def test_rollback(ice, table):
    ice("append", table, rows=[[1, "a"]])
    ice("append", table, rows=[[2, "b"]])
    first, second = ice("describe", table)["snapshots"]
    ice("refs", table, changes=[["rollback_to_snapshot", first]])
    assert ice("scan", table) == [[1, "a"]]
    described = ice("describe", table)
    assert described["current"] == first
    assert described["history"] == [first, second, first]
    ice("append", table, rows=[[3, "c"]])
    assert ice("scan", table) == [[1, "a"], [3, "c"]]


def test_expire(ice, table):
    for id in range(4):
        ice("append", table, rows=[[id, "x"]])
    snapshots = ice("describe", table)["snapshots"]
    ice("refs", table, changes=[["create_tag", snapshots[1], "kept"]])
    ice("expire", table, snapshots=[snapshots[0], snapshots[2]])
    described = ice("describe", table)
    assert described["snapshots"] == [snapshots[1], snapshots[3]]
    # Time travel stops at the first gap.
    assert described["history"] == [snapshots[3]]
    assert ice("scan", table, ref="kept") == [[0, "x"], [1, "x"]]
    assert len(ice("scan", table)) == 4


# --- the rest ---


def test_scans_that_the_server_plans(ice, table, pyiceberg, iceberg_catalog, tmp_path):
    ice("partition", table, changes=[["add_identity", "name"]])
    ice("append", table, rows=[[1, "a"], [2, "b"], [3, "c"]])
    ice("append", table, rows=[[4, "b"]])
    [first, _] = ice("describe", table)["snapshots"]
    ice("delete", table, where="id = 2")
    planned = {**iceberg_catalog, "scan-planning-mode": "server"}
    with running_pyiceberg(pyiceberg, tmp_path, planned) as other:
        assert other("lets_the_server_plan")
        assert other("scan", table) == [[1, "a"], [3, "c"], [4, "b"]]
        assert other("scan", table, where="name = 'b'") == [[4, "b"]]
        assert other("scan", table, where="id > 3 or name in ('a', 'z')") == [[1, "a"], [4, "b"]]
        assert other("scan", table, where="name = 'nobody'") == []
        assert other("scan", table, snapshot=first, where="id < 3") == [[1, "a"], [2, "b"]]


def test_views(ice, table, namespace):
    ice("create_view", [*namespace, "v"], sql="SELECT 1")
    assert ice("views", namespace) == [[*namespace, "v"]]
    assert ice("tables", namespace) == [table]
    assert ice("view_sql", [*namespace, "v"]) == ["SELECT 1"]
    with pytest.raises(Failed, match="already exists"):
        ice("create_view", [*namespace, "v"], sql="SELECT 2")
    with pytest.raises(Failed, match="already exists"):
        ice("create", [*namespace, "v"])
    ice("drop_view", [*namespace, "v"])
    assert ice("views", namespace) == []


def test_register(ice, table, namespace):
    ice("append", table, rows=[[1, "a"]])
    described = ice("describe", table)
    ice("drop", table)
    ice("register", [*namespace, "back"], metadata_location=described["metadata_location"])
    assert ice("scan", [*namespace, "back"]) == [[1, "a"]]
    assert ice("describe", [*namespace, "back"])["uuid"] == described["uuid"]
    ice("append", [*namespace, "back"], rows=[[2, "b"]])
    assert ice("scan", [*namespace, "back"]) == [[1, "a"], [2, "b"]]


@pytest.mark.parametrize("name", ["with space", "a+b", "50%", "ünï", "a.b", "a&b=c"])
def test_names(ice, name, namespace: list[str], iceberg_catalog: dict[str, str]):
    if is_reference(iceberg_catalog) and name in ("50%", "a.b"):
        pytest.skip("the reference refuses an encoded percent sign and takes dots for separators")
    inner: Any = [*namespace, name]
    ice("create_namespace", inner)
    ice("create", [*inner, name])
    ice("append", [*inner, name], rows=[[1, "a"]])
    assert ice("scan", [*inner, name]) == [[1, "a"]]
    assert ice("tables", inner) == [[*inner, name]]
    assert ice("namespaces", namespace) == [inner]
    ice("rename", [*inner, name], to=[*namespace, name])
    assert ice("exists", [*namespace, name])
    ice("drop", [*namespace, name])
    ice("drop_namespace", inner)
