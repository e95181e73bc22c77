"""One Spark task executes one task of a Lance compaction: it reads fragments and writes others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Batches = Iterator[Any]


def executing(location: str, version: int, options: Mapping[str, str]) -> Callable[[Batches], Batches]:
    """For `mapInArrow`: tasks as JSON come in, what they wrote as JSON goes out. Nothing is committed."""
    given = dict(options)

    def execute(batches: Batches) -> Batches:
        # Spark forks its workers, and what pylance starts does not outlive that: it is loaded after.
        import lance
        import pyarrow
        from lance.optimize import CompactionTask

        dataset = lance.dataset(location, version=version, storage_options=given or None)
        for batch in batches:
            done = [CompactionTask.from_json(task).execute(dataset) for task in batch.column(0).to_pylist()]
            yield pyarrow.RecordBatch.from_pydict({"result": [each.json() for each in done]})

    return execute
