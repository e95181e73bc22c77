"""delta/v1 through real HTTP: every route, every action, every kind of refusal."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.fixtures.delta import DeltaTable, add_file, new_table, unity
from tests.fixtures.unity import ID, Place, first_actions, kind

NOBODY = str(uuid.UUID(int=7))
V1 = "/delta/v1"
INVALID = (400, "InvalidParameterValueException")
NESTED = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {"delta.columnMapping.id": 1}},
        {
            "name": "tags",
            "type": {
                "type": "map",
                "key-type": "string",
                "value-type": {"type": "array", "element-type": "decimal(10,2)", "contains-null": False},
                "value-contains-null": True,
            },
            "nullable": False,
            "metadata": {},
        },
    ],
}


@pytest.fixture
def table(place: Place) -> DeltaTable:
    return new_table(place.admin, f"{place.schema}.t")


def schema_url(place: Place) -> str:
    return f"{V1}/catalogs/{place.catalog}/schemas/s"


def update(table: DeltaTable, *updates: dict[str, Any], **fields: Any) -> httpx.Response:
    body = {"requirements": [{"type": "assert-table-uuid", "uuid": table.id}], "updates": list(updates)}
    return table.http.post(table.url, json={**body, **fields})


def add_commit(table: DeltaTable, version: int, *actions: Any, **fields: Any) -> dict[str, Any]:
    return {"action": "add-commit", "commit": table.stage(version, actions), **fields}


def nested() -> tuple[dict[str, str], ...]:
    """The same fields as a Delta log spells them."""
    spelled = re.sub('-([a-z])(?=[a-z-]*":)', lambda found: found[1].upper(), json.dumps(NESTED))
    return tuple({"type_json": json.dumps(field)} for field in json.loads(spelled)["fields"])


def metadata_action(table: DeltaTable, *features: str, **changed: Any) -> list[dict[str, Any]]:
    """What a commit that changes the metadata has in its file."""
    protocol, metadata = first_actions(table, **changed)
    if features:
        protocol["protocol"]["writerFeatures"] += list(features)
        return [protocol, metadata]
    return [metadata]


def set_protocol(action: dict[str, Any]) -> dict[str, Any]:
    """What the request says of a protocol that is in the file."""
    written = action["protocol"]
    protocol = {
        "min-reader-version": written["minReaderVersion"],
        "min-writer-version": written["minWriterVersion"],
        "reader-features": written["readerFeatures"],
        "writer-features": written["writerFeatures"],
    }
    return {"action": "set-protocol", "protocol": protocol}


def domain_action(name: str, configuration: Any = None) -> dict[str, Any]:
    """A domain as a commit file sets it, or removes it."""
    text = json.dumps(configuration or {})
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": configuration is None}}


# --- configuration ---


def test_config(place: Place) -> None:
    def config(**params: str) -> httpx.Response:
        return place.admin.get(f"{V1}/config", params=params)

    answer = config(**{"catalog": place.catalog, "protocol-versions": "1.1,2.3"}).json()
    assert answer["protocol-version"] == "1.0"
    assert "GET /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}" in answer["endpoints"]
    assert len(answer["endpoints"]) == 11
    assert kind(config(**{"catalog": place.catalog, "protocol-versions": "2.0"})) == INVALID
    assert kind(config(**{"protocol-versions": "1.0"})) == INVALID
    assert kind(config(catalog="nowhere")) == (404, "NoSuchCatalogException")


# --- staging and creating ---


def test_staging(place: Place) -> None:
    url = schema_url(place) + "/staging-tables"
    staged = place.post(url, {"name": "new"})
    assert staged["table-type"] == "MANAGED"
    assert staged["required-properties"]["io.unitycatalog.tableId"] == staged["table-id"]
    assert staged["required-protocol"]["min-reader-version"] == 3
    assert "inCommitTimestamp" in staged["required-protocol"]["writer-features"]
    assert "inCommitTimestamp" not in staged["required-protocol"]["reader-features"]
    assert "deletionVectors" in staged["suggested-protocol"]["reader-features"]
    [credential] = staged["storage-credentials"]
    assert (credential["prefix"], credential["operation"], credential["config"]) == (
        staged["location"],
        "READ_WRITE",
        {},
    )
    keys = f"{V1}/staging-tables/{staged['table-id']}/credentials"
    assert place.get(keys) == {"storage-credentials": [credential]}

    maker = place.visitor("CREATE TABLE")
    assert kind(maker.get(keys)) == (403, "PermissionDeniedException")
    assert kind(place.admin.get(f"{V1}/staging-tables/{NOBODY}/credentials")) == (404, "NoSuchTableException")
    assert kind(place.admin.get(f"{V1}/staging-tables/x/credentials")) == INVALID
    assert kind(place.visitor().post(url, json={"name": "new"})) == (403, "PermissionDeniedException")
    place.table("taken")
    assert kind(place.admin.post(url, json={"name": "taken"})) == (409, "AlreadyExistsException")
    nowhere = f"{V1}/catalogs/{place.catalog}/schemas/nowhere/staging-tables"
    assert kind(place.admin.post(nowhere, json={"name": "x"})) == (404, "NoSuchSchemaException")
    nowhere = f"{V1}/catalogs/nowhere/schemas/s/staging-tables"
    assert kind(place.admin.post(nowhere, json={"name": "x"})) == (404, "NoSuchCatalogException")
    assert kind(place.admin.post(url, json={})) == INVALID


def creation(table: DeltaTable, **fields: Any) -> dict[str, Any]:
    protocol = first_actions(table)[0]["protocol"]
    return {
        "name": table.name.rpartition(".")[2],
        "location": table.location,
        "table-type": "MANAGED",
        "columns": NESTED,
        "protocol": {
            "min-reader-version": 3,
            "min-writer-version": 7,
            "reader-features": protocol["readerFeatures"],
            "writer-features": protocol["writerFeatures"],
        },
        "properties": first_actions(table)[1]["metaData"]["configuration"],
        "last-commit-timestamp-ms": table.timestamp,
        **fields,
    }


def test_creating_and_loading(place: Place) -> None:
    table = place.staged("made", fields=nested())
    body = creation(table, comment="ours", **{"domain-metadata": {}})
    made = place.post(schema_url(place) + "/tables", body)
    assert place.post(schema_url(place) + "/tables", body) == made
    assert table.load() == made
    metadata = made["metadata"]
    assert metadata["table-uuid"] == table.id
    assert metadata["table-type"] == "MANAGED"
    assert metadata["location"] == table.location
    assert metadata["columns"] == NESTED
    assert metadata["partition-columns"] == []
    assert metadata["etag"].startswith("etag-")
    assert metadata["created-time"] > 0
    assert metadata["updated-time"] > 0
    assert metadata["last-commit-version"] == 0
    assert metadata["last-commit-timestamp-ms"] == table.timestamp
    assert metadata["properties"]["delta.feature.catalogManaged"] == "supported"
    assert (made["commits"], made["latest-table-version"]) == ([], 0)
    shown = place.get(f"/tables/{table.name}")
    assert shown["comment"] == "ours"
    assert [column["type_text"] for column in shown["columns"]] == [
        "bigint",
        "map<string,array<decimal(10,2)>>",
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.pop("location"),
        lambda body: body.pop("columns"),
        lambda body: body.pop("protocol"),
        lambda body: body.pop("properties"),
        lambda body: body.pop("last-commit-timestamp-ms"),
        lambda body: body.update({"table-type": "VIEW"}),
        lambda body: body.update({"last-commit-timestamp-ms": 1}),
        lambda body: body.update({"partition-columns": ["id"]}),
        lambda body: body.update(columns={"type": "long"}),
        lambda body: body.update(columns={"type": "struct", "fields": [{"name": "a", "type": "long"}]}),
        lambda body: body["protocol"].update({"min-reader-version": 2}),
        lambda body: body["protocol"].update({"writer-features": ["catalogManaged"]}),
        lambda body: body["properties"].update({"io.unitycatalog.tableId": NOBODY}),
        lambda body: body.update({"domain-metadata": {"my.domain": {}}}),
    ],
)
def test_refusals_of_creating(place: Place, change: Callable[[dict[str, Any]], Any]) -> None:
    table = place.staged("wrong")
    body = creation(table)
    change(body)
    assert kind(place.admin.post(schema_url(place) + "/tables", json=body)) == INVALID


def test_other_refusals_of_creating(place: Place) -> None:
    table = place.staged("made")
    url = schema_url(place) + "/tables"
    elsewhere = creation(table, location=table.location + "x")
    assert kind(place.admin.post(url, json=elsewhere)) == (404, "NoSuchTableException")
    assert kind(place.visitor("CREATE TABLE").post(url, json=creation(table))) == (
        403,
        "PermissionDeniedException",
    )
    place.table("taken")
    assert kind(place.admin.post(url, json=creation(table, name="taken"))) == (409, "AlreadyExistsException")


def test_an_external_table(place: Place) -> None:
    root = place.server.home.with_name("external") / place.catalog
    table = DeltaTable(place.admin, f"{place.schema}.ext", NOBODY, f"file://{root}/ext", ())
    body = creation(table, **{"table-type": "EXTERNAL", "properties": {"a": "b"}})
    made = place.post(schema_url(place) + "/tables", body)
    assert "commits" not in made
    assert "latest-table-version" not in made
    assert "allowed-maintenance-operations" not in made
    metadata = made["metadata"]
    assert metadata["table-type"] == "EXTERNAL"
    protocol = body["protocol"]
    assert metadata["properties"] == {
        "a": "b",
        "delta.minReaderVersion": str(protocol["min-reader-version"]),
        "delta.minWriterVersion": str(protocol["min-writer-version"]),
        **{f"delta.feature.{name}": "supported" for name in protocol["writer-features"]},
        "delta.lastUpdateVersion": "0",
        "delta.lastCommitTimestamp": str(body["last-commit-timestamp-ms"]),
    }
    assert metadata["last-commit-timestamp-ms"] == body["last-commit-timestamp-ms"]
    assert place.get(table.url) == made
    assert made["metadata"]["columns"] == NESTED
    table.id = made["metadata"]["table-uuid"]
    changed = update(
        table,
        {"action": "set-properties", "updates": {"c": "d"}},
        {
            "action": "update-metadata-snapshot-version",
            "last-commit-version": 5,
            "last-commit-timestamp-ms": 1700000000000,
        },
    )
    assert changed.status_code == 200, changed.text
    after = changed.json()["metadata"]
    assert after["properties"]["c"] == "d"
    assert after["properties"]["delta.minReaderVersion"] == str(protocol["min-reader-version"])
    assert (after["last-commit-version"], after["last-commit-timestamp-ms"]) == (5, 1700000000000)
    commit = {**table.stage(1, []), "file-name": "x.json"}
    assert kind(update(table, {"action": "add-commit", "commit": commit})) == INVALID


def test_tables_of_other_formats_are_told_apart(place: Place) -> None:
    root = place.server.home.with_name("external") / place.catalog
    for form in ("ICEBERG", "LANCE"):
        name = form.lower()
        body = place.named(
            name,
            table_type="EXTERNAL",
            data_source_format=form,
            columns=[],
            storage_location=f"{root}/{name}",
        )
        place.post("/tables", body)
        url = f"{schema_url(place)}/tables/{name}"
        answer = place.admin.get(url)
        assert kind(answer) == (400, "UnsupportedTableFormatException")
        assert place.admin.head(url).status_code == 204

        # A change in the words of Delta would make of it what it is not.
        before = place.get(f"/tables/{place.schema}.{name}")
        other = DeltaTable(place.admin, f"{place.schema}.{name}", before["table_id"], "", ())
        for action in (
            {"action": "set-properties", "updates": {"a": "b"}},
            {"action": "set-table-comment", "comment": "ours"},
            {"action": "set-latest-backfilled-version", "latest-published-version": 0},
        ):
            assert kind(update(other, action)) == (400, "UnsupportedTableFormatException")
        report = {"table-id": other.id, "report": {"commit-report": {"num-files-added": 1}}}
        answer = place.admin.post(url + "/metrics", json=report)
        assert kind(answer) == (400, "UnsupportedTableFormatException")
        assert place.get(f"/tables/{place.schema}.{name}") == before


# --- commits ---


def test_commits_are_told_with_the_table(table: DeltaTable) -> None:
    first = table.stage(1, [add_file("a")])
    answer = table.commit(first)
    assert answer.status_code == 200, answer.text
    assert answer.json()["commits"] == [first]
    assert answer.json()["latest-table-version"] == 1
    before = table.load()["metadata"]
    second = table.stage(2, [add_file("b")])
    backfilled = {"action": "set-latest-backfilled-version", "latest-published-version": 0}
    assert table.commit(second, backfilled).json()["latest-table-version"] == 2
    after = table.load()
    assert after["latest-table-version"] == 2
    assert [commit["version"] for commit in after["commits"]] == [2, 1][: len(after["commits"])]
    for name in ("etag", "last-commit-version", "last-commit-timestamp-ms"):
        assert after["metadata"][name] == before[name], name
    assert table.commit(first).status_code == 200
    assert table.load()["latest-table-version"] == 2


def test_a_commit_answers_what_loading_would(place: Place, table: DeltaTable) -> None:
    """Whatever happened to the table since its writer last heard of it."""

    def same(answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.text
        told, loaded = answer.json(), table.load()
        commits, waiting = told.pop("commits"), loaded.pop("commits")
        assert told == loaded
        assert not commits or commits[0]["version"] == told["latest-table-version"]
        # What was published in between is not told any more.
        assert commits[: len(waiting)] == waiting

    def legacy(version: int) -> None:
        staged = table.stage(version, [])
        info = {key.replace("-", "_"): value for key, value in staged.items()}
        body = {"table_id": table.id, "table_uri": table.location, "commit_info": info}
        assert table.http.post("/delta/preview/commits", json=body).status_code == 200

    same(table.commit(table.stage(1, [])))
    same(table.commit(table.stage(2, [])))
    same(table.commit(table.stage(3, [])))
    same(update(table, {"action": "set-table-comment", "comment": "altered, no version"}))
    same(table.commit(table.stage(4, [])))
    legacy(5)
    same(table.commit(table.stage(6, [])))
    [protocol, _] = metadata_action(table, "domainMetadata", "rowTracking")
    same(update(table, set_protocol(protocol), add_commit(table, 7, protocol)))
    tracked = {"delta.rowTracking": {"rowIdHighWaterMark": 99}}
    before = table.load()["metadata"]["etag"]
    file = domain_action("delta.rowTracking", tracked["delta.rowTracking"])
    same(update(table, {"action": "set-domain-metadata", "updates": tracked}, add_commit(table, 8, file)))
    assert table.load()["metadata"]["etag"] == before
    same(table.commit(table.stage(9, [])))
    staged = table.stage(10, [])
    same(table.commit(staged))
    same(table.commit(staged))
    same(table.commit(table.stage(11, [])))
    assert table.load()["metadata"]["properties"]["delta.rowTracking.rowIdHighWaterMark"] == "99"


def test_lost_and_early_commits(table: DeltaTable) -> None:
    table.append(1)
    assert kind(table.commit(table.stage(1, []))) == (409, "CommitVersionConflictException")
    assert kind(table.commit(table.stage(3, []))) == INVALID
    assert table.load()["latest-table-version"] == 1


def test_requirements(table: DeltaTable) -> None:
    uuid_of = {"type": "assert-table-uuid", "uuid": table.id}
    etag = {"type": "assert-etag", "etag": table.load()["metadata"]["etag"]}

    def post(*requirements: dict[str, str], version: int = 1) -> httpx.Response:
        return update(table, add_commit(table, version), requirements=list(requirements))

    conflict = (409, "UpdateRequirementConflictException")
    assert kind(post()) == INVALID
    assert kind(post(etag)) == INVALID
    assert kind(post(uuid_of, uuid_of)) == INVALID
    assert kind(post(uuid_of, etag, etag)) == INVALID
    assert kind(post({"type": "assert-nothing"})) == INVALID
    assert kind(post({**uuid_of, "uuid": NOBODY})) == conflict
    for wrong in ("etag-999", "something", "etag-", ""):
        assert kind(post(uuid_of, {**etag, "etag": wrong})) == conflict, wrong
    assert post(uuid_of, etag).status_code == 200
    assert post(etag, {**uuid_of, "uuid": table.id.upper()}, version=2).status_code == 200


def test_a_commit_sent_again_asks_for_no_etag(table: DeltaTable) -> None:
    etag = {"type": "assert-etag", "etag": table.load()["metadata"]["etag"]}
    requirements = [{"type": "assert-table-uuid", "uuid": table.id}, etag]
    first = add_commit(table, 1)
    assert update(table, first, requirements=requirements).status_code == 200
    changed = {"action": "set-properties", "updates": {"mine": "1"}}
    file = metadata_action(table, configuration={"mine": "1"})
    second = add_commit(table, 2, *file)
    answer = update(table, changed, second, requirements=requirements)
    assert answer.json()["metadata"]["etag"] != etag["etag"]
    for again in ((first,), (changed, second)):
        answer = update(table, *again, requirements=requirements)
        assert answer.status_code == 200, answer.text
    assert table.load()["latest-table-version"] == 2
    late = update(table, add_commit(table, 3), requirements=requirements)
    assert kind(late) == (409, "UpdateRequirementConflictException")


def test_metadata_actions_in_one_commit(place: Place, table: DeltaTable) -> None:
    table.append(1)
    before = table.load()["metadata"]
    file = metadata_action(
        table, "clustering", "domainMetadata", "rowTracking", configuration={"mine": "1"}, fields=nested()
    )
    domains = {
        "delta.clustering": {"clusteringColumns": [["id"], ["tags", "x"]]},
        "delta.rowTracking": {"rowIdHighWaterMark": 41},
    }
    answer = update(
        table,
        {"action": "set-table-comment", "comment": "ours"},
        {"action": "set-columns", "columns": NESTED},
        {"action": "set-properties", "updates": {"mine": "1", "gone": "2"}},
        set_protocol(file[0]),
        {"action": "set-domain-metadata", "updates": domains},
        add_commit(table, 2, *file, *(domain_action(*each) for each in domains.items())),
    )
    assert answer.status_code == 200, answer.text
    metadata = answer.json()["metadata"]
    assert metadata["columns"] == NESTED
    assert metadata["etag"] != before["etag"]
    assert metadata["last-commit-version"] == 2
    shown = metadata["properties"]
    assert (shown["mine"], shown["gone"]) == ("1", "2")
    assert json.loads(shown["clusteringColumns"]) == [["id"], ["tags", "x"]]
    assert shown["delta.rowTracking.rowIdHighWaterMark"] == "41"
    assert shown["delta.feature.clustering"] == "supported"
    assert place.get(f"/tables/{table.name}")["comment"] == "ours"

    answer = update(
        table,
        {"action": "remove-properties", "removals": ["gone"]},
        {"action": "remove-domain-metadata", "domains": ["delta.clustering"]},
        {"action": "set-table-comment", "comment": None},
        add_commit(
            table,
            3,
            *metadata_action(table, configuration={"mine": "1"}),
            domain_action("delta.clustering"),
        ),
    )
    shown = answer.json()["metadata"]["properties"]
    assert "gone" not in shown
    assert "clusteringColumns" not in shown
    assert shown["delta.rowTracking.rowIdHighWaterMark"] == "41"
    assert "comment" not in place.get(f"/tables/{table.name}")

    tracked = {"delta.rowTracking": {"rowIdHighWaterMark": 99}}
    before = table.load()["metadata"]
    file = [domain_action(*each) for each in tracked.items()]
    answer = update(table, {"action": "set-domain-metadata", "updates": tracked}, add_commit(table, 4, *file))
    after = answer.json()["metadata"]
    assert after["properties"]["delta.rowTracking.rowIdHighWaterMark"] == "99"
    assert (after["etag"], after["last-commit-version"]) == (before["etag"], before["last-commit-version"])


def test_partition_columns(place: Place, table: DeltaTable) -> None:
    file = metadata_action(table, partition=("id",))
    partition = {"action": "set-partition-columns", "partition-columns": ["id"]}
    answer = update(table, partition, add_commit(table, 1, *file))
    assert answer.json()["metadata"]["partition-columns"] == ["id"]
    [column] = place.get(f"/tables/{table.name}")["columns"]
    assert (column["name"], column["partition_index"]) == ("id", 0)


@pytest.mark.parametrize("comment", [None, ""])
def test_a_comment_is_cleared(place: Place, table: DeltaTable, comment: str | None) -> None:
    assert update(table, {"action": "set-table-comment", "comment": "ours"}).status_code == 200
    assert place.get(f"/tables/{table.name}")["comment"] == "ours"
    assert update(table, {"action": "set-table-comment", "comment": comment}).status_code == 200
    assert "comment" not in place.get(f"/tables/{table.name}")


@pytest.mark.parametrize(
    "updates",
    [
        [],
        [{"action": "frob"}],
        [{"action": "set-properties", "updates": {"a": "b"}}, {"action": "set-properties", "updates": {}}],
        [
            {"action": "set-properties", "updates": {"a": "b"}},
            {"action": "remove-properties", "removals": ["a"]},
        ],
        [
            {"action": "set-domain-metadata", "updates": {"delta.rowTracking": {"rowIdHighWaterMark": 1}}},
            {"action": "remove-domain-metadata", "domains": ["delta.rowTracking"]},
        ],
        [{"action": "set-domain-metadata", "updates": {"my.domain": {}}}],
        [{"action": "set-properties", "updates": {"a": None}}],
        [{"action": "set-properties", "updates": {"io.unitycatalog.tableId": NOBODY}}],
        [{"action": "remove-properties", "removals": ["io.unitycatalog.tableId"]}],
        [{"action": "set-columns", "columns": {"type": "struct", "fields": [{"name": "x"}]}}],
        [{"action": "set-protocol", "protocol": {"min-reader-version": 1, "min-writer-version": 2}}],
        [{"action": "set-latest-backfilled-version", "latest-published-version": 7}],
        [{"action": "set-latest-backfilled-version", "latest-published-version": -1}],
        [
            {
                "action": "update-metadata-snapshot-version",
                "last-commit-version": 5,
                "last-commit-timestamp-ms": 5,
            }
        ],
        [{"action": "add-commit"}],
        [{"action": "add-commit", "commit": {"version": 1}}],
    ],
)
def test_invalid_updates_are_refused_and_leave_nothing(table: DeltaTable, updates: list[Any]) -> None:
    before = table.load()
    answer = update(table, *updates)
    assert kind(answer) == INVALID, answer.text
    assert table.load() == before


def test_uniform_metadata(table: DeltaTable) -> None:
    iceberg = {
        "metadata-location": f"{table.location}/metadata/1.metadata.json",
        "converted-delta-version": 1,
        "converted-delta-timestamp": 1770656400000,
    }
    enabled = {"delta.universalFormat.enabledFormats": "iceberg"}
    file = metadata_action(table, configuration=enabled)
    properties = {"action": "set-properties", "updates": enabled}
    outside = {**iceberg, "metadata-location": "file:///elsewhere/1.metadata.json"}
    refused = update(table, properties, add_commit(table, 1, *file, uniform={"iceberg": outside}))
    assert kind(refused) == INVALID
    answer = update(table, properties, add_commit(table, 1, *file, uniform={"iceberg": iceberg}))
    assert answer.json()["uniform"] == {"iceberg": iceberg}
    assert table.load()["uniform"] == {"iceberg": iceberg}


# --- the rest of the life of a table ---


def test_loading_and_who_may(place: Place, table: DeltaTable) -> None:
    base = schema_url(place) + "/tables"
    assert place.visitor("SELECT").get(table.url).json()["metadata"]["table-uuid"] == table.id
    assert kind(place.visitor("BROWSE").get(table.url)) == (403, "PermissionDeniedException")
    assert kind(place.visitor().get(table.url)) == (404, "NoSuchTableException")
    assert kind(place.person().get(table.url)) == (404, "NoSuchCatalogException")
    assert kind(place.admin.get(base + "/none")) == (404, "NoSuchTableException")
    assert kind(place.admin.get(f"{V1}/catalogs/{place.catalog}/schemas/no/tables/t")) == (
        404,
        "NoSuchSchemaException",
    )
    assert kind(place.admin.get(f"{V1}/catalogs/no/schemas/s/tables/t")) == (404, "NoSuchCatalogException")
    reader = place.visitor("SELECT")
    body = {
        "requirements": [{"type": "assert-table-uuid", "uuid": table.id}],
        "updates": [add_commit(table, 1)],
    }
    assert kind(reader.post(table.url, json=body)) == (403, "PermissionDeniedException")
    writer = place.visitor("MODIFY")
    assert writer.post(table.url, json=body).json()["latest-table-version"] == 1


def test_who_may_maintain_a_table_is_told_what_that_allows(place: Place, table: DeltaTable) -> None:
    operations = "allowed-maintenance-operations"
    everything = ["DATA_REORGANIZATION", "DATA_CLEANUP", "METADATA_CLEANUP"]
    assert table.load()[operations] == everything
    assert table.commit(table.stage(1, [add_file("a.parquet")])).json()[operations] == everything
    keeper, reader, writer = (place.visitor(each) for each in ("MAINTAIN", "SELECT", "MODIFY"))
    for _ in range(2):
        # The second time all facts are at hand.
        assert table.load_with(keeper)[operations] == everything
        assert operations not in table.load_with(reader)
        assert operations not in table.load_with(writer)
    grant = {"principal": reader.headers["X-Name"], "add": ["MAINTAIN"], "remove": []}
    place.send("PATCH", f"/permissions/table/{table.name}", {"changes": [grant]})
    assert table.load_with(reader)[operations] == everything


def test_existing_renaming_and_dropping(place: Place, table: DeltaTable) -> None:
    base = schema_url(place) + "/tables"
    head = place.admin.head(table.url)
    assert (head.status_code, head.content) == (204, b"")
    assert place.admin.head(base + "/none").status_code == 404
    place.table("taken")
    rename = table.url + "/rename"
    assert place.admin.post(rename, json={"new-name": "t"}).status_code == 204
    assert kind(place.admin.post(rename, json={"new-name": "taken"})) == (409, "AlreadyExistsException")
    assert kind(place.admin.post(rename, json={"new-name": ""}))[0] == 400
    assert kind(place.visitor("SELECT").post(rename, json={"new-name": "u"})) == (
        403,
        "PermissionDeniedException",
    )
    assert kind(place.admin.post(base + "/none/rename", json={"new-name": "u"})) == (
        404,
        "NoSuchTableException",
    )
    assert place.admin.post(rename, json={"new-name": "a name/with.dots"}).status_code == 204
    moved = base + "/a%20name%2Fwith.dots"
    assert place.admin.get(moved).json()["metadata"]["table-uuid"] == table.id
    assert place.admin.head(table.url).status_code == 404
    assert kind(place.visitor("SELECT").delete(moved)) == (403, "PermissionDeniedException")
    gone = place.admin.delete(moved)
    assert (gone.status_code, gone.content) == (204, b"")
    assert kind(place.admin.delete(moved)) == (404, "NoSuchTableException")


def test_credentials(place: Place, table: DeltaTable) -> None:
    url = table.url + "/credentials"
    answer = place.admin.get(url, params={"operation": "READ_WRITE"}).json()
    [credential] = answer["storage-credentials"]
    assert credential["prefix"] == table.location
    assert credential["operation"] == "READ_WRITE"
    assert credential["config"] == {}
    assert credential["expiration-time-ms"] > 0
    reader = place.visitor("SELECT")
    assert reader.get(url, params={"operation": "READ"}).status_code == 200
    denied = (403, "PermissionDeniedException")
    assert kind(reader.get(url, params={"operation": "READ_WRITE"})) == denied
    assert kind(place.admin.get(url)) == INVALID
    assert kind(place.admin.get(url, params={"operation": "FROB"})) == INVALID

    paths = f"{V1}/temporary-path-credentials"
    new = f"file://{place.server.home.with_name('external')}/{place.catalog}/new"
    answer = place.admin.get(paths, params={"location": new, "operation": "READ_WRITE"}).json()
    assert answer["storage-credentials"][0]["prefix"] == new
    above = str(table.folder.parent)
    assert kind(place.admin.get(paths, params={"location": above, "operation": "READ"})) == denied
    assert kind(place.admin.get(paths, params={"operation": "READ"})) == INVALID


def test_metrics(place: Place, table: DeltaTable) -> None:
    table.append(1, add_file("a"))
    report = {
        "num-files-added": 1,
        "num-rows-inserted": 1,
        "file-size-histogram": {
            "sorted-bin-boundaries": [0, 1024],
            "file-counts": [1, 0],
            "total-bytes": [100, 0],
            "commit-version": 1,
        },
    }

    def post(client: httpx.Client = place.admin, /, **fields: Any) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        body = {"table-id": table.id, "report": {"commit-report": report}, **named}
        return client.post(table.url + "/metrics", json=body)

    assert (post().status_code, post().content) == (204, b"")
    assert post(report=None).status_code == 204
    assert post(place.visitor("SELECT")).status_code == 204
    assert kind(post(place.visitor("BROWSE"))) == (403, "PermissionDeniedException")
    assert kind(post(table_id=NOBODY)) == INVALID
    assert kind(post(table_id=None)) == INVALID
    assert kind(post(report={"commit-report": {**report, "num-files-added": -1}})) == INVALID


def test_errors_of_the_server_itself_have_the_envelope_too(place: Place, table: DeltaTable) -> None:
    with unity(place.server) as stranger:
        stranger.headers["Authorization"] = "Bearer nonsense"
        assert kind(stranger.get(table.url)) == (401, "NotAuthorizedException")
    assert kind(place.admin.get(f"{V1}/nothing")) == (404, "NotFoundException")
    assert kind(place.admin.put(table.url)) == (405, "BadRequestException")
    too_long = place.admin.post(table.url, content=b'{"a":"' + b"x" * (33 * 2**20) + b'"}')
    assert kind(too_long) == (413, "BadRequestException")
    for body in (b"", b"{", b"[]", b'{"a":' * 100 + b"1" + b"}" * 100, b'{"updates":"\\u0000"}'):
        assert kind(place.admin.post(table.url, content=body)) == INVALID, body
    bad = httpx.URL(place.server.url + "/api/2.1/unity-catalog" + V1 + "/catalogs/%zz/schemas/s/tables/t")
    assert kind(place.admin.get(bad))[0] == 400


def test_a_table_made_by_the_managed_routes_is_the_same_table(place: Place) -> None:
    made = place.table("both")
    loaded = made.load()
    assert loaded["metadata"]["table-uuid"] == made.id
    assert loaded["metadata"]["columns"]["fields"] == [json.loads(ID["type_json"])]
    made.append(1, add_file("a"))
    body = {"table_id": made.id, "table_uri": made.location}
    shown = place.send("GET", "/delta/preview/commits", body)
    assert shown["latest_table_version"] == 1


def test_a_commit_sent_again_has_happened_whatever_its_name_stands_for(place: Place) -> None:
    """To be told that it has not would let its writer delete the file, or commit it a second time."""
    table = place.table("t")
    table.append(1)
    staged = table.stage(2, [add_file("a")])
    table.commit(staged).raise_for_status()
    schema = table.url.rpartition("/")[0]
    place.admin.post(table.url + "/rename", json={"new-name": "moved"}).raise_for_status()

    def repeat() -> None:
        told = table.commit(staged)
        assert told.status_code == 200, told.text
        assert told.json()["metadata"]["table-uuid"] == table.id
        assert told.json()["latest-table-version"] == 2
        assert kind(table.commit(table.stage(3, [])))[0] in (404, 409)
        assert kind(place.visitor("SELECT").post(table.url, json=body))[0] in (403, 404, 409)

    body = {
        "requirements": [{"type": "assert-table-uuid", "uuid": table.id}],
        "updates": [{"action": "add-commit", "commit": staged}],
    }
    repeat()
    other = place.table("t")
    assert other.url == table.url
    repeat()
    assert place.get(schema + "/moved")["latest-table-version"] == 2
    # Of a table that is gone there is nothing to answer, and still no refusal.
    place.send("DELETE", f"/tables/{place.schema}.moved")
    assert kind(table.commit(staged)) == (500, "CommitStateUnknownException")
