"""The official Delta Sharing client; deltalake and Delta's kernel beside it judge what it must read.

Each step is answered with its value, or with the error that it ended in. Rows come sorted, as text
where JSON has no form for a value.
"""

from __future__ import annotations

import datetime
import decimal
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import delta_kernel_rust_sharing_wrapper as kernel
import delta_sharing
import pandas as pd
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

Columns = dict[str, list[Any]]


def plain(value: Any) -> Any:
    if value is None or value is pd.NaT or (isinstance(value, float) and value != value):
        return None
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, pd.Timestamp | datetime.datetime):
        moment = pd.Timestamp(value)
        return (moment.tz_localize("UTC") if moment.tz is None else moment.tz_convert("UTC")).isoformat()
    if isinstance(value, datetime.date | decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    found = [{key: plain(value) for key, value in row.items()} for row in frame.to_dict("records")]
    return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))


def listed(client: delta_sharing.SharingClient) -> list[list[str]]:
    return sorted([table.share, table.schema, table.name] for table in client.list_all_tables())


class Steps:
    def __init__(self, profile: str) -> None:
        self.profile = profile

    def url(self, table: str) -> str:
        return f"{self.profile}#{table}"

    def list(self) -> Any:
        client = delta_sharing.SharingClient(self.profile)
        return {
            "shares": [share.name for share in client.list_shares()],
            "schemas": [
                schema.name for share in client.list_shares() for schema in client.list_schemas(share)
            ],
            "tables": listed(client),
        }

    def load(self, table: str, **options: Any) -> Any:
        return rows(delta_sharing.load_as_pandas(self.url(table), **options))

    def count(self, table: str, **options: Any) -> int:
        return len(delta_sharing.load_as_pandas(self.url(table), **options))

    def changes(self, table: str, **options: Any) -> Any:
        frame = delta_sharing.load_table_changes_as_pandas(self.url(table), **options)
        return rows(frame)

    def version(self, table: str, **options: Any) -> int:
        return int(delta_sharing.get_table_version(self.url(table), **options))

    def metadata(self, table: str) -> Any:
        found = delta_sharing.get_table_metadata(self.url(table))
        return {"id": found.id, "partitions": list(found.partition_columns)}

    # --- the judge ---

    def folder_rows(self, folder: str, version: int | None = None) -> Any:
        table = DeltaTable(folder, version=version)
        return rows(
            pa.table(table.scan().read_all()).to_pandas() if hasattr(table, "scan") else table.to_pandas()
        )

    def folder_changes(self, folder: str, start: int, end: int | None = None) -> Any:
        reader = DeltaTable(folder).load_cdf(starting_version=start, ending_version=end)
        return rows(pa.table(reader.read_all()).to_pandas())

    def kernel_rows(self, folder: str) -> Any:
        """Delta's own kernel on the table's folder, latest version."""
        folder = Path(folder).as_uri()
        interface = kernel.PythonInterface(folder)
        scan = kernel.ScanBuilder(kernel.Table(folder).snapshot(interface)).build()
        return rows(pa.Table.from_batches(scan.execute(interface)).to_pandas())

    def kernel_changes(self, folder: str, start: int, end: int) -> Any:
        folder = Path(folder).as_uri()
        interface = kernel.PythonInterface(folder)
        scan = kernel.TableChangesScanBuilder(kernel.Table(folder), interface, start, end).build()
        return rows(pa.Table.from_batches(scan.execute(interface)).to_pandas())

    # --- the writer ---

    def write(self, folder: str, columns: Columns, types: dict[str, str], **options: Any) -> int:
        fields = [pa.field(name, TYPES[types[name]]) for name in columns]
        data = pa.table(
            [pa.array([typed(types[f.name], v) for v in columns[f.name]], f.type) for f in fields],
            schema=pa.schema(fields),
        )
        write_deltalake(folder, data, **options)
        return int(DeltaTable(folder).version())

    def merge(self, folder: str, columns: Columns, types: dict[str, str], key: str) -> int:
        fields = [pa.field(name, TYPES[types[name]]) for name in columns]
        source = pa.table([pa.array(columns[f.name], f.type) for f in fields], schema=pa.schema(fields))
        table = DeltaTable(folder)
        (
            table.merge(source, f"t.{key} = s.{key}", source_alias="s", target_alias="t")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )
        return int(DeltaTable(folder).version())

    def update(self, folder: str, where: str, new: dict[str, str]) -> int:
        DeltaTable(folder).update(predicate=where, updates=new)
        return int(DeltaTable(folder).version())

    def delete(self, folder: str, where: str) -> int:
        DeltaTable(folder).delete(where)
        return int(DeltaTable(folder).version())

    def checkpoint(self, folder: str) -> int:
        table = DeltaTable(folder)
        table.create_checkpoint()
        return int(table.version())

    def now(self, pause: float = 0) -> str:
        time.sleep(pause)
        return datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")


TYPES = {
    "long": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "decimal": pa.decimal128(10, 2),
}


def typed(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == "date":
        return datetime.date.fromisoformat(value)
    if kind == "timestamp":
        return datetime.datetime.fromisoformat(value)
    return decimal.Decimal(value) if kind == "decimal" else value


class Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    steps = Steps(str(Path(asked["profile"])))
    told = Told()
    logging.basicConfig(level=logging.INFO, handlers=[told])
    answers: list[dict[str, Any]] = []
    for step in asked["steps"]:
        name = step.pop("do")
        told.messages.clear()
        try:
            answers.append({"value": getattr(steps, name)(**step)})
        except Exception as error:
            answers.append({"error": f"{type(error).__name__}: {error}"})
        # It says so when it takes a failure for a passing one, and asks again for minutes.
        answers[-1]["retries"] = [message for message in told.messages if "to retry" in message]
    print(json.dumps(answers))


main()
