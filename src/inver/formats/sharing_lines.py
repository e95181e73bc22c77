"""The lines of Delta Sharing's answers, in both response formats.

Everything is ASCII: recipients split text at every character that Unicode takes for the end of a
line, so one of those in a path or in statistics would end a line too early.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

import msgspec

from inver.domain.delta_actions import (
    CHANGE_DATA_FEED,
    Add,
    Cdc,
    CommitChanges,
    DataFile,
    DeletionVector,
    Metadata,
    Protocol,
    Remove,
    Words,
    decoded,
)
from inver.domain.delta_schema import shared_schema
from inver.domain.sharing import Capabilities, ResponseFormat, shared_metadata, shared_protocol
from inver.formats.deletion_vectors import INLINE, place
from inver.formats.delta_log.snapshot import FileBatch

Sign = Callable[[Sequence[str]], Sequence[str]]
"""URLs of files. Paths are decoded, and lie below the table unless they have a scheme or begin with `/`."""

_DIGESTS: dict[ResponseFormat, Callable[..., Any]] = {
    ResponseFormat.PARQUET: hashlib.md5,
    ResponseFormat.DELTA: hashlib.sha256,
}
_KINDS = {Add: "add", Remove: "remove", Cdc: "cdc"}
_PARQUET_KINDS = {Add: "add", Remove: "remove", Cdc: "cdf"}


def line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


class HeadLines:
    """Protocol and metadata: the first two lines, and those of later versions."""

    def __init__(
        self, form: ResponseFormat, asked: Capabilities, *, vectors: bool, history: bool = True
    ) -> None:
        self._form = form
        self._asked = asked
        self._vectors = vectors
        self._history = history

    def protocol(self, protocol: Protocol, metadata: Metadata, version: int | None = None) -> bytes:
        if self._form is ResponseFormat.PARQUET:
            return line({"protocol": {"minReaderVersion": 1}})
        shared = shared_protocol(protocol, metadata, self._asked, vectors=self._vectors)
        return line({"protocol": {"deltaProtocol": msgspec.to_builtins(shared), **_given(version=version)}})

    def metadata(
        self,
        metadata: Metadata,
        *,
        version: int | None = None,
        size: int | None = None,
        files: int | None = None,
        **more: Any,
    ) -> bytes:
        """`more` are `location`, `accessModes` and the like, which come last."""
        extra = {**_given(version=version, size=size, numFiles=files), **more}
        if self._form is ResponseFormat.DELTA:
            shared = shared_metadata(metadata)
            if not self._history:
                kept = {key: v for key, v in shared.configuration.items() if key != CHANGE_DATA_FEED}
                shared = msgspec.structs.replace(shared, configuration=kept)
            return line({"metaData": {"deltaMetadata": _delta_metadata(shared), **extra}})
        feed = self._history and metadata.enabled(CHANGE_DATA_FEED)
        told = {
            "id": metadata.id,
            **_given(name=metadata.name, description=metadata.description),
            "format": {"provider": "parquet"},
            "schemaString": shared_schema(metadata),
            "partitionColumns": list(metadata.partition_columns),
            "configuration": {"enableChangeDataFeed": "true"} if feed else {},
        }
        return line({"metaData": {**told, **extra}})


class FileLines:
    """Lines of files. `expires` is when their URLs end, in milliseconds since 1970."""

    def __init__(
        self,
        form: ResponseFormat,
        sign: Sign,
        expires: int | None = None,
        id_hash: ResponseFormat | None = None,
    ) -> None:
        self._form = form
        self._sign = sign
        self._expires = "" if expires is None else f',"expirationTimestamp":{expires}'
        # A name for a file, and nothing that must be hard to forge.
        self._digest = partial(_DIGESTS[id_hash or form], usedforsecurity=False)
        self._partitions: dict[int, str] = {}
        self._of: Sequence[Words] = ()

    def snapshot(self, batch: FileBatch) -> bytes:
        """Files of one version."""
        rows, partitions = batch.rows, self._partition_texts(batch)
        paths = rows.column("path").to_pylist()
        urls = self._sign(paths)
        numbers = rows.column("partition").to_pylist()
        sizes = rows.column("size").to_pylist()
        stats = rows.column("stats").to_pylist()
        if self._form is ResponseFormat.PARQUET:
            return "".join(
                f'{{"file":{{"url":{quoted(url)},"id":"{self._id(path)}","partitionValues":'
                f'{partitions(number)},"size":{size}{_stats(text)}{self._expires}}}}}\n'
                for path, url, number, size, text in zip(paths, urls, numbers, sizes, stats, strict=True)
            ).encode("ascii")
        return self._delta_snapshot(batch, paths, urls, partitions, stats)

    def _delta_snapshot(
        self,
        batch: FileBatch,
        paths: Sequence[str],
        urls: Sequence[str],
        partitions: Callable[[int], str],
        stats: Sequence[str | None],
    ) -> bytes:
        rows = batch.rows
        vectors = (
            self._vectors(rows.column("deletionVector").to_pylist()) if _any(rows, "deletionVector") else None
        )
        more = _optional(rows)
        lines = []
        columns = (rows.column(name).to_pylist() for name in ("partition", "size", "modificationTime"))
        for at, (number, size, modified) in enumerate(zip(*columns, strict=True)):
            file_id, vector = vectors[at] if vectors is not None else ("", "")
            lines.append(
                f'{{"file":{{"id":"{self._id(paths[at])}"{file_id}{self._expires},"deltaSingleAction":'
                f'{{"add":{{"path":{quoted(urls[at])},"partitionValues":{partitions(number)},"size":{size},'
                f'"modificationTime":{modified or 0},"dataChange":true{_stats(stats[at])}{vector}'
                f"{more[at] if more else ''}}}}}}}}}\n"
            )
        return "".join(lines).encode("ascii")

    def changes(self, commit: CommitChanges) -> bytes:
        """Files of one commit, in its order."""
        if not commit.files:
            return b""
        paths = [decoded(file.path) for file in commit.files]
        told = zip(commit.files, paths, self._sign(paths), strict=True)
        return "".join(self._change(commit, *each) for each in told).encode("ascii")

    def _change(self, commit: CommitChanges, file: DataFile, path: str, url: str) -> str:
        when = f'"version":{commit.version},"timestamp":{commit.timestamp}{self._expires}'
        values = _dumps(file.partition_values or {})
        if self._form is ResponseFormat.PARQUET:
            stats = _stats(file.stats) if isinstance(file, Add) else ""
            return (
                f'{{"{_PARQUET_KINDS[type(file)]}":{{"url":{quoted(url)},"id":"{self._id(path)}",'
                f'"partitionValues":{values},"size":{file.size or 0}{stats},{when}}}}}\n'
            )
        action = {**msgspec.to_builtins(file), "path": url, "partitionValues": file.partition_values or {}}
        action["dataChange"] = not isinstance(file, Cdc)
        action["size"] = file.size or 0
        if isinstance(file, Add):
            action["modificationTime"] = file.modification_time
        file_id = ""
        vector = None if isinstance(file, Cdc) else file.deletion_vector
        if vector is not None:
            file_id, action["deletionVector"] = self._vector(vector)
        return (
            f'{{"file":{{"id":"{self._id(path)}"{file_id},{when},"deltaSingleAction":'
            f'{{"{_KINDS[type(file)]}":{_dumps(action)}}}}}}}\n'
        )

    def _id(self, path: str) -> str:
        return str(self._digest(path.encode("utf-8", "surrogatepass")).hexdigest())

    def _partition_texts(self, batch: FileBatch) -> Callable[[int], str]:
        if self._of is not batch.partitions:
            self._of, self._partitions = batch.partitions, {}
        known, values = self._partitions, batch.partitions

        def text(number: int) -> str:
            found = known.get(number)
            if found is None:
                found = known[number] = _dumps(values[number])
            return found

        return text

    def _vectors(self, rows: Sequence[dict[str, Any] | None]) -> list[tuple[str, str]]:
        found = []
        for row in rows:
            if row is None:
                found.append(("", ""))
            else:
                file_id, told = self._vector(msgspec.convert(row, DeletionVector))
                found.append((file_id, f',"deletionVector":{_dumps(told)}'))
        return found

    def _vector(self, vector: DeletionVector) -> tuple[str, dict[str, Any]]:
        """A recipient cannot find a vector's file by its id, so it gets a URL as its absolute path."""
        told = msgspec.to_builtins(vector)
        where = place(vector)
        if where is None:
            return "", {**told, "storageType": INLINE}
        (url,) = self._sign([where.path])
        file_id = f',"deletionVectorFileId":"{self._id(where.path)}"'
        return file_id, {**told, "storageType": "p", "pathOrInlineDv": url}


