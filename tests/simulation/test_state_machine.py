"""Long sequences of changes through the services, compared step by step with a dictionary.

What the model says is said in the plainest way: who holds which name, which token made which version,
and the list of events. After every step the database must say the same.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from inver.clock import ManualClock
from inver.domain.ledger import Receipt
from inver.domain.tables import NAMED, Format, State
from inver.errors import AlreadyExists, Conflict, InverError, NotFound
from inver.services.intents import (
    Commit,
    CreateTable,
    DropTable,
    Intent,
    MoveCursor,
    RenameTable,
    UndropTable,
)
from inver.services.names import TableRef
from tests.fixtures.ledger import (
    HOLD_MS,
    AnyStore,
    Backend,
    as_admin,
    build_services,
    change,
    outcome,
    outcomes,
)

T = TypeVar("T")

# Which spellings are one name, said by hand.
KEYS = {"a": "a", "A": "a", "b": "b", "\u00e7": "\u00e7", "C\u0327": "\u00e7"}

names = st.sampled_from(list(KEYS))
schemas = st.sampled_from(["one", "two"])
tokens = st.sampled_from(["t1", "t2", "t3"])
distances = st.sampled_from([1, 1, 1, 1, 0, 2, -1])
cursors = st.sampled_from(["c", "d"])
values = st.sampled_from([None, "1", "2"])


@dataclass
class Model:
    """A table as it should be. `commits[version - 1]` is its token and the transaction that made it."""

    schema: str
    name: str
    state: State = State.LIVE
    commits: list[tuple[str, int]] = field(default_factory=list)
    purge_at: int = 0

    @property
    def version(self) -> int:
        return len(self.commits)

    @property
    def place(self) -> tuple[str, str]:
        return self.schema, KEYS[self.name]


class Machine(RuleBasedStateMachine):
    tables: Bundle[str] = Bundle("tables")
    requests: Bundle[tuple[Any, ...]] = Bundle("requests")
    url: str | None = None
    """A PostgreSQL database that is emptied for each run; without one, a SQLite file of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="inver-machine-")
        self._runner = asyncio.Runner()
        self.backend = Backend(Path(self._folder.name), self.url)
        self.clock = ManualClock()
        self.known: dict[str, Model] = {}
        self.cursors: dict[str, str] = {}
        self.events: list[tuple[str, str, int | None]] = []
        self.store: AnyStore
        self.run(self._open())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def _open(self, fresh: bool = True) -> None:
        if fresh:
            await self.backend.prepare()
        self.store = await self.backend.open()
        self.services = build_services(self.store, self.clock, self.backend.folder)

    def teardown(self) -> None:
        self.run(self.backend.close())
        self._runner.close()
        self._folder.cleanup()

    def ask(self, *intents: Intent, key: str | None = None) -> Receipt | Exception:
        return self.run(outcome(change(self.services, self.store, *intents, key=key)))

    def refused(self, answer: object, *kinds: type[InverError]) -> None:
        """Refused for one of these reasons. Nothing else is noted, so nothing else may have changed."""
        assert type(answer) in kinds, answer

    def applied(self, answer: object, *events: tuple[str, str, int | None]) -> Receipt:
        """Applied as one transaction with these events."""
        assert isinstance(answer, Receipt), answer
        assert not answer.replayed
        if events:
            assert answer.transaction == len(self.events) + 1
        assert answer.at == self.clock.now_ms()
        self.events += events
        return answer

    # --- what happens ---

    @initialize()
    def found(self) -> None:
        self.run(as_admin(self.store, lambda caller: self.services.catalogs.create(caller, "main")))
        for name in ("one", "two"):
            self.run(self._create_schema(name))
        events = self.run(self.store.events(0, 10))
        assert [event.kind for event in events] == ["catalog.created", "schema.created", "schema.created"]
        self.events = [(event.kind, event.subject, event.version) for event in events]

    async def _create_schema(self, name: str) -> None:
        await as_admin(
            self.store, lambda caller: self.services.catalogs.create_schema(caller, "main", (name,))
        )

    @rule(target=tables, schema=schemas, name=names)
    def create(self, schema: str, name: str) -> Any:
        answer = self.ask(CreateTable(name=("main", schema, name), format=Format.ICEBERG))
        if self.holder(schema, name) is not None:
            self.refused(answer, AlreadyExists)
            return multiple()
        assert isinstance(answer, Receipt)
        table = answer.results[0].subject
        self.applied(answer, ("table.created", table, 0))
        self.known[table] = Model(schema, name)
        return table

    @rule(table=tables, distance=distances, token=tokens)
    def commit(self, table: str, distance: int, token: str) -> None:
        self.decide_commits([(table, distance, token)])

    @rule(table=tables, distance=distances, token=tokens)
    def commit_by_name(self, table: str, distance: int, token: str) -> None:
        model = self.known[table]
        holder = self.holder(model.schema, model.name)
        version = model.version + distance
        ref = TableRef(name=("MAIN", model.schema.upper(), model.name))
        answer = self.ask(Commit(table=ref, version=version, token=token))
        if holder is None:
            self.refused(answer, NotFound)
        else:
            self.check_commits(answer, [(holder, version, token)])

    @rule(
        wanted=st.lists(st.tuples(tables, distances, tokens), min_size=2, max_size=4),
        cursor=st.none() | st.tuples(cursors, values, values),
    )
    def commit_several(
        self, wanted: list[tuple[str, int, str]], cursor: tuple[str, str | None, str | None] | None
    ) -> None:
        self.decide_commits(wanted, cursor)

    @rule(wanted=st.lists(st.tuples(tables, st.integers(0, 9)), min_size=1, max_size=3))
    def commit_again(self, wanted: list[tuple[str, int]]) -> None:
        """What was committed before, alone or with others, in the same company or in another."""
        commits = []
        for table, index in wanted:
            standing = self.known[table].commits
            if standing:
                version = index % len(standing) + 1
                commits.append((table, version, standing[version - 1][0]))
        if commits:
            intents = [Commit(table=TableRef(id=t), version=v, token=token) for t, v, token in commits]
            self.check_commits(self.ask(*intents), commits)

    @rule(table=tables, writers=st.integers(2, 5))
    def race(self, table: str, writers: int) -> None:
        """Several at once want the next version; one of them gets it."""
        model = self.known[table]
        version = model.version + 1
        commits = [Commit(table=TableRef(id=table), version=version, token=f"w{i}") for i in range(writers)]
        answers = self.run(self._race(commits))
        if model.state not in NAMED:
            for answer in answers:
                self.refused(answer, NotFound)
            return
        (won,) = [index for index, answer in enumerate(answers) if isinstance(answer, Receipt)]
        receipt = self.applied(answers[won], ("table.committed", table, version))
        model.commits.append((f"w{won}", receipt.transaction))
        for index, answer in enumerate(answers):
            if index != won:
                self.refused(answer, Conflict)
                assert isinstance(answer, Conflict)
                assert answer.conflicts[0].winner is not None
                assert answer.conflicts[0].winner.token == f"w{won}"

    async def _race(self, commits: list[Commit]) -> list[Receipt | Exception]:
        return await outcomes(*(change(self.services, self.store, commit) for commit in commits))

    @rule(table=tables, schema=schemas, name=names)
    def rename(self, table: str, schema: str, name: str) -> None:
        answer = self.ask(RenameTable(table=TableRef(id=table), to=("main", schema, name)))
        model = self.known[table]
        if model.state not in NAMED:
            self.refused(answer, NotFound)
        elif (model.schema, model.name) == (schema, name):
            self.applied(answer)
        elif self.holder(schema, name) not in (None, table):
            self.refused(answer, AlreadyExists)
        else:
            self.applied(answer, ("table.renamed", table, model.version))
            model.schema, model.name = schema, name

    @rule(table=tables)
    def drop(self, table: str) -> None:
        answer = self.ask(DropTable(table=TableRef(id=table)))
        model = self.known[table]
        if model.state not in NAMED:
            self.refused(answer, NotFound)
            return
        self.applied(answer, ("table.dropped", table, model.version))
        model.state = State.DROPPED
        model.purge_at = self.clock.now_ms() + HOLD_MS

    @rule(table=tables, to=st.none() | st.tuples(schemas, names))
    def undrop(self, table: str, to: tuple[str, str] | None) -> None:
        answer = self.ask(UndropTable(table_id=table, to=None if to is None else ("main", *to)))
        model = self.known[table]
        schema, name = to or (model.schema, model.name)
        if model.state is not State.DROPPED:
            self.refused(answer, NotFound)
        elif self.holder(schema, name) is not None:
            self.refused(answer, AlreadyExists)
        else:
            self.applied(answer, ("table.undropped", table, model.version))
            model.state, model.schema, model.name = State.LIVE, schema, name

    @rule(share=st.sampled_from([0.4, 0.6, 1.0]))
    def time_passes(self, share: float) -> None:
        """What was dropped long enough ago is gone for good; in which order does not matter."""
        self.clock.advance(int(HOLD_MS * share))
        over = [
            (model.purge_at, table)
            for table, model in self.known.items()
            if model.state is State.DROPPED and model.purge_at <= self.clock.now_ms()
        ]
        self.run(self._work())
        purged = self.run(self.store.events(len(self.events), 1_000))
        assert {event.subject for event in purged} == {table for _, table in over}
        for event in purged:
            model = self.known[event.subject]
            model.state = State.PURGED
            self.events.append(("table.purged", event.subject, model.version))

    async def _work(self) -> None:
        while await self.services.followup.step():
            pass

    @rule(name=cursors, expect=values, value=values)
    def move_cursor(self, name: str, expect: str | None, value: str | None) -> None:
        answer = self.ask(MoveCursor(cursor=name, expect=expect, value=value))
        if self.cursors.get(name) != expect:
            self.refused(answer, Conflict)
            return
        self.applied(answer, ("cursor.moved", name, None))
        self.move(name, value)

    @rule(target=requests, table=tables, distance=distances, token=tokens)
    def commit_under_a_key(self, table: str, distance: int, token: str) -> Any:
        version = self.known[table].version + distance
        intent = Commit(table=TableRef(id=table), version=version, token=token)
        key = str(uuid4())
        answer = self.ask(intent, key=key)
        recorded = not (isinstance(answer, Receipt) and answer.replayed)
        self.check_commits(answer, [(table, version, token)])
        return (key, intent, answer) if recorded else multiple()

    @rule(request=requests)
    def repeat(self, request: tuple[str, Intent, Receipt | Exception]) -> None:
        """The same answer as before, whatever has happened since."""
        key, intent, before = request
        again = self.ask(intent, key=key)
        if isinstance(before, Receipt):
            assert isinstance(again, Receipt)
            assert again.replayed
            assert (again.transaction, again.results) == (before.transaction, before.results)
        else:
            assert type(again) is type(before)
            assert vars(again) == vars(before)

    @rule(request=consumes(requests))
    def forget(self, request: tuple[Any, ...]) -> None:
        """Keeps the requests few."""

    @rule()
    def restart(self) -> None:
        self.run(self.backend.close())
        self.run(self._open(fresh=False))

    # --- the model's own rules ---

    def holder(self, schema: str, name: str) -> str | None:
        for table, model in self.known.items():
            if model.state in NAMED and model.place == (schema, KEYS[name]):
                return table
        return None

    def move(self, name: str, value: str | None) -> None:
        self.cursors.pop(name, None)
        if value is not None:
            self.cursors[name] = value

    def decide_commits(
        self,
        wanted: list[tuple[str, int, str]],
        cursor: tuple[str, str | None, str | None] | None = None,
    ) -> None:
        """Each wants a version so far from where its table stands after those before it."""
        at = {table: model.version for table, model in self.known.items()}
        commits = []
        for table, distance, token in wanted:
            commits.append((table, at[table] + distance, token))
            at[table] = max(at[table], at[table] + distance)
        intents: list[Intent] = [
            Commit(table=TableRef(id=table), version=version, token=token)
            for table, version, token in commits
        ]
        if cursor is not None:
            intents.append(MoveCursor(cursor=cursor[0], expect=cursor[1], value=cursor[2]))
        self.check_commits(self.ask(*intents), commits, cursor)

    def check_commits(
        self,
        answer: object,
        commits: list[tuple[str, int, str]],
        cursor: tuple[str, str | None, str | None] | None = None,
    ) -> None:
        at = {table: model.version for table, model in self.known.items()}
        troubles: list[type[InverError]] = []
        for table, version, _ in commits:
            if self.known[table].state not in NAMED:
                troubles.append(NotFound)
            elif version != at[table] + 1:
                troubles.append(Conflict)
            else:
                at[table] += 1
        if cursor is not None and self.cursors.get(cursor[0]) != cursor[1]:
            troubles.append(Conflict)
        if not troubles:
            events: list[tuple[str, str, int | None]] = [("table.committed", t, v) for t, v, _ in commits]
            if cursor is not None:
                events.append(("cursor.moved", cursor[0], None))
                self.move(cursor[0], cursor[2])
            receipt = self.applied(answer, *events)
            for table, _, token in commits:
                self.known[table].commits.append((token, receipt.transaction))
            return
        made_by = self.makers(commits)
        if cursor is None and len(made_by) == 1 and None not in made_by:
            assert isinstance(answer, Receipt)
            assert answer.replayed
            assert answer.transaction == made_by.pop()
        else:
            self.refused(answer, *troubles)

    def makers(self, commits: list[tuple[str, int, str]]) -> set[int | None]:
        """The transactions that made exactly these commits; None stands for what nobody made."""
        found: set[int | None] = set()
        for table, version, token in commits:
            standing = self.known[table].commits
            same = 1 <= version <= len(standing) and standing[version - 1][0] == token
            found.add(standing[version - 1][1] if same else None)
        return found

    # --- what must hold ---

    @invariant()
    def the_database_says_the_same(self) -> None:
        self.run(self._compare())

    async def _compare(self) -> None:
        store = self.store
        for table, model in self.known.items():
            found = await store.table_by_id(table)
            assert found is not None
            assert (found.state, found.version, found.name) == (model.state, model.version, model.name)
            history = await store.commits(table, "", 0, 2**62, 1_000)
            assert [(c.version, c.token, c.transaction) for c in reversed(history)] == [
                (version, *commit) for version, commit in enumerate(model.commits, start=1)
            ]
        for schema in ("one", "two"):
            inside = [m for m in self.known.values() if m.state in NAMED and m.schema == schema]
            row = await store.schema_by_path("main", (schema,))
            if row is not None:
                listed = [table.name for table in await store.tables(row.id, "", 100)]
                assert listed == [m.name for m in sorted(inside, key=lambda m: KEYS[m.name])]
        for name in ("c", "d"):
            assert await store.cursor(name) == self.cursors.get(name)
        feed = await store.events(0, 10_000)
        assert [event.seq for event in feed] == list(range(1, len(feed) + 1))
        assert [(event.kind, event.subject, event.version) for event in feed] == self.events


def simulate(machine: type[Machine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


# When it fails, hypothesis looks for the shortest way to fail, and that takes its time.
@pytest.mark.timeout(600)
def test_sqlite_agrees_with_a_dictionary():
    simulate(Machine, examples=30, steps=30)


@pytest.mark.timeout(600)
@pytest.mark.postgres
def test_postgres_agrees_with_a_dictionary(postgres_url: str):
    class OnPostgres(Machine):
        url = postgres_url

    simulate(OnPostgres, examples=6, steps=20)
