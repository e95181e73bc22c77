"""What a run finds, and the limits it is held against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from bench import care_plan, listing
from bench.generator import Answers
from bench.load import Outcome
from bench.machine import QUIET, Usage


class Load(msgspec.Struct, kw_only=True):
    """Requests on tables that nobody else writes. `cpu_us` is per request, by group of processes."""

    subject: str
    connections: int
    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: dict[str, float]
    generator: float = 0.0
    foreign: float

    @classmethod
    def of(cls, subject: str, connections: int, outcome: Outcome) -> Load:
        return cls.measured(subject, connections, outcome.answers[200], outcome.usage)

    @classmethod
    def measured(cls, subject: str, connections: int, answers: Answers, usage: Usage) -> Load:
        return cls(
            subject=subject,
            connections=connections,
            per_s=answers.count / usage.seconds,
            p50_ms=answers.p50_ms,
            p99_ms=answers.p99_ms,
            cpu_us={name: 1e6 * seconds / answers.count for name, seconds in usage.groups.items()},
            generator=usage.own / usage.seconds,
            foreign=usage.foreign,
        )


class Hot(msgspec.Struct, kw_only=True):
    """One table that every connection writes."""

    subject: str
    connections: int
    winners_per_s: float
    refusals_per_s: float
    winner_p99_ms: float
    refusal_p50_ms: float
    refusal_p99_ms: float
    cpu_us: dict[str, float]
    foreign: float

    @classmethod
    def of(cls, subject: str, connections: int, outcome: Outcome) -> Hot:
        usage, won, lost = outcome.usage, outcome.answers[200], outcome.answers[409]
        return cls(
            subject=subject,
            connections=connections,
            winners_per_s=won.count / usage.seconds,
            refusals_per_s=lost.count / usage.seconds,
            winner_p99_ms=won.p99_ms,
            refusal_p50_ms=lost.p50_ms,
            refusal_p99_ms=lost.p99_ms,
            cpu_us={name: 1e6 * spent / (won.count + lost.count) for name, spent in usage.groups.items()},
            foreign=usage.foreign,
        )


class Growth(msgspec.Struct, kw_only=True):
    """CPU of a commit, server and database, on tables of few versions and on tables of many."""

    subject: str
    young: str
    old: str
    young_us: float
    old_us: float

    @property
    def ratio(self) -> float:
        return self.old_us / self.young_us


class Start(msgspec.Struct, kw_only=True):
    """`ready_s` is the median of `starts`; memory is resident, and of one server process."""

    subject: str
    ready_s: float
    starts: int
    ready_mb: float


class Memory(msgspec.Struct, kw_only=True):
    """Resident memory of the server after `commits`."""

    subject: str
    commits: int
    mb: float


class Limit(msgspec.Struct):
    name: str
    value: float
    bound: float
    unit: str
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


class Results(msgspec.Struct):
    environment: dict[str, str | int | float]
    loads: list[Load] = []
    hot: list[Hot] = []
    growth: list[Growth] = []
    starts: list[Start] = []
    memory: list[Memory] = []
    access: dict[str, Any] = {}
    listing: dict[str, Any] = {}
    sharing: dict[str, Any] = {}
    care_plan: dict[str, Any] = {}
    care_rewrite: dict[str, Any] = {}
    limits: list[Limit] = []

    def load(self, subject: str, connections: int) -> Load | None:
        found = (item for item in self.loads if (item.subject, item.connections) == (subject, connections))
        return next(found, None)

    def keep_load(self, load: Load) -> None:
        """Of the same measurement in several passes, the one that counts."""
        before = self.load(load.subject, load.connections)
        if before is None:
            self.loads.append(load)
        elif (load.foreign <= QUIET, load.per_s) > (before.foreign <= QUIET, before.per_s):
            self.loads[self.loads.index(before)] = load

    def keep_hot(self, hot: Hot) -> None:
        before = next((each for each in self.hot if each.subject == hot.subject), None)
        if before is None:
            self.hot.append(hot)
        elif hot.winners_per_s > before.winners_per_s:
            self.hot[self.hot.index(before)] = hot

    def judge(self) -> None:
        self.limits = list(limits(self))


CPU_BOUNDS = {
    "sqlite": 70.0,
    "postgres": 55.0,
    # What the ledger may cost, and 40 % for the protocol and the staged file.
    **{f"sqlite-{part}": 98.0 for part in ("unity", "unity-v1", "unity-commits", "unity-load")},
    **{f"postgres-{part}": 77.0 for part in ("unity", "unity-v1", "unity-commits", "unity-load")},
}
PGBENCH_BOUNDS = {"postgres": 2.0, "postgres-unity": 1.5, "postgres-unity-v1": 1.5}
AT = 32
# By request and connections: how many times as many per second as Iceberg's reference server.
ICEBERG_BOUNDS = {
    **{(f"append-{snapshots}", 1): 5.0 for snapshots in (10, 100, 1000, 5000)},
    **{(f"append-{snapshots}", AT): 10.0 for snapshots in (10, 100, 1000)},
    ("append-5000", AT): 5.0,
    ("load-unchanged", 8): 20.0,
}


LANCE_BOUND = 10.0
"""How many times as many versions per second as pylance's adapter makes, on tables of a thousand."""


