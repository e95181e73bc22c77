"""Transactions that span formats.

    with inver.transaction() as tx:
        lance.write_dataset(rows, mode="append", namespace_client=tx.lance(), table_id=[...])
        tx.iceberg("main").load_table("sales.orders").append(rows)

What pylance and PyIceberg commit inside the block waits until it ends. Then all of it is one request,
which the server decides as one. Nothing is sent of a block that an exception ends.

Files that a block wrote and nobody decided stay where they are, as those of any writer that gave up:
the tables do not refer to them, and the ordinary clean-up of each format removes them.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from inver.client.buffers.buffer import Buffer
from inver.client.core import Call
from inver.client.naming import Name, parts_of
from inver.client.operations import relations
from inver.client.types import Commit, Receipt, Table
from inver.errors import Conflict, InverError, OutcomeUnknown, Refused

if TYPE_CHECKING:
    from inver.client.loops import AsyncClient
    from inver.client.threads import Client


class Block:
    """What may be done in a transaction; `receipt` is there when it was decided."""

    receipt: Receipt | None = None

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url
        self._token = token
        self._buffer = Buffer()
        self._key = str(uuid.uuid4())
        self._lance: Any = None
        self._iceberg: dict[str, Any] = {}

    @property
    def operations(self) -> Sequence[dict[str, Any]]:
        """What is to be sent, as it is so far."""
        return tuple(self._buffer.operations)

    # --- clients of the formats ---

    def lance(self, **properties: str) -> Any:
        """The namespace for pylance's `namespace_client`; properties are those of its REST client."""
        from inver.client.buffers.lance import namespace_of

        if self._lance is None:
            given = {"uri": f"{self._url}/lance"}
            if self._token is not None:
                given["header.Authorization"] = f"Bearer {self._token}"
            self._lance = namespace_of(self._buffer, given | properties)
        return self._lance

    def iceberg(self, catalog: str, **properties: str) -> Any:
        """The PyIceberg catalog of this name; properties are those of its REST catalog."""
        from inver.client.buffers.iceberg import catalog_of

        if catalog not in self._iceberg:
            given = {"uri": f"{self._url}/iceberg", "warehouse": catalog}
            if self._token is not None:
                given["token"] = self._token
            self._iceberg[catalog] = catalog_of(self._buffer, catalog, given | properties)
        return self._iceberg[catalog]

    # --- by hand ---

    def delta_commit(self, table: Table, commit_info: dict[str, Any], **fields: Any) -> None:
        """A staged commit of a managed Delta table, in the words of Unity Catalog's `POST /delta/commit`."""
        commit = {"table_id": table.id, "table_uri": table.location, "commit_info": commit_info, **fields}
        self._buffer.add({"op": "delta-commit", "commit": commit}, table.full_name or table.name)

    def iceberg_commit(
        self, table: Name, updates: Sequence[dict[str, Any]], requirements: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Updates and requirements in the words of the Iceberg REST protocol."""
        parts = parts_of(table, least=3, what="table")
        commit = {"requirements": list(requirements), "updates": list(updates)}
        self._buffer.add({"op": "iceberg-commit", "table": parts, "commit": commit}, parts)

    def lance_version(self, table: Name, version: int, manifest_path: str, **fields: Any) -> None:
        """A version whose manifest is staged, in the words of Lance's CreateTableVersion."""
        parts = parts_of(table, least=3, what="table")
        body = {"id": parts, "version": version, "manifest_path": manifest_path, **fields}
        self._buffer.add({"op": "lance", "operation": {"create_table_version": body}}, parts)

    def rename_table(self, name: Name, to: Name) -> None:
        parts = parts_of(name, least=3, what="table")
        target = parts_of(to, least=3, what="table")
        self._buffer.add({"op": "rename-table", "table": {"name": parts}, "to": target}, parts)

    def drop_table(self, name: Name) -> None:
        parts = parts_of(name, least=3, what="table")
        self._buffer.add({"op": "drop-table", "table": {"name": parts}}, parts)

    def move_cursor(self, cursor: str, expect: str | None, value: str | None) -> None:
        """From one position to another; None means that there is none."""
        operation = {"op": "move-cursor", "cursor": cursor, "expect": expect, "value": value}
        self._buffer.add(operation, f"cursor {cursor}")

    def add(self, operation: dict[str, Any], about: str = "") -> None:
        """Any operation that `POST /transactions` takes."""
        self._buffer.add(operation, about or str(operation.get("op")))

    # --- the end ---

    def _call(self) -> Call[Receipt]:
        return relations.transact(self._buffer.operations, key=self._key)

    def _cleanup(self) -> list[Call[None]]:
        return [relations.drop_table(name) for name in self._buffer.placeholders]

    def _tidy(self) -> None:
        for ending in self._buffer.endings:
            ending()

    def _lost(self, error: Refused) -> list[tuple[int, str]]:
        """Operations that were refused, and the words for it."""
        details = getattr(error, "conflicts", ())
        if details:
            return [(detail.operation, _words(detail)) for detail in details]
        index = error.operation
        return [] if index is None else [(index, error.message)]

    def _questions(self, error: Refused) -> dict[int, Call[list[Commit]]]:
        """Who won is asked for where the refusal does not tell."""
        if not isinstance(error, Conflict):
            return {}
        told = {detail.operation for detail in error.conflicts if detail.winner is not None}
        asked = {}
        for index, _ in self._lost(error):
            table = _table_of(self._buffer.operations[index])
            if index not in told and table is not None:
                asked[index] = relations.history(table, limit=1)
        return asked

    def _explain(self, error: Refused, newest: dict[int, list[Commit]]) -> None:
        """Say it in the names of the tables: a number of an operation means nothing to who used a library."""
        said = []
        for index, words in self._lost(error):
            found = newest.get(index)
            if found:
                latest = found[0]
                words += f"; its version {latest.version} is transaction {latest.transaction} by {latest.by}"
            said.append(f"{self._buffer.names[index]}: {words}")
        if said:
            error.message = "nothing of the transaction is applied: " + "; ".join(said)
            error.args = (error.message,)


class Transaction(Block):
    """For plain code and threads."""

    def __init__(self, client: Client, token: str | None, owned: bool = False) -> None:
        super().__init__(client.url, token)
        self._client = client
        self._owned = owned

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._buffer.end()
        try:
            if kind is not None:
                self._abandon()
            elif self._buffer.operations:
                self._send()
        finally:
            self._tidy()
            if self._owned:
                self._client.close()

    def _send(self) -> None:
        try:
            self.receipt = self._client.run(self._call())
        except Refused as refused:
            newest = {}
            for index, question in self._questions(refused).items():
                with suppress(InverError):
                    newest[index] = self._client.run(question)
            self._explain(refused, newest)
            self._abandon()
            raise
        except OutcomeUnknown:
            # What was declared may be what its tables are now.
            raise
        except InverError:
            self._abandon()
            raise

    def _abandon(self) -> None:
        for call in self._cleanup():
            with suppress(InverError):
                self._client.run(call)


class AsyncTransaction(Block):
    """For code on an event loop. pylance and PyIceberg block: use them in a thread."""

    def __init__(self, client: AsyncClient, token: str | None) -> None:
        super().__init__(client.url, token)
        self._client = client

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._buffer.end()
        try:
            if kind is not None:
                await self._abandon()
            elif self._buffer.operations:
                await self._send()
        finally:
            await asyncio.to_thread(self._tidy)

    async def _send(self) -> None:
        try:
            self.receipt = await self._client.run(self._call())
        except Refused as refused:
            newest = {}
            for index, question in self._questions(refused).items():
                with suppress(InverError):
                    newest[index] = await self._client.run(question)
            self._explain(refused, newest)
            await self._abandon()
            raise
        except OutcomeUnknown:
            # What was declared may be what its tables are now.
            raise
        except InverError:
            await self._abandon()
            raise

    async def _abandon(self) -> None:
        for call in self._cleanup():
            with suppress(InverError):
                await self._client.run(call)


def _table_of(operation: dict[str, Any]) -> tuple[str, ...] | None:
    match operation:
        case {"op": "iceberg-commit", "table": table}:
            return tuple(table)
        case {"op": "lance", "operation": {"create_table_version": {"id": table}}}:
            return tuple(table)
    return None


def _words(detail: Any) -> str:
    words = f"{detail.reason}: expected {detail.expected}, found {detail.current}"
    if detail.winner is not None:
        winner = detail.winner
        words += f"; lost to transaction {winner.transaction} by {winner.by}, version {winner.version}"
    return words
