"""What can be asked of a store. Each question is a generator that both dialects run."""

from __future__ import annotations

import msgspec

from inver.domain.events import Event
from inver.domain.idempotency import KeyedRequest, KeyRecord
from inver.domain.ledger import MAX_OPERATIONS
from inver.domain.names import name_key
from inver.domain.securables import Catalog, Schema
from inver.domain.tables import NAMED, Format, State, Table, TableDetails, TableKind
from inver.ports import Commit, TableNames, WorkItem
from inver.stores.deciding import SEPARATOR
from inver.stores.sql import Row, Steps, many, one

_properties = msgspec.json.Decoder(dict[str, str]).decode
# To call the enum takes longer than all else that is done for a name, and a listing may have thousands.
_FORMATS = {each.value: each for each in Format}

_CATALOG = (
    "id, name, comment, properties, storage_root, owner, etag, created_at, created_by, updated_at, updated_by"
)
_SCHEMA = (
    "id, catalog_id, parent_id, name, path, comment, properties, storage_root, owner, etag, "
    "created_at, created_by, updated_at, updated_by"
)
TABLE_COLUMNS = (
    "t.id, t.catalog_id, t.schema_id, t.name, t.format, t.kind, t.state, t.location, t.version, t.etag, "
    "t.head, t.owner, t.created_at, t.created_by, t.updated_at, t.updated_by, t.dropped_at, "
    "t.published"
)
_EVENT = "seq, txn, at, by_id, kind, subject, version, data"
WORK_COLUMNS = (
    "id, kind, subject, payload, state, not_before, lease_until, leased_by, attempts, last_error, created_at"
)
COMMIT_COLUMNS = "version, at, by_id, operation, token, txn, payload, counts"


def catalog_of(row: Row) -> Catalog:
    return Catalog(
        id=row[0],
        name=row[1],
        comment=row[2],
        properties=_properties(row[3]),
        storage_root=row[4],
        owner=row[5],
        etag=row[6],
        created_at=row[7],
        created_by=row[8],
        updated_at=row[9],
        updated_by=row[10],
    )


def schema_of(row: Row) -> Schema:
    return Schema(
        id=row[0],
        catalog_id=row[1],
        parent_id=row[2],
        name=row[3],
        path=tuple(row[4].split(SEPARATOR)),
        comment=row[5],
        properties=_properties(row[6]),
        storage_root=row[7],
        owner=row[8],
        etag=row[9],
        created_at=row[10],
        created_by=row[11],
        updated_at=row[12],
        updated_by=row[13],
    )


def table_of(row: Row) -> Table:
    return Table(
        id=row[0],
        catalog_id=row[1],
        schema_id=row[2],
        name=row[3],
        format=Format(row[4]),
        kind=TableKind(row[5]),
        state=State(row[6]),
        location=row[7],
        version=row[8],
        etag=row[9],
        head=row[10],
        owner=row[11],
        created_at=row[12],
        created_by=row[13],
        updated_at=row[14],
        updated_by=row[15],
        dropped_at=row[16],
        published=row[17],
    )


def commit_of(row: Row) -> Commit:
    return Commit(
        version=row[0],
        at=row[1],
        by=row[2],
        operation=row[3],
        token=row[4],
        transaction=row[5],
        payload=bytes(row[6]),
        counts=None if row[7] is None else bytes(row[7]),
    )


def event_of(row: Row) -> Event:
    return Event(
        seq=row[0],
        transaction=row[1],
        at=row[2],
        by=row[3],
        kind=row[4],
        subject=row[5],
        version=row[6],
        data=bytes(row[7]),
    )


def catalog_by_key(name_key: str) -> Steps[Catalog | None]:
    return one(f"SELECT {_CATALOG} FROM catalogs WHERE name_key = ?1", (name_key,), catalog_of)


