"""pylance of any version, on one table of a namespace.

In: `url`, `token`, `id` and `steps`, each a method of `Table` and its arguments.
Out: for each step its answer, or `{"error": ...}`.
After a first line of `{}`, every further one is such a task, and answered as `{"answer": ...}`.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import lance
import lance_namespace
import pyarrow

Told = dict[str, int]


def made(first: int, count: int) -> Any:
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

    def told(self, dataset: Any) -> Told:
        return {"version": dataset.version, "rows": dataset.count_rows()}

    # --- reading ---

    def rows(self) -> Told:
        return self.told(self.open())

    def at(self, version: int) -> Told:
        return self.told(self.open(version=version))

    def tagged(self, tag: str) -> Told:
        return self.told(self.open().checkout_version(tag))

    def on_branch(self, name: str) -> Told:
        return self.told(self.open().checkout_version((name, None)))

    def versions(self) -> list[int]:
        return [each["version"] for each in self.open().versions()]

    def schema(self) -> Any:
        return self.open().schema.names

    def indices(self) -> list[str]:
        return sorted(index["name"] for index in self.open().list_indices())

    def near(self, value: float) -> Any:
        nearest = {"column": "vector", "q": [value] * 4, "k": 1}
        return self.open().to_table(columns=["id"], nearest=nearest).column("id").to_pylist()

    def ids(self) -> list[int]:
        return sorted(self.open().to_table(columns=["id"]).column("id").to_pylist())

    # --- writing ---

    def create(self, first: int, count: int) -> Told:
        return self._write("create", first, count)

    def append(self, first: int, count: int) -> Told:
        return self._write("append", first, count)

    def overwrite(self, first: int, count: int) -> Told:
        return self._write("overwrite", first, count)

    def _write(self, mode: str, first: int, count: int) -> Told:
        return self.told(lance.write_dataset(made(first, count), mode=mode, **self.place))

    def by_path(self, first: int, count: int) -> Told:
        return self.told(lance.write_dataset(made(first, count), self.open().uri, mode="append"))

    def hold(self) -> Told:
        self.held = self.open()
        return self.told(self.held)

    def held_append(self, first: int, count: int) -> Told:
        self.held.insert(made(first, count))
        return self.told(self.held)

    def delete(self, where: str) -> Told:
        return self._change(lambda dataset: dataset.delete(where))

    def update(self, where: str) -> Told:
        return self._change(lambda dataset: dataset.update({"word": "'changed'"}, where=where))

    def merge(self, first: int, count: int) -> Told:
        dataset = self.open()
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(made(first, count))
        return self.told(dataset)

    def add_column(self, name: str, sql: str) -> Told:
        return self._change(lambda dataset: dataset.add_columns({name: sql}))

    def scalar_index(self) -> Told:
        return self._change(lambda dataset: dataset.create_scalar_index("id", "BTREE"))

    def vector_index(self) -> Told:
        return self._change(lambda dataset: dataset.create_index("vector", "IVF_FLAT", num_partitions=1))

    def compact(self) -> Told:
        return self._change(lambda dataset: dataset.optimize.compact_files())

    def tag(self, name: str, version: int) -> Told:
        return self._change(lambda dataset: dataset.tags.create(name, version))

    def restore(self, version: int) -> Told:
        self.open(version=version).restore()
        return self.rows()

    def cleanup(self) -> Told:
        return self._change(
            lambda dataset: dataset.cleanup_old_versions(
                older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
            )
        )

    def _change(self, change: Callable[[Any], object]) -> Told:
        """What the dataset that made the change shows after it."""
        dataset = self.open()
        change(dataset)
        return self.told(dataset)

    # --- branches ---

    def branch(self, name: str, start: Any, first: int, count: int) -> Told:
        return self._branch(self.open(), name, start, first, count)

    def branch_by_path(self, name: str, start: Any, first: int, count: int) -> Told:
        return self._branch(lance.dataset(self.open().uri), name, start, first, count)

    def _branch(self, dataset: Any, name: str, start: Any, first: int, count: int) -> Told:
        branch = dataset.create_branch(name, start)
        branch.insert(made(first, count))
        return self.told(branch)

    def drop_branch(self, name: str) -> None:
        self.open().branches.delete(name)

    # --- many at once ---

    def churn(self, first: int, count: int) -> list[str]:
        """Append a row, change it and delete the one before it, again and again; what failed."""
        failed = []
        for id in range(first, first + count):
            new = pyarrow.table({"id": [id], "word": ["x"]})
            try:
                lance.write_dataset(new, mode="append", **self.place)
                self.open().update({"word": "'y'"}, where=f"id = {id}")
                self.open().delete(f"id = {id - 1}")
            except Exception as error:
                failed.append(repr(error))
        return failed

    def crowd(self, writers: int, each: int) -> dict[str, Any]:
        failures: list[str] = []

        def write(number: int) -> None:
            for turn in range(each):
                try:
                    first = 1_000 * (number + 1) + turn
                    lance.write_dataset(made(first, 1), mode="append", **self.place)
                except Exception as error:
                    failures.append(repr(error))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {**self.told(self.open()), "failures": failures}


def answers(given: dict[str, Any]) -> list[Any]:
    table = Table(given["url"], given["token"], given["id"])
    found = []
    for each in given["steps"]:
        try:
            found.append(getattr(table, each[0])(*each[1:]))
        except Exception as error:
            found.append({"error": f"{type(error).__name__}: {error}"})
    return found


def main() -> None:
    given = json.loads(sys.stdin.readline())
    if given:
        print(json.dumps(answers(given)))
        return
    for line in sys.stdin:
        print(json.dumps({"answer": answers(json.loads(line))}), flush=True)


main()
