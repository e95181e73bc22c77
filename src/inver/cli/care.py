"""`inver care`: what tables need, what was done for them, and what may be done unasked."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from itertools import islice
from typing import TYPE_CHECKING, Any

from inver.cli import care_run, output
from inver.cli.options import Subparsers, noun, open_client, pair, seconds, verb
from inver.errors import Invalid, NotFound

if TYPE_CHECKING:
    from inver.client.care_types import CareDetails, CareRun, CareStep, CareTable

NAME = "catalog.schema.table"
UNKNOWN = "?"


def add(commands: Subparsers) -> None:
    verbs = noun(
        commands,
        "care",
        "look after tables: small files, deleted rows, dead files, long logs",
        "inver care status",
        "inver care plan",
    )
    status_ = verb(
        verbs,
        "status",
        status,
        "show what is known of tables, and what is worth doing to them",
        "inver care status",
        "inver care status --catalog main -o json",
        "inver care status main.sales.orders",
        about="A question mark stands for what is not known.",
    )
    status_.add_argument("table", nargs="?", help=f"all that is known of one table: {NAME}")
    _add_catalog(status_)
    status_.add_argument(
        "--findings", action="store_true", help="only tables that something is worth doing to"
    )
    plan_ = verb(
        verbs,
        "plan",
        plan,
        "show what would be done next, best first",
        "inver care plan",
        "inver care plan --budget 10m --catalog main -o json",
    )
    plan_.add_argument(
        "--budget", type=seconds, metavar="TIME", help="as much as fits into this time, such as 10m"
    )
    _add_catalog(plan_)
    _add_limit(plan_)
    history_ = verb(
        verbs,
        "history",
        history,
        "show runs, newest first: what was expected of them, and what came of it",
        "inver care history",
        "inver care history main.sales.orders --limit 10 -o json",
    )
    which = history_.add_mutually_exclusive_group()
    which.add_argument("table", nargs="?", help=f"runs of one table: {NAME}")
    which.add_argument(
        "--run", dest="run_id", metavar="ID", help="one run, with the files that a dry run would have deleted"
    )
    _add_limit(history_)
    _add_policy(verbs)
    care_run.add(verbs)


def _add_policy(verbs: Subparsers) -> None:
    parser = verb(
        verbs,
        "policy",
        policy,
        "show or change what is done unasked with a table, or with all tables of a catalog",
        "inver care policy main --set retention_hours=336 --job compact --job vacuum",
        "inver care policy main",
        "inver care policy main.sales.orders --disable",
        "inver care policy main.sales.orders --enable --set cluster_columns=region,day",
        "inver care policy main.sales.orders --drop",
        about="A table's policy goes before that of its catalog. Without options it is shown.",
    )
    parser.add_argument("name", help=f"catalog, or {NAME}")
    parser.add_argument(
        "--set",
        type=pair,
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="an option of jobs, such as target_file_size=268435456; may be repeated",
    )
    parser.add_argument(
        "--unset", action="append", default=[], metavar="OPTION", help="leave an option to what is above"
    )
    parser.add_argument(
        "--job", action="append", dest="jobs", metavar="JOB", help="only this job, and others so named"
    )
    parser.add_argument("--all-jobs", action="store_true", help="every job that the format has")
    switch = parser.add_mutually_exclusive_group()
    switch.add_argument("--enable", action="store_true", help="do what is worth doing unasked")
    switch.add_argument("--disable", action="store_true", help="do nothing unasked")
    switch.add_argument("--drop", action="store_true", help="have no policy of its own")


def _add_catalog(parser: ArgumentParser) -> None:
    parser.add_argument("--catalog", metavar="NAME", help="only tables of this catalog")


def _add_limit(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="at most so many (default: %(default)s)"
    )


def status(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        if arguments.table is not None:
            _show_table(arguments, client.care(arguments.table))
            return 0
        found = list(client.care_tables(arguments.catalog, page_size=1000))
        scheduler = client.care_scheduler()
    if arguments.findings:
        found = [table for table in found if table.findings]
    found.sort(key=lambda table: table.full_name)
    columns: list[output.Column[CareTable]] = [
        ("TABLE", lambda item: _dotted(item.full_name)),
        ("FORMAT", lambda item: item.format),
        ("FILES", lambda item: _number(item.health.files)),
        ("SIZE", lambda item: _size(item.health.bytes)),
        ("SMALL", lambda item: _number(item.health.small_files)),
        ("DELETED", lambda item: _number(item.health.deleted_rows)),
        ("DEAD", lambda item: _size(item.health.dead_bytes)),
        ("WRITES/H", lambda item: f"{item.health.writes_per_hour:.3g}"),
        ("WORTH DOING", lambda item: ", ".join(finding.job for finding in item.findings)),
        ("LAST", _last),
    ]
    output.show_list(arguments, found, columns, lambda item: _dotted(item.full_name))
    if arguments.output == "table" and not arguments.quiet:
        told = (
            f"{scheduler.state} since {output.moment(scheduler.since)}"
            if scheduler.since
            else scheduler.state
        )
        output.write(f"scheduler: {told} {output.visible(scheduler.message)}".rstrip() + "\n")
    return 0


def plan(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        found = client.care_plan(
            budget_seconds=arguments.budget, catalog=arguments.catalog, limit=arguments.limit
        )
    if arguments.output != "table" and not arguments.quiet:
        output.show_value(arguments, found)
        return 0
    columns: list[output.Column[CareStep]] = [
        ("TABLE", lambda item: _dotted(item.full_name)),
        ("JOB", lambda item: item.job),
        ("GAIN", lambda item: f"{item.gain:.3g}"),
        ("COST", lambda item: f"{item.cost_seconds:.3g} s"),
        ("REASON", lambda item: item.reason),
    ]
    output.show_list(arguments, found.steps, columns, lambda item: f"{_dotted(item.full_name)} {item.job}")
    return 0


def history(arguments: Namespace) -> int:
    with open_client(arguments) as client:
        if arguments.run_id is not None:
            output.show_one(arguments, client.care_run(arguments.run_id), arguments.run_id)
            return 0
        found = list(islice(client.care_runs(arguments.table), max(0, arguments.limit)))
    columns: list[output.Column[CareRun]] = [
        ("STARTED", lambda item: output.moment(item.started_at)),
        ("TABLE", lambda item: _dotted(item.full_name)),
        ("JOB", lambda item: f"{item.job} (dry run)" if item.dry_run else item.job),
        ("OUTCOME", lambda item: item.result.outcome if item.result else item.state),
        ("FILES", lambda item: _change(item, "files")),
        ("BYTES", lambda item: _change(item, "bytes")),
        ("EXPECTED", lambda item: _seconds(item.predicted.seconds)),
        ("TOOK", lambda item: _seconds(item.result.measured.get("seconds") if item.result else None)),
        ("MESSAGE", lambda item: item.result.message if item.result else item.message),
    ]
    output.show_list(arguments, found, columns, lambda item: item.id)
    return 0


def policy(arguments: Namespace) -> int:
    changes = arguments.set or arguments.unset or arguments.jobs or arguments.all_jobs
    with open_client(arguments) as client:
        if arguments.drop:
            if changes:
                raise Invalid("--drop leaves nothing to set", field="--drop")
            client.drop_care_policy(arguments.name)
            output.show_done(arguments, "dropped the care policy of", arguments.name)
            return 0
        if not (changes or arguments.enable or arguments.disable):
            output.show_one(arguments, client.care_policy(arguments.name), arguments.name)
            return 0
        try:
            known = client.care_policy(arguments.name)
        except NotFound:
            # It may be the policy that is not there, or what it would be of; that shows when it is set.
            known = None
        options = {} if known is None else dict(known.options)
        for option in arguments.unset:
            options.pop(option, None)
        options |= {key: _value(key, value) for key, value in arguments.set}
        jobs = None if arguments.all_jobs or known is None else known.jobs
        made = client.set_care_policy(
            arguments.name,
            enabled=not arguments.disable
            if arguments.enable or arguments.disable or not known
            else known.enabled,
            jobs=arguments.jobs or jobs,
            options=options,
        )
    output.show_one(arguments, made, arguments.name)
    return 0


def _value(option: str, text: str) -> Any:
    """As JSON would have it; a list of columns is written with commas."""
    import msgspec

    if option == "cluster_curve":
        return text
    if option == "cluster_columns":
        return [column.strip() for column in text.split(",") if column.strip()]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise Invalid(f"{text!r} is not a value of {option}", field="--set") from None


def _show_table(arguments: Namespace, found: CareDetails) -> None:
    if arguments.output != "table" or arguments.quiet:
        output.show_one(arguments, found, "\n".join(finding.job for finding in found.findings))
        return
    import msgspec

    told: dict[str, Any] = {
        "table": _dotted(found.full_name),
        "format": found.format,
        "version": found.version,
    }
    told |= {
        name: UNKNOWN if value is None else value
        for name, value in msgspec.to_builtins(found.health).items()
        if name not in ("version", "sizes")
    }
    if told["last_write_at"] == UNKNOWN:
        told["last_write_at"] = None
    for finding in found.findings:
        told[f"worth doing: {finding.job}"] = finding.reason
    for last in found.last:
        told[f"last {last.job}"] = f"{last.outcome}, {output.moment(last.at)}"
    told["policy"] = msgspec.to_builtins(found.policy.options) or None
    told["jobs"] = ", ".join(found.policy.jobs) if found.policy.enabled else "none: care is disabled"
    for pin in found.pins:
        told[f"pinned at version {pin.version}"] = pin.reason
    output.show_one(arguments, told, "")


def _last(item: CareTable) -> str:
    last = max(item.last, key=lambda each: each.at, default=None)
    return "" if last is None else f"{last.job} {last.outcome}, {output.moment(last.at)}"


def _change(item: CareRun, name: str) -> str:
    result = item.result
    if result is None or name not in result.before or name not in result.after:
        return ""
    shown = _size if name == "bytes" else _number
    return f"{shown(int(result.before[name]))} -> {shown(int(result.after[name]))}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} s"


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _size(value: int | None) -> str:
    if value is None:
        return UNKNOWN
    count = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if unit != "B" else f"{value} B"
        count /= 1024
    return f"{count:.3g} TiB"


def _dotted(parts: list[str]) -> str:
    from inver.client import dotted

    return dotted(parts)
