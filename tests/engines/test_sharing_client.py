"""The official Delta Sharing client in an environment of its own, judged by deltalake and the kernel.

It has two ways to read: parquet files by pyarrow, and Delta's own kernel on a log that it makes itself.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from inver.formats.deletion_vectors import file_of, inline
from inver.formats.roaring import RowSet
from tests.fixtures.clients import Client, ClientMissing, client
from tests.fixtures.delta import new_table, unity
from tests.fixtures.server import InverServer, running_inver
from tests.fixtures.sharing import Guest, Provider

TYPES = {"id": "long", "region": "string", "amount": "double"}
FEED = {"delta.enableChangeDataFeed": "true"}
FORMATS = [pytest.param({}, id="parquet"), pytest.param({"use_delta_format": True}, id="delta")]


@pytest.fixture(scope="module")
def official() -> Client:
    try:
        return client("delta_sharing")
    except ClientMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    home = tmp_path_factory.mktemp("sharing") / "home"
    lake = home.with_name("external")
    lake.mkdir()
    with running_inver(home, None, ["--external-root", str(lake)]) as started:
        yield started


class Shop:
    """A provider, its recipient, and the client with the recipient's profile."""

    def __init__(self, server: InverServer, official: Client, folder: Path) -> None:
        self.provider = Provider(server)
        self._official = official
        self.profile = folder / "profile.share"
        self.profile.write_text("{}")
        self.share = ""

    def do(self, *steps: Mapping[str, Any]) -> list[Any]:
        """The values of steps that must all succeed."""
        answers = self.tried(*steps)
        assert not any("error" in answer for answer in answers), answers
        return [answer["value"] for answer in answers]

    def tried(self, *steps: Mapping[str, Any]) -> list[dict[str, Any]]:
        asked = {"profile": str(self.profile), "steps": list(steps)}
        found: list[dict[str, Any]] = self._official.run("delta_sharing_client.py", asked)
        return found

    def folder(self, name: str) -> str:
        return str(self.provider.lake / name)

    def publish(self, *names: str, register: bool = True, **options: Any) -> Guest:
        """Register what lies in the lake, share it, and give the client its profile."""
        for name in names if register else ():
            self.provider.register(name, self.provider.lake / name)
        self.share = self.provider.share(dict.fromkeys(names, options))
        guest = self.provider.recipient(self.share)
        self.profile.write_text(json.dumps(guest.profile))
        return guest

    def name(self, table: str) -> str:
        return f"{self.share}.sales.{table}"

    def write(
        self, name: str, rows: list[tuple[Any, ...]], types: Mapping[str, str] = TYPES, **options: Any
    ) -> dict[str, Any]:
        columns = {column: [row[at] for row in rows] for at, column in enumerate(types)}
        return {
            "do": "write",
            "folder": self.folder(name),
            "columns": columns,
            "types": dict(types),
            **options,
        }


