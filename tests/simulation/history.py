"""Histories of concurrent clients, and whether any order of one client at a time explains them.

An operation is recorded from the moment it was sent to the moment its answer came. A table is
linearizable if each of its operations can be put at one instant between the two, so that every
answer is what a single table would have said at that instant (Wing and Gong; the search is Lowe's,
which remembers what it has tried). An operation whose answer was lost may have taken effect at any
instant since it was sent, or never.

A transaction is checked table by table; that it happened wholly or not at all, and that one order
explains all tables together, is checked against the event feed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import TypeAlias

Tokens: TypeAlias = tuple[str, ...]
"""A table's state: the token of each version, beginning with version 1."""

START: Tokens = ()
_END = 1 << 62


class Outcome(StrEnum):
    OK = "ok"
    REPLAYED = "replayed"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Write:
    """One table's part in a commit."""

    table: str
    version: int
    token: str


@dataclass(frozen=True)
class Read:
    """A table was seen at `version`, with `token` on top, or with all of `tokens`, where these are known."""

    table: str
    version: int
    token: str | None = None
    tokens: Tokens | None = None


@dataclass(frozen=True)
class Op:
    """`lost` are the tables on which a refused transaction was said to have lost."""

    client: int
    invoked: int
    completed: int | None
    action: tuple[Write, ...] | Read
    outcome: Outcome = Outcome.OK
    transaction: int | None = None
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Committed:
    """A commit as the event feed tells it."""

    seq: int
    transaction: int
    table: str
    version: int


class Inconsistent(AssertionError):
    """No order of operations explains what the clients saw."""


# --- one table ---


@dataclass(frozen=True)
class Step:
    """What one operation says about one table."""

    invoked: int
    completed: int | None
    action: Write | Read
    outcome: Outcome

    def after(self, state: Tokens) -> Tokens | None:
        """The state that this operation leaves, or None where its answer would have been another."""
        action = self.action
        if isinstance(action, Read):
            fits = (
                action.version == len(state)
                and (action.token is None or (bool(state) and state[-1] == action.token))
                and (action.tokens is None or action.tokens == state)
            )
            return state if fits else None
        follows = action.version == len(state) + 1
        stands = 1 <= action.version <= len(state) and state[action.version - 1] == action.token
        match self.outcome:
            case Outcome.OK | Outcome.UNKNOWN:
                return (*state, action.token) if follows else None
            case Outcome.REPLAYED:
                return state if stands else None
            case Outcome.CONFLICT:
                return None if follows or stands else state


def steps_of(ops: Iterable[Op]) -> dict[str, list[Step]]:
    """Operations, table by table. A refusal speaks only of the tables on which it says to have lost."""
    steps: dict[str, list[Step]] = defaultdict(list)
    for op in ops:
        actions: Iterable[Write | Read] = op.action if isinstance(op.action, tuple) else (op.action,)
        for action in actions:
            if isinstance(action, Read) and op.outcome is Outcome.UNKNOWN:
                continue
            if op.outcome is Outcome.CONFLICT and action.table not in op.lost:
                continue
            completed = None if op.outcome is Outcome.UNKNOWN else op.completed
            steps[action.table].append(Step(op.invoked, completed, action, op.outcome))
    return dict(steps)


class _Entry:
    """A call or a return in a doubly linked list, from which operations are lifted once they are placed."""

    __slots__ = ("back", "bit", "next", "previous", "step")

    def __init__(self, step: Step | None, bit: int = 0) -> None:
        self.step = step  # of a call; a return has none
        self.bit = bit
        self.back: _Entry | None = None  # the return of a call
        self.previous: _Entry | None = None
        self.next: _Entry | None = None


