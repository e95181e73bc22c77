"""delta/v1 at its edges: requests that are nearly right, and what they must not leave behind."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.fixtures.delta import LONG_ID, DeltaTable, commit_file, new_table
from tests.fixtures.unity import FEATURES, Place, first_actions, kind

V1 = "/delta/v1"
INVALID = (400, "InvalidParameterValueException")
CHANGED = (409, "UpdateRequirementConflictException")
FORMATS = "delta.universalFormat.enabledFormats"
TRACKED = {"delta.rowTracking": {"rowIdHighWaterMark": 5}}
CLUSTERED = {"delta.clustering": {"clusteringColumns": [["id"]]}}
[ID] = LONG_ID
DAY = {**ID, "name": "Day", "type": "date"}


@pytest.fixture
def table(place: Place) -> DeltaTable:
    return new_table(place.admin, f"{place.schema}.t")


def update(table: DeltaTable, *updates: Any, **fields: Any) -> httpx.Response:
    body = {"requirements": [{"type": "assert-table-uuid", "uuid": table.id}], "updates": list(updates)}
    return table.http.post(table.url, json={**body, **fields})


def add_commit(table: DeltaTable, version: int, *actions: Any, **fields: Any) -> dict[str, Any]:
    return {"action": "add-commit", "commit": table.stage(version, actions), **fields}


def message(answer: httpx.Response) -> str:
    assert kind(answer) == INVALID, answer.text
    told: str = answer.json()["error"]["message"]
    return told


def struct(*fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def protocol_of(*features: str) -> dict[str, Any]:
    return {
        "min-reader-version": 3,
        "min-writer-version": 7,
        "reader-features": [each for each in FEATURES if each != "inCommitTimestamp"],
        "writer-features": [*FEATURES, *features],
    }


def creation(table: DeltaTable, **fields: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    return {
        "name": table.name.rpartition(".")[2],
        "location": table.location,
        "table-type": "MANAGED",
        "columns": struct(ID),
        "protocol": protocol_of(),
        "properties": first_actions(table)[1]["metaData"]["configuration"],
        "last-commit-timestamp-ms": table.timestamp,
        **named,
    }


def create(place: Place, table: DeltaTable, **fields: Any) -> httpx.Response:
    url = f"{V1}/catalogs/{place.catalog}/schemas/s/tables"
    return place.admin.post(url, json=creation(table, **fields))


def external(place: Place, **fields: Any) -> DeltaTable:
    """A table whose log belongs to others."""
    folder = place.server.home.with_name("external") / place.catalog / "ext"
    table = DeltaTable(place.admin, f"{place.schema}.ext", "", f"file://{folder}", ())
    protocol = {"min-reader-version": 1, "min-writer-version": 2}
    made = create(
        place, table, **{"table_type": "EXTERNAL", "protocol": protocol, "properties": {}, **fields}
    )
    assert made.status_code == 200, made.text
    table.id = made.json()["metadata"]["table-uuid"]
    return table


def staged(place: Place, *features: str, **domains: Any) -> DeltaTable:
    """A staged table with these domains in version 0."""
    table = place.staged("t", features=(*FEATURES, *features))
    first = [*first_actions(table, features=(*FEATURES, *features)), *domain_actions(domains)]
    first[0]["protocol"]["readerFeatures"] = protocol_of()["reader-features"]
    table.put(f"_delta_log/{0:020d}.json", commit_file(table.timestamp, first, "CREATE TABLE"))
    return table


def domain_actions(domains: dict[str, Any]) -> list[dict[str, Any]]:
    """As a commit file sets domains, and removes those of None."""
    return [
        {"domainMetadata": {"domain": name, "configuration": json.dumps(value or {}), "removed": not value}}
        for name, value in domains.items()
    ]


def metadata_action(table: DeltaTable, **configuration: str) -> dict[str, Any]:
    [_, action] = first_actions(table, configuration=configuration)
    return action


# --- requests ---


@pytest.mark.parametrize(
    "versions", ["", "2.0", "1", "1.", "1.x", "11.0", "one", ",", "2.0 1.0"], ids=lambda each: each or "none"
)
def test_a_version_of_the_protocol_is_agreed_on(place: Place, versions: str) -> None:
    def config(**params: str) -> httpx.Response:
        return place.admin.get(f"{V1}/config", params={"catalog": place.catalog, **params})

    assert "protocol-versions" in message(config(**{"protocol-versions": versions}))
    assert "protocol-versions" in message(config())
    for good in ("1.0", "1.7", "2.3, 1.1", f"{versions},1.0"):
        assert config(**{"protocol-versions": good}).json()["protocol-version"] == "1.0"


@pytest.mark.parametrize("uuid", ["", "x", "{}", "01a1ec74c13770b897b89cf98dd8b1b4"])
def test_what_is_no_uuid_is_no_conflict(table: DeltaTable, uuid: str) -> None:
    """Nothing that changes would make it right."""
    requirements = [{"type": "assert-table-uuid", "uuid": uuid}]
    comment = {"action": "set-table-comment", "comment": "ours"}
    for action in (comment, add_commit(table, 1)):
        assert "uuid" in message(update(table, action, requirements=requirements))


@pytest.mark.parametrize("domains", [{}, {"delta.clustering": None}])
def test_setting_no_domain_is_refused(place: Place, domains: dict[str, Any]) -> None:
    table = external(place)
    before = table.load()
    assert "domain" in message(update(table, {"action": "set-domain-metadata", "updates": domains}))
    assert table.load() == before


def test_who_may_make_an_external_table_may_write_its_files_first(place: Place) -> None:
    maker = place.person(("CREATE EXTERNAL TABLE", "metastore", "metastore"))
    folder = place.server.home.with_name("external") / place.catalog / "new"

    def keys(location: str, operation: str) -> httpx.Response:
        params = {"location": location, "operation": operation}
        return maker.get(f"{V1}/temporary-path-credentials", params=params)

    [vended] = keys(f"file://{folder}", "READ_WRITE").json()["storage-credentials"]
    assert (vended["prefix"], vended["operation"]) == (f"file://{folder}", "READ_WRITE")
    denied = (403, "PermissionDeniedException")
    assert kind(keys(f"file://{folder}", "READ")) == denied
    table = external(place)
    assert kind(keys(table.location, "READ_WRITE")) == denied
    assert kind(keys(f"file://{folder.parent}", "READ_WRITE")) == denied


# --- creation ---


def test_a_creation_is_what_version_0_says(place: Place) -> None:
    text = {**ID, "name": "text", "type": "string"}
    both = tuple({"type_json": json.dumps(field)} for field in (ID, text))
    table = place.staged("t", fields=both)
    for wrong in (struct(), struct(ID), struct(text, ID), struct(ID, {**text, "type": "long"})):
        assert "columns" in message(create(place, table, columns=wrong))
    protocol = protocol_of()
    for features in (protocol["reader-features"][:-1], [*protocol["reader-features"], "inCommitTimestamp"]):
        wrong_protocol = {**protocol, "reader-features": features}
        answer = create(place, table, columns=struct(ID, text), protocol=wrong_protocol)
        assert "reader feature" in message(answer)
    assert "last-commit-timestamp-ms" in message(create(place, table, last_commit_timestamp_ms=-1))
    made = create(place, table, columns=struct({**ID, "name": "ID"}, text))
    assert made.status_code == 200, made.text
    # The older dialects have the positions of columns, which need not be those of the log.
    other = place.staged("u", fields=both)
    columns = [{"name": field["name"], "type": field["type"]} for field in (text, ID)]
    assert place.post("/tables", place.creation(other, columns=columns))["table_id"] == other.id


# --- commits ---


def test_a_protocol_has_the_reader_features_of_the_file(table: DeltaTable) -> None:
    [written, _] = first_actions(table, features=(*FEATURES, "deletionVectors"))
    asked = {**protocol_of("deletionVectors"), "reader-features": written["protocol"]["readerFeatures"]}
    wrong = {"action": "set-protocol", "protocol": protocol_of("deletionVectors")}
    assert "reader features" in message(update(table, wrong, add_commit(table, 1, written)))
    right = {"action": "set-protocol", "protocol": asked}
    assert update(table, right, add_commit(table, 1, written)).status_code == 200


def test_a_staged_file_has_the_version_of_its_name(table: DeltaTable) -> None:
    """Readers that are told of a commit take its version from the name."""
    for version in (2, 10**19):
        staged = {**table.stage(version, []), "version": 1}
        assert f"version {version}" in message(table.commit(staged))
    assert table.load()["latest-table-version"] == 0
    data = (table.folder / "_delta_log/_staged_commits" / staged["file-name"]).read_bytes()
    table.put("_delta_log/_staged_commits/1.mine.json", data)
    assert table.commit({**staged, "file-name": "1.mine.json"}).status_code == 200


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"version": 0}, "commit.version"),
        ({"timestamp": -1}, "commit.timestamp"),
        ({"timestamp": 1}, "commit.timestamp"),
        ({"file-size": 0}, "commit.file-size"),
        ({"file-size": 1}, "commit.file-size"),
        ({"file-modification-timestamp": 0}, "commit.file-modification-timestamp"),
        ({"file-name": "../0.json"}, "commit.file-name"),
        ({"file-name": "none.json"}, "commit.file-name"),
    ],
)
def test_refusals_of_commits_name_the_field(table: DeltaTable, changed: dict[str, Any], field: str) -> None:
    """In the words of this dialect."""
    told = message(table.commit({**table.stage(1, []), **changed}))
    assert told.startswith(f"{field}: ")
    assert "_" not in told.replace("_delta_log", "").replace("_staged_commits", "")


def test_other_refusals_name_the_field_too(place: Place, table: DeltaTable) -> None:
    published = {"action": "set-latest-backfilled-version", "latest-published-version": 7}
    assert message(update(table, published)).startswith("latest-published-version: ")
    commit = add_commit(table, 1, uniform=uniform(table, 1))
    assert message(update(table, commit)).startswith("uniform needs")
    assert message(create(place, place.staged("u"), location="nowhere")).startswith("location 'nowhere'")
    paths = {"location": "nowhere", "operation": "READ"}
    answer = place.admin.get(f"{V1}/temporary-path-credentials", params=paths)
    assert message(answer).startswith("location 'nowhere'")
    answer = place.admin.post(table.url + "/rename", json={"new-name": ""})
    assert message(answer).startswith("new-name ")
    ext = external(place)
    assert "the commits of this table" in message(ext.commit(table.stage(1, [])))
    assert message(update(ext, {**published, "latest-published-version": 0})).startswith("latest-published-")
    histogram = {"sorted-bin-boundaries": [0, 9], "file-counts": [1], "total-bytes": [1, 1]}
    path = "report.commit-report.file-size-histogram"
    for wrong, field in (
        ({}, "file-counts"),
        ({"file-counts": [1, -1]}, "file-counts"),
        ({"file-counts": [1, 1], "sorted-bin-boundaries": [0, 0]}, "sorted-bin-boundaries"),
        ({"file-counts": [1, 1], "sorted-bin-boundaries": [1, 2]}, "sorted-bin-boundaries"),
        ({"commit-version": 7}, "commit-version"),
    ):
        report = {"commit-report": {"file-size-histogram": {**histogram, **wrong}}}
        answer = place.admin.post(table.url + "/metrics", json={"table-id": table.id, "report": report})
        assert message(answer).startswith(f"{path}.{field}: "), answer.text


def test_a_domain_needs_its_feature(place: Place) -> None:
    for domains, feature in ((TRACKED, "rowTracking"), (CLUSTERED, "clustering")):
        [name] = domains
        assert feature in message(create(place, staged(place, **domains), domain_metadata=domains))
        table = staged(place, "domainMetadata", feature, **domains)
        protocol = protocol_of("domainMetadata", feature)
        made = create(place, table, domain_metadata=domains, protocol=protocol)
        assert made.status_code == 200, made.text
        place.admin.delete(table.url)
        plain = new_table(place.admin, f"{place.schema}.plain")
        before = plain.load()
        commit = add_commit(plain, 1, *domain_actions(domains))
        asked = {"action": "set-domain-metadata", "updates": domains}
        told = message(update(plain, asked, commit))
        assert name in told
        assert feature in told
        assert plain.load() == before
        place.admin.delete(plain.url)
    # Of the tables of others the catalog may not know the protocol.
    ext = external(place, domain_metadata=TRACKED)
    after = update(ext, {"action": "set-domain-metadata", "updates": CLUSTERED}).json()["metadata"]
    assert after["properties"]["clusteringColumns"] == '[["id"]]'
    assert after["properties"]["delta.rowTracking.rowIdHighWaterMark"] == "5"


def test_domains_are_those_of_the_file(place: Place) -> None:
    table = staged(place, "domainMetadata", "rowTracking", "clustering", **TRACKED, **CLUSTERED)
    protocol = protocol_of("domainMetadata", "rowTracking", "clustering")
    other = {"delta.rowTracking": {"rowIdHighWaterMark": 6}}
    assert "delta.rowTracking" in message(create(place, table, domain_metadata=other, protocol=protocol))
    made = create(place, table, domain_metadata={**TRACKED, **CLUSTERED}, protocol=protocol)
    assert made.status_code == 200, made.text
    before = table.load()
    elsewhere = {"delta.clustering": {"clusteringColumns": [["day"]]}}
    gone = {"action": "remove-domain-metadata", "domains": ["delta.clustering"]}
    for written, asked in (
        ({}, {"action": "set-domain-metadata", "updates": other}),
        ({}, {"action": "set-domain-metadata", "updates": elsewhere}),
        (CLUSTERED, {"action": "set-domain-metadata", "updates": elsewhere}),
        ({"delta.clustering": None}, {"action": "set-domain-metadata", "updates": CLUSTERED}),
        ({}, gone),
        (CLUSTERED, gone),
    ):
        [name] = asked.get("updates") or asked["domains"]
        answer = update(table, asked, add_commit(table, 1, *domain_actions(written)))
        assert name in message(answer)
        assert table.load() == before
    answer = update(table, gone, add_commit(table, 1, *domain_actions({"delta.clustering": None})))
    assert "clusteringColumns" not in answer.json()["metadata"]["properties"]


def test_properties_of_delta_are_those_of_the_file(table: DeltaTable) -> None:
    key = "delta.appendOnly"
    on, off = (
        {"action": "set-properties", "updates": {key: "true"}},
        {
            "action": "remove-properties",
            "removals": [key],
        },
    )
    before = table.load()
    for actions in ([], [metadata_action(table)]):
        assert key in message(update(table, on, add_commit(table, 1, *actions)))
        assert table.load() == before
    file = metadata_action(table, **{key: "true"})
    assert update(table, on, add_commit(table, 1, file)).status_code == 200
    assert update(table, on, add_commit(table, 2)).status_code == 200
    assert key in message(update(table, off, add_commit(table, 3)))
    answer = update(table, off, add_commit(table, 3, metadata_action(table)))
    assert key not in answer.json()["metadata"]["properties"]


@pytest.mark.parametrize(
    "asked",
    [
        {"action": "set-columns", "columns": struct(ID, DAY)},
        {"action": "set-partition-columns", "partition-columns": ["id"]},
        {"action": "set-protocol", "protocol": protocol_of("appendOnly")},
        {"action": "set-domain-metadata", "updates": CLUSTERED},
        {"action": "remove-domain-metadata", "domains": ["delta.clustering"]},
        {"action": "set-properties", "updates": {"delta.appendOnly": "true"}},
        {"action": "remove-properties", "removals": ["delta.enableInCommitTimestamps"]},
    ],
    ids=lambda asked: asked["action"],
)
def test_what_is_in_the_log_changes_with_a_commit(table: DeltaTable, asked: dict[str, Any]) -> None:
    before = table.load()
    assert "commit" in message(update(table, asked))
    assert table.load() == before
    comment = {"action": "set-table-comment", "comment": "ours"}
    own = {"action": "set-properties", "updates": {"team": "ours", "delta.lastUpdateVersion": "7"}}
    after = update(table, comment, own).json()["metadata"]
    assert after["properties"] == {**before["metadata"]["properties"], "team": "ours"}


def test_changes_that_require_no_state_are_no_conflict(table: DeltaTable) -> None:
    """Each is applied to what the others made of the table."""

    def own(number: int) -> httpx.Response:
        return update(table, {"action": "set-properties", "updates": {f"k{number}": str(number)}})

    def commit(version: int) -> httpx.Response:
        key = {"mine": str(version)}
        file = metadata_action(table, **key)
        return update(table, {"action": "set-properties", "updates": key}, add_commit(table, version, file))

    with ThreadPoolExecutor(6) as pool:
        others = [pool.submit(own, number) for number in range(40)]
        commits = [commit(version) for version in range(1, 9)]
        answers = [*commits, *(other.result() for other in others)]
    assert [answer.status_code for answer in answers] == [200] * 48, [answer.text for answer in answers]
    after = table.load()
    assert after["latest-table-version"] == after["metadata"]["last-commit-version"] == 8
    expected = {f"k{number}": str(number) for number in range(40)} | {"mine": "8"}
    assert after["metadata"]["properties"].items() >= expected.items()


# --- partition columns ---


def test_partition_columns_of_an_external_table_follow_its_changes(place: Place) -> None:
    table = external(place, columns=struct(ID, DAY), partition_columns=["DAY"])

    def shown() -> tuple[list[str], list[tuple[str, int | None]]]:
        columns = place.get(f"/tables/{table.name}")["columns"]
        told = [(column["name"], column.get("partition_index")) for column in columns]
        return table.load()["metadata"]["partition-columns"], told

    assert shown() == (["Day"], [("id", None), ("Day", 0)])
    more = {"action": "set-columns", "columns": struct(ID, DAY, {**ID, "name": "more"})}
    assert update(table, more).status_code == 200
    assert shown() == (["Day"], [("id", None), ("Day", 0), ("more", None)])
    both = {"action": "set-partition-columns", "partition-columns": ["ID", "day"]}
    assert update(table, both).json()["metadata"]["partition-columns"] == ["id", "Day"]
    assert shown() == (["id", "Day"], [("id", 0), ("Day", 1), ("more", None)])
    without = {"action": "set-columns", "columns": struct(DAY)}
    assert "'id'" in message(update(table, without))
    none = {"action": "set-partition-columns", "partition-columns": []}
    assert update(table, without, none).status_code == 200
    assert shown() == ([], [("Day", None)])


def test_a_table_of_the_older_dialect_keeps_its_partition_columns(place: Place) -> None:
    folder = place.server.home.with_name("external") / place.catalog / "old"
    columns = [
        {"name": "id", "type_text": "bigint", "position": 0},
        {"name": "day", "type_text": "date", "position": 1, "partition_index": 0},
    ]
    body = place.named("old", table_type="EXTERNAL", data_source_format="DELTA", columns=columns)
    made = place.post("/tables", {**body, "storage_location": str(folder)})
    table = DeltaTable(place.admin, f"{place.schema}.old", made["table_id"], str(folder), ())
    wider = struct({**ID, "name": "more"}, {**DAY, "name": "day"})
    after = update(table, {"action": "set-columns", "columns": wider}).json()["metadata"]
    assert (after["columns"], after["partition-columns"]) == (wider, ["day"])


def test_a_partition_column_is_there_once(place: Place) -> None:
    table = place.staged("t", partition=("id", "ID"))
    assert "twice" in message(create(place, table))
    ext = external(place)
    twice = {"action": "set-partition-columns", "partition-columns": ["id", "Id"]}
    before = ext.load()
    assert "twice" in message(update(ext, twice))
    assert ext.load() == before


# --- Iceberg metadata ---


def uniform(table: DeltaTable, version: int, base: int | None = None) -> dict[str, Any]:
    iceberg = {
        "metadata-location": f"{table.location}/metadata/{version}.metadata.json",
        "converted-delta-version": version,
        "converted-delta-timestamp": 1770656400000,
    }
    return {"iceberg": iceberg if base is None else {**iceberg, "base-converted-delta-version": base}}


def converted(table: DeltaTable) -> int:
    """Switch Iceberg metadata on, with version 1."""
    on = {"action": "set-properties", "updates": {FORMATS: "iceberg"}}
    file = metadata_action(table, **{FORMATS: "iceberg"})
    assert update(table, on, add_commit(table, 1, file, uniform=uniform(table, 1))).status_code == 200
    return 1


def test_iceberg_metadata_moves_with_the_data(table: DeltaTable) -> None:
    """So who asserts an etag is not refused for it."""
    converted(table)
    before = table.load()["metadata"]
    requirements = [
        {"type": "assert-table-uuid", "uuid": table.id},
        {"type": "assert-etag", "etag": before["etag"]},
    ]
    for version in (2, 3, 4):
        commit = add_commit(table, version, uniform=uniform(table, version, version - 1))
        # Without an etag it takes the short way.
        required = {} if version == 3 else {"requirements": requirements}
        answer = update(table, commit, **required)
        assert answer.status_code == 200, answer.text
        assert answer.json()["uniform"] == uniform(table, version, version - 1)
        after = answer.json()["metadata"]
        for name in ("etag", "last-commit-version", "properties"):
            assert after[name] == before[name], name
        loaded = table.load()
        assert loaded["uniform"] == answer.json()["uniform"]
        assert loaded["metadata"] == after


def test_iceberg_metadata_builds_on_what_stands(place: Place, table: DeltaTable) -> None:
    on = {FORMATS: "iceberg"}
    first = place.staged("new", configuration=on)
    properties = metadata_action(first, **on)["metaData"]["configuration"]
    refused = create(place, first, properties=properties, uniform=uniform(first, 0, 0))
    assert "base-converted-delta-version" in message(refused)
    converted(table)
    # Another state than that of the table is a conflict; one that is not yet there is none at all.
    for wrong, expected in ((0, CHANGED), (2, INVALID), (7, INVALID)):
        answer = update(table, add_commit(table, 2, uniform=uniform(table, 2, wrong)))
        assert kind(answer) == expected, answer.text
    # Who does not build on anything has converted the whole table.
    assert update(table, add_commit(table, 2, uniform=uniform(table, 2))).status_code == 200
    assert update(table, add_commit(table, 3)).status_code == 200
    answer = update(table, add_commit(table, 4, uniform=uniform(table, 4, 2)))
    assert answer.json()["uniform"]["iceberg"]["converted-delta-version"] == 4


def test_iceberg_metadata_that_is_switched_off_is_gone(table: DeltaTable) -> None:
    converted(table)
    off = {"action": "remove-properties", "removals": [FORMATS]}
    answer = update(table, off, add_commit(table, 2, metadata_action(table)))
    assert answer.status_code == 200, answer.text
    assert "uniform" not in answer.json()
    assert "uniform" not in table.load()


# --- metrics ---


def test_reports_of_other_catalogs_versions_are_taken(place: Place) -> None:
    table = external(place)
    histogram = {"sorted-bin-boundaries": [0], "file-counts": [0], "total-bytes": [0], "commit-version": 41}
    report = {"commit-report": {"num-files-added": 0, "file-size-histogram": histogram}}
    answer = place.admin.post(table.url + "/metrics", json={"table-id": table.id, "report": report})
    assert answer.status_code == 204, answer.text


def test_a_count_of_zero_is_kept(place: Place, table: DeltaTable) -> None:
    table.append(1)
    histogram = {"sorted-bin-boundaries": [0], "file-counts": [0], "total-bytes": [0], "commit-version": 0}
    report = {"num-files-added": 0, "num-rows-updated": 0, "file-size-histogram": histogram}
    body = {"table-id": table.id, "report": {"commit-report": report}}
    place.admin.post(table.url + "/metrics", json=body).raise_for_status()
    with place.server.client() as management:
        url = f"/catalogs/{place.catalog}/schemas/s/tables/t/metrics"
        [kept] = management.get(url).raise_for_status().json()["reports"]
    assert kept["version"] == 0
    assert kept["report"]["files_added"] == kept["report"]["rows_updated"] == 0
    assert kept["report"]["histogram"]["file_counts"] == [0]
    assert "rows_inserted" not in kept["report"]
