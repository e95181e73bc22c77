"""`inver care run` and `inver care worker`: jobs on tables, in this process and on its Spark."""

from __future__ import annotations

import os
import signal
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from inver.cli import output
from inver.cli.options import Subparsers, open_client, pair, verb
from inver.cli.progress import Progress
from inver.cli.settings import add_config, add_setting, settings_of
from inver.domain.care import Job, Outcome, Result, Ticket
from inver.errors import Broken, Conflict, Invalid, Refused, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from inver.client import Client
    from inver.pipeline.runner import Runner

BUDGET_S = 600.0
POLL_S = 15.0
MOST_STEPS = 1_000
FAILED, LOST = 1, 4


class Done(msgspec.Struct):
    """One line of what a run has done."""

    table: str
    job: Job
    result: Result
    run: str | None = None


COLUMNS: list[output.Column[Done]] = [
    ("TABLE", lambda item: item.table),
    ("JOB", lambda item: item.job),
    ("OUTCOME", lambda item: item.result.outcome),
    ("CHANGE", lambda item: changed(item.result)),
    ("SECONDS", lambda item: f"{item.result.measured.get('seconds', 0):.1f}"),
    ("MESSAGE", lambda item: item.result.message),
]


def add(verbs: Subparsers) -> None:
    run_ = verb(
        verbs,
        "run",
        run,
        "run jobs on a table, or what the plan says",
        "inver care run main.sales.orders",
        "inver care run --budget 300 --dry-run",
        about="Without TABLE the best steps of the plan are run; with it, those that it needs.",
    )
    run_.add_argument("table", nargs="?", metavar="TABLE", help="full name of the table")
    run_.add_argument("--job", choices=list(Job), help="this job alone, whether it is called for or not")
    run_.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
    run_.add_argument(
        "--option",
        type=pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the job in place of the policy's; may be repeated",
    )
    much = run_.add_mutually_exclusive_group()
    much.add_argument("--all", action="store_true", help="every step of the plan, however long it takes")
    much.add_argument(
        "--budget",
        type=_seconds,
        metavar="SECONDS",
        default=BUDGET_S,
        help=f"as much of the plan as is expected to fit into this time (default: {BUDGET_S:.0f})",
    )
    _add_spark(run_)
    worker_ = verb(
        verbs,
        "worker",
        worker,
        "take jobs from the server and run them, until SIGTERM or Ctrl-C",
        "inver care worker --once",
        about="Several workers share the work; a table is in the hands of one at a time.",
        shows=False,
    )
    worker_.add_argument("--once", action="store_true", help="do what is due now, and end")
    worker_.add_argument(
        "--poll",
        type=_seconds,
        default=POLL_S,
        metavar="SECONDS",
        help=f"how long to wait when nothing is due (default: {POLL_S:.0f})",
    )
    worker_.add_argument(
        "--parent", type=int, metavar="PID", help="end when the process that started this one is gone"
    )
    _add_spark(worker_)


def _add_spark(parser: ArgumentParser) -> None:
    add_setting(parser, "--spark", "care.spark", "ADDRESS")
    add_setting(parser, "--jars", "care.jars", "FOLDER")
    add_config(parser)


def run(arguments: Namespace) -> int:
    from inver.pipeline.runner import require_spark

    require_spark()
    options = options_of(arguments.option)
    if arguments.table is None and arguments.job is not None:
        raise Invalid("--job needs a table to run on", field="--job", fix="name the table")
    done: list[Done] = []
    with open_client(arguments) as client, _signals() as stopping:
        steps = _steps(client, arguments)
        shown = arguments.output == "table" and not arguments.quiet
        with _runner(arguments, client, stopping.is_set) as runner, Progress(len(steps), shown) as progress:
            for table, job in steps:
                if stopping.is_set():
                    break
                done.append(_one(client, runner, progress, table, job, arguments.dry_run, options))
    _report(arguments, done)
    return status_of(done)


def worker(arguments: Namespace) -> int:
    from inver.pipeline.runner import require_spark, worker_name

    require_spark()
    name = worker_name()
    with open_client(arguments) as client, _signals() as told_to_end:

        def stopping() -> bool:
            orphaned = arguments.parent is not None and os.getppid() != arguments.parent
            return told_to_end.is_set() or orphaned

        def rest() -> None:
            end = time.monotonic() + arguments.poll
            while not stopping() and (left := end - time.monotonic()) > 0:
                told_to_end.wait(min(left, 1.0))

        seen: set[tuple[str, Job]] = set()
        with _runner(arguments, client, stopping) as runner:
            while not stopping():
                ticket = _next(client, name, patient=not arguments.once)
                if arguments.once and (ticket is None or (ticket.table_id, ticket.job) in seen):
                    if ticket is not None:
                        client.finish_care(ticket.run_id, Result(outcome=Outcome.STOPPED))
                    print("nothing more is due" if seen else "nothing is due")
                    break
                if ticket is None:
                    rest()
                    continue
                seen.add((ticket.table_id, ticket.job))
                result = runner.run(ticket, lambda progress, message: None)
                print(_line(Done(".".join(ticket.name), ticket.job, result)), flush=True)
                if runner.broken:
                    raise Broken("Spark has ended under the worker", fix="start the worker again")
                if result.outcome is not Outcome.DONE and not arguments.once:
                    # What was not done may be offered again at once.
                    rest()
    return 0