def lance_limits(results: Results) -> Iterator[Limit]:
    for connections in (1, 8):
        ours, peer = (results.load(f"{who}-lance-create-1000", connections) for who in ("sqlite", "adapter"))
        if ours is not None and peer is not None:
            name = f"lance create-1000: versions per second beside the adapter, {connections} tables"
            yield Limit(name, ours.per_s / peer.per_s, LANCE_BOUND, "x", at_least=True)
        young, old = (
            results.load(f"sqlite-lance-create-{versions}", connections) for versions in (100, 5000)
        )
        if young is not None and old is not None:
            name = f"lance: time of a version at 5000 to 100, {connections} tables"
            yield Limit(name, young.per_s / old.per_s, 1.2, "x")


SHARING_BOUNDS = {
    "cold_first_s": ("first byte, never seen before", 3.0, "s"),
    "warm_first_s": ("first byte, seen before", 0.2, "s"),
    "partition_s": ("one partition by a predicate", 0.5, "s"),
    "growth_mb": ("memory over what the server had when it was ready", 300.0, "MB"),
}


def sharing_limits(results: Results) -> Iterator[Limit]:
    for part, about in (("snapshot", "files"), ("changes", "commits")):
        for name, (text, bound, unit) in SHARING_BOUNDS.items():
            if name in results.sharing.get(part, {}):
                subject = f"sharing {results.sharing[about]:,} {about}: {text}"
                yield Limit(subject, results.sharing[part][name], bound, unit)