@pytest.fixture
def shop(server: InverServer, official: Client, tmp_path: Path) -> Shop:
    return Shop(server, official, tmp_path)


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Changes without their time, which readers round in ways of their own."""
    return sorted(
        ({k: v for k, v in row.items() if k != "_commit_timestamp"} for row in rows),
        key=lambda row: json.dumps(row, sort_keys=True),
    )


def orders(shop: Shop) -> None:
    """Inserts, an update, a delete and a merge, all with change data."""
    folder = shop.folder("orders")
    first = [(1, "EU", 1.5), (2, "US", 2.5), (3, "EU", 3.5), (4, None, 4.5)]
    merged = {"id": [2, 9], "region": ["US", "EU"], "amount": [20.0, 90.0]}
    shop.do(
        shop.write("orders", first, partition_by=["region"], configuration=FEED),
        shop.write("orders", [(5, "US", 5.5)], mode="append"),
        {"do": "update", "folder": folder, "where": "id = 1", "new": {"amount": "100"}},
        {"do": "delete", "folder": folder, "where": "id = 3"},
        {"do": "merge", "folder": folder, "columns": merged, "types": TYPES, "key": "id"},
    )


@pytest.mark.parametrize("how", FORMATS)
def test_snapshots_are_what_deltalake_reads(shop: Shop, how: dict[str, Any]):
    orders(shop)
    shop.publish("orders")
    table, folder = shop.name("orders"), shop.folder("orders")
    listed, version, limited, *loaded = shop.do(
        {"do": "list"},
        {"do": "version", "table": table},
        {"do": "count", "table": table, "limit": 2, **how},
        *({"do": "load", "table": table, "version": at, **how} for at in range(5)),
        {"do": "load", "table": table.upper().replace(shop.share.upper(), shop.share), **how},
    )
    assert listed["tables"] == [[shop.share, "sales", "orders"]]
    assert (version, limited) == (4, 2)
    judged = shop.do(
        *({"do": "folder_rows", "folder": folder, "version": at} for at in range(5)),
        {"do": "folder_rows", "folder": folder},
    )
    assert loaded == judged
    assert len(judged[-1]) == 5
    assert shop.do({"do": "kernel_rows", "folder": folder}) == [loaded[-1]]


def test_time_travel_by_timestamp_and_predicates(shop: Shop):
    orders(shop)
    ((before),) = shop.do({"do": "now", "pause": 0.05})
    shop.do({"do": "delete", "folder": shop.folder("orders"), "where": "id > 0"})
    shop.publish("orders")
    table = shop.name("orders")
    equal = {
        "op": "equal",
        "children": [
            {"op": "column", "name": "region", "valueType": "string"},
            {"op": "literal", "value": "EU", "valueType": "string"},
        ],
    }
    then, now, hinted = shop.do(
        {"do": "load", "table": table, "timestamp": before},
        {"do": "load", "table": table},
        {"do": "load", "table": table, "version": 4, "jsonPredicateHints": json.dumps(equal)},
    )
    assert now == []
    assert then == shop.do({"do": "folder_rows", "folder": shop.folder("orders"), "version": 4})[0]
    # A hint leaves out files, and the recipient still filters rows.
    assert {row["region"] for row in hinted} == {"EU"}


@pytest.mark.parametrize("how", FORMATS)
def test_values_of_partitions_have_their_types(shop: Shop, how: dict[str, Any]):
    types = {
        "id": "long",
        "p_int": "int",
        "p_long": "long",
        "p_date": "date",
        "p_text": "string",
        "p_flag": "boolean",
    }
    rows = [
        (1, 1, 2**40, "2024-02-29", "a b/c=%", True),
        (2, -5, -1, "1999-12-31", "ü\u2028x", False),
        (3, None, None, None, None, None),
    ]
    shop.do(shop.write("kinds", rows, types, partition_by=[name for name in types if name != "id"]))
    shop.publish("kinds")
    loaded, judged = shop.do(
        {"do": "load", "table": shop.name("kinds"), **how},
        {"do": "folder_rows", "folder": shop.folder("kinds")},
    )
    assert loaded == judged


@pytest.mark.parametrize("how", FORMATS)
def test_changes_are_what_deltalake_reads(shop: Shop, how: dict[str, Any]):
    orders(shop)
    shop.publish("orders")
    table, folder = shop.name("orders"), shop.folder("orders")
    ranges = [(0, None), (2, 3), (4, None), (1, 1)]
    found = shop.do(
        *(
            {
                "do": "changes",
                "table": table,
                "starting_version": start,
                **({} if end is None else {"ending_version": end}),
                **how,
            }
            for start, end in ranges
        )
    )
    judged = shop.do(*({"do": "folder_changes", "folder": folder, "start": s, "end": e} for s, e in ranges))
    assert [timeless(each) for each in found] == [timeless(each) for each in judged]
    (by_kernel,) = shop.do({"do": "kernel_changes", "folder": folder, "start": 0, "end": 4})
    assert timeless(by_kernel) == timeless(found[0])
    kinds = {row["_change_type"] for row in found[0]}
    assert kinds == {"insert", "delete", "update_preimage", "update_postimage"}


def test_a_schema_that_grew_within_the_range(shop: Shop):
    """In the parquet format older rows have nulls for what came later."""
    wider = {**TYPES, "note": "string"}
    shop.do(
        shop.write("grown", [(1, "EU", 1.0)], configuration=FEED),
        shop.write("grown", [(2, "US", 2.0, "new")], wider, mode="append", schema_mode="merge"),
    )
    shop.publish("grown")
    found, loaded, judged = shop.do(
        {"do": "changes", "table": shop.name("grown"), "starting_version": 0},
        {"do": "load", "table": shop.name("grown")},
        {"do": "folder_rows", "folder": shop.folder("grown")},
    )
    assert [(row["id"], row["note"]) for row in found] == [(1, None), (2, "new")]
    assert loaded == judged


def test_wrong_expired_and_revoked_tokens_are_refused_at_once(shop: Shop):
    orders(shop)
    guest = shop.publish("orders")
    ask = {"do": "load", "table": shop.name("orders")}
    good = json.dumps(guest.profile)

    def refused() -> str:
        (answer,) = shop.tried(ask)
        assert answer["retries"] == []
        return str(answer["error"])

    shop.profile.write_text(json.dumps({**guest.profile, "bearerToken": guest.profile["bearerToken"] + "x"}))
    assert "401" in refused()
    short = shop.provider.recipient(shop.share, expires_in_s=1)
    shop.profile.write_text(json.dumps(short.profile))
    shop.do({"do": "now", "pause": 1.1})
    assert "expired" in refused()
    shop.profile.write_text(good)
    assert len(shop.do(ask)[0]) == 5
    shop.provider.ok("DELETE", f"/shares/{shop.share}/recipients/{guest.name}")
    assert "404" in refused()
    shop.provider.ok("POST", f"/recipients/{guest.name}/revoke")
    assert "401" in refused()


def test_oauth_client_credentials(shop: Shop):
    orders(shop)
    shop.publish("orders")
    made = shop.provider.ok("POST", "/recipients", json={"name": f"oauth-{shop.share}", "kind": "oauth"})
    shop.provider.ok("PUT", f"/shares/{shop.share}/recipients/oauth-{shop.share}", json={})
    shop.profile.write_text(json.dumps(made["profile"]))
    found, loaded = shop.do({"do": "list"}, {"do": "count", "table": shop.name("orders")})
    assert (found["shares"], loaded) == ([shop.share], 5)


def test_a_checkpoint_and_a_cleaned_log(shop: Shop):
    orders(shop)
    folder = shop.folder("orders")
    shop.do({"do": "checkpoint", "folder": folder})
    for version in range(4):
        (Path(folder) / "_delta_log" / f"{version:020d}.json").unlink()
    shop.publish("orders")
    loaded, judged = shop.do(
        {"do": "load", "table": shop.name("orders")}, {"do": "folder_rows", "folder": folder}
    )
    assert loaded == judged
    (answer,) = shop.tried({"do": "changes", "table": shop.name("orders"), "starting_version": 0})
    assert "earliest available version is 4" in answer["error"]
    assert answer["retries"] == []


@pytest.mark.parametrize("how", FORMATS[1:])
def test_a_managed_table_before_its_commit_is_published(shop: Shop, how: dict[str, Any]):
    """The files are those of a table that deltalake wrote; the commit waits to be published."""
    shop.do(shop.write("source", [(1, "EU", 1.5), (2, "US", 2.5)]))
    source = Path(shop.folder("source"))
    log = [json.loads(line) for line in (source / "_delta_log" / f"{0:020d}.json").read_text().splitlines()]
    adds = [line for line in log if "add" in line]
    schema = next(json.loads(line["metaData"]["schemaString"]) for line in log if "metaData" in line)
    with unity(shop.provider.server) as http:
        table = new_table(http, f"{shop.provider.catalog}.sales.managed", schema["fields"])
        for line in adds:
            shutil.copy(source / line["add"]["path"], table.folder / line["add"]["path"])
        table.append(1, *adds)
        shop.publish("managed", register=False)
        version, loaded = shop.do(
            {"do": "version", "table": shop.name("managed")},
            {"do": "load", "table": shop.name("managed"), **how},
        )
    assert version == 1
    assert loaded == shop.do({"do": "folder_rows", "folder": str(source)})[0]


# --- what only the delta format can express; the log is written by hand over files of deltalake's ---


def log_of(folder: Path, version: int) -> list[dict[str, Any]]:
    text = (folder / "_delta_log" / f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def put(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (folder / "_delta_log" / f"{version:020d}.json").write_text(text)


def only(actions: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (action[kind] for action in actions if kind in action)
    assert isinstance(found, dict)
    return found


def upgraded(*features: str) -> dict[str, Any]:
    readers = [each for each in features if each != "changeDataFeed"]
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": readers,
            "writerFeatures": list(features),
        }
    }


@pytest.mark.parametrize("place", ["inline", "file"])
def test_deletion_vectors(shop: Shop, place: str):
    shop.do(shop.write("vectors", [(n, "EU", float(n)) for n in range(10)], configuration=FEED))
    folder = Path(shop.folder("vectors"))
    added = only(log_of(folder, 0), "add")
    rows = RowSet([2, 5, 7])
    if place == "inline":
        described = inline(rows)
    else:
        path, data, (described,) = file_of([rows], uuid.uuid4())
        (folder / path).write_bytes(data)
    vector = msgspec.to_builtins(described)
    gone = {
        "remove": {"path": added["path"], "dataChange": True, "deletionTimestamp": 1, "size": added["size"]}
    }
    again = {"add": {**added, "dataChange": True, "deletionVector": vector}}
    put(folder, 1, upgraded("deletionVectors", "changeDataFeed"))
    put(folder, 2, {"commitInfo": {"operation": "DELETE"}}, gone, again)
    shop.publish("vectors")
    table = shop.name("vectors")
    (refused,) = shop.tried({"do": "load", "table": table, "use_delta_format": False})
    loaded, changed, judged, judged_changes = shop.do(
        {"do": "load", "table": table},
        {"do": "changes", "table": table, "starting_version": 1, "use_delta_format": True},
        {"do": "folder_rows", "folder": str(folder)},
        {"do": "folder_changes", "folder": str(folder), "start": 1},
    )
    assert "responseformat=delta" in refused["error"]
    by_kernel, changed_by_kernel = shop.do(
        {"do": "kernel_rows", "folder": str(folder)},
        {"do": "kernel_changes", "folder": str(folder), "start": 1, "end": 2},
    )
    assert loaded == judged == by_kernel
    assert timeless(changed) == timeless(changed_by_kernel)
    assert sorted(row["id"] for row in loaded) == [0, 1, 3, 4, 6, 8, 9]
    assert timeless(changed) == timeless(judged_changes)
    assert sorted((row["id"], row["_change_type"]) for row in changed) == [
        (2, "delete"),
        (5, "delete"),
        (7, "delete"),
    ]
    # Never deleted rows: without the delta format it is a refusal.
    (refused,) = shop.tried({"do": "changes", "table": table, "starting_version": 1})
    assert "responseformat=delta" in refused["error"]


def test_column_mapping(shop: Shop):
    """The files keep the names that the columns had when they were written."""
    shop.do(shop.write("mapped", [(1, "EU", 1.5), (2, "US", 2.5)], configuration=FEED))
    folder = Path(shop.folder("mapped"))
    before = only(log_of(folder, 0), "metaData")
    schema = json.loads(before["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": field["name"],
        }
        field["name"] = {"id": "number", "region": "area"}.get(field["name"], field["name"])
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    after = {
        **before,
        "schemaString": json.dumps(schema),
        "configuration": {**before["configuration"], **mapping},
    }
    put(folder, 1, upgraded("columnMapping", "changeDataFeed"), {"metaData": after})
    added = only(log_of(folder, 0), "add")
    put(folder, 2, {"add": {**added, "path": added["path"].replace("part-", "more-")}})
    shutil.copy(folder / added["path"], folder / added["path"].replace("part-", "more-"))
    shop.publish("mapped")
    table = shop.name("mapped")
    loaded, changed, judged = shop.do(
        {"do": "load", "table": table},
        {"do": "changes", "table": table, "starting_version": 2, "use_delta_format": True},
        {"do": "folder_rows", "folder": str(folder)},
    )
    assert loaded == judged
    assert {tuple(row) for row in loaded} == {("number", "area", "amount")}
    assert sorted((row["number"], row["area"], row["_change_type"]) for row in changed) == [
        (1, "EU", "insert"),
        (2, "US", "insert"),
    ]
    (refused,) = shop.tried({"do": "changes", "table": table, "starting_version": 2})
    assert "columnMapping" in refused["error"]
