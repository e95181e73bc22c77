"""An Iceberg catalog for PyIceberg whose commits wait for the end of a transaction.

Whoever loads a table inside the block gets it as the block has left it so far.
"""

from __future__ import annotations

import json
from typing import Any

from inver.client.buffers.buffer import Buffer


def catalog_of(buffer: Buffer, catalog: str, properties: dict[str, str]) -> Any:
    """A `RestCatalog` of PyIceberg, with the catalog's name as its warehouse."""
    from pyiceberg.catalog import MetastoreCatalog
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
    from pyiceberg.table import CommitTableRequest, CommitTableResponse, Table, TableIdentifier
    from pyiceberg.table.update import AssertCreate, update_table_metadata

    class BufferedCatalog(RestCatalog):  # type: ignore[misc]
        """Unbuffered writes would stand whatever becomes of the block, so they are refused."""

        _changed: dict[tuple[str, ...], Any]
        _moved: dict[tuple[str, ...], tuple[str, ...] | None]

        def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
            name = table.name()
            creates = any(isinstance(each, AssertCreate) for each in requirements)
            known = self._changed.get(name)
            if creates and known is not None:
                raise TableAlreadyExistsError(f"{'.'.join(name)} is made in this transaction already")
            base = None if creates else (known or table).metadata
            for requirement in requirements:
                requirement.validate(base)
            metadata = update_table_metadata(
                base or MetastoreCatalog._empty_table_metadata(), updates, enforce_validation=base is None
            )
            standing = self._standing(name)
            request = CommitTableRequest(
                identifier=TableIdentifier(namespace=standing[:-1], name=standing[-1]),
                requirements=requirements,
                updates=updates,
            )
            commit = json.loads(request.model_dump_json())
            del commit["identifier"]
            buffer.add(
                {"op": "iceberg-commit", "table": [catalog, *standing], "commit": commit}, (catalog, *name)
            )
            place = table.metadata_location or ""
            self._changed[name] = Table(name, metadata, place, table.io, self, table.config)
            return CommitTableResponse(metadata=metadata, metadata_location=place)

        def load_table(self, identifier: Any) -> Any:
            name = self._identifier_to_validated_tuple(identifier)
            known = self._changed.get(name)
            if known is not None:
                place = known.metadata_location
                return Table(name, known.metadata, place, known.io, self, known.config)
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
            name = self._identifier_to_validated_tuple(identifier)
            if name in self._changed and self._is_new(name):
                raise _outside("drop of a table that the transaction makes")
            self.load_table(name)
            standing = self._standing(name)
            buffer.add({"op": "drop-table", "table": {"name": [catalog, *standing]}}, (catalog, *name))
            self._changed.pop(name, None)
            self._moved[name] = None

        def rename_table(self, from_identifier: Any, to_identifier: Any) -> Any:
            name = self._identifier_to_validated_tuple(from_identifier)
            to = self._identifier_to_validated_tuple(to_identifier)
            if name in self._changed and self._is_new(name):
                raise _outside("rename of a table that the transaction makes")
            self.load_table(name)
            if self.table_exists(to):
                raise TableAlreadyExistsError(f"Table already exists: {'.'.join(to)}")
            standing = self._standing(name)
            operation = {"op": "rename-table", "table": {"name": [catalog, *standing]}, "to": [catalog, *to]}
            buffer.add(operation, (catalog, *name))
            self._moved[name] = None
            self._moved[to] = standing
            if name in self._changed:
                self._changed[to] = self._changed.pop(name)
            return self.load_table(to)

        def _standing(self, name: tuple[str, ...]) -> tuple[str, ...]:
            """What the server still calls a table that the block has renamed."""
            if name not in self._moved:
                return name
            standing = self._moved[name]
            if standing is None:
                raise NoSuchTableError(f"Table does not exist: {'.'.join(name)}")
            return standing

        def _is_new(self, name: tuple[str, ...]) -> bool:
            return not self._changed[name].metadata_location

        def _refuse(self, *_: Any, **__: Any) -> Any:
            raise _outside("this")

        register_table = purge_table = create_view = register_view = drop_view = _refuse
        create_namespace = drop_namespace = update_namespace_properties = _refuse

    made = BufferedCatalog(catalog, **properties)
    made._changed, made._moved = {}, {}
    return made


def _outside(what: str) -> NotImplementedError:
    return NotImplementedError(f"{what} cannot be part of a transaction; do it before or after the block")
