"""What the management API answers about care. Null is what is not known."""

from __future__ import annotations

from typing import Any

import msgspec

from inver.domain.care import Pin, Result


class Answer(msgspec.Struct, kw_only=True):
    pass


class SizeBin(Answer, kw_only=True):
    at_least: int
    files: int
    bytes: int


class Health(Answer, kw_only=True):
    version: int
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    small_files: int | None = None
    small_bytes: int | None = None
    sizes: list[SizeBin] | None = None
    files_with_deletes: int | None = None
    deleted_rows: int | None = None
    unclustered_bytes: int | None = None
    dead_bytes: int | None = None
    commits_since_checkpoint: int | None = None
    unpublished_commits: int | None = None
    snapshots: int | None = None
    manifests: int | None = None
    writes_per_hour: float = 0
    reads_per_hour: float | None = None
    last_write_at: int | None = None


class LastCare(Answer, kw_only=True):
    job: str
    at: int
    outcome: str
    version: int
    retry_at: int | None = None


class Finding(Answer, kw_only=True):
    job: str
    reason: str
    gain: float
    bytes: int
    not_before: int | None = None


class CareTable(Answer, kw_only=True):
    table_id: str
    full_name: list[str]
    format: str
    version: int
    health: Health
    findings: list[Finding] = []
    last: list[LastCare] = []


class PolicyInForce(Answer, kw_only=True):
    enabled: bool
    jobs: list[str]
    options: dict[str, Any] = {}


class CareDetails(CareTable, kw_only=True):
    policy: PolicyInForce
    pins: list[Pin] = []


class CareStep(Answer, kw_only=True):
    table_id: str
    full_name: list[str]
    format: str
    job: str
    reason: str
    gain: float
    bytes: int
    cost_seconds: float
    score: float


class CarePlan(Answer, kw_only=True):
    """`count` and `cost_seconds` are of the whole plan, of which `steps` may be a part."""

    steps: list[CareStep]
    count: int
    cost_seconds: float


class Predicted(Answer, kw_only=True):
    reason: str = ""
    gain: float = 0
    bytes: int | None = None
    seconds: float | None = None


class CareRun(Answer, kw_only=True):
    id: str
    table_id: str
    full_name: list[str]
    job: str
    dry_run: bool
    state: str
    attempt: int
    worker: str
    by: str
    started_at: int
    lease_until: int
    progress: float
    message: str = ""
    options: dict[str, Any] = {}
    predicted: Predicted
    finished_at: int | None = None
    result: Result | None = None


class CarePolicy(Answer, kw_only=True):
    enabled: bool = True
    jobs: list[str] | None = None
    options: dict[str, Any] = {}