def catalogs_after(name_key: str, limit: int) -> Steps[list[Catalog]]:
    return many(
        f"SELECT {_CATALOG} FROM catalogs WHERE name_key > ?1 ORDER BY name_key LIMIT ?2",
        (name_key, limit),
        catalog_of,
    )


def schema_by_key(catalog_key: str, path_key: str) -> Steps[Schema | None]:
    return one(
        f"""SELECT {", ".join("s." + c for c in _SCHEMA.split(", "))} FROM schemas s
            JOIN catalogs c ON c.id = s.catalog_id WHERE c.name_key = ?1 AND s.path_key = ?2""",
        (catalog_key, path_key),
        schema_of,
    )


def schemas_after(parent_id: str, name_key: str, limit: int) -> Steps[list[Schema]]:
    return many(
        f"""SELECT {_SCHEMA} FROM schemas WHERE parent_id = ?1 AND name_key > ?2
            ORDER BY name_key LIMIT ?3""",
        (parent_id, name_key, limit),
        schema_of,
    )


def table_by_id(table_id: str) -> Steps[Table | None]:
    return one(f"SELECT {TABLE_COLUMNS} FROM tables t WHERE t.id = ?1", (table_id,), table_of)


def table_by_key(catalog_key: str, path_key: str, name_key: str) -> Steps[Table | None]:
    return one(
        f"""SELECT {TABLE_COLUMNS} FROM tables t JOIN schemas s ON s.id = t.schema_id
            JOIN catalogs c ON c.id = s.catalog_id
            WHERE c.name_key = ?1 AND s.path_key = ?2 AND t.name_key = ?3
            AND t.state IN ('live', 'declared')""",
        (catalog_key, path_key, name_key),
        table_of,
    )


def tables_after(schema_id: str, name_key: str, limit: int, views: bool) -> Steps[list[Table]]:
    return many(
        f"""SELECT {TABLE_COLUMNS} FROM tables t WHERE t.schema_id = ?1 AND t.name_key > ?2
            AND t.state IN ('live', 'declared') AND {only(views)} ORDER BY t.name_key LIMIT ?3""",
        (schema_id, name_key, limit),
        table_of,
    )


def table_names(schema_id: str, after: str, limit: int, format: Format, views: bool) -> Steps[TableNames]:
    """By an index alone, without a look at the tables; `after` is a key."""
    names: list[str] = []
    others: dict[str, tuple[Format, bytes | None]] = {}
    while True:
        rows = yield (
            f"""SELECT t.name, NULLIF(t.format, ?4) FROM tables t
                WHERE t.schema_id = ?1 AND t.name_key > ?2 AND t.state IN ('live', 'declared')
                AND {only(views)} ORDER BY t.name_key LIMIT ?3""",
            (schema_id, after, limit - len(names), format),
        )
        if not rows:
            return TableNames(names, others)
        first, after = after, name_key(rows[-1][0])
        bare = yield (
            """SELECT name, state FROM tables
               WHERE schema_id = ?1 AND name_key > ?2 AND name_key <= ?3 AND head IS NULL""",
            (schema_id, first, after),
        )
        found = [row[0] for row in rows]
        if left_out := {name for name, state in bare if state in NAMED}:
            found = [name for name in found if name not in left_out]
        names += found
        foreign = {row[0]: (_FORMATS[row[1]], None) for row in rows if row[1] is not None}
        if foreign:
            heads = yield (
                f"""SELECT t.name, t.format, t.head FROM tables t WHERE t.schema_id = ?1 AND t.name_key > ?2
                    AND t.name_key <= ?3 AND t.state IN ('live', 'declared') AND t.format <> ?4
                    AND {only(views)}""",
                (schema_id, first, after, format),
            )
            others |= foreign | {row[0]: (_FORMATS[row[1]], row[2]) for row in heads}
        if not left_out or len(names) >= limit:
            return TableNames(names, others)


def only(views: bool) -> str:
    return f"t.kind {'=' if views else '<>'} 'VIEW'"


