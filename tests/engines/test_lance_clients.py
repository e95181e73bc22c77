"""LanceDB and the generated client, on a server that can work on data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engines.conftest import _client, lance_extra
from tests.fixtures.lance import Namespace, code, stage
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import InverServer, running_inver


@pytest.fixture
def space(data_server: InverServer) -> Iterator[Namespace]:
    space = Namespace(data_server)
    space.post(f"/v1/namespace/{space.catalog}$default/create", {})
    yield space
    space.close()


def lancedb(space: Namespace, remote: bool, *steps: list[Any]) -> Any:
    asked = {
        "url": space.server.url,
        "token": space.server.token,
        "catalog": space.catalog,
        "remote": remote,
        "steps": steps,
    }
    return _client("lancedb").run("lancedb_client.py", asked)


def rest(space: Namespace, *calls: list[Any]) -> Any:
    asked = {"url": space.server.url, "token": space.server.token, "calls": calls}
    return _client("lance").run("lance_rest_client.py", asked)


def test_lancedb_on_a_namespace(space: Namespace):
    answers = lancedb(
        space,
        False,
        ["create", "t", 0, 10],
        ["names"],
        ["open", "t"],
        ["add", 10, 5],
        ["near", 3.0, 1],
        ["where", "id > 12"],
        ["update", "id = 1", "x"],
        ["delete", "id = 2"],
        ["merge", 14, 3],
        ["versions"],
        ["at", 1],
        ["restore", 1],
        ["drop", "t"],
        ["names"],
    )
    assert answers[:6] == [10, ["t"], 1, 15, [3], [13, 14]]
    assert answers[6:9] == [3, 14, 16]
    assert answers[9] == [1, 2, 3, 4, 5]
    assert answers[10:] == [10, 10, None, []]


def test_lancedb_as_a_client_of_the_server(space: Namespace):
    answers = lancedb(
        space,
        True,
        ["names"],
        ["create", "t", 0, 10],
        ["open", "t"],
        ["names"],
        ["add", 10, 5],
        ["count", "id < 3"],
        ["near", 3.0, 1],
        ["where", "id > 12"],
        ["update", "id = 1", "x"],
        ["delete", "id = 2"],
        ["merge", 14, 3],
        ["add_column", "twice", "id * 2"],
        ["rename_column", "twice", "double"],
        ["schema"],
        ["drop_column", "double"],
        ["scalar_index", "id"],
        ["words_index", "word"],
        ["vector_index"],
        ["indices"],
        ["index_rows", "id_idx"],
        ["words", "apple"],
        ["explain"],
        ["drop_index", "id_idx"],
        ["indices"],
        ["tags"],
        ["versions"],
        ["at", 1],
        ["restore", 2],
        ["rename", "t", "u"],
        ["names"],
        ["drop", "u"],
        ["names"],
    )
    assert [each for each in answers if isinstance(each, dict)] == []
    assert answers[:8] == [[], 10, 1, ["t"], 15, 3, [3], [13, 14]]
    assert answers[8:11] == [3, 14, 16]
    assert answers[13] == ["id", "word", "vector", "double"]
    assert answers[18] == ["id_idx", "vector_idx", "word_idx"]
    assert answers[19:22] == [16, [3, 5, 7, 9, 11, 13, 15], True]
    assert answers[23] == ["vector_idx", "word_idx"]
    assert answers[24] == [2, ["a"], []]
    assert answers[25] == list(range(1, len(answers[25]) + 1))
    assert answers[26:] == [10, 15, None, ["u"], None, []]


def test_data_over_the_routes_of_the_specification(space: Namespace):
    table = f"{space.catalog}$s$t"
    data = "DataApi"
    answers = rest(
        space,
        ["TableApi", "create_table", [table], {"rows": [0, 10]}, {}],
        ["TableApi", "create_table", [table], {"rows": [0, 10]}, {}],
        ["TableApi", "create_table", [table], {"rows": [0, 10]}, {"mode": "exist_ok"}],
        ["TableApi", "insert_into_table", [table], {"rows": [10, 5]}, {}],
        [
            "TableApi",
            "merge_insert_into_table",
            [table, ["id"]],
            {"rows": [14, 3]},
            {"when_matched_update_all": True, "when_not_matched_insert_all": True},
        ],
        ["TableApi", "update_table", [table], {"updates": [["id", "id + 100"]], "predicate": "id = 3"}, {}],
        ["TableApi", "delete_from_table", [table], {"predicate": "id = 4"}, {}],
        ["TableApi", "count_table_rows", [table], {}, {}],
        ["TableApi", "count_table_rows", [table], {"version": 1, "predicate": "id < 5"}, {}],
        [data, "query_table", [table], {"k": 2, "vector": {"single_vector": [7.0] * 4}}, {}],
        [data, "query_table", [table], {"k": 5, "filter": "id > 100", "vector": {}}, {}],
        [
            data,
            "query_table",
            [table],
            {"k": 1, "vector": {"multi_vector": [[0.0] * 4, [9.0] * 4]}, "columns": {"column_names": ["id"]}},
            {},
        ],
        [
            data,
            "explain_table_query_plan",
            [table],
            {"query": {"k": 1, "vector": {"single_vector": [1.0] * 4}}},
            {},
        ],
        [data, "insert_into_table", [table], {"rows": [0, 2]}, {"mode": "overwrite"}],
        ["TableApi", "restore_table", [table], {"version": 2}, {}],
        ["TableApi", "count_table_rows", [table], {}, {}],
    )
    assert answers[0]["version"] == 1
    assert (answers[1]["status"], answers[1]["error"]["code"]) == (409, 5)
    assert answers[2]["version"] == 1
    assert (answers[3]["version"], answers[3]["num_inserted_rows"]) == (2, 5)
    assert (answers[4]["num_updated_rows"], answers[4]["num_inserted_rows"]) == (1, 2)
    assert (answers[5]["updated_rows"], answers[6]["version"]) == (1, 5)
    assert answers[7:9] == [16, 5]
    assert answers[9]["id"] == [7, 6] or answers[9]["id"] == [7, 8]
    assert answers[10]["id"] == [103]
    assert (answers[11]["id"], answers[11]["query_index"]) == ([0, 9], [0, 1])
    assert "id" in answers[12]
    assert answers[13]["version"] == 6
    assert answers[15] == 15
    assert space.versions("t") == [1, 2, 3, 4, 5, 6, 7]


def test_bad_data_is_refused_and_changes_nothing(space: Namespace):
    rest(space, ["TableApi", "create_table", [f"{space.catalog}$s$t"], {"rows": [0, 10]}, {}])

    def refused(action: str, body: Any, **params: str) -> tuple[int, int]:
        content = body if isinstance(body, bytes) else None
        path = f"{space.path('t')}/{action}"
        if content is None:
            return code(space.ask("POST", path, body, params=params))
        return code(space.client.post(path, content=content, params=params))

    assert refused("insert", b"not arrow") == (400, 20)
    assert refused("merge_insert", b"not arrow", on="id") == (400, 20)
    assert refused("merge_insert", b"") == (400, 13)
    assert refused("update", {"updates": [["none", "1"]]}) == (404, 12)
    assert refused("update", {"updates": []}) == (400, 13)
    assert refused("drop_columns", {"columns": ["none"]}) == (404, 12)
    assert refused("alter_columns", {"alterations": [{"path": "none", "rename": "x"}]}) == (404, 12)
    assert refused("create_index", {"column": "none", "index_type": "BTREE"}) == (404, 12)
    assert refused("query", {"k": 1, "vector": "seven"}) == (400, 13)
    assert refused("query", {"k": -1}) == (400, 13)
    assert refused("index/none/stats", {}) == (404, 6)
    assert refused("index/none/drop", {}) == (404, 6)
    assert refused("count_rows", {"version": 99}) == (404, 11)
    assert refused("backfill_column", {}) == (406, 0)
    assert space.versions("t") == [1]
    new = f"/v1/table/{space.catalog}$s$new/create"
    assert code(space.client.post(new, content=b"not arrow")) == (400, 20)
    assert space.ask("GET", f"/v1/namespace/{space.catalog}$s/table/list").json()["tables"] == ["t"]


def test_branches_and_schema_over_routes(space: Namespace):
    rest(space, ["TableApi", "create_table", [f"{space.catalog}$s$t"], {"rows": [0, 10]}, {}])
    space.of("t", "branches/create", {"name": "dev", "from_version": 1})
    assert set(space.of("t", "branches/list")["branches"]) == {"dev"}
    again = space.ask("POST", f"{space.path('t')}/branches/create", {"name": "dev", "from_version": 1})
    assert code(again) == (409, 23)
    assert space.of("t", "delete", {"predicate": "id < 5", "branch": "dev"})["version"] == 2
    assert space.of("t", "count_rows", {"branch": "dev"}) == 5
    assert space.of("t", "count_rows") == 10
    assert space.versions("t", branch="dev") == [1, 2]
    assert (
        space.of("t", "add_columns", {"new_columns": [{"name": "x", "expression": "id * 2"}]})["version"] == 2
    )
    changed = {"alterations": [{"path": "x", "data_type": {"type": "int32"}}]}
    assert space.of("t", "alter_columns", changed)["version"] == 3
    fields = space.of("t", "describe")["schema"]["fields"]
    assert [(field["name"], field["type"]["type"]) for field in fields][-1] == ("x", "int32")
    told = space.of("t", "update_field_metadata", {"updates": [{"path": "x", "metadata": {"unit": "m"}}]})
    assert told["fields"]["x"]["unit"] == "m"
    assert space.of("t", "schema_metadata/update", {"owner": "me"}) == {"owner": "me"}


def test_batch_commit_with_the_generated_client(space: Namespace):
    """Two tables move together, and a batch that loses moves none."""
    for name in ("a", "b"):
        space.of(name, "declare")
    places = {name: space.of(name, "describe")["location"] for name in ("a", "b")}

    def create(name: str, version: int) -> dict[str, Any]:
        return {"create_table_version": {"id": space.id(name), **stage(places[name], version)}}

    def batch(*operations: Any) -> list[Any]:
        return ["TableApi", "batch_commit_tables", [], {"operations": operations}, {}]

    done, lost, told = rest(
        space,
        batch(create("a", 1), create("b", 1), {"declare_table": {"id": space.id("c")}}),
        batch(create("a", 2), create("b", 3)),
        ["TransactionApi", "describe_transaction", ["1"], {}, {}],
    )
    assert [list(each) for each in done["results"]] == [
        ["create_table_version"],
        ["create_table_version"],
        ["declare_table"],
    ]
    assert (lost["status"], lost["error"]["code"]) == (409, 14)
    assert lost["error"]["instance"].endswith("#operations[1]")
    assert told["status"] == "SUCCEEDED"
    assert space.versions("a") == space.versions("b") == [1]


def test_without_the_extra_the_data_is_left_alone(tmp_path: Path):
    """A module that stands in the way of the real one makes it missing."""
    blocked = tmp_path / "blocked" / "lance"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('not installed')")
    with running_inver(tmp_path / "home", env={"PYTHONPATH": str(blocked.parent)}) as server:
        space = Namespace(server)
        space.of("t", "declare")
        place = space.of("t", "describe")["location"]
        space.of("t", "version/create", stage(place, 1))
        answer = space.ask("POST", f"{space.path('t')}/count_rows", {})
        assert code(answer) == (406, 0)
        assert "inver[lance]" in answer.json()["detail"]
        created: httpx.Response = space.client.post(f"{space.path('u')}/create", content=b"x")
        assert code(created) == (406, 0)
        assert space.ask("GET", f"/v1/namespace/{space.catalog}$s/table/list").json()["tables"] == ["t"]
        space.close()


@pytest.mark.s3
def test_data_on_an_object_store(tmp_path: Path, s3_server: S3Server):
    warehouse = f"s3://{s3_server.create_bucket()}/wh"
    env = {**lance_extra(), "INVER_STORAGE__WAREHOUSE": warehouse, **s3_server.settings}
    with running_inver(tmp_path / "home", env=env) as server:
        space = Namespace(server)
        table = f"{space.catalog}$s$t"
        made, added, counted = rest(
            space,
            ["TableApi", "create_table", [table], {"rows": [0, 10]}, {}],
            ["TableApi", "insert_into_table", [table], {"rows": [10, 5]}, {}],
            ["TableApi", "count_table_rows", [table], {"predicate": "id > 3"}, {}],
        )
        assert (made["version"], added["version"], counted) == (1, 2, 11)
        assert s3_server.secret_key not in str(made)
        space.close()
