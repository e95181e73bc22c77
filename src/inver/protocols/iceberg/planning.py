"""Scan planning: the files of a scan, in the protocol's words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw

from inver.domain.iceberg.content import Content, ContentFile
from inver.domain.iceberg.expressions import Expression, written
from inver.domain.iceberg.scans import Scan, ScanRequest
from inver.domain.iceberg.values import to_json
from inver.domain.idempotency import parse_key
from inver.protocols.http import Request, Response, Route
from inver.protocols.iceberg.coding import DONE, TABLE, caller, decode, encode, identifier, ok
from inver.services.context import Caller
from inver.services.iceberg.planning import Planned, Planning

T = TypeVar("T")


class FetchScanTasks(msgspec.Struct, frozen=True, rename="kebab"):
    plan_task: Annotated[str, Meta(min_length=1)]


_request = msgspec.json.Decoder(ScanRequest).decode
_fetch = msgspec.json.Decoder(FetchScanTasks).decode

_CONTENT = {
    Content.DATA: "data",
    Content.POSITION_DELETES: "position-deletes",
    Content.EQUALITY_DELETES: "equality-deletes",
}

StorageCredentials = Callable[[Request], Awaitable[list[dict[str, object]]]]


class PlanRoutes:
    """`credentials` gives the keys to a table's files, to whoever asks for some and may have them."""

    def __init__(self, planning: Planning, credentials: StorageCredentials) -> None:
        self._planning = planning
        self._credentials = credentials

    def routes(self) -> list[Route]:
        return [
            Route("POST", TABLE + "/plan", self.plan),
            Route("GET", TABLE + "/plan/{plan-id}", self.result),
            Route("DELETE", TABLE + "/plan/{plan-id}", self.cancel),
            Route("POST", TABLE + "/tasks", self.fetch),
        ]

    async def plan(self, request: Request) -> Response:
        body = decode(request, _request)
        planned = await self._planning.plan(_caller(request), identifier(request), body)
        return await self._completed(request, planned, {"plan-id": planned.plan_id})

    async def result(self, request: Request) -> Response:
        planned = await self._planning.result(_caller(request), identifier(request), request.args[3])
        if planned is None:
            return ok({"status": "cancelled"})
        return await self._completed(request, planned, {})

    async def cancel(self, request: Request) -> Response:
        await self._planning.cancel(_caller(request), identifier(request), request.args[3])
        return DONE

    async def fetch(self, request: Request) -> Response:
        body = decode(request, _fetch)
        planned = await self._planning.fetch(_caller(request), identifier(request), body.plan_task)
        return ok(await asyncio.to_thread(_tasks, planned))

    async def _completed(self, request: Request, planned: Planned, more: Mapping[str, Any]) -> Response:
        answer = {"status": "completed", **more, **await asyncio.to_thread(_tasks, planned)}
        keys = await self._credentials(request)
        if keys:
            answer["storage-credentials"] = keys
            return ok(answer, ((b"Cache-Control", b"no-store"),))
        return ok(answer)


def _caller(request: Request) -> Caller:
    """A plan changes nothing, so a request with a key is as good as one without, if it is a key."""
    asks = caller(request)
    if asks.key is not None:
        parse_key(asks.key)
    return asks


def _tasks(planned: Planned) -> dict[str, Any]:
    answer: dict[str, Any] = {"file-scan-tasks": []}
    if planned.plan_tasks:
        answer["plan-tasks"] = planned.plan_tasks
    writer = _Writer(planned.scan)
    places: dict[tuple[str, int | None], int] = {}
    deletes: list[dict[str, Any]] = []
    for task in planned.tasks:
        node: dict[str, Any] = {"data-file": writer.file(task.file)}
        references = []
        for delete in task.deletes:
            # Many deletion vectors may lie in one file.
            key = (delete.path, delete.content_offset)
            if key not in places:
                places[key] = len(deletes)
                deletes.append(writer.file(delete))
            references.append(places[key])
        if references:
            node["delete-file-references"] = references
        node["residual-filter"] = writer.residual(task.residual)
        answer["file-scan-tasks"].append(node)
    if deletes:
        answer["delete-files"] = deletes
    return answer


class _Writer:
    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._residuals: dict[int, tuple[Expression, Raw]] = {}

    def residual(self, expression: Expression) -> Raw:
        """Files of one partition share it."""
        known = self._residuals.get(id(expression))
        if known is None:
            known = self._residuals[id(expression)] = (expression, Raw(encode(written(expression))))
        return known[1]

    def file(self, file: ContentFile) -> dict[str, Any]:
        partitioning = self._scan.partitionings[file.spec_id]
        node: dict[str, Any] = {
            "spec-id": file.spec_id,
            "content": _CONTENT[file.content],
            "file-path": file.path,
            "file-format": file.format,
            "partition": [
                to_json(slot.type, value) if shown else None
                for slot, shown, value in zip(
                    partitioning.slots, partitioning.shown, file.partition, strict=True
                )
            ],
            "file-size-in-bytes": file.size,
            "record-count": file.record_count,
        }
        if file.content is Content.DATA:
            node |= self._metrics(file)
        optional = {
            "key-metadata": None if file.key_metadata is None else file.key_metadata.hex().upper(),
            "split-offsets": file.split_offsets,
            "equality-ids": file.equality_ids,
            "sort-order-id": file.sort_order_id,
            "first-row-id": file.first_row_id,
            # Readers of row lineage need it with the row ids, and with them alone.
            "data-sequence-number": None if file.first_row_id is None else file.sequence_number,
            "referenced-data-file": file.referenced_data_file,
            "content-offset": file.content_offset,
            "content-size-in-bytes": file.content_size,
        }
        return node | {name: value for name, value in optional.items() if value is not None}

    def _metrics(self, file: ContentFile) -> dict[str, Any]:
        """Of the columns that were asked for; bounds in their binary form, which every client takes."""
        wanted, metrics = self._scan.stats, file.metrics
        if wanted is None:
            return {}
        known = {
            "column-sizes": _picked(metrics.column_sizes, wanted, int),
            "value-counts": _picked(metrics.value_counts, wanted, int),
            "null-value-counts": _picked(metrics.null_counts, wanted, int),
            "nan-value-counts": _picked(metrics.nan_counts, wanted, int),
            "lower-bounds": _picked(metrics.lower, wanted, _hex),
            "upper-bounds": _picked(metrics.upper, wanted, _hex),
        }
        return {name: value for name, value in known.items() if value is not None}


def _picked(
    known: Mapping[int, T] | None, wanted: frozenset[int], show: Callable[[T], Any]
) -> dict[str, Sequence[Any]] | None:
    if known is None:
        return None
    kept = {id_: show(value) for id_, value in known.items() if id_ in wanted}
    return {"keys": list(kept), "values": list(kept.values())}


def _hex(value: bytes) -> str:
    return value.hex().upper()