def dropped_tables(schema_id: str, limit: int) -> Steps[list[Table]]:
    return many(
        f"""SELECT {TABLE_COLUMNS} FROM tables t WHERE t.schema_id = ?1 AND t.state = 'dropped'
            ORDER BY t.dropped_at DESC LIMIT ?2""",
        (schema_id, limit),
        table_of,
    )


def details(table_id: str) -> Steps[TableDetails | None]:
    rows = yield "SELECT comment, properties, columns FROM details WHERE table_id = ?1", (table_id,)
    if not rows:
        return None
    comment, properties, columns = rows[0]
    return TableDetails(comment=comment, properties=_properties(properties), columns=bytes(columns))


def full_name(table_id: str) -> Steps[tuple[str, ...] | None]:
    """Catalog, schema path and name of a table as they are now."""
    rows = yield (
        """SELECT c.name, s.path, t.name FROM tables t JOIN schemas s ON s.id = t.schema_id
           JOIN catalogs c ON c.id = s.catalog_id WHERE t.id = ?1""",
        (table_id,),
    )
    return (rows[0][0], *rows[0][1].split(SEPARATOR), rows[0][2]) if rows else None


def commits(table_id: str, branch: str, first: int, last: int, limit: int) -> Steps[list[Commit]]:
    """Newest first, `first` and `last` included."""
    return many(
        f"""SELECT {COMMIT_COLUMNS} FROM commits WHERE table_id = ?1 AND branch = ?2
            AND version >= ?3 AND version <= ?4 ORDER BY version DESC LIMIT ?5""",
        (table_id, branch, first, last, limit),
        commit_of,
    )


def cursor(name: str) -> Steps[str | None]:
    rows = yield "SELECT value FROM cursors WHERE name = ?1", (name,)
    return rows[0][0] if rows else None


def cursors_naming(text: str) -> Steps[list[tuple[str, str]]]:
    rows = yield (
        "SELECT name, value FROM cursors WHERE replace(name, ?1, '') <> name ORDER BY name",
        (text,),
    )
    return [(row[0], row[1]) for row in rows]


def events_after(seq: int, limit: int) -> Steps[list[Event]]:
    return many(f"SELECT {_EVENT} FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2", (seq, limit), event_of)


def transaction_events(number: int) -> Steps[list[Event]]:
    """The events of one transaction; they are contiguous and start at its number."""
    return many(
        f"SELECT {_EVENT} FROM events WHERE seq >= ?1 AND seq < ?2 AND txn = ?1 ORDER BY seq",
        (number, min(number + MAX_OPERATIONS, 2**63 - 1)),
        event_of,
    )


def last_event() -> Steps[int]:
    rows = yield "SELECT seq FROM event_head WHERE id = 1", ()
    return int(rows[0][0])


def key_record(scope: str, key: str) -> Steps[KeyRecord | None]:
    rows = yield (
        "SELECT principal, fingerprint, txn, at, outcome FROM idempotency WHERE scope = ?1 AND key = ?2",
        (scope, key),
    )
    if not rows:
        return None
    principal, fingerprint, txn, at, outcome = rows[0]
    return KeyRecord(KeyedRequest(scope, key, principal, fingerprint), txn, at, bytes(outcome))


def is_cancelled(plan_id: str) -> Steps[bool]:
    rows = yield "SELECT 1 FROM cancelled_plans WHERE id = ?1", (plan_id,)
    return bool(rows)


def work_of(row: Row) -> WorkItem:
    return WorkItem(
        id=row[0],
        kind=row[1],
        subject=row[2],
        payload=bytes(row[3]),
        state=row[4],
        not_before=row[5],
        lease_until=row[6],
        leased_by=row[7],
        attempts=row[8],
        last_error=row[9],
        created_at=row[10],
    )


def work_waiting(limit: int) -> Steps[list[WorkItem]]:
    return many(f"SELECT {WORK_COLUMNS} FROM work ORDER BY not_before LIMIT ?1", (limit,), work_of)