def linearization(steps: Sequence[Step], state: Tokens = START) -> list[Step] | None:
    """An order that explains the steps, or None if there is none."""
    head, returns = _entries(steps)
    entry = head.next
    placed = 0
    path: list[tuple[_Entry, Tokens]] = []
    tried: set[tuple[int, Tokens]] = set()
    while returns:
        assert entry is not None, "a return stands behind every call that has one"
        if entry.step is not None:
            after = entry.step.after(state)
            if after is not None and (attempt := (placed | entry.bit, after)) not in tried:
                tried.add(attempt)
                path.append((entry, state))
                placed, state = attempt
                returns -= entry.back is not None
                _lift(entry)
                entry = head.next
            else:
                entry = entry.next
        elif path:
            # An answer came before anything could be placed that explains it: take the last step back.
            entry, state = path.pop()
            placed ^= entry.bit
            returns += entry.back is not None
            _unlift(entry)
            entry = entry.next
        else:
            return None
    return [call.step for call, _ in path if call.step is not None]


def _entries(steps: Sequence[Step]) -> tuple[_Entry, int]:
    """The head of the list, in the order of time, and how many returns are in it."""
    # What touches at one instant is concurrent, so calls come before returns.
    moments: list[tuple[int, int, int, _Entry]] = []
    returns = 0
    for number, step in enumerate(steps):
        call = _Entry(step, 1 << number)
        moments.append((step.invoked, 0, number, call))
        if step.completed is not None:
            call.back = _Entry(None)
            moments.append((step.completed, 1, number, call.back))
            returns += 1
    head = last = _Entry(None)
    for *_, entry in sorted(moments, key=lambda moment: moment[:3]):
        entry.previous, last.next = last, entry
        last = entry
    return head, returns


def _lift(call: _Entry) -> None:
    for entry in (call, call.back):
        if entry is not None:
            assert entry.previous is not None
            entry.previous.next = entry.next
            if entry.next is not None:
                entry.next.previous = entry.previous


def _unlift(call: _Entry) -> None:
    for entry in (call.back, call):
        if entry is not None:
            assert entry.previous is not None
            entry.previous.next = entry
            if entry.next is not None:
                entry.next.previous = entry


def require_linearizable(ops: Iterable[Op]) -> None:
    for table, steps in steps_of(ops).items():
        if linearization(steps) is None:
            raise Inconsistent(f"no order explains what was seen of table {table}")


# --- all tables together ---


def require_whole(ops: Iterable[Op], tables: Mapping[str, Tokens], feed: Sequence[Committed]) -> None:
    """Each transaction happened wholly or not at all, and as its answer said, under one number."""
    numbers = {(commit.table, commit.version): commit.transaction for commit in feed}
    for op in ops:
        if not isinstance(op.action, tuple):
            continue
        there = [write for write in op.action if _stands(write, tables)]
        if there and len(there) < len(op.action):
            raise Inconsistent(f"half of a transaction is there: {there} of {op}")
        if op.outcome is Outcome.CONFLICT and there:
            raise Inconsistent(f"a refused transaction is there: {op}")
        if op.outcome in (Outcome.OK, Outcome.REPLAYED) and not there:
            raise Inconsistent(f"an acknowledged transaction is lost: {op}")
        found = {numbers.get((write.table, write.version)) for write in there}
        if len(found) > 1 or (there and op.transaction is not None and found != {op.transaction}):
            raise Inconsistent(f"the feed has other transactions {found} for {op}")


def require_feed(tables: Mapping[str, Tokens], feed: Sequence[Committed]) -> None:
    """The feed tells every version of every table once, in order, each transaction in one piece."""
    seen = dict.fromkeys(tables, 0)
    previous: Committed | None = None
    numbers: set[int] = set()
    for commit in feed:
        if previous is not None and commit.seq <= previous.seq:
            raise Inconsistent(f"event {commit.seq} comes after event {previous.seq}")
        if commit.version != seen.get(commit.table, 0) + 1:
            raise Inconsistent(f"version {commit.version} follows {seen.get(commit.table)} of {commit.table}")
        seen[commit.table] = commit.version
        inside = previous is not None and previous.transaction == commit.transaction
        if inside:
            assert previous is not None
            if commit.seq != previous.seq + 1:
                raise Inconsistent(f"transaction {commit.transaction} is interrupted before {commit.seq}")
        elif commit.transaction in numbers or commit.transaction != commit.seq:
            raise Inconsistent(f"transaction {commit.transaction} begins at event {commit.seq}")
        numbers.add(commit.transaction)
        previous = commit
    for table, tokens in tables.items():
        if seen[table] != len(tokens):
            raise Inconsistent(f"{table} has {len(tokens)} versions, the feed tells {seen[table]}")


