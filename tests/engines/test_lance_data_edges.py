"""Work on data at its edges: what is not there, branches made anew, and every part of a query for words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engines.test_lance_clients import lancedb, rest
from tests.fixtures.lance import Namespace, code
from tests.fixtures.server import InverServer


@pytest.fixture
def space(data_server: InverServer) -> Iterator[Namespace]:
    space = Namespace(data_server)
    rest(space, ["TableApi", "create_table", [f"{space.catalog}$s$t"], {"rows": [0, 4]}, {}])
    yield space
    space.close()


def refused(space: Namespace, action: str, body: Any) -> tuple[int, int]:
    return code(space.ask("POST", f"{space.path('t')}/{action}", body))


def test_what_is_not_there_is_missing_and_no_failure(space: Namespace):
    for version in (0, 99):
        assert refused(space, "restore", {"version": version}) == (404, 11)
        assert refused(space, "branches/create", {"name": "dev", "from_version": version}) == (404, 11)
    assert refused(space, "restore", {"version": 1, "branch": "none"}) == (404, 22)
    assert refused(space, "create_index", {"column": "id", "index_type": "NONE"}) == (400, 13)
    assert refused(space, "create_index", {"column": "id", "index_type": "IVF_PQ"}) == (400, 13)
    assert refused(space, "update", {"updates": [["id", "1"], ["id", "2"]]}) == (400, 13)
    assert space.versions("t") == [1]
    assert space.of("t", "branches/list")["branches"] == {}


def test_a_branch_made_anew_is_read_as_it_is_now(space: Namespace):
    for predicate, left in (("id < 3", 1), ("id < 1", 3)):
        space.of("t", "branches/create", {"name": "dev"})
        assert space.of("t", "delete", {"predicate": predicate, "branch": "dev"})["version"] == 2
        assert space.of("t", "count_rows", {"branch": "dev"}) == left
        assert space.of("t", "count_rows", {"branch": "dev", "version": 2}) == left
        space.of("t", "branches/delete", {"name": "dev"})


@pytest.fixture(scope="module")
def texts(data_server: InverServer) -> Iterator[Namespace]:
    space = Namespace(data_server)
    rest(space, ["TableApi", "create_table", [f"{space.catalog}$s$t"], {"rows": [0, 4]}, {}])
    space.of("t", "add_columns", {"new_columns": [{"name": "text", "expression": "'green frog'"}]})
    for row, text in enumerate(("red fox jumps", "red hen sleeps", "blue fox sleeps")):
        space.of("t", "update", {"updates": [["text", f"'{text}'"]], "predicate": f"id = {row}"})
    space.of("t", "create_index", {"column": "text", "index_type": "FTS", "with_position": True})
    yield space
    space.close()


def found(space: Namespace, queries: list[Any]) -> list[list[int]]:
    calls = []
    for query in queries:
        words = {"structured_query": {"query": query}}
        body = {"k": 10, "vector": {}, "full_text_query": words, "columns": {"column_names": ["id"]}}
        calls.append(["TableApi", "query_table", [f"{space.catalog}$s$t"], body, {}])
    return [sorted(answer["id"]) for answer in rest(space, *calls)]


def match(terms: str, **more: Any) -> dict[str, Any]:
    return {"match": {"terms": terms, "column": "text", **more}}


def test_every_part_of_a_query_for_words_counts(texts: Namespace):
    both = {"must": [], "should": [match("red"), match("fox")], "must_not": []}
    many = [match("green")["match"], match("blue")["match"]]
    expected: list[tuple[Any, list[int]]] = [
        (match("red fox"), [0, 1, 2]),
        (match("red fox", operator="And"), [0]),
        ({"boolean": both}, [0, 1, 2]),
        ({"boolean": {**both, "must_not": [match("sleeps")]}}, [0]),
        ({"boolean": {**both, "must": [match("sleeps")]}}, [1, 2]),
        ({"phrase": {"terms": "red jumps", "column": "text"}}, []),
        ({"phrase": {"terms": "red jumps", "column": "text", "slop": 1}}, [0]),
        ({"multi_match": {"match_queries": many}}, [2, 3]),
        ({"boost": {"positive": match("fox"), "negative": match("red")}}, [0, 2]),
        (match("grean", fuzziness=1), [3]),
        (match("grean", fuzziness=1, prefix_length=5), []),
    ]
    assert found(texts, [query for query, _ in expected]) == [rows for _, rows in expected]


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"none": {}},
        {"match": {}},
        {"match": 5},
        {"match": {"terms": 5}},
        {**match("red"), "phrase": {"terms": "red"}},
        match("red", operator="xor"),
        match("red", fuzziness=-1),
        {"boost": {"positive": match("red")}},
        {"multi_match": {"match_queries": [5]}},
        {"multi_match": {"match_queries": []}},
        {"multi_match": {"query": "red"}},
        {"multi_match": {"query": "red", "columns": ["text"], "boost": []}},
        {"boolean": {"must": [5]}},
        {"boolean": {"must": [], "should": [], "must_not": []}},
    ],
)
def test_what_is_no_query_for_words(texts: Namespace, query: Any):
    body = {"k": 1, "full_text_query": {"structured_query": {"query": query}}}
    for action, sent in (("query", body), ("analyze_plan", body), ("explain_plan", {"query": body})):
        assert refused(texts, action, sent) == (400, 13)


def test_a_query_without_columns_is_for_those_with_an_index(texts: Namespace):
    assert found(texts, [{"match": {"terms": "frog"}}, {"phrase": {"terms": "red hen"}}]) == [[3], [1]]


def test_lancedb_asks_for_trees_of_words_and_several_vectors(space: Namespace):
    space.post(f"/v1/namespace/{space.catalog}$default/create", {})
    asked = lancedb(
        space,
        True,
        ["create", "t", 0, 6],
        ["update", "id = 1", "apple pear"],
        ["words_index", "word"],
        ["words", "apple"],
        ["word_trees", "word", "apple", "pear"],
        ["near_each", 2.0, 5.0],
    )
    assert asked[3:] == [[1, 3, 5], [[0, 1, 2, 3, 4, 5], [1], [1, 3, 5], [3, 5]], [[0, 2], [1, 5]]]


def test_words_in_columns_that_are_not_there(texts: Namespace):
    def plain(columns: Any) -> dict[str, Any]:
        return {"k": 1, "full_text_query": {"string_query": {"query": "red", "columns": columns}}}

    assert refused(texts, "query", plain(5)) == (400, 13)
    assert refused(texts, "query", plain([5])) == (400, 13)
    assert refused(texts, "query", plain(["none"])) == (404, 12)
