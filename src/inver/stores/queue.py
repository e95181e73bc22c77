"""The queue of follow-up work: leases, attempts, back-off.

An item is done at least once. A worker that dies loses its lease and the item comes back; one that
fails is tried again later and later, and after `MAX_ATTEMPTS` stays as `failed` for a person to see.
"""

from __future__ import annotations

from collections.abc import Sequence

from inver.ports import WorkItem
from inver.stores.reads import WORK_COLUMNS, work_of
from inver.stores.sql import Steps

MAX_ATTEMPTS = 12
FIRST_DELAY_MS = 1_000
LONGEST_DELAY_MS = 10 * 60 * 1000


def back_off_ms(attempts: int) -> int:
    return min(LONGEST_DELAY_MS, FIRST_DELAY_MS << min(attempts, 20))


def claim(kinds: Sequence[str], worker: str, now: int, lease_ms: int, limit: int) -> Steps[list[WorkItem]]:
    if not kinds:
        return []
    marks = ", ".join(f"?{index}" for index in range(5, 5 + len(kinds)))
    # The choice is made once and kept: as a subquery of the UPDATE, PostgreSQL may run it again and
    # lock more than was asked for.
    rows = yield (
        f"""WITH due (item_id) AS MATERIALIZED (
                SELECT id FROM work WHERE state = 'waiting' AND not_before <= ?3 AND lease_until <= ?3
                AND kind IN ({marks}) ORDER BY not_before, id LIMIT ?4 {{skip}})
            UPDATE work SET leased_by = ?1, lease_until = ?2, attempts = attempts + 1
            FROM due WHERE id = item_id RETURNING {WORK_COLUMNS}""",
        (worker, now + lease_ms, now, limit, *kinds),
    )
    return sorted((work_of(row) for row in rows), key=lambda item: (item.not_before, item.id))


def finish(item_id: str, worker: str) -> Steps[bool]:
    """False when the lease was lost meanwhile; the item then belongs to somebody else."""
    rows = yield "DELETE FROM work WHERE id = ?1 AND leased_by = ?2 RETURNING id", (item_id, worker)
    return bool(rows)


def extend(item_id: str, worker: str, until: int) -> Steps[bool]:
    rows = yield (
        "UPDATE work SET lease_until = ?3 WHERE id = ?1 AND leased_by = ?2 RETURNING id",
        (item_id, worker, until),
    )
    return bool(rows)


def fail(item_id: str, worker: str, error: str, now: int) -> Steps[bool]:
    rows = yield "SELECT attempts FROM work WHERE id = ?1 AND leased_by = ?2 {update}", (item_id, worker)
    if not rows:
        return False
    attempts = rows[0][0]
    state = "failed" if attempts >= MAX_ATTEMPTS else "waiting"
    yield (
        """UPDATE work SET state = ?2, not_before = ?3, lease_until = 0, leased_by = NULL, last_error = ?4
           WHERE id = ?1""",
        (item_id, state, now + back_off_ms(attempts), error[:2000]),
    )
    return True


def retry(now: int) -> Steps[int]:
    """Give every failed item another life."""
    rows = yield (
        """UPDATE work SET state = 'waiting', attempts = 0, not_before = ?1, last_error = NULL
           WHERE state = 'failed' RETURNING id""",
        (now,),
    )
    return len(rows)
