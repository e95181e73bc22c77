"""Commits through the management API of a real server, on SQLite and on PostgreSQL."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import msgspec

from bench.load import Outcome, Plan, Slot, run
from bench.machine import QUIET, Usage, await_quiet, memory_mb
from bench.results import Growth, Hot, Load, Memory, Start
from bench.servers import Server, migrate, running_inver
from bench.wire import COMMITS
from tests.fixtures.postgres import PostgresServer

OLD = 10_000
YOUNG = 10
STRETCH = 190


class Measured(Protocol):
    @property
    def usage(self) -> Usage: ...


T = TypeVar("T", bound=Measured)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """`patience_s` is how long to wait for quiet before a run.

    The `attempts` at commits and at pgbench are shared out to `passes`, minutes apart and with new
    processes: a slow spell of the host, or where a process happens to lie in memory, decides less.
    """

    seconds: float = 1.0
    patience_s: float = 20.0
    connections: tuple[int, ...] = (1, 8, 32, 128)
    hot_connections: int = 32
    tables: int = 128
    attempts: int = 8
    passes: int = 4
    growing: int = 16
    rounds: int = 24
    starts: int = 7


class Subject:
    """A server with a store, ready to be written to."""

    def __init__(self, name: str, server: Server, watched: Mapping[str, int], options: Options) -> None:
        self.name = name
        self.options = options
        self._server = server
        self._watched = {"server": server.pid, **watched}
        self._commits = 0
        server.create_schema()

    def loads(self) -> Iterator[Load]:
        """Many tables, each the business of one connection, in no order that a page could profit from."""
        slots = self._server.create_tables(self.options.tables, "many")
        random.Random(1).shuffle(slots)
        # The first commit of a table is dearer: the server has yet to learn who may write to it.
        slots = self._send(self._plan(32, slots, each=len(slots) // 32)).slots
        for connections in self.options.connections:

            def measure(connections: int = connections) -> Outcome:
                nonlocal slots
                outcome = self._run(connections, slots)
                slots = outcome.slots
                return outcome

            yield Load.of(self.name, connections, fastest(measure, self.options))

    def hot(self) -> Hot:
        """One table, the business of everybody."""
        slots = self._server.create_tables(1, "hot")
        connections = self.options.hot_connections

        def measure() -> Outcome:
            nonlocal slots
            outcome = self._run(connections, slots, shared=True)
            slots = outcome.slots
            return outcome

        return Hot.of(self.name, connections, fastest(measure, self.options))

    def growth(self) -> Growth:
        """Young and old tables in turn: whatever else changes meanwhile is felt by both. Of each the best."""
        count = self.options.growing
        old = self._advance(self._server.create_tables(count, "old"), OLD).slots
        young_s: list[float] = []
        old_s: list[float] = []
        for number in range(self.options.rounds):
            await_quiet(QUIET, self.options.patience_s)
            fresh = self._advance(self._server.create_tables(count, f"young{number}-"), YOUNG).slots
            young_s.append(sum(self._advance(fresh, STRETCH).usage.groups.values()))
            outcome = self._advance(old, STRETCH)
            old = outcome.slots
            old_s.append(sum(outcome.usage.groups.values()))
        commits = count * STRETCH
        return Growth(
            subject=self.name,
            young=f"{YOUNG:,}",
            old=f"{OLD:,}",
            young_us=1e6 * min(young_s) / commits,
            old_us=1e6 * min(old_s) / commits,
        )

    def memory(self) -> Memory:
        return Memory(subject=self.name, commits=self._commits, mb=memory_mb(self._server.pid))

    def _run(self, connections: int, slots: list[Slot], shared: bool = False) -> Outcome:
        return self._send(self._plan(connections, slots, shared, self.options.seconds))

    def _advance(self, slots: list[Slot], by: int) -> Outcome:
        return self._send(self._plan(len(slots), slots, each=by))

    def _plan(
        self,
        connections: int,
        slots: list[Slot],
        shared: bool = False,
        seconds: float | None = None,
        each: int = 0,
    ) -> Plan:
        return Plan(
            port=self._server.port,
            path=COMMITS,
            bearer=self._server.token,
            connections=connections,
            slots=slots,
            shared=shared,
            seconds=seconds,
            each=each,
            watched=self._watched,
        )

    def _send(self, plan: Plan) -> Outcome:
        """Every acknowledged commit, and no other, must be in the ledger."""
        before = self._server.last_event()
        outcome = run(plan)
        recorded = self._server.last_event() - before
        if recorded != outcome.won:
            raise AssertionError(f"{outcome.won} commits were acknowledged, {recorded} are recorded")
        self._commits += outcome.won
        return outcome


@contextmanager
def serving(store: str, postgres: PostgresServer | None, pid: int, options: Options) -> Iterator[Subject]:
    """A new server on `store`; `pid` is PostgreSQL's."""
    with database(store, postgres) as url, running_inver(url) as server:
        yield Subject(store, server, {} if url is None else {"postgres": pid}, options)


@contextmanager
def database(store: str, postgres: PostgresServer | None) -> Iterator[str | None]:
    if store == "sqlite":
        yield None
        return
    assert postgres is not None
    url = postgres.create_database()
    try:
        migrate(url)
        yield url
    finally:
        postgres.drop_database(url)


def starts(store: str, postgres: PostgresServer | None, options: Options) -> Start:
    """Every start is a first one: a new home, on PostgreSQL the same migrated database."""
    times, sizes = [], []
    with database(store, postgres) as url:
        for _ in range(options.starts):
            await_quiet(QUIET, options.patience_s)
            with running_inver(url) as server:
                times.append(server.ready_s)
                sizes.append(memory_mb(server.pid))
    return Start(
        subject=store,
        ready_s=statistics.median(times),
        starts=options.starts,
        ready_mb=statistics.median(sizes),
    )


def fastest(measure: Callable[[], Outcome], options: Options) -> Outcome:
    outcomes = []
    for _ in range(options.attempts):
        await_quiet(QUIET, options.patience_s)
        outcomes.append(measure())
    return that_counts(outcomes, lambda outcome: outcome.ok)


def that_counts(outcomes: Sequence[T], answered: Callable[[T], int]) -> T:
    """The fastest of the quiet runs, or of noisy ones the least noisy.

    A host that is shared takes CPU without showing it, and by that can only make a run slower.
    """
    quiet = [outcome for outcome in outcomes if outcome.usage.foreign <= QUIET]
    if not quiet:
        return min(outcomes, key=lambda outcome: outcome.usage.foreign)
    return max(quiet, key=lambda outcome: answered(outcome) / outcome.usage.seconds)
