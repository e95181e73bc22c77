"""LanceDB in both its ways: as a database on a namespace, and as a client of a server that does the work.

In: `url`, `token`, `catalog`, `remote` and `steps`, each a word and its arguments (see `step`).
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

    def step(self, kind: str, *given: Any) -> Any:
        base, table = self.base, self.table
        if kind == "names":
            return sorted(base.table_names(**self.space))
        if kind == "create":
            self.table = base.create_table(given[0], rows(*given[1:]), **self.space)
            return self.table.count_rows()
        if kind == "open":
            self.table = base.open_table(given[0], **self.space)
            return self.table.version
        if kind == "add":
            table.add(rows(*given))
            return table.count_rows()
        if kind == "count":
            return table.count_rows(*given)
        if kind == "near":
            return [each["id"] for each in table.search([given[0]] * 4).limit(given[1]).to_list()]
        if kind == "where":
            found = table.search().where(given[0]).select(["id"]).limit(100).to_list()
            return sorted(each["id"] for each in found)
        if kind == "words":
            found = table.search(given[0], query_type="fts").limit(100).select(["id"]).to_list()
            return sorted(each["id"] for each in found)
        if kind == "update":
            table.update(where=given[0], values={"word": given[1]})
            return table.version
        if kind == "delete":
            table.delete(given[0])
            return table.count_rows()
        if kind == "merge":
            merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(rows(*given))
            return table.count_rows()
        if kind == "versions":
            return [each["version"] for each in table.list_versions()]
        if kind == "schema":
            return table.schema.names
        if kind == "add_column":
            table.add_columns({given[0]: given[1]})
        elif kind == "rename_column":
            table.alter_columns({"path": given[0], "rename": given[1]})
        elif kind == "drop_column":
            table.drop_columns([given[0]])
        elif kind == "scalar_index":
            table.create_scalar_index(given[0])
        elif kind == "words_index":
            table.create_fts_index(given[0])
        elif kind == "vector_index":
            table.create_index("l2", vector_column_name="vector", index_type="IVF_FLAT")
        elif kind == "indices":
            return sorted(index.name for index in table.list_indices())
        elif kind == "index_rows":
            return table.index_stats(given[0]).num_indexed_rows
        elif kind == "drop_index":
            table.drop_index(given[0])
        elif kind == "explain":
            return "ANN" in table.search([1.0] * 4).limit(1).explain_plan()
        elif kind == "tags":
            table.tags.create("a", 1)
            table.tags.update("a", 2)
            told = [table.tags.get_version("a"), sorted(table.tags.list())]
            table.tags.delete("a")
            return [*told, sorted(table.tags.list())]
        elif kind == "at":
            table.checkout(given[0])
            count = table.count_rows()
            table.checkout_latest()
            return count
        elif kind == "restore":
            table.checkout(given[0])
            table.restore()
            return table.count_rows()
        elif kind == "rename":
            base.rename_table(*given)
        elif kind == "drop":
            base.drop_table(given[0], **self.space)
        else:
            raise ValueError(kind)
        return None


def main() -> None:
    given = json.loads(sys.stdin.readline())
    base = Base(given)
    answers = []
    for each in given["steps"]:
        try:
            answers.append(base.step(*each))
        except Exception as error:
            answers.append({"error": f"{type(error).__name__}: {error}"})
    print(json.dumps(answers))


main()
