"""pylance of any version, on one table of a namespace.

In: `url`, `token`, `id` and `steps`, each a word and its arguments (see `step`).
Out: for each step its answer, or `{"error": ...}`.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import lance
import lance_namespace
import pyarrow


def rows(first: int, count: int) -> Any:
    numbers = range(first, first + count)
    flat = pyarrow.array([float(n) for n in numbers for _ in range(4)], pyarrow.float32())
    return pyarrow.table(
        {
            "id": pyarrow.array(numbers, pyarrow.int64()),
            "word": pyarrow.array([f"word {n}" for n in numbers]),
            "vector": pyarrow.FixedSizeListArray.from_arrays(flat, 4),
        }
    )


class Table:
    def __init__(self, url: str, token: str, name: list[str]) -> None:
        properties = {"uri": url + "/lance", "header.Authorization": f"Bearer {token}"}
        self.namespace = lance_namespace.connect("rest", properties)
        self.place = {"namespace_client": self.namespace, "table_id": name}

    def open(self, **options: Any) -> Any:
        return lance.dataset(**self.place, **options)

    def told(self, dataset: Any) -> dict[str, int]:
        return {"version": dataset.version, "rows": dataset.count_rows()}

    def step(self, kind: str, *given: Any) -> Any:
        if kind in ("create", "append", "overwrite"):
            return self.told(lance.write_dataset(rows(*given), mode=kind, **self.place))
        if kind == "hold":
            self.held = self.open()
            return self.told(self.held)
        if kind == "held_append":
            self.held.insert(rows(*given))
            return self.told(self.held)
        if kind == "at":
            return self.told(self.open(version=given[0]))
        if kind == "tagged":
            dataset = self.open()
            return self.told(dataset.checkout_version(given[0]))
        if kind == "crowd":
            return self.crowd(*given)
        if kind == "versions":
            return [each["version"] for each in self.open().versions()]
        if kind == "branch":
            made = self.open().create_branch(given[0], given[1])
            made.insert(rows(*given[2:]))
            return self.told(made)
        if kind == "branch_by_path":
            made = lance.dataset(self.open().uri).create_branch(given[0], given[1])
            made.insert(rows(*given[2:]))
            return self.told(made)
        if kind == "drop_branch":
            self.open().branches.delete(given[0])
            return None
        if kind == "on_branch":
            return self.told(self.open().checkout_version((given[0], None)))
        if kind == "by_path":
            made = lance.write_dataset(rows(*given), self.open().uri, mode="append")
            return self.told(made)
        dataset = self.open(version=given[0]) if kind == "restore" else self.open()
        if kind == "delete":
            dataset.delete(given[0])
        elif kind == "update":
            dataset.update({"word": "'changed'"}, where=given[0])
        elif kind == "merge":
            merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(rows(*given))
        elif kind == "add_column":
            dataset.add_columns({given[0]: given[1]})
        elif kind == "scalar_index":
            dataset.create_scalar_index("id", "BTREE")
        elif kind == "vector_index":
            dataset.create_index("vector", "IVF_FLAT", num_partitions=1)
        elif kind == "compact":
            dataset.optimize.compact_files()
        elif kind == "tag":
            dataset.tags.create(given[0], given[1])
        elif kind == "restore":
            dataset.restore()
            return self.told(self.open())
        elif kind == "cleanup":
            from datetime import timedelta

            dataset.cleanup_old_versions(
                older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
            )
        elif kind == "schema":
            return dataset.schema.names
        elif kind == "indices":
            return sorted(index["name"] for index in dataset.list_indices())
        elif kind == "near":
            nearest = {"column": "vector", "q": [given[0]] * 4, "k": 1}
            return dataset.to_table(columns=["id"], nearest=nearest).column("id").to_pylist()
        elif kind == "ids":
            return sorted(dataset.to_table(columns=["id"]).column("id").to_pylist())
        elif kind != "rows":
            raise ValueError(kind)
        return self.told(dataset)

    def crowd(self, writers: int, each: int) -> dict[str, Any]:
        failures: list[str] = []

        def write(number: int) -> None:
            for turn in range(each):
                try:
                    first = 1_000 * (number + 1) + turn
                    lance.write_dataset(rows(first, 1), mode="append", **self.place)
                except Exception as error:
                    failures.append(repr(error))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {**self.told(self.open()), "failures": failures}


def main() -> None:
    given = json.loads(sys.stdin.readline())
    table = Table(given["url"], given["token"], given["id"])
    answers = []
    for each in given["steps"]:
        try:
            answers.append(table.step(*each))
        except Exception as error:
            answers.append({"error": f"{type(error).__name__}: {error}"})
    print(json.dumps(answers))


main()
