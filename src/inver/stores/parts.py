"""Parts of tables: the pieces of a format's state that are written one by one and read together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from inver.domain.ledger import Part
from inver.ports import Pieces
from inver.stores.sql import Steps

ROWS = 64
"""Parts in one statement: few round trips, and few different texts to prepare."""


def write_parts(table_id: str, parts: Sequence[Part]) -> Steps[None]:
    gone: dict[str, list[str]] = {}
    kept: list[Part] = []
    for part in parts:
        if part.body is None:
            gone.setdefault(part.kind, []).append(part.key)
        else:
            kept.append(part)
    for kind, keys in gone.items():
        for start in range(0, len(keys), ROWS):
            some = keys[start : start + ROWS]
            yield _delete(len(some)), (table_id, kind, *some)
    for start in range(0, len(kept), ROWS):
        rows = kept[start : start + ROWS]
        yield (
            _upsert(len(rows)),
            (table_id, *(value for row in rows for value in (row.kind, row.key, row.position, row.body))),
        )


def read_pieces(table_id: str) -> Steps[Pieces | None]:
    """One statement, so that the head and the parts are of the same version."""
    rows = yield (
        """SELECT kind, key, position, body FROM parts WHERE table_id = ?1
           UNION ALL SELECT '', '', version, head FROM tables WHERE id = ?1
           ORDER BY 1, 3, 2""",
        (table_id,),
    )
    if not rows or rows[0][0]:
        return None
    _, _, version, head = rows[0]
    return Pieces(version=version, head=head, parts=tuple(Part(*row) for row in rows[1:]))


@cache
def _delete(count: int) -> str:
    marks = ", ".join(f"?{index}" for index in range(3, count + 3))
    return f"DELETE FROM parts WHERE table_id = ?1 AND kind = ?2 AND key IN ({marks})"


@cache
def _upsert(count: int) -> str:
    rows = ", ".join(f"(?1, ?{n}, ?{n + 1}, ?{n + 2}, ?{n + 3})" for n in range(2, 4 * count + 2, 4))
    return f"""INSERT INTO parts VALUES {rows} ON CONFLICT (table_id, kind, key)
        DO UPDATE SET position = excluded.position, body = excluded.body"""
