"""PyIceberg, driven by lines: the first has the properties of the catalog as JSON.

Each further line is JSON: `{"do": name, ...}` calls the function of that name below. Tables have the
columns `id` and `name` unless something else is said, and rows come as lists, sorted.
"""

from __future__ import annotations

import datetime
import decimal
import json
import sys
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False)
)
WIDE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "day", DateType(), required=False),
    NestedField(4, "at", TimestamptzType(), required=False),
    NestedField(5, "price", DecimalType(9, 2), required=False),
    NestedField(6, "share", DoubleType(), required=False),
    NestedField(7, "even", BooleanType(), required=False),
    NestedField(8, "place", StructType(NestedField(9, "zip", IntegerType(), required=False)), required=False),
)
TYPES = {"long": LongType(), "string": StringType(), "double": DoubleType()}


class Client:
    def __init__(self, properties: dict[str, str]) -> None:
        self.catalog = RestCatalog("tests", **properties)

    # --- namespaces ---

    def create_namespace(self, namespace: list[str], properties: dict[str, str] | None = None) -> None:
        self.catalog.create_namespace(tuple(namespace), properties or {})

    def drop_namespace(self, namespace: list[str]) -> None:
        self.catalog.drop_namespace(tuple(namespace))

    def namespaces(self, parent: list[str]) -> list[tuple[str, ...]]:
        return sorted(self.catalog.list_namespaces(tuple(parent)))

    def namespace_properties(self, namespace: list[str]) -> dict[str, str]:
        return dict(self.catalog.load_namespace_properties(tuple(namespace)))

    def update_namespace(self, namespace: list[str], removals: list[str], updates: dict[str, str]) -> Any:
        summary = self.catalog.update_namespace_properties(tuple(namespace), set(removals), updates)
        return {"removed": summary.removed, "updated": summary.updated, "missing": summary.missing}

    # --- tables ---

    def create(self, table: list[str], properties: dict[str, str] | None = None, **options: Any) -> str:
        made = self.catalog.create_table(tuple(table), SCHEMA, properties=properties or {}, **options)
        return str(made.metadata.table_uuid)

    def create_in_transaction(self, table: list[str], rows: list[list[Any]]) -> None:
        """Table and rows at once."""
        with self.catalog.create_table_transaction(tuple(table), SCHEMA) as transaction:
            transaction.set_properties({"made": "at once"})
            transaction.append(frame(SCHEMA, rows))

    def describe(self, table: list[str]) -> dict[str, Any]:
        loaded = self.catalog.load_table(tuple(table))
        metadata = loaded.metadata
        return {
            "uuid": str(metadata.table_uuid),
            "location": metadata.location,
            "metadata_location": loaded.metadata_location,
            "format_version": metadata.format_version,
            "columns": [[field.field_id, field.name] for field in loaded.schema().fields],
            "partition": [[field.name, str(field.transform)] for field in loaded.spec().fields],
            "sort": [str(field.transform) for field in loaded.sort_order().fields],
            "properties": dict(loaded.properties),
            "snapshots": [snapshot.snapshot_id for snapshot in loaded.snapshots()],
            "operations": [snapshot.summary.operation.value for snapshot in loaded.snapshots()],
            "current": metadata.current_snapshot_id,
            "refs": {
                name: [ref.snapshot_ref_type.value, ref.snapshot_id] for name, ref in loaded.refs().items()
            },
            "history": [entry.snapshot_id for entry in loaded.history()],
            "metadata_log": len(metadata.metadata_log),
        }

    def tables(self, namespace: list[str]) -> list[tuple[str, ...]]:
        return sorted(self.catalog.list_tables(tuple(namespace)))

    def exists(self, table: list[str]) -> bool:
        found: bool = self.catalog.table_exists(tuple(table))
        return found

    def rename(self, table: list[str], to: list[str]) -> None:
        self.catalog.rename_table(tuple(table), tuple(to))

    def drop(self, table: list[str], purge: bool = False) -> None:
        self.catalog.drop_table(tuple(table), purge_requested=purge)

    def register(self, table: list[str], metadata_location: str) -> None:
        self.catalog.register_table(tuple(table), metadata_location)

    # --- rows ---

    def append(self, table: list[str], rows: list[list[Any]], branch: str = "main") -> None:
        loaded = self.catalog.load_table(tuple(table))
        loaded.append(frame(loaded.schema(), rows), branch=branch)

    def append_each(self, table: list[str], first: int, count: int) -> None:
        """One commit for each row, on what was loaded at the beginning, so that others are always first."""
        loaded = self.catalog.load_table(tuple(table))
        for id in range(first, first + count):
            loaded.append(frame(loaded.schema(), [[id, "x"]]))

    def churn(self, table: list[str], first: int, count: int) -> list[str]:
        """Append a row, change it and delete the one before it, again and again, and now and then give
        the table a column or take it away; PyIceberg tries each once."""
        failed = []
        for turn, id in enumerate(range(first, first + count)):
            loaded = self.catalog.load_table(tuple(table))
            changes: list[tuple[Any, tuple[Any, ...]]] = [
                (loaded.append, (frame(SCHEMA, [[id, "x"]]),)),
                (loaded.overwrite, (frame(SCHEMA, [[id, "y"]]), f"id = {id}")),
                (loaded.delete, (f"id = {id - 1}",)),
            ]
            if turn % 10 in (3, 7):
                change = ["add_column", "more", "long"] if turn % 10 == 3 else ["delete_column", "more"]
                changes.append((self.alter, (table, [change])))
            for change_, given in changes:
                try:
                    change_(*given)
                except Exception as error:
                    failed.append(repr(error))
        return failed

    def overwrite(self, table: list[str], rows: list[list[Any]], where: str | None = None) -> None:
        loaded = self.catalog.load_table(tuple(table))
        loaded.overwrite(frame(loaded.schema(), rows), where or AlwaysTrue())

    def upsert(self, table: list[str], rows: list[list[Any]], on: list[str]) -> list[int]:
        loaded = self.catalog.load_table(tuple(table))
        result = loaded.upsert(frame(loaded.schema(), rows), join_cols=on)
        return [result.rows_updated, result.rows_inserted]

    def delete(self, table: list[str], where: str) -> None:
        self.catalog.load_table(tuple(table)).delete(where)

    def scan(
        self, table: list[str], where: str | None = None, snapshot: int | None = None, ref: str | None = None
    ) -> list[list[Any]]:
        scan = self.catalog.load_table(tuple(table)).scan(where or AlwaysTrue(), snapshot_id=snapshot)
        if ref is not None:
            scan = scan.use_ref(ref)
        found = scan.to_arrow().to_pylist()
        return sorted([list(row.values()) for row in found], key=repr)

    def lets_the_server_plan(self) -> bool:
        allowed: bool = self.catalog.supports_server_side_planning()
        return allowed

    # --- scans ---

    def create_wide(self, table: list[str], partition: list[list[Any]]) -> None:
        """With a column of many types; a partition field is a column, a transform and a name."""
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import parse_transform

        fields = [
            PartitionField(WIDE.find_field(column).field_id, 1000 + at, parse_transform(transform), name)
            for at, (column, transform, name) in enumerate(partition)
        ]
        self.catalog.create_table(tuple(table), WIDE, partition_spec=PartitionSpec(*fields))

    def fill(self, table: list[str], first: int, count: int) -> None:
        """One commit of so many rows, all of whose values follow from their ids."""
        rows = [wide_row(number) for number in range(first, first + count)]
        self.catalog.load_table(tuple(table)).append(pa.Table.from_pylist(rows, schema=WIDE.as_arrow()))

    def plan(
        self,
        table: list[str],
        where: str | None = None,
        snapshot: int | None = None,
        select: list[str] | None = None,
    ) -> dict[str, list[Any]]:
        """The files of a scan, with their deletes, and the rows that come of it."""
        scan = self.catalog.load_table(tuple(table)).scan(
            where or AlwaysTrue(), snapshot_id=snapshot, selected_fields=tuple(select or ["*"])
        )
        files = [
            [task.file.file_path, sorted(delete.file_path for delete in task.delete_files)]
            for task in scan.plan_files()
        ]
        rows = [list(row.values()) for row in scan.to_arrow().to_pylist()]
        return {"files": sorted(files), "rows": sorted(rows, key=repr)}

    # --- changes of metadata ---

    def alter(self, table: list[str], changes: list[list[str]]) -> None:
        """All in one commit; a change is the name of PyIceberg's method and its arguments."""
        with self.catalog.load_table(tuple(table)).update_schema() as update:
            for method, *arguments in changes:
                getattr(update, method)(*(TYPES.get(argument, argument) for argument in arguments))

    def partition(self, table: list[str], changes: list[list[str]]) -> None:
        with self.catalog.load_table(tuple(table)).update_spec() as update:
            for method, *arguments in changes:
                getattr(update, method)(*arguments)

    def sort(self, table: list[str], column: str) -> None:
        from pyiceberg.transforms import IdentityTransform

        with self.catalog.load_table(tuple(table)).update_sort_order() as update:
            update.asc(column, IdentityTransform())

    def properties(self, table: list[str], updates: dict[str, str], removals: list[str]) -> None:
        with self.catalog.load_table(tuple(table)).transaction() as transaction:
            transaction.set_properties(updates)
            transaction.remove_properties(*removals)

    def upgrade(self, table: list[str], version: int) -> None:
        with self.catalog.load_table(tuple(table)).transaction() as transaction:
            transaction.upgrade_table_version(version)

    def refs(self, table: list[str], changes: list[list[Any]]) -> None:
        """A change is the name of PyIceberg's method and its arguments."""
        with self.catalog.load_table(tuple(table)).manage_snapshots() as manage:
            for method, *arguments in changes:
                getattr(manage, method)(*arguments)

    def expire(self, table: list[str], snapshots: list[int]) -> None:
        self.catalog.load_table(tuple(table)).maintenance.expire_snapshots().by_ids(snapshots).commit()

    def at_once(self, table: list[str], rows: list[list[Any]], column: str) -> None:
        """Rows, a column and a property in one commit."""
        loaded = self.catalog.load_table(tuple(table))
        with loaded.transaction() as transaction:
            transaction.append(frame(loaded.schema(), rows))
            with transaction.update_schema() as update:
                update.add_column(column, StringType())
            transaction.set_properties({"step": "done"})

    # --- views ---

    def create_view(self, view: list[str], sql: str) -> None:
        version = ViewVersion(
            version_id=1,
            schema_id=1,
            timestamp_ms=1_790_000_000_000,
            summary={},
            representations=[SQLViewRepresentation(type="sql", sql=sql, dialect="spark")],
            default_namespace=view[:-1],
        )
        self.catalog.create_view(tuple(view), SCHEMA, version)

    def views(self, namespace: list[str]) -> list[tuple[str, ...]]:
        return sorted(self.catalog.list_views(tuple(namespace)))

    def view_sql(self, view: list[str]) -> list[str]:
        version = self.catalog.load_view(tuple(view)).current_version()
        return [each.root.sql if hasattr(each, "root") else each.sql for each in version.representations]

    def drop_view(self, view: list[str]) -> None:
        self.catalog.drop_view(tuple(view))


def wide_row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": None if number % 7 == 0 else f"n{number:03}",
        "day": datetime.date(1969, 12, 1) + datetime.timedelta(days=3 * number),
        "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(hours=5 * number),
        "price": decimal.Decimal(number).quantize(decimal.Decimal("0.01")) - 10,
        "share": float("nan") if number % 11 == 0 else number / 4,
        "even": number % 2 == 0,
        "place": {"zip": number // 10},
    }


def frame(schema: Any, rows: list[list[Any]]) -> pa.Table:
    arrow = schema.as_arrow()
    columns = [[row[number] for row in rows] for number in range(len(arrow))]
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, arrow, strict=True)], schema=arrow
    )


def main() -> None:
    client = Client(json.loads(sys.stdin.readline()))
    print(json.dumps({"answer": None}), flush=True)
    for line in sys.stdin:
        given = json.loads(line)
        try:
            answer: dict[str, Any] = {"answer": getattr(client, given.pop("do"))(**given)}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer, default=str), flush=True)


main()