def end_line(**given: Any) -> bytes:
    """The last line, for those who asked for it."""
    return line({"endStreamAction": _given(**given)})


def limited(batches: Iterator[FileBatch], limit: int) -> Iterator[FileBatch]:
    """Files until they have so many rows together; one that does not say its rows counts none."""
    for batch in batches:
        vectors = batch.rows.column("deletionVector").to_pylist()
        for at, (text, vector) in enumerate(
            zip(batch.rows.column("stats").to_pylist(), vectors, strict=True)
        ):
            limit -= max(0, _records(text) - (vector["cardinality"] if vector else 0))
            if limit <= 0:
                yield batch.head(at + 1)
                return
        yield batch


class _Records(msgspec.Struct):
    num_records: int = msgspec.field(default=0, name="numRecords")


_decode_records = msgspec.json.Decoder(_Records).decode


def _records(stats: str | None) -> int:
    try:
        return _decode_records(stats).num_records if stats else 0
    except (msgspec.DecodeError, RecursionError):
        return 0


def _delta_metadata(metadata: Metadata) -> dict[str, Any]:
    return {
        "id": metadata.id,
        **_given(name=metadata.name, description=metadata.description),
        "format": {"provider": metadata.format.provider, "options": metadata.format.options},
        "schemaString": metadata.schema_string,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": metadata.configuration,
        **_given(createdTime=metadata.created_time),
    }


def _optional(rows: Any) -> list[str]:
    """Fields that most tables do not have."""
    names = ("tags", "baseRowId", "defaultRowCommitVersion", "clusteringProvider")
    present = [name for name in names if _any(rows, name)]
    if not present:
        return []
    columns = [rows.column(name).to_pylist(maps_as_pydicts="strict") for name in present]
    return [
        "".join(
            f',"{name}":{_dumps(value)}'
            for name, value in zip(present, row, strict=True)
            if value is not None
        )
        for row in zip(*columns, strict=True)
    ]


def _any(rows: Any, name: str) -> bool:
    column = rows.column(name)
    return bool(column.null_count < len(column))


def _stats(text: str | None) -> str:
    return "" if text is None else f',"stats":{quoted(text)}'


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
