"""LanceDB in both its ways: as a database on a namespace, and as a client of a server that does the work.

In: `url`, `token`, `catalog`, `remote` and `steps`, each a method of `Base` and its arguments.
Out: for each step its answer, or `{"error": ...}`.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import lancedb
import pyarrow

warnings.simplefilter("ignore")


def rows(first: int, count: int) -> Any:
    numbers = range(first, first + count)
    flat = pyarrow.array([float(n) for n in numbers for _ in range(4)], pyarrow.float32())
    return pyarrow.table(
        {
            "id": pyarrow.array(numbers, pyarrow.int64()),
            "word": pyarrow.array([f"apple {n}" if n % 2 else f"pear {n}" for n in numbers]),
            "vector": pyarrow.FixedSizeListArray.from_arrays(flat, 4),
        }
    )


class Base:
    def __init__(self, given: dict[str, Any]) -> None:
        url = given["url"] + "/lance"
        self.table: Any = None
        if given["remote"]:
            self.base = lancedb.connect(f"db://{given['catalog']}", api_key=given["token"], host_override=url)
            self.space: dict[str, Any] = {}
        else:
            properties = {"uri": url, "header.Authorization": f"Bearer {given['token']}"}
            self.base = lancedb.connect_namespace("rest", properties)
            self.space = {"namespace_path": [given["catalog"], "default"]}

    def names(self) -> list[str]:
        return sorted(self.base.table_names(**self.space))

    def create(self, name: str, first: int, count: int) -> int:
        self.table = self.base.create_table(name, rows(first, count), **self.space)
        return self.count()

    def open(self, name: str) -> int:
        self.table = self.base.open_table(name, **self.space)
        return self.version()

    def rename(self, name: str, to: str) -> None:
        self.base.rename_table(name, to)

    def drop(self, name: str) -> None:
        self.base.drop_table(name, **self.space)

    # --- rows ---

    def count(self, *where: str) -> int:
        return int(self.table.count_rows(*where))

    def near(self, value: float, limit: int) -> list[int]:
        return [each["id"] for each in self.table.search([value] * 4).limit(limit).to_list()]

    def where(self, where: str) -> list[int]:
        return self._ids(self.table.search().where(where))

    def words(self, text: str) -> list[int]:
        return self._ids(self.table.search(text, query_type="fts"))

    def word_trees(self, column: str, word: str, other: str) -> list[list[int]]:
        """Of queries that one text cannot say."""
        from lancedb.query import BooleanQuery, FullTextOperator, MatchQuery, MultiMatchQuery, Occur

        either = MatchQuery(f"{word} {other}", column)
        queries = (
            either,
            MatchQuery(f"{word} {other}", column, operator=FullTextOperator.AND),
            MultiMatchQuery(word, [column]),
            BooleanQuery([(Occur.SHOULD, either), (Occur.MUST_NOT, MatchQuery(other, column))]),
        )
        return [self._ids(self.table.search(query, query_type="fts")) for query in queries]

    def near_each(self, *values: float) -> list[list[int]]:
        found = self.table.search([[value] * 4 for value in values]).limit(1).to_list()
        return sorted([each["query_index"], each["id"]] for each in found)

    def _ids(self, search: Any) -> list[int]:
        return sorted(each["id"] for each in search.select(["id"]).limit(100).to_list())

    def add(self, first: int, count: int) -> int:
        self.table.add(rows(first, count))
        return self.count()

    def update(self, where: str, word: str) -> int:
        self.table.update(where=where, values={"word": word})
        return self.version()

    def delete(self, where: str) -> int:
        self.table.delete(where)
        return self.count()

    def merge(self, first: int, count: int) -> int:
        merge = self.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows(first, count))
        return self.count()

    # --- versions and tags ---

    def version(self) -> int:
        return int(self.table.version)

    def versions(self) -> list[int]:
        return [each["version"] for each in self.table.list_versions()]

    def tags(self) -> list[Any]:
        tags = self.table.tags
        tags.create("a", 1)
        tags.update("a", 2)
        told = [tags.get_version("a"), sorted(tags.list())]
        tags.delete("a")
        return [*told, sorted(tags.list())]

    def at(self, version: int) -> int:
        self.table.checkout(version)
        count = self.count()
        self.table.checkout_latest()
        return count

    def restore(self, version: int) -> int:
        self.table.checkout(version)
        self.table.restore()
        return self.count()

    # --- columns and indexes ---

    def schema(self) -> Any:
        return self.table.schema.names

    def add_column(self, name: str, sql: str) -> None:
        self.table.add_columns({name: sql})

    def rename_column(self, name: str, to: str) -> None:
        self.table.alter_columns({"path": name, "rename": to})

    def drop_column(self, name: str) -> None:
        self.table.drop_columns([name])

    def scalar_index(self, column: str) -> None:
        self.table.create_scalar_index(column)

    def words_index(self, column: str) -> None:
        self.table.create_fts_index(column)

    def vector_index(self) -> None:
        self.table.create_index("l2", vector_column_name="vector", index_type="IVF_FLAT")

    def indices(self) -> list[str]:
        return sorted(index.name for index in self.table.list_indices())

    def index_rows(self, name: str) -> int:
        return int(self.table.index_stats(name).num_indexed_rows)

    def drop_index(self, name: str) -> None:
        self.table.drop_index(name)

    def explain(self) -> bool:
        return "ANN" in self.table.search([1.0] * 4).limit(1).explain_plan()


def main() -> None:
    given = json.loads(sys.stdin.readline())
    base = Base(given)
    answers = []
    for each in given["steps"]:
        try:
            answers.append(getattr(base, each[0])(*each[1:]))
        except Exception as error:
            answers.append({"error": f"{type(error).__name__}: {error}"})
    print(json.dumps(answers))


main()
