"""Listing a table of a million files and the changes of ten thousand commits, without a server.

`python -m bench.sharing_log` writes both logs, measures each in a process of its own, and prints.
Beside them, in the same run: the same log listed in the plainest way, decoded as a whole and
reconciled in a dictionary.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.sharing_table import COMMITS, DAYS, FILES, day, write_commits, write_table

DAY = day(60, DAYS)
BOUNDS = {"cold_first_s": 3.0, "warm_first_s": 0.2, "partition_s": 0.5, "growth_mb": 300}


def run(files: int = FILES, commits: int = COMMITS) -> dict[str, Any]:
    """Seconds and megabytes, of the log's reader and of the plainest way."""
    figures: dict[str, Any] = {"files": files, "commits": commits, "bounds": BOUNDS}
    with tempfile.TemporaryDirectory(prefix="inver-bench-") as name:
        folder = Path(name)
        write_table(folder / "files", files)
        write_commits(folder / "commits", commits)
        for part in _PARTS:
            command = [sys.executable, "-m", "bench.sharing_log", "--part", part, str(folder)]
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            figures[part] = json.loads(ran.stdout)
    return figures


async def _snapshot(folder: Path) -> dict[str, Any]:
    from inver.domain.predicate_text import hint
    from inver.domain.sharing import ResponseFormat
    from inver.formats.sharing_lines import FileLines

    reader, log = _reader(folder / "cache", folder / "files")
    figures: dict[str, Any] = {}

    async def listed(name: str, form: ResponseFormat, predicate: str | None = None) -> None:
        start, cpu = time.perf_counter(), time.process_time()
        snapshot = await reader.snapshot(log)
        figures[f"{name}_open_cpu_s"] = round(time.process_time() - cpu, 3)
        chosen = hint(None, [predicate] if predicate else [], snapshot.metadata)
        lines = FileLines(form, _sign, 1)
        first, files, size = 0.0, 0, 0
        for batch in snapshot.batches(chosen.keep_partition if chosen else None):
            size += len(lines.snapshot(batch))
            files += len(batch)
            first = first or time.perf_counter() - start
        figures[f"{name}_first_s"] = round(first, 3)
        figures[f"{name}_s"] = round(time.perf_counter() - start, 3)
        figures[f"{name}_files"] = files

    await listed("cold", ResponseFormat.PARQUET)
    await listed("warm", ResponseFormat.PARQUET)
    await listed("delta", ResponseFormat.DELTA)
    await listed("partition", ResponseFormat.PARQUET, f"day = '{DAY}'")
    return figures


async def _changes(folder: Path) -> dict[str, Any]:
    from inver.domain.sharing import ResponseFormat
    from inver.formats.delta_log.changes import changes, plan_changes
    from inver.formats.sharing_lines import FileLines

    reader, log = _reader(folder / "cache", folder / "commits")
    figures: dict[str, Any] = {}
    for name in ("cold", "warm"):
        start = time.perf_counter()
        found = await reader.listing(log)
        plan = await plan_changes(reader, log, found, 0, found.latest)
        lines = FileLines(ResponseFormat.PARQUET, _sign, 1)
        first, files = 0.0, 0
        async for commit in changes(reader, plan):
            lines.changes(commit)
            files += len(commit.files)
            first = first or time.perf_counter() - start
        figures[f"{name}_first_s"] = round(first, 3)
        figures[f"{name}_s"] = round(time.perf_counter() - start, 3)
        figures[f"{name}_files"] = files
    return figures


async def _plain(folder: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    start = time.perf_counter()
    log = folder / "files" / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    live = {}
    for row in pq.read_table(checkpoint, columns=["add"]).column("add").drop_null().to_pylist():
        live[row["path"]] = row
    for path in sorted(log.glob("*.json")):
        for line in path.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                live.pop(action["remove"]["path"], None)
    lines = []
    for path, (url,) in ((path, _sign([path])) for path in live):
        row = live[path]
        file = {"url": url, "id": path, "partitionValues": dict(row["partitionValues"]), "size": row["size"]}
        lines.append(json.dumps({"file": {**file, "stats": row["stats"]}}))
    return {"cold_first_s": round(time.perf_counter() - start, 3), "cold_files": len(lines)}


_PARTS = {"snapshot": _snapshot, "changes": _changes, "plain": _plain}


def _reader(cache: Path, table: Path) -> tuple[Any, Any]:
    from inver.domain.locations import Location
    from inver.formats.delta_log.reader import LogReader
    from inver.formats.delta_log.source import Log
    from inver.storage.local import LocalStore

    return LogReader(cache), Log(LocalStore(Location.parse(str(table))), table.name)


def _sign(paths: Sequence[str]) -> list[str]:
    """As long and as costly as a signed URL."""
    digests = (hashlib.sha256(path.encode()).hexdigest() for path in paths)
    return [
        f"https://lake.example/files/{path}?exp=1&X-Amz-Signature={digest}"
        for path, digest in zip(paths, digests, strict=True)
    ]


def _measured(part: str, folder: Path) -> dict[str, Any]:
    # What a server has in memory before somebody asks for a table.
    import inver.server.app  # noqa: F401

    before = _most_memory_kb()
    figures = asyncio.run(_PARTS[part](folder))
    return {**figures, "growth_mb": (_most_memory_kb() - before) // 1024}


def _most_memory_kb() -> int:
    """Of this program alone; what resource.getrusage says includes what its parent had."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the reader of Delta logs.")
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--part", choices=_PARTS)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--commits", type=int, default=COMMITS)
    given = parser.parse_args()
    figures = _measured(given.part, given.folder) if given.part else run(given.files, given.commits)
    print(json.dumps(figures, indent=2 if given.part is None else None))


if __name__ == "__main__":
    main()