def limits(results: Results) -> Iterator[Limit]:
    """Every limit that this run can judge."""
    for subject, bound in CPU_BOUNDS.items():
        load = results.load(subject, AT)
        if load is not None:
            yield Limit(
                f"{subject}: server CPU per request, {AT} connections", load.cpu_us["server"], bound, "us"
            )
    peer = results.load("pgbench", AT)
    for subject, bound in PGBENCH_BOUNDS.items():
        ours = results.load(subject, AT)
        if ours is not None and peer is not None:
            name = f"{subject}: commits per second beside pgbench, {AT} connections"
            yield Limit(name, ours.per_s / peer.per_s, bound, "x", at_least=True)
    for (what, connections), bound in ICEBERG_BOUNDS.items():
        ours, peer = (results.load(f"{who}-iceberg-{what}", connections) for who in ("sqlite", "reference"))
        if ours is not None and peer is not None:
            name = f"iceberg {what}: requests per second beside the reference, {connections} connections"
            yield Limit(name, ours.per_s / peer.per_s, bound, "x", at_least=True)
    yield from lance_limits(results)
    for hot in results.hot:
        winners = f"{hot.subject}: winners on one table, {hot.connections} connections"
        yield Limit(winners, hot.winners_per_s, 1000.0, "/s", at_least=True)
        if "unity" not in hot.subject:
            yield Limit(f"{hot.subject}: p99 of refusals on one table", hot.refusal_p99_ms, 5.0, "ms")
    for growth in results.growth:
        yield Limit(
            f"{growth.subject}: CPU at version {growth.old} to {growth.young}", growth.ratio, 1.2, "x"
        )
    for start in results.starts:
        yield Limit(f"{start.subject}: start to ready", start.ready_s, 0.5, "s")
        yield Limit(f"{start.subject}: memory when ready", start.ready_mb, 60.0, "MB")
    for who in ("administrator", "user"):
        if results.access:
            name = f"{who}: CPU of authentication and authorization per commit"
            yield Limit(name, results.access[f"{who}_us"], results.access["limit_us"], "us")
    if results.listing:
        name = f"a page of {results.listing['tables']:,} tables, slowest median"
        yield Limit(name, listing.slowest(results.listing), listing.BOUND_MS, "ms")
    yield from sharing_limits(results)
    if results.care_plan:
        name = f"care: a plan over {results.care_plan['tables']:,} tables"
        yield Limit(name, care_plan.slowest(results.care_plan), care_plan.BOUND_S, "s")
    for way, bound in results.care_rewrite.get("bounds", {}).items():
        name = f"care: compaction beside {way}"
        yield Limit(name, results.care_rewrite[f"times_{way}"], bound, "x", at_least=True)
    for memory in results.memory:
        yield Limit(f"{memory.subject}: memory after {memory.commits} commits", memory.mb, 60.0, "MB")


def show(results: Results) -> str:
    """For people, and ready for a document."""
    parts = [" / ".join(f"{name} {value}" for name, value in results.environment.items())]
    if results.loads:
        parts.append(_table(_LOAD_HEADS, map(_load_row, results.loads)))
    if results.hot:
        parts.append(_table(_HOT_HEADS, map(_hot_row, results.hot)))
    if results.growth:
        parts.append(_table(_GROWTH_HEADS, map(_growth_row, results.growth)))
    if results.limits:
        parts.append(_table(_LIMIT_HEADS, map(_limit_row, results.limits)))
    return "\n\n".join(parts)


_LOAD_HEADS = ("subject", "connections", "per s", "p50 ms", "p99 ms", "CPU us per request", "foreign CPU")
_HOT_HEADS = ("one table", "connections", "winners/s", "refusals/s", "p50, p99 of refusals ms", "CPU us")
_GROWTH_HEADS = ("CPU us per commit", "young tables, at version", "old tables, at version", "ratio")
_LIMIT_HEADS = ("limit", "measured", "bound", "")


def _load_row(load: Load) -> tuple[str, ...]:
    return (
        load.subject,
        str(load.connections),
        f"{load.per_s:,.0f}",
        f"{load.p50_ms:.2f}",
        f"{load.p99_ms:.2f}",
        _cpu(load.cpu_us),
        f"{load.foreign:.0%}",
    )


def _hot_row(hot: Hot) -> tuple[str, ...]:
    return (
        hot.subject,
        str(hot.connections),
        f"{hot.winners_per_s:,.0f}",
        f"{hot.refusals_per_s:,.0f}",
        f"{hot.refusal_p50_ms:.2f}, {hot.refusal_p99_ms:.2f}",
        _cpu(hot.cpu_us),
    )


def _growth_row(growth: Growth) -> tuple[str, ...]:
    return (
        growth.subject,
        f"{growth.young}: {growth.young_us:.0f}",
        f"{growth.old}: {growth.old_us:.0f}",
        f"{growth.ratio:.2f}",
    )


def _limit_row(limit: Limit) -> tuple[str, ...]:
    sign = ">=" if limit.at_least else "<="
    digits = 0 if limit.value >= 100 else 1 if limit.value >= 10 else 2
    bound = f"{sign} {limit.bound:g} {limit.unit}"
    verdict = "PASS" if limit.holds else "MISS"
    return limit.name, f"{limit.value:,.{digits}f} {limit.unit}", bound, verdict


def _cpu(groups: dict[str, float]) -> str:
    return " + ".join(f"{name} {value:.0f}" for name, value in groups.items())


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    )
