"""Care: what is known of tables, what is worth doing to them, and the runs that do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from inver.client.care_types import CareDetails, CarePlan, CarePolicy, CareRun, CareTable
from inver.client.core import Call, Page, Response, json_answer, json_body, no_answer, query_of
from inver.client.naming import Name, parts_of, segment
from inver.client.operations.listing import listing
from inver.client.operations.relations import table_path
from inver.domain.care import Result, Scheduler, Ticket


def care_tables(catalog: str | None = None, *, page_size: int | None = None) -> Call[Page[CareTable]]:
    """By id."""
    query = query_of(catalog=catalog, max_results=page_size)
    return listing("/care/tables", "tables", CareTable, query)


def care(table: Name) -> Call[CareDetails]:
    """With the policy in force, and who still needs older versions."""
    return Call(method="GET", path=table_path(table) + "/care", read=json_answer(CareDetails))


def care_plan(
    *, budget_seconds: int | None = None, catalog: str | None = None, limit: int | None = None
) -> Call[CarePlan]:
    query = query_of(budget_seconds=budget_seconds, catalog=catalog, max_results=limit)
    return Call(method="GET", path="/care/plan", query=query, read=json_answer(CarePlan))


def start_care(
    table: Name,
    job: str,
    *,
    worker: str,
    dry_run: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Call[Ticket]:
    """`options` are those that differ from the policy in force."""
    body = {
        "table": {"name": parts_of(table, least=3, what="table")},
        "job": job,
        "worker": worker,
        "dry_run": dry_run,
        "options": dict(options or {}),
    }
    return Call(method="POST", path="/care/runs", body=json_body(body), read=json_answer(Ticket))


def next_care(
    worker: str, *, jobs: Sequence[str] | None = None, formats: Sequence[str] | None = None
) -> Call[Ticket | None]:
    """The best step of the plan that nobody has; None when there is none."""
    body = json_body({"worker": worker, "jobs": list(jobs or ()), "formats": list(formats or ())})

    def read(response: Response) -> Ticket | None:
        return json_answer(_Next)(response).ticket

    return Call(method="POST", path="/care/runs/next", body=body, read=read)


def care_heartbeat(run_id: str, progress: float, message: str = "") -> Call[None]:
    """Hold the lease; a Conflict says that it is lost."""
    body = json_body({"progress": min(1.0, max(0.0, progress)), "message": message})
    return Call(method="POST", path=f"{_run(run_id)}/heartbeat", body=body, read=no_answer)


def finish_care(run_id: str, result: Result) -> Call[None]:
    """May be sent twice: the same end is one."""
    body = msgspec.json.encode(result)
    return Call(method="POST", path=f"{_run(run_id)}/finish", body=body, read=no_answer)


def care_runs(table: Name | None = None, *, page_size: int | None = None) -> Call[Page[CareRun]]:
    """Newest first, without the files that dry runs would delete: `care_run` has them."""
    path = "/care/runs" if table is None else table_path(table) + "/care/runs"
    return listing(path, "runs", CareRun, query_of(max_results=page_size))


def care_run(run_id: str) -> Call[CareRun]:
    return Call(method="GET", path=_run(run_id), read=json_answer(CareRun))


def care_scheduler() -> Call[Scheduler]:
    """The worker that the server keeps beside itself."""
    return Call(method="GET", path="/care/scheduler", read=json_answer(Scheduler))


def care_policy(name: Name) -> Call[CarePolicy]:
    """Of a catalog or of a table; what it says itself."""
    return Call(method="GET", path=_policy(name), read=json_answer(CarePolicy))


def set_care_policy(
    name: Name,
    *,
    enabled: bool = True,
    jobs: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Call[CarePolicy]:
    """In place of the one before. Without `jobs`, all of them."""
    body = {"enabled": enabled, "options": dict(options or {})}
    if jobs is not None:
        body["jobs"] = list(jobs)
    return Call(method="PUT", path=_policy(name), body=json_body(body), read=json_answer(CarePolicy))


def drop_care_policy(name: Name) -> Call[None]:
    return Call(method="DELETE", path=_policy(name), read=no_answer)


class _Next(msgspec.Struct):
    ticket: Ticket | None = None


def _run(run_id: str) -> str:
    return f"/care/runs/{segment(run_id)}"


def _policy(name: Name) -> str:
    parts = parts_of(name)
    path = f"/catalogs/{segment(parts[0])}" if len(parts) == 1 else table_path(parts)
    return path + "/care/policy"
