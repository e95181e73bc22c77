"""An Iceberg catalog for PyIceberg whose commits wait for the end of a transaction.

Whoever loads a table inside the block gets it as the block has left it so far.
"""

from __future__ import annotations

import json
from importlib import import_module as library
from typing import TYPE_CHECKING, Any

from inver.client.buffers.buffer import Buffer

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog
else:
    RestCatalog = object

Name = tuple[str, ...]


def catalog_of(buffer: Buffer, catalog: str, properties: dict[str, str]) -> Any:
    """A `RestCatalog` of PyIceberg, with the catalog's name as its warehouse."""
    made: Any = type("BufferedCatalog", (_Buffered, library("pyiceberg.catalog.rest").RestCatalog), {})
    return made(buffer, catalog, properties)


class _Buffered(RestCatalog):  # type: ignore[misc]
    """Stands before PyIceberg's own class, which is loaded on first use.

    Unbuffered writes would stand whatever becomes of the block, so they are refused.
    """

    def __init__(self, buffer: Buffer, catalog: str, properties: dict[str, str]) -> None:
        self._buffer = buffer
        self._changed: dict[Name, Any] = {}
        self._moved: dict[Name, Name | None] = {}
        super().__init__(catalog, **properties)

    # --- commits ---

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        words = library("pyiceberg.table")
        name = table.name()
        metadata = self._changed_metadata(table, requirements, updates)
        standing = self._standing(name)
        request = words.CommitTableRequest(
            identifier=words.TableIdentifier(namespace=standing[:-1], name=standing[-1]),
            requirements=requirements,
            updates=updates,
        )
        commit = json.loads(request.model_dump_json())
        del commit["identifier"]
        self._add("iceberg-commit", name, table=[self.name, *standing], commit=commit)
        place = table.metadata_location or ""
        self._changed[name] = words.Table(name, metadata, place, table.io, self, table.config)
        return words.CommitTableResponse(metadata=metadata, metadata_location=place)

    def _changed_metadata(self, table: Any, requirements: Any, updates: Any) -> Any:
        changes = library("pyiceberg.table.update")
        creates = any(isinstance(each, changes.AssertCreate) for each in requirements)
        known = self._changed.get(table.name())
        if creates and known is not None:
            raise _problem(
                "TableAlreadyExists", f"{'.'.join(table.name())} is made in this transaction already"
            )
        base = None if creates else (known or table).metadata
        for requirement in requirements:
            requirement.validate(base)
        empty = library("pyiceberg.catalog").MetastoreCatalog._empty_table_metadata
        return changes.update_table_metadata(base or empty(), updates, enforce_validation=base is None)

    # --- tables ---

    def load_table(self, identifier: Any) -> Any:
        name = self._identifier_to_validated_tuple(identifier)
        known = self._changed.get(name)
        if known is not None:
            place = known.metadata_location
            return library("pyiceberg.table").Table(name, known.metadata, place, known.io, self, known.config)
        found = super().load_table(self._standing(name))
        found._identifier = name
        return found

    def table_exists(self, identifier: Any) -> bool:
        name = self._identifier_to_validated_tuple(identifier)
        if name in self._changed or self._moved.get(name) is not None:
            return True
        return name not in self._moved and bool(super().table_exists(name))

    def list_tables(self, namespace: Any) -> Any:
        space = self.identifier_to_tuple(namespace)
        found = {name for name in super().list_tables(namespace) if name not in self._moved}
        mine = {*self._changed, *(name for name, source in self._moved.items() if source)}
        return sorted(found | {name for name in mine if name[:-1] == space})

    def create_table(self, identifier: Any, schema: Any, *args: Any, **options: Any) -> Any:
        self.create_table_transaction(identifier, schema, *args, **options).commit_transaction()
        return self.load_table(identifier)

    def drop_table(self, identifier: Any, purge_requested: bool = False) -> None:
        if purge_requested:
            raise _outside("purge")
        name = self._there(identifier, "drop")
        self._add("drop-table", name, table={"name": [self.name, *self._standing(name)]})
        self._changed.pop(name, None)
        self._moved[name] = None

    def rename_table(self, from_identifier: Any, to_identifier: Any) -> Any:
        name = self._there(from_identifier, "rename")
        to = self._identifier_to_validated_tuple(to_identifier)
        if self.table_exists(to):
            raise _problem("TableAlreadyExists", f"Table already exists: {'.'.join(to)}")
        standing = self._standing(name)
        self._add("rename-table", name, table={"name": [self.name, *standing]}, to=[self.name, *to])
        self._moved[name] = None
        self._moved[to] = standing
        if name in self._changed:
            self._changed[to] = self._changed.pop(name)
        return self.load_table(to)

    # --- of use to all ---

    def _there(self, identifier: Any, what: str) -> Name:
        """The name of a table that the server has, and the block still has."""
        name: Name = self._identifier_to_validated_tuple(identifier)
        if name in self._changed and not self._changed[name].metadata_location:
            raise _outside(f"{what} of a table that the transaction makes")
        self.load_table(name)
        return name

    def _standing(self, name: Name) -> Name:
        """What the server still calls a table that the block has renamed."""
        standing = self._moved.get(name, name)
        if standing is None:
            raise _problem("NoSuchTable", f"Table does not exist: {'.'.join(name)}")
        return standing

    def _add(self, operation: str, name: Name, **fields: Any) -> None:
        self._buffer.add({"op": operation, **fields}, (self.name, *name))

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise _outside("this")

    register_table = purge_table = create_view = register_view = drop_view = _refuse
    create_namespace = drop_namespace = update_namespace_properties = _refuse


def _problem(kind: str, message: str) -> Exception:
    problem: Exception = getattr(library("pyiceberg.exceptions"), f"{kind}Error")(message)
    return problem


def _outside(what: str) -> NotImplementedError:
    return NotImplementedError(f"{what} cannot be part of a transaction; do it before or after the block")
