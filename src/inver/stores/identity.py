"""Questions about principals, credentials, grants and what somebody may see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from inver.domain.governance import MAX_GROUP_DEPTH
from inver.domain.grants import Node, Privilege, Standing
from inver.domain.names import name_key
from inver.domain.principals import ADMINS, EVERYONE, Principal, PrincipalInfo, PrincipalKind, Scope
from inver.domain.securables import METASTORE_ID, SecurableKind
from inver.domain.tables import Table
from inver.ports import Found, GrantRow, StoredSecret, StoredToken
from inver.stores.deciding import SEPARATOR
from inver.stores.reads import TABLE_COLUMNS, only, table_of
from inver.stores.sql import Row, Steps, many, one

T = TypeVar("T")

METASTORE = Node(SecurableKind.METASTORE, METASTORE_ID, ADMINS.id, ())
_PRIVILEGES = {str(each): each for each in Privilege}
_PRINCIPAL = "id, name, kind, disabled, comment, etag, created_at, created_by"


class IdentityReads(ABC):
    @abstractmethod
    async def read(self, steps: Steps[T]) -> T: ...

    @abstractmethod
    async def write(self, steps: Callable[[], Steps[T]]) -> T: ...

    async def principal_by_name(self, name: str) -> PrincipalInfo | None:
        return await self.read(_principal("name_key", name_key(name)))

    async def principal_by_id(self, principal_id: str) -> PrincipalInfo | None:
        return await self.read(_principal("id", principal_id))

    async def principals(self, kind: PrincipalKind | None, after: str, limit: int) -> list[PrincipalInfo]:
        return await self.read(_principals(kind, name_key(after), limit))

    async def names_of(self, ids: Sequence[str]) -> dict[str, str]:
        return await self.read(_names(sorted(set(ids))))

    async def groups_of(self, principal_id: str) -> list[PrincipalInfo]:
        return await self.read(_related("group_id", "member_id", principal_id))

    async def members_of(self, group_id: str) -> list[PrincipalInfo]:
        return await self.read(_related("member_id", "group_id", group_id))

    async def token(self, token_id: str) -> StoredToken | None:
        return await self.read(_token(token_id))

    async def tokens(self, principal_id: str) -> list[StoredToken]:
        return await self.read(_tokens(principal_id))

    async def secrets(self, principal_id: str) -> list[StoredSecret]:
        return await self.read(_secrets(principal_id))

    async def touch_tokens(self, used: Mapping[str, int]) -> None:
        await self.write(lambda: _touch(used))

    async def forget_tokens(self, expired_before: int) -> int:
        return await self.write(lambda: _forget_tokens(expired_before))

    async def standing(self, principal: Principal) -> Standing:
        return await self.read(_standing(principal))

    async def chain(self, schema_id: str) -> tuple[Node, ...]:
        return await self.read(_schema_chain(schema_id))

    async def catalog_node(self, catalog_id: str) -> Node | None:
        return await self.read(_catalog_node(catalog_id))

    async def grants_on(self, securable_id: str) -> list[GrantRow]:
        return await self.read(_grants("securable_id", securable_id))

    async def grants_of(self, principal_id: str) -> list[GrantRow]:
        return await self.read(_grants("principal_id", principal_id))

    async def tables_for(
        self, subjects: Sequence[str], schema_id: str, after: str, limit: int, views: bool = False
    ) -> list[Table]:
        return await self.read(_tables_for(subjects, schema_id, name_key(after), limit, views))

    async def find(self, text: str, after: tuple[str, str], limit: int) -> list[Found]:
        return await self.read(_find(name_key(text), after, limit))


def _info(row: Row) -> PrincipalInfo:
    return PrincipalInfo(
        id=row[0],
        name=row[1],
        kind=PrincipalKind(row[2]),
        disabled=bool(row[3]),
        comment=row[4],
        etag=row[5],
        created_at=row[6],
        created_by=row[7],
    )


def _principal(column: str, value: str) -> Steps[PrincipalInfo | None]:
    return one(f"SELECT {_PRINCIPAL} FROM principals WHERE {column} = ?1", (value,), _info)


def _principals(kind: PrincipalKind | None, after: str, limit: int) -> Steps[list[PrincipalInfo]]:
    only = "" if kind is None else "AND kind = ?3"
    return many(
        f"""SELECT {_PRINCIPAL} FROM principals WHERE name_key > ?1 {only}
            ORDER BY name_key LIMIT ?2""",
        (after, limit) if kind is None else (after, limit, kind),
        _info,
    )


def _names(ids: Sequence[str]) -> Steps[dict[str, str]]:
    if not ids:
        return {}
    rows = yield f"SELECT id, name FROM principals WHERE id IN ({_marks(ids)})", tuple(ids)
    return {row[0]: row[1] for row in rows}


def _related(wanted: str, given: str, principal_id: str) -> Steps[list[PrincipalInfo]]:
    columns = ", ".join("p." + column for column in _PRINCIPAL.split(", "))
    return many(
        f"""SELECT {columns} FROM members m JOIN principals p ON p.id = m.{wanted}
            WHERE m.{given} = ?1 ORDER BY p.name_key""",
        (principal_id,),
        _info,
    )


_TOKEN = """SELECT k.id, k.hash, k.label, k.scope, k.created_at, k.expires_at, k.revoked_at, k.last_used_at,
    p.id, p.name, p.kind, p.disabled FROM tokens k JOIN principals p ON p.id = k.principal_id"""


def _token_of(row: Row) -> StoredToken:
    scope = Scope(row[3])
    return StoredToken(
        id=row[0],
        hash=row[1],
        label=row[2],
        scope=scope,
        created_at=row[4],
        expires_at=row[5],
        revoked_at=row[6],
        last_used_at=row[7],
        principal=Principal(row[8], row[9], PrincipalKind(row[10]), scope),
        disabled=bool(row[11]),
    )


def _token(token_id: str) -> Steps[StoredToken | None]:
    return one(f"{_TOKEN} WHERE k.id = ?1", (token_id,), _token_of)


def _tokens(principal_id: str) -> Steps[list[StoredToken]]:
    return many(f"{_TOKEN} WHERE k.principal_id = ?1 ORDER BY k.created_at, k.id", (principal_id,), _token_of)


def _secrets(principal_id: str) -> Steps[list[StoredSecret]]:
    rows = yield (
        """SELECT id, hash, label, created_at, expires_at, revoked_at FROM secrets
           WHERE principal_id = ?1 ORDER BY created_at, id""",
        (principal_id,),
    )
    return [
        StoredSecret(
            id=row[0], hash=row[1], label=row[2], created_at=row[3], expires_at=row[4], revoked_at=row[5]
        )
        for row in rows
    ]


def _touch(used: Mapping[str, int]) -> Steps[None]:
    for token_id in sorted(used):
        yield "UPDATE tokens SET last_used_at = ?2 WHERE id = ?1", (token_id, used[token_id])


def _forget_tokens(expired_before: int) -> Steps[int]:
    rows = yield "DELETE FROM tokens WHERE expires_at < ?1 RETURNING 1", (expired_before,)
    return len(rows)


def _standing(principal: Principal) -> Steps[Standing]:
    """The principal, every group above it that is not disabled, and what any of them was granted."""
    subjects = {principal.id, EVERYONE.id}
    level = sorted(subjects)
    for _ in range(MAX_GROUP_DEPTH + 1):
        if not level:
            break
        rows = yield (
            f"""SELECT m.group_id FROM members m JOIN principals p ON p.id = m.group_id
                WHERE m.member_id IN ({_marks(level)}) AND p.disabled = 0""",
            tuple(level),
        )
        level = sorted({row[0] for row in rows} - subjects)
        subjects.update(level)
    everybody = sorted(subjects)
    rows = yield (
        f"""SELECT securable_id, privilege, principal_id FROM grants
            WHERE principal_id IN ({_marks(everybody)})""",
        tuple(everybody),
    )
    grants: dict[str, dict[Privilege, str]] = {}
    for securable_id, privilege, subject in rows:
        grants.setdefault(securable_id, {})[_PRIVILEGES[privilege]] = subject
    return Standing(frozenset(subjects), grants, principal.scope is Scope.READ)


def _schema_chain(schema_id: str) -> Steps[tuple[Node, ...]]:
    """The schema, its parents, its catalog and the metastore; empty when it does not exist."""
    nodes: list[Node] = []
    current = schema_id
    while True:
        rows = yield (
            """SELECT s.owner, s.path, s.parent_id, s.catalog_id, c.owner, c.name
               FROM schemas s JOIN catalogs c ON c.id = s.catalog_id WHERE s.id = ?1""",
            (current,),
        )
        if not rows:
            return ()
        owner, path, parent_id, catalog_id, catalog_owner, catalog = rows[0]
        nodes.append(Node(SecurableKind.SCHEMA, current, owner, (catalog, *path.split(SEPARATOR))))
        if parent_id == catalog_id:
            break
        current = parent_id
    return (*nodes, Node(SecurableKind.CATALOG, catalog_id, catalog_owner, (catalog,)), METASTORE)


def _catalog_node(catalog_id: str) -> Steps[Node | None]:
    rows = yield "SELECT owner, name FROM catalogs WHERE id = ?1", (catalog_id,)
    return Node(SecurableKind.CATALOG, catalog_id, rows[0][0], (rows[0][1],)) if rows else None


def _grants(column: str, value: str) -> Steps[list[GrantRow]]:
    rows = yield (
        f"""SELECT securable_id, kind, principal_id, privilege, granted_at, granted_by FROM grants
            WHERE {column} = ?1 ORDER BY securable_id, principal_id, privilege""",
        (value,),
    )
    return [
        GrantRow(
            securable_id=row[0],
            kind=SecurableKind(row[1]),
            principal_id=row[2],
            privilege=Privilege(row[3]),
            granted_at=row[4],
            granted_by=row[5],
        )
        for row in rows
    ]


def _tables_for(
    subjects: Sequence[str], schema_id: str, after: str, limit: int, views: bool
) -> Steps[list[Table]]:
    """Tables of a schema that somebody sees one by one: granted or owned, not through the schema.

    It starts from the grants and not from the tables. SQLite follows the order in which a CROSS JOIN
    names them; PostgreSQL must not know that only the first few are wanted, else it looks for them
    among all tables.
    """
    marks = _marks(subjects, start=4)
    wanted = f"t.schema_id = ?1 AND t.name_key > ?2 AND t.state IN ('live', 'declared') AND {only(views)}"
    # One for each owner, since only then an index has them in the order of their names.
    owned = " ".join(
        f"""UNION SELECT * FROM (
                SELECT t.id, t.name_key FROM tables t WHERE t.owner = ?{number} AND {wanted}
                ORDER BY t.name_key LIMIT ?3) AS owned{number}"""
        for number in range(4, 4 + len(subjects))
    )
    return many(
        f"""WITH granted AS MATERIALIZED (
                SELECT DISTINCT t.id, t.name_key FROM grants g CROSS JOIN tables t
                WHERE g.principal_id IN ({marks}) AND t.id = g.securable_id AND {wanted})
            SELECT {TABLE_COLUMNS} FROM tables t WHERE t.id IN (
                SELECT id FROM (SELECT id, name_key FROM granted {owned}) AS seen
                ORDER BY name_key LIMIT ?3)
            ORDER BY t.name_key""",
        (schema_id, after, limit, *subjects),
        table_of,
    )


def _find(text: str, after: tuple[str, str], limit: int) -> Steps[list[Found]]:
    """Names that contain `text`, and tables of which a column does, in the order of their keys."""
    pattern = "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    rows = yield (
        """SELECT kind, id, name, key, owner, parent_id, column_name FROM (
               SELECT 'catalog' AS kind, id, name, name_key AS key, owner, '' AS parent_id,
                   NULL AS column_name
               FROM catalogs WHERE name_key LIKE ?1 ESCAPE '\\'
               UNION ALL SELECT 'schema', id, name, name_key, owner, parent_id, NULL FROM schemas
               WHERE name_key LIKE ?1 ESCAPE '\\'
               UNION ALL SELECT 'table', id, name, name_key, owner, schema_id, NULL FROM tables
               WHERE name_key LIKE ?1 ESCAPE '\\' AND state IN ('live', 'declared')
               UNION ALL SELECT 'table', t.id, t.name, t.name_key, t.owner, t.schema_id, MIN(c.name)
               FROM columns c JOIN tables t ON t.id = c.table_id
               WHERE c.name_key LIKE ?1 ESCAPE '\\' AND t.name_key NOT LIKE ?1 ESCAPE '\\'
               AND t.state IN ('live', 'declared')
               GROUP BY t.id, t.name, t.name_key, t.owner, t.schema_id
           ) AS hits WHERE key > ?2 OR (key = ?2 AND id > ?3) ORDER BY key, id LIMIT ?4""",
        (pattern, after[0], after[1], limit),
    )
    return [
        Found(
            kind=SecurableKind(row[0]),
            id=row[1],
            name=row[2],
            key=row[3],
            owner=row[4],
            parent_id=row[5],
            column=row[6],
        )
        for row in rows
    ]


def _marks(values: Sequence[Any], start: int = 1) -> str:
    return ", ".join(f"?{index}" for index in range(start, start + len(values)))
