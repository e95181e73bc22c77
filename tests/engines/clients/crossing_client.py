"""pylance and PyIceberg as they are, in one transaction of the Python client.

In: `src` (where the client is), `url`, `token`, `catalog`, `schema`, `scenario` and what it needs.
Out: what the scenario saw.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

given = json.loads(sys.stdin.readline())
sys.path.insert(0, given["src"])

import lance  # noqa: E402
import lance_namespace  # noqa: E402
import pyarrow as pa  # noqa: E402
from pyiceberg.catalog.rest import RestCatalog  # noqa: E402
from pyiceberg.exceptions import NoSuchTableError  # noqa: E402

import inver  # noqa: E402
from inver.client import connect, connect_async  # noqa: E402
from inver.errors import Conflict, InverError, NotFound  # noqa: E402

URL, TOKEN, CATALOG, SCHEMA = (given[name] for name in ("url", "token", "catalog", "schema"))
LANCE = [CATALOG, SCHEMA, "l"]
ICEBERG = (SCHEMA, "i")


def rows(first: int, count: int) -> Any:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


class Outside:
    """The same tables, for who is not in the transaction."""

    def __init__(self) -> None:
        self.lance = lance_namespace.connect(
            "rest", {"uri": URL + "/lance", "header.Authorization": f"Bearer {TOKEN}"}
        )
        self.iceberg = RestCatalog("outside", uri=URL + "/iceberg", warehouse=CATALOG, token=TOKEN)
        self.client = connect(URL, TOKEN)

    def prepare(self) -> None:
        lance.write_dataset(rows(0, 3), mode="create", namespace_client=self.lance, table_id=LANCE)
        self.iceberg.create_table(ICEBERG, rows(0, 0).schema).append(rows(0, 3))

    def seen(self, lance_id: list[str] = LANCE, iceberg_id: tuple[str, ...] = ICEBERG) -> dict[str, Any]:
        """Rows and versions of each; None where there is no table."""
        found: dict[str, Any] = {"lance": None, "iceberg": None}
        try:
            dataset = lance.dataset(namespace_client=self.lance, table_id=lance_id)
            found["lance"] = [dataset.version, dataset.count_rows()]
        except (OSError, ValueError, lance_namespace.TableNotFoundError):
            pass
        try:
            table = self.iceberg.load_table(iceberg_id)
            found["iceberg"] = [len(table.snapshots()), table.scan().to_arrow().num_rows]
        except NoSuchTableError:
            pass
        try:
            found["delta"] = self.client.table(f"{CATALOG}.{SCHEMA}.d").version
        except NotFound:
            found["delta"] = None
        return found


def append(tx: Any, first: int = 100, count: int = 2) -> Any:
    lance.write_dataset(rows(first, count), mode="append", namespace_client=tx.lance(), table_id=LANCE)
    tx.iceberg(CATALOG).load_table(ICEBERG).append(rows(first, count))


def delta(tx: Any, client: Any) -> None:
    tx.delta_commit(client.table(f"{CATALOG}.{SCHEMA}.d"), given["commit_info"])


# --- scenarios ---


def together(outside: Outside) -> Any:
    outside.prepare()
    with inver.transaction(URL, TOKEN) as tx:
        append(tx)
        delta(tx, outside.client)
        tx.move_cursor(f"flow/{SCHEMA}", None, "7")
        before = outside.seen()
    assert tx.receipt is not None
    after = outside.seen()
    events = outside.client.transaction(tx.receipt.transaction).events
    kinds = [event.type.split(".")[-2] for event in events]
    return {"before": before, "after": after, "kinds": kinds, "results": len(tx.receipt.results)}


def several(outside: Outside) -> Any:
    """Many commits of one table, each on what the ones before it left."""
    outside.prepare()
    inside: list[Any] = []
    with outside.client.begin() as tx:
        place = {"namespace_client": tx.lance(), "table_id": LANCE}
        lance.write_dataset(rows(10, 2), mode="append", **place)
        lance.write_dataset(rows(20, 2), mode="append", **place)
        dataset = lance.dataset(**place)
        inside.append([dataset.version, dataset.count_rows()])
        dataset.insert(rows(30, 1))
        dataset.delete("id = 0")
        stale = lance.dataset(version=2, **place)
        try:
            stale.insert(rows(99, 1))
        except OSError as error:
            inside.append("conflict" in str(error))
        dataset = lance.dataset(**place)
        dataset.create_scalar_index("id", "BTREE")
        inside.append([dataset.version, sorted(dataset.to_table().column("id").to_pylist())])
        inside.append(lance.dataset(version=2, **place).count_rows())
        table = tx.iceberg(CATALOG).load_table(ICEBERG)
        table.append(rows(10, 2))
        table.append(rows(20, 2))
        table.delete("id = 0")
        with table.update_schema() as update:
            from pyiceberg.types import StringType

            update.add_column("word", StringType())
        again = tx.iceberg(CATALOG).load_table(ICEBERG)
        scanned = again.scan().to_arrow()
        inside.append([scanned.column_names, sorted(scanned.column("id").to_pylist())])
        before = outside.seen()
    after = outside.seen()
    dataset = lance.dataset(namespace_client=outside.lance, table_id=LANCE)
    names = [index["name"] for index in dataset.list_indices()]
    return {"inside": inside, "before": before, "after": after, "indices": names}


def creates(outside: Outside) -> Any:
    """Tables that come to be with their rows, or not at all."""
    outside.prepare()
    new, table = [CATALOG, SCHEMA, "new_l"], (SCHEMA, "new_i")

    def make(tx: Any) -> list[Any]:
        place = {"namespace_client": tx.lance(), "table_id": new}
        lance.write_dataset(rows(0, 5), mode="create", **place)
        lance.write_dataset(rows(5, 1), mode="append", **place)
        catalog = tx.iceberg(CATALOG)
        made = catalog.create_table(table, rows(0, 0).schema)
        made.append(rows(0, 5))
        catalog.load_table(table).append(rows(5, 1))
        dataset = lance.dataset(**place)
        listed = table in catalog.list_tables((SCHEMA,)) and catalog.table_exists(table)
        return [dataset.version, dataset.count_rows(), made.refresh().scan().to_arrow().num_rows, listed]

    try:
        with outside.client.begin() as tx:
            make(tx)
            raise KeyError("changed my mind")
    except KeyError:
        pass
    none = outside.seen(new, table)
    with outside.client.begin() as tx:
        inside = make(tx)
        between = outside.seen(new, table)
    tables = sorted(each.name for each in outside.client.tables(f"{CATALOG}.{SCHEMA}"))
    return {
        "none": none,
        "inside": inside,
        "between": between,
        "after": outside.seen(new, table),
        "tables": tables,
    }


def conflict(outside: Outside) -> Any:
    """Somebody else is faster on one of the tables; each of them in turn."""
    outside.prepare()
    told = {}
    for loser in ("lance", "iceberg"):
        try:
            with inver.transaction(URL, TOKEN) as tx:
                append(tx)
                if loser == "lance":
                    lance.write_dataset(
                        rows(50, 1), mode="append", namespace_client=outside.lance, table_id=LANCE
                    )
                else:
                    outside.iceberg.load_table(ICEBERG).append(rows(50, 1))
                before = outside.seen()
        except Conflict as lost:
            told[loser] = [type(lost).__name__, lost.message, before == outside.seen()]
    return told


def exception(outside: Outside) -> Any:
    outside.prepare()
    before, last = outside.seen(), outside.client.info().last_event
    raised = ""
    try:
        with inver.transaction(URL, TOKEN) as tx:
            append(tx)
            raise ZeroDivisionError("in the block")
    except ZeroDivisionError as error:
        raised = str(error)
    after = outside.seen()
    late = ""
    try:
        tx.move_cursor("x", None, "1")
    except InverError as error:
        late = error.message
    same = before == after == outside.seen() and last == outside.client.info().last_event
    return {"raised": raised, "same": same, "late": late, "sent": tx.receipt}


def moves(outside: Outside) -> Any:
    """Renames and drops, seen inside before anybody else sees them."""
    outside.prepare()
    catalog = outside.iceberg
    catalog.create_table((SCHEMA, "gone"), rows(0, 0).schema)
    to, there = [CATALOG, SCHEMA, "moved_l"], (SCHEMA, "moved_i")
    with outside.client.begin() as tx:
        mine = tx.iceberg(CATALOG)
        mine.rename_table(ICEBERG, there).append(rows(10, 1))
        mine.drop_table((SCHEMA, "gone"))
        space = tx.lance()
        space.rename_table(
            lance_namespace.RenameTableRequest(id=LANCE, new_table_name="moved_l", new_namespace_id=to[:-1])
        )
        lance.write_dataset(rows(10, 1), mode="append", namespace_client=space, table_id=to)
        inside = [sorted(mine.list_tables((SCHEMA,))), mine.table_exists(ICEBERG), mine.table_exists(there)]
        refused = []
        for attempt, name in ((mine.create_namespace, "x"), (space.create_namespace, None)):
            try:
                attempt(name)
            except Exception as error:
                refused.append(type(error).__name__)
        between = outside.seen()
    return {
        "inside": inside,
        "refused": refused,
        "between": between,
        "old": outside.seen(),
        "new": outside.seen(to, there),
        "gone": catalog.table_exists((SCHEMA, "gone")),
    }


def on_a_loop(outside: Outside) -> Any:
    outside.prepare()

    async def run() -> Any:
        async with connect_async(URL, TOKEN) as client:
            async with client.begin() as tx:
                await asyncio.to_thread(append, tx)
            assert tx.receipt is not None
            try:
                async with client.begin() as late:
                    await asyncio.to_thread(append, late)
                    await asyncio.to_thread(append, outside_now(), 7)
            except Conflict as lost:
                return [len(tx.receipt.results), lost.message]

    def outside_now() -> Any:
        class Now:
            def lance(self) -> Any:
                return outside.lance

            def iceberg(self, _: str) -> Any:
                return outside.iceberg

        return Now()

    return {"told": asyncio.run(run()), "seen": outside.seen()}


SCENARIOS = (together, several, creates, conflict, exception, moves, on_a_loop)
print(json.dumps({each.__name__: each for each in SCENARIOS}[given["scenario"]](Outside())))