# --- steps ---


def _steps(client: Client, arguments: Namespace) -> list[tuple[str, Job]]:
    from inver.client import dotted

    if arguments.job is not None:
        return [(arguments.table, Job(arguments.job))]
    if arguments.table is not None:
        return [(arguments.table, Job(finding.job)) for finding in client.care(arguments.table).findings]
    budget = None if arguments.all else int(arguments.budget)
    plan = client.care_plan(budget_seconds=budget, limit=MOST_STEPS)
    return [(dotted(step.full_name), Job(step.job)) for step in plan.steps]


def _one(
    client: Client,
    runner: Runner,
    progress: Progress,
    table: str,
    job: Job,
    dry_run: bool,
    options: dict[str, Any],
) -> Done:
    """One table's trouble is one line of the report; the next table has its turn."""
    from inver.pipeline.runner import worker_name

    try:
        ticket = client.start_care(table, job, worker=worker_name(), dry_run=dry_run, options=options)
    except Unauthenticated:
        raise
    except Conflict as busy:
        return Done(table, job, Result(outcome=Outcome.LOST, message=busy.message))
    except Refused as refused:
        fix = f" ({refused.fix})" if refused.fix else ""
        return Done(table, job, Result(outcome=Outcome.REFUSED, message=refused.message + fix))
    with progress.step(f"{table} {job}") as show:
        result = runner.run(ticket, show)
    return Done(table, job, result, ticket.run_id)


def _next(client: Client, name: str, *, patient: bool) -> Ticket | None:
    try:
        return client.next_care(name)
    except Unavailable:
        # Servers are started again; who waits for work waits for them as well.
        if not patient:
            raise
        return None


@contextmanager
def _runner(arguments: Namespace, client: Client, stopping: Callable[[], bool]) -> Iterator[Runner]:
    from inver.pipeline.java import cache_folder
    from inver.pipeline.runner import Runner, SparkAt, log_folder

    settings = settings_of(arguments)
    care = settings.care
    jars = sorted((care.jars or cache_folder() / "jars").glob("*.jar"))
    if care.jars and not jars:
        raise Invalid(f"{care.jars} has no jars", field="care.jars", fix="`inver spark jars` fetches them")
    # By hand, the terminal belongs to the progress; a worker's is read by whoever keeps it.
    errors = None if arguments.care_verb == "worker" else log_folder() / "spark.log"
    with SparkAt(care.spark, jars, errors=errors, short_lived=errors is not None) as spark:
        yield Runner(client, settings.storage, spark, logs=log_folder(), stopping=stopping)


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Set when the process is told to end; the job in hand then ends before its next step."""
    told = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: told.set())
    try:
        yield told
    finally:
        signal.signal(signal.SIGTERM, before)


# --- words ---


def options_of(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """`--option` as the API takes it: what was given, each of the type that it has."""
    from inver.config.kinds import SIZE
    from inver.domain.care import Options

    given: dict[str, Any] = dict(pairs)
    try:
        for name in ("target_file_size", "commit_bytes"):
            if name in given:
                given[name] = SIZE.from_text(given[name])
        if "cluster_columns" in given:
            given["cluster_columns"] = [name.strip() for name in given["cluster_columns"].split(",")]
        typed = msgspec.convert(given, Options, strict=False)
    except (ValueError, msgspec.ValidationError) as error:
        raise Invalid(f"an option is not what it must be: {error}", field="--option") from None
    return {name: getattr(typed, name) for name in given}


def changed(result: Result) -> str:
    """The numbers that a run has moved: `files 200 -> 1`."""
    both = [name for name in result.before if name in result.after]
    moved = [name for name in both if result.before[name] != result.after[name]]
    return ", ".join(f"{name} {result.before[name]:g} -> {result.after[name]:g}" for name in moved)


def status_of(done: list[Done]) -> int:
    outcomes = {item.result.outcome for item in done}
    if outcomes & {Outcome.FAILED, Outcome.REFUSED}:
        return FAILED
    return LOST if outcomes & {Outcome.LOST, Outcome.STOPPED} else 0


def _report(arguments: Namespace, done: list[Done]) -> None:
    if not done and arguments.output == "table" and not arguments.quiet:
        output.write("nothing to do\n")
        return
    output.show_list(arguments, done, COLUMNS, lambda item: f"{item.table} {item.job} {item.result.outcome}")
    for item in done if arguments.output == "table" and not arguments.quiet else ():
        output.write("".join(f"  {output.visible(path)}\n" for path in item.result.files))


def _line(done: Done) -> str:
    parts = [f"{done.table} {done.job}: {done.result.outcome}", changed(done.result), done.result.message]
    return output.visible(", ".join(part for part in parts if part))


def _seconds(text: str) -> float:
    from inver.cli.options import seconds

    return float(text) if text.isdecimal() and int(text) else float(seconds(text))
