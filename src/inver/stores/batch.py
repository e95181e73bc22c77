"""Group commit on PostgreSQL: many plain transactions decided by one statement.

At most one transaction per table goes into a batch. Another one for the same table and version is
answered together with the first; for another version it waits for the next batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

from inver.domain.events import COMMITTED
from inver.domain.ledger import (
    Append,
    ConflictDetail,
    Receipt,
    Result,
    Transaction,
    Verdict,
    Winner,
    conflict_of,
    judge,
    replayed_transaction,
)
from inver.errors import Conflict, NotFound
from inver.stores.recent import Recent
from inver.stores.versions import event_data, lost

BATCH_LIMIT = 256

DECIDE = f"""
WITH req AS MATERIALIZED (
    SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bytea[],
                         $7::bytea[], $8::bytea[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[])
    WITH ORDINALITY
    AS r(grp, table_id, version, token, operation, payload, counts, data, by_id, at, epoch, published, n)
), locked AS MATERIALIZED (
    SELECT id, version, state FROM tables WHERE id = ANY($2::text[]) ORDER BY id FOR UPDATE
), fence AS MATERIALIZED (
    SELECT epoch FROM access_epoch WHERE id = 1
), won AS MATERIALIZED (
    SELECT r.grp FROM req r LEFT JOIN locked l ON l.id = r.table_id
    GROUP BY r.grp
    HAVING bool_and(COALESCE(l.version = r.version - 1 AND l.state IN ('live', 'declared'), false))
        AND bool_and(r.epoch IS NULL OR r.epoch = (SELECT epoch FROM fence))
), moved AS (
    UPDATE tables t SET version = r.version, updated_by = r.by_id,
        updated_at = GREATEST(t.updated_at, r.at), state = 'live',
        published = GREATEST(t.published, r.published)
    FROM req r JOIN won USING (grp) WHERE t.id = r.table_id
    RETURNING r.n, t.updated_at AS at, t.etag, t.published
), taken AS (
    UPDATE event_head SET seq = seq + (SELECT count(*) FROM moved)
    WHERE id = 1 AND EXISTS (SELECT 1 FROM moved) RETURNING seq
), numbered AS MATERIALIZED (
    SELECT r.n, r.grp, r.table_id, r.version, r.token, r.operation, r.payload, r.counts, r.data, r.by_id,
        m.at, m.etag, m.published,
        taken.seq - (SELECT count(*) FROM moved) + row_number() OVER (ORDER BY r.n) AS seq
    FROM moved m JOIN req r ON r.n = m.n CROSS JOIN taken
), final AS MATERIALIZED (
    SELECT *, min(seq) OVER (PARTITION BY grp) AS txn FROM numbered
), kept AS (
    INSERT INTO commits SELECT table_id, '', version, at, by_id, operation, token, txn, payload, counts
    FROM final
), told AS (
    INSERT INTO events SELECT seq, txn, at, by_id, '{COMMITTED}', table_id, version, data FROM final
)
SELECT grp, txn, at, etag, published FROM final UNION ALL SELECT -1, epoch, 0, 0, 0 FROM fence"""

SEPARATOR = "\x1f"
_BETWEEN = SEPARATOR.encode()
_SPLIT = r"E'\x1f'"

# The same where each transaction is of one table, so that there are no groups to keep. Columns come as one
# text each: of an array the driver looks at every element more than once.
DECIDE_EACH = f"""
WITH req AS MATERIALIZED (
    SELECT table_id, version::bigint, token, operation, convert_to(payload, 'UTF8') AS payload,
        convert_to(counts, 'UTF8') AS counts, convert_to(data, 'UTF8') AS data, by_id, at::bigint,
        epoch::bigint, published::bigint, n
    FROM unnest(
        string_to_array($1, {_SPLIT}), string_to_array($2, {_SPLIT}), string_to_array($3, {_SPLIT}),
        string_to_array($4, {_SPLIT}), string_to_array($5, {_SPLIT}), string_to_array($6, {_SPLIT}, ''),
        string_to_array($7, {_SPLIT}), string_to_array($8, {_SPLIT}), string_to_array($9, {_SPLIT}),
        string_to_array($10, {_SPLIT}, ''), string_to_array($11, {_SPLIT}, '')) WITH ORDINALITY
    AS r(table_id, version, token, operation, payload, counts, data, by_id, at, epoch, published, n)
), locked AS MATERIALIZED (
    SELECT id, version, state FROM tables WHERE id = ANY(string_to_array($1, {_SPLIT}))
    ORDER BY id FOR UPDATE
), fence AS MATERIALIZED (
    SELECT epoch FROM access_epoch WHERE id = 1
), moved AS (
    UPDATE tables t SET version = r.version, updated_by = r.by_id,
        updated_at = GREATEST(t.updated_at, r.at), state = 'live',
        published = GREATEST(t.published, r.published)
    FROM req r JOIN locked l ON l.id = r.table_id AND l.version = r.version - 1 CROSS JOIN fence f
    WHERE t.id = r.table_id AND l.state IN ('live', 'declared') AND COALESCE(r.epoch = f.epoch, true)
    RETURNING r.n, t.updated_at AS at, t.etag, t.published
), taken AS (
    UPDATE event_head SET seq = seq + (SELECT count(*) FROM moved)
    WHERE id = 1 AND EXISTS (SELECT 1 FROM moved) RETURNING seq
), final AS MATERIALIZED (
    SELECT r.n, r.table_id, r.version, r.token, r.operation, r.payload, r.counts, r.data, r.by_id,
        m.at, m.etag, m.published,
        taken.seq - (SELECT count(*) FROM moved) + row_number() OVER (ORDER BY r.n) AS seq
    FROM moved m JOIN req r ON r.n = m.n CROSS JOIN taken
), kept AS (
    INSERT INTO commits SELECT table_id, '', version, at, by_id, operation, token, seq, payload, counts
    FROM final
), told AS (
    INSERT INTO events SELECT seq, seq, at, by_id, '{COMMITTED}', table_id, version, data FROM final
)
SELECT n - 1, seq, at, etag, published FROM final UNION ALL SELECT -1, epoch, 0, 0, 0 FROM fence"""

# The same for a batch of one, which has no order and no groups to keep.
DECIDE_ONE = f"""
WITH fence AS MATERIALIZED (
    SELECT epoch FROM access_epoch WHERE id = 1
), moved AS (
    UPDATE tables SET version = $2::bigint, updated_by = $8, state = 'live',
        updated_at = GREATEST(updated_at, $9::bigint), published = GREATEST(published, $11::bigint)
    WHERE id = $1 AND version = $2::bigint - 1 AND state IN ('live', 'declared')
        AND ($10::bigint IS NULL OR $10 = (SELECT epoch FROM fence))
    RETURNING updated_at AS at, etag, published
), taken AS (
    UPDATE event_head SET seq = seq + 1 WHERE id = 1 AND EXISTS (SELECT 1 FROM moved) RETURNING seq
), kept AS (
    INSERT INTO commits SELECT $1, '', $2, at, $8, $4, $3, seq, $5, $6 FROM moved, taken
), told AS (
    INSERT INTO events SELECT seq, seq, at, $8, '{COMMITTED}', $1, $2, $7 FROM moved, taken
)
SELECT 0, seq, at, etag, published FROM moved, taken UNION ALL SELECT -1, epoch, 0, 0, 0 FROM fence"""

# A second look, in a snapshot of its own: the rows that beat us may have been committed after
# the deciding statement had started.
LOOK = """
SELECT t.version, c.version, c.token, c.txn, c.at, c.by_id
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS q(table_id, version, n)
LEFT JOIN tables t ON t.id = q.table_id AND t.state IN ('live', 'declared')
LEFT JOIN commits c ON c.table_id = q.table_id AND c.branch = '' AND c.version = q.version
ORDER BY q.n"""


class Waiting:
    """A plain transaction in the queue, and those that ask for the same version of the same table."""

    __slots__ = ("appends", "future", "rivals", "transaction", "tries")

    def __init__(self, transaction: Transaction, future: asyncio.Future[Receipt]) -> None:
        self.transaction = transaction
        self.appends: Sequence[Append] = transaction.operations  # type: ignore[assignment]
        self.future = future
        self.rivals: list[Waiting] = []
        self.tries = 0


Late: TypeAlias = tuple[Waiting, Receipt | Conflict]


def take(queue: deque[Waiting], recent: Recent) -> tuple[list[Waiting], list[Late]]:
    """The next batch, and those who came too late for it to matter what the batch does.

    What does not fit goes back to the front in its old order.
    """
    batch: list[Waiting] = []
    late: list[Late] = []
    first: dict[str, Waiting] = {}
    later: list[Waiting] = []
    size = 0
    while queue and size < BATCH_LIMIT:
        item = queue.popleft()
        appends = item.appends
        if len(appends) == 1:
            append = appends[0]
            known = recent.verdict(append)
            if known is not None:
                late.append((item, known))
                continue
            holder = first.get(append.table_id)
            if holder is None:
                first[append.table_id] = item
                batch.append(item)
                size += 1
            elif len(holder.appends) == 1 and holder.appends[0].version == append.version:
                holder.rivals.append(item)
            else:
                later.append(item)
        elif any(append.table_id in first for append in appends):
            later.append(item)
        else:
            for append in appends:
                first[append.table_id] = item
            batch.append(item)
            size += len(appends)
    queue.extendleft(reversed(later))
    return batch, late


def statement(batch: Sequence[Waiting]) -> tuple[str, list[Any]]:
    """What decides a batch, and its parameters: the columns of the request."""
    rows = [
        (
            group,
            op.table_id,
            op.version,
            op.token,
            op.operation,
            op.payload,
            op.counts,
            event_data(op),
            item.transaction.by,
            item.transaction.at,
            item.transaction.epoch,
            op.published,
        )
        for group, item in enumerate(batch)
        for op in item.appends
    ]
    if len(rows) == 1:
        return DECIDE_ONE, list(rows[0][1:])
    columns = [list(column) for column in zip(*rows, strict=True)]
    if len(rows) == len(batch):
        texts = _texts(columns)
        if texts is not None:
            return DECIDE_EACH, texts
    return DECIDE, columns


def _texts(columns: list[list[Any]]) -> list[str] | None:
    """Every column as one text; None where a value holds what stands between values, or is no text."""
    _, tables, versions, tokens, operations, payloads, counts, data, by, at, epochs, published = columns
    counted = [each or b"" for each in counts]
    if (
        any(SEPARATOR in "".join(column) for column in (tables, tokens, operations, by))
        or any(_BETWEEN in b"".join(column) for column in (payloads, counted, data))
        or b"" in counts
    ):
        return None
    try:
        return [
            SEPARATOR.join(tables),
            SEPARATOR.join(map(str, versions)),
            SEPARATOR.join(tokens),
            SEPARATOR.join(operations),
            _BETWEEN.join(payloads).decode(),
            _BETWEEN.join(counted).decode(),
            _BETWEEN.join(data).decode(),
            SEPARATOR.join(by),
            SEPARATOR.join(map(str, at)),
            SEPARATOR.join(["" if each is None else str(each) for each in epochs]),
            SEPARATOR.join(["" if each is None else str(each) for each in published]),
        ]
    except UnicodeDecodeError:
        return None


def won(item: Waiting, row: Sequence[Any]) -> Receipt:
    """From the row of `DECIDE`; where a transaction has several tables, nobody asks how it met them."""
    _, number, at, etag, published = row
    if len(item.appends) > 1:
        return receipt(item, number, at)
    op = item.appends[0]
    return Receipt(number, at, (Result(op.table_id, op.version),), False, etag, published)


def receipt(item: Waiting, number: int, at: int, replayed: bool = False) -> Receipt:
    return Receipt(number, at, tuple(Result(op.table_id, op.version) for op in item.appends), replayed)


def verdict(item: Waiting, rows: Sequence[Sequence[Any]]) -> Receipt | Exception | None:
    """What became of a transaction that did not win, from one `LOOK` row per append; None: try again."""
    details: list[ConflictDetail] = []
    standing: list[Winner] = []
    missing = False
    for index, (op, row) in enumerate(zip(item.appends, rows, strict=True)):
        current = row[0]
        winner = Winner(*row[1:6]) if row[1] is not None else None
        if current is None:
            missing = True
            if winner is not None and winner.token == op.token:
                standing.append(winner)
            continue
        match judge(op, current, winner):
            case Verdict.REPLAY:
                assert winner is not None
                standing.append(winner)
                details.append(conflict_of(index, op, current, winner))
            case Verdict.REFUSE:
                details.append(conflict_of(index, op, current, winner))
    if len(standing) == len(item.appends):
        number = replayed_transaction(standing)
        if number is not None:
            return receipt(item, number, standing[0].at, replayed=True)
    if missing:
        return NotFound("the table does not exist", kind="table")
    if not details:
        return None
    first = details[0]
    op = item.appends[first.operation]
    assert isinstance(first.current, int)
    return Conflict(lost(first.operation, op, first.current, first.winner).message, details)


def rival_verdict(rival: Waiting, winner: Winner) -> Receipt | Conflict:
    """The answer for one that asked for the very version that `winner` has just taken."""
    op = rival.appends[0]
    if op.token == winner.token:
        return receipt(rival, winner.transaction, winner.at, replayed=True)
    return lost(0, op, winner.version, winner)
