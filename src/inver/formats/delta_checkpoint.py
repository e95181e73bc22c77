"""Checkpoints as they are written: version 2 with sidecars, or one classic file.

Everything that a checkpoint refers to is there before the checkpoint itself is, and nothing that is there
is written again. So whoever is stopped on the way leaves at most sidecars that nobody refers to.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from inver.domain.delta_actions import TableState
from inver.errors import Broken
from inver.formats.delta_log.listing import LOG, SIDECARS
from inver.formats.delta_log.replay import Replay
from inver.formats.delta_log.rows import file_schema
from inver.formats.delta_log.threads import in_thread
from inver.ports import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"
SIDECAR_ROWS = 100_000
_encode = msgspec.json.encode


@dataclass
class Part:
    """A file of a checkpoint that is still on local disk."""

    path: Path
    name: str
    rows: int = 0

    @property
    def size(self) -> int:
        return self.path.stat().st_size


@dataclass
class Made:
    """A checkpoint before it is put where readers look."""

    version: int
    state: TableState
    files: int = 0
    bytes: int = 0
    vectors: int = 0
    deleted_rows: int = 0
    tombstones: int = 0
    parts: list[Part] = field(default_factory=list)

    def count(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        added = batch.column("add").drop_null()
        self.files += len(added)
        self.bytes += pc.sum(added.field("size")).as_py() or 0
        vectors = added.field("deletionVector").drop_null()
        self.vectors += len(vectors)
        self.deleted_rows += pc.sum(vectors.field("cardinality")).as_py() or 0
        self.tombstones += len(batch) - len(added)


def make(replay: Replay, version: int, folder: Path, *, sidecar_rows: int | None = SIDECAR_ROWS) -> Made:
    """Write a checkpoint to local disk: with sidecars of so many rows each, or all of it as one file."""
    made = Made(version, replay.state)
    classic = sidecar_rows is None
    writer: pq.ParquetWriter | None = None
    for batch in replay.batches():
        made.count(batch)
        full = sidecar_rows is not None and made.parts and made.parts[-1].rows >= sidecar_rows
        if writer is None or full:
            if writer is not None:
                writer.close()
            writer = _opened(made, folder, classic)
        writer.write_batch(_wide(batch) if classic else batch)
        made.parts[-1].rows += len(batch)
    made.state = replay.state
    if classic:
        if writer is None:
            writer = _opened(made, folder, classic)
        writer.write_batch(_state_rows(made.state))
    if writer is not None:
        writer.close()
    return made


async def write_classic(objects: ObjectStore, made: Made) -> None:
    [part] = made.parts
    path = f"{LOG}/{made.version:020d}.checkpoint.parquet"
    await objects.put_if_absent(path, await in_thread(part.path.read_bytes), whole=True)
    await _point(objects, made, part.size, {})


async def write_v2(objects: ObjectStore, made: Made, now: int) -> None:
    sidecars = []
    for part in made.parts:
        await objects.put_if_absent(
            f"{SIDECARS}/{part.name}", await in_thread(part.path.read_bytes), whole=True
        )
        sidecars.append({"path": part.name, "sizeInBytes": part.size, "modificationTime": now})
    head = [{"checkpointMetadata": {"version": made.version}}, *state_actions(made.state)]
    lines = [*head, *({"sidecar": each} for each in sidecars)]
    data = b"".join(_encode(line) + b"\n" for line in lines)
    name = f"{made.version:020d}.checkpoint.{uuid.uuid4()}.json"
    await objects.put_if_absent(f"{LOG}/{name}", data, whole=True)
    described = {"path": name, "sizeInBytes": len(data), "modificationTime": now}
    size = len(data) + sum(part.size for part in made.parts)
    await _point(objects, made, size, {"v2Checkpoint": described}, len(lines))


async def _point(
    objects: ObjectStore, made: Made, size: int, more: dict[str, Any], actions: int | None = None
) -> None:
    """Tell readers of it, unless they know of a newer one."""
    if await pointed_at(objects) > made.version:
        return
    state = len(state_actions(made.state)) if actions is None else actions
    last = {
        "version": made.version,
        "size": made.files + made.tombstones + state,
        "sizeInBytes": size,
        "numOfAddFiles": made.files,
        **more,
    }
    await objects.put(LAST_CHECKPOINT, _encode(last))


async def pointed_at(objects: ObjectStore) -> int:
    """The version that `_last_checkpoint` names; -1 if it names none."""
    if await objects.head(LAST_CHECKPOINT) is None:
        return -1
    try:
        return int(msgspec.json.decode(await objects.get(LAST_CHECKPOINT))["version"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return -1


def state_actions(state: TableState) -> list[dict[str, Any]]:
    """All that a checkpoint says besides files, as lines of a log."""
    if state.protocol is None or state.metadata is None:
        raise Broken("the log has no protocol or no metadata")
    metadata = msgspec.to_builtins(state.metadata)
    # Readers miss what is left out because it has its usual value.
    metadata.setdefault("partitionColumns", [])
    metadata.setdefault("configuration", {})
    metadata.setdefault("schemaString", state.metadata.schema_string)
    metadata["format"] = {
        "provider": state.metadata.format.provider,
        "options": state.metadata.format.options,
    }
    return [
        {"protocol": msgspec.to_builtins(state.protocol)},
        {"metaData": metadata},
        *({"txn": msgspec.to_builtins(each)} for each in state.transactions.values()),
        *(
            {"domainMetadata": {"domain": name, "configuration": text, "removed": False}}
            for name, text in state.domains.items()
        ),
    ]


def _opened(made: Made, folder: Path, classic: bool) -> pq.ParquetWriter:
    import pyarrow.parquet as pq

    name = f"{uuid.uuid4()}.parquet"
    part = Part(folder / name, name)
    made.parts.append(part)
    return pq.ParquetWriter(part.path, _classic_schema() if classic else file_schema(), compression="snappy")


def _classic_schema() -> pa.Schema:
    import pyarrow as pa

    text, number, words = pa.string(), pa.int64(), pa.map_(pa.string(), pa.string())
    names = pa.list_(text)
    version = pa.int32()
    fields = {
        "txn": {"appId": text, "version": number, "lastUpdated": number},
        "metaData": {
            "id": text,
            "name": text,
            "description": text,
            "format": pa.struct({"provider": text, "options": words}),
            "schemaString": text,
            "partitionColumns": names,
            "configuration": words,
            "createdTime": number,
        },
        "protocol": {
            "minReaderVersion": version,
            "minWriterVersion": version,
            "readerFeatures": names,
            "writerFeatures": names,
        },
        "domainMetadata": {"domain": text, "configuration": text, "removed": pa.bool_()},
    }
    more = [pa.field(name, pa.struct(each)) for name, each in fields.items()]
    return pa.schema([*file_schema(), *more])


def _wide(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Files as rows of a classic checkpoint, which has columns for everything."""
    import pyarrow as pa

    wanted = _classic_schema()
    files = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = [files.get(each.name, pa.nulls(len(batch), each.type)) for each in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _state_rows(state: TableState) -> pa.RecordBatch:
    import pyarrow as pa

    rows = [dict(_with_maps(action)) for action in state_actions(state)]
    return pa.RecordBatch.from_pylist(rows, schema=_classic_schema())


def _with_maps(action: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in action.items():
        if name == "metaData":
            value = {**value, "configuration": list(value["configuration"].items())}
            options = list(value["format"]["options"].items())
            value["format"] = {**value["format"], "options": options}
        yield name, value
