"""PyIceberg as the writer and judge of rows: the first line has the properties of the catalog as JSON.

Each further line is `{"do": name, ...}`. Rows are objects whose values JSON may have to spell as text.
"""

from __future__ import annotations

import datetime
import decimal
import json
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DoubleType, LongType, StringType

TYPES = {"double": DoubleType(), "long": LongType(), "string": StringType()}


class Client:
    def __init__(self, properties: dict[str, str]) -> None:
        self.catalog = RestCatalog("rows", **properties)

    def create(
        self,
        table: list[str],
        fields: list[dict[str, Any]],
        partition: list[list[str]] | None = None,
        properties: dict[str, str] | None = None,
    ) -> None:
        """A partition field is a column and a transform."""
        schema = Schema.model_validate({"type": "struct", "fields": fields})
        spec = PartitionSpec(
            *(
                PartitionField(
                    schema.find_field(column).field_id, 1000 + at, parse_transform(transform), f"p_{column}"
                )
                for at, (column, transform) in enumerate(partition or [])
            )
        )
        self.catalog.create_table(tuple(table), schema, partition_spec=spec, properties=properties or {})

    def append(self, table: list[str], rows: list[dict[str, Any]]) -> None:
        loaded = self.catalog.load_table(tuple(table))
        loaded.append(frame(loaded.schema().as_arrow(), rows))

    def add_file(self, table: list[str], file: str, rows: list[dict[str, Any]]) -> None:
        """A file as it was before there was a table: without field ids."""
        loaded = self.catalog.load_table(tuple(table))
        fields = [pa.field(each.name, each.type, each.nullable) for each in loaded.schema().as_arrow()]
        path = f"{loaded.location()}/data/{file}.parquet"
        with loaded.io.new_output(path).create() as out:
            pq.write_table(frame(pa.schema(fields), rows), out)
        loaded.add_files([path])

    def overwrite(self, table: list[str], rows: list[dict[str, Any]], where: str) -> None:
        loaded = self.catalog.load_table(tuple(table))
        loaded.overwrite(frame(loaded.schema().as_arrow(), rows), where)

    def delete(self, table: list[str], where: str) -> None:
        self.catalog.load_table(tuple(table)).delete(where)

    def alter(self, table: list[str], changes: list[list[str]]) -> None:
        """A change is the name of PyIceberg's method and its arguments; all are one commit."""
        with self.catalog.load_table(tuple(table)).update_schema() as update:
            for method, *arguments in changes:
                getattr(update, method)(*(TYPES.get(argument, argument) for argument in arguments))

    def rows(self, table: list[str], snapshot: int | None = None) -> list[dict[str, Any]]:
        scan = self.catalog.load_table(tuple(table)).scan(snapshot_id=snapshot)
        found: list[dict[str, Any]] = plain(scan.to_arrow().to_pylist())
        return found

    def ids(self, table: list[str]) -> list[int]:
        scan = self.catalog.load_table(tuple(table)).scan(selected_fields=("id",))
        found: list[int] = scan.to_arrow().column("id").to_pylist()
        return found

    def snapshots(self, table: list[str]) -> list[int]:
        return [each.snapshot_id for each in self.catalog.load_table(tuple(table)).snapshots()]

    def files(self, table: list[str]) -> list[str]:
        return [task.file.file_path for task in self.catalog.load_table(tuple(table)).scan().plan_files()]

    def expire(self, table: list[str], snapshots: list[int]) -> None:
        self.catalog.load_table(tuple(table)).maintenance.expire_snapshots().by_ids(snapshots).commit()


def frame(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(
        [{field.name: typed(field.type, row.get(field.name)) for field in schema} for row in rows],
        schema=schema,
    )


def typed(kind: pa.DataType, value: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return datetime.datetime.fromisoformat(value)
    if pa.types.is_decimal(kind):
        return decimal.Decimal(value)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return bytes.fromhex(value)
    if pa.types.is_struct(kind):
        return {field.name: typed(field.type, value.get(field.name)) for field in kind}
    if pa.types.is_map(kind):
        return [(typed(kind.key_type, key), typed(kind.item_type, item)) for key, item in value]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [typed(kind.value_type, each) for each in value]
    return value


def plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        zoned = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)
        return zoned.isoformat()
    if isinstance(value, datetime.date | decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def main() -> None:
    client = Client(json.loads(sys.stdin.readline()))
    print(json.dumps({"answer": None}), flush=True)
    for line in sys.stdin:
        given = json.loads(line)
        try:
            answer: dict[str, Any] = {"answer": getattr(client, given.pop("do"))(**given)}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


main()
