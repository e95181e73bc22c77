"""From findings to a plan: the best first, by what is gained for what it costs, within a budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log1p

import msgspec

from inver.domain.care import Job
from inver.domain.findings import Finding, Subject
from inver.domain.tables import Format

STARTUP_S = 3.0
"""What a run costs before it has read anything."""
BYTES_S = 20 * 2**20
"""What a job reads a second where none has been measured yet."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """`score` is the gain for each second, weighed by how much the table is read and how often care lost."""

    table_id: str
    job: Job
    reason: str
    gain: float
    bytes: int
    cost_seconds: float
    score: float
    not_before: int = 0


Rates = Mapping[tuple[Format, Job], float]
"""Bytes a second, as finished runs measured them."""


def step_of(table_id: str, subject: Subject, finding: Finding, rates: Rates) -> Step:
    cared = subject.health.cared.get(finding.job)
    measured = cared.bytes_s if cared is not None else None
    rate = measured or rates.get((subject.format, finding.job)) or BYTES_S
    cost = STARTUP_S + finding.bytes / rate
    lost = cared.streak if cared is not None else 0
    heat = 1.0 if subject.scans is None else 1.0 + log1p(subject.scans)
    return Step(
        table_id=table_id,
        job=finding.job,
        reason=finding.reason,
        gain=finding.gain,
        bytes=finding.bytes,
        cost_seconds=cost,
        score=finding.gain * heat * 2 / (2 + lost) / cost,
        not_before=finding.not_before,
    )


def ranked(steps: Iterable[Step], now: int, budget_seconds: float | None = None) -> list[Step]:
    """What may start by now, best first; with a budget, as many as it pays for."""
    due = sorted(
        (step for step in steps if step.not_before <= now),
        key=lambda step: (-step.score, step.table_id, step.job),
    )
    if budget_seconds is None:
        return due
    chosen = []
    for step in due:
        if step.cost_seconds <= budget_seconds:
            budget_seconds -= step.cost_seconds
            chosen.append(step)
    return chosen