def require_order(ops: Sequence[Op], tables: Mapping[str, Tokens], feed: Sequence[Committed]) -> None:
    """The order of the feed is one in which everything can have happened, for all tables together.

    Every operation has the places at which its answer was right: transaction n stands at 2n, and
    what changes nothing stands between two transactions. Nothing that was sent after an answer may
    have to stand before it.
    """
    number = {(commit.table, commit.version): commit.transaction for commit in feed}
    placed = [(op, *places) for op in ops if (places := _places(op, number)) is not None]
    sent = [(last, op.invoked) for op, _, last in placed]
    sent.extend(_first_sent(ops, tables, number))
    sent.sort()
    latest = list(accumulate((invoked for _, invoked in sent), max))
    for op, first, _ in placed:
        ahead = bisect_left(sent, (first, -1))
        if op.completed is not None and ahead and latest[ahead - 1] > op.completed:
            raise Inconsistent(f"{op} was answered before something ahead of it was sent")


def _places(op: Op, number: Mapping[tuple[str, int], int]) -> tuple[int, int] | None:
    """The first and the last place at which an operation can stand; None where its answer does not tell."""
    if isinstance(op.action, Read):
        if op.outcome is Outcome.UNKNOWN:
            return None
        table, version = op.action.table, op.action.version
        here, following = number.get((table, version)), number.get((table, version + 1))
        return 0 if here is None else 2 * here + 1, _END if following is None else 2 * following - 1
    taken = [number.get((w.table, w.version)) for w in op.action if not op.lost or w.table in op.lost]
    known = [transaction for transaction in taken if transaction is not None]
    if op.outcome is Outcome.UNKNOWN or not known:
        return None
    return (2 * known[0], 2 * known[0]) if op.outcome is Outcome.OK else (2 * max(known) + 1, _END)


def _first_sent(
    ops: Iterable[Op], tables: Mapping[str, Tokens], number: Mapping[tuple[str, int], int]
) -> Iterator[tuple[int, int]]:
    """When commits were first sent that took effect, whatever became of their answers."""
    first: dict[Write, int] = {}
    for op in ops:
        for write in op.action if isinstance(op.action, tuple) else ():
            if _stands(write, tables):
                first[write] = min(op.invoked, first.get(write, op.invoked))
    for write, invoked in first.items():
        place = number.get((write.table, write.version))
        if place is not None:
            yield 2 * place, invoked


def _stands(write: Write, tables: Mapping[str, Tokens]) -> bool:
    tokens = tables.get(write.table, START)
    return 1 <= write.version <= len(tokens) and tokens[write.version - 1] == write.token


def with_final_reads(ops: Iterable[Op], tables: Mapping[str, Tokens], now: int) -> Iterator[Op]:
    """The history, and at its end one look at every table that shows all of it."""
    yield from ops
    for table, tokens in tables.items():
        yield Op(-1, now, now, Read(table, len(tokens), tokens=tokens))


def check(ops: Sequence[Op], tables: Mapping[str, Tokens], feed: Sequence[Committed], now: int) -> None:
    """Everything at once."""
    require_feed(tables, feed)
    require_whole(ops, tables, feed)
    require_order(ops, tables, feed)
    require_linearizable(with_final_reads(ops, tables, now))
