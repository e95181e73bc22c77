"""python -m bench: measure everything, or what is named, and hold it against the limits."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from bench import (
    access,
    care_plan,
    care_rewrite,
    iceberg,
    iceberg_decide,
    lance,
    ledger,
    listing,
    peers,
    sharing,
    sharing_table,
    unity,
)
from bench.ledger import Options
from bench.machine import child_named, describe
from bench.results import Load, Results, show
from tests.fixtures.postgres import PostgresMissing, PostgresServer, running_postgres

LATEST = Path(__file__).parent / "results" / "latest.json"
QUICK = Options(
    seconds=1.0, connections=(1, 32), attempts=1, passes=1, patience_s=5.0, growing=8, rounds=2, starts=3
)

STORE_PARTS = ("start", "tables", "hot", "growth")
PARTS = (
    *(f"sqlite-{part}" for part in STORE_PARTS),
    *(f"postgres-{part}" for part in STORE_PARTS),
    *(f"{store}-{part}" for store in ("sqlite", "postgres") for part in unity.PARTS),
    *peers.SCRIPTS,
    *(f"iceberg-{part}" for part in iceberg.PARTS),
    "iceberg-decision",
    *(f"lance-{part}" for part in lance.PARTS),
    "echo",
    "uvicorn",
    "access",
    "listing",
    "sharing",
    "care-plan",
    "care-rewrite",
)


class Run:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.options = QUICK if arguments.quick else Options()
        given = {"seconds": arguments.seconds, "patience_s": arguments.patience}
        known = {name: value for name, value in given.items() if value is not None}
        self.options = msgspec.structs.replace(self.options, **known)
        self.chosen = [part for part in PARTS if any(fnmatch(part, want) for want in arguments.only)]
        self.python: str | None = arguments.uvicorn
        self.postgres: PostgresServer | None = None
        self.postgres_pid = 0
        self.results = Results({})

    def everything(self) -> None:
        with ExitStack() as stack:
            if any(part.startswith(("postgres", "pgbench")) for part in self.chosen):
                try:
                    self.postgres = stack.enter_context(running_postgres())
                    self.postgres_pid = child_named("postgres")
                except PostgresMissing as missing:
                    say(f"without PostgreSQL: {missing}")
                    self.chosen = [
                        part for part in self.chosen if not part.startswith(("postgres", "pgbench"))
                    ]
            self.results.environment = describe(self.postgres.programs if self.postgres else None)
            for number in reversed(range(self.options.passes)):
                self._commits(last=number == 0)
            self._loads("echo", peers.echo(self.options))
            if self.python is not None:
                self._loads("uvicorn", peers.uvicorn(self.python, self.options))
        self._iceberg()
        self._lance()
        if "access" in self.chosen:
            say("access: who asks, and may they")
            self.results.access = access.run()
        if "listing" in self.chosen:
            say(f"listing: pages of {listing.TABLES:,} tables")
            self.results.listing = listing.run(self.options.seconds)
        if "sharing" in self.chosen:
            say(f"sharing: a table of {sharing_table.FILES:,} files, {sharing_table.COMMITS:,} commits")
            self.results.sharing = sharing.run()
        if "care-plan" in self.chosen:
            say(f"care: a plan over {care_plan.TABLES:,} tables")
            self.results.care_plan = care_plan.run()
        if "care-rewrite" in self.chosen:
            say(f"care: {care_rewrite.FILES} files of {care_rewrite.ROWS:,} rows written again")
            self.results.care_rewrite = care_rewrite.run()
        self.results.judge()

    def _commits(self, last: bool) -> None:
        """One pass over both stores and pgbench; what is measured once is measured in the last."""
        attempts = self.options.attempts // self.options.passes
        options = msgspec.structs.replace(self.options, attempts=attempts)
        for store in ("sqlite", "postgres"):
            self._store(store, options, last)
            self._unity(store, options, last)
        if self.postgres is not None:
            for name in peers.SCRIPTS:
                self._loads(name, peers.pgbench(name, self.postgres, self.postgres_pid, options))

    def _store(self, store: str, options: ledger.Options, last: bool) -> None:
        results = self.results
        wanted = [part for part in STORE_PARTS if f"{store}-{part}" in self.chosen]
        if "start" in wanted and last:
            say(f"{store}: {options.starts} starts")
            results.starts.append(ledger.starts(store, self.postgres, options))
        if not set(wanted) - ({"start"} if last else {"start", "growth"}):
            return
        with ledger.serving(store, self.postgres, self.postgres_pid, options) as subject:
            if "tables" in wanted:
                self._loads(f"{store}-tables", subject.loads())
            if "hot" in wanted:
                say(f"{store}: one table")
                results.keep_hot(subject.hot())
            if "growth" in wanted and last:
                say(f"{store}: {options.growing} tables to version {ledger.OLD:,}")
                results.growth.append(subject.growth())
            if last:
                results.memory.append(subject.memory())

    def _unity(self, store: str, options: ledger.Options, last: bool) -> None:
        wanted = [part for part in unity.PARTS if f"{store}-{part}" in self.chosen]
        if not set(wanted) - (set() if last else {"unity-growth"}):
            return
        with unity.serving(store, self.postgres, self.postgres_pid, options) as subject:
            for part in unity.LOADS:
                self._loads(f"{store}-{part}", subject.loads(part))
            if "unity-hot" in wanted:
                say(f"{store}: one managed Delta table")
                self.results.keep_hot(subject.hot())
            if "unity-growth" in wanted and last:
                say(f"{store}: {unity.GROWING} managed Delta tables to version {ledger.OLD:,}")
                self.results.growth.append(subject.growth())

    def _iceberg(self) -> None:
        wanted = [part for part in iceberg.PARTS if f"iceberg-{part}" in self.chosen]
        if wanted:
            with iceberg.serving(self.options) as pair:
                for part in wanted:
                    self._loads(f"iceberg-{part}", pair.loads(part))
        if "iceberg-decision" in self.chosen:
            say(f"iceberg: decisions on tables of {iceberg_decide.OLD:,} snapshots")
            self.results.growth.append(iceberg_decide.run())

    def _lance(self) -> None:
        wanted = [part for part in lance.PARTS if f"lance-{part}" in self.chosen]
        if wanted:
            with lance.serving(self.options) as pair:
                for part in wanted:
                    self._loads(f"lance-{part}", pair.loads(part))

    def _loads(self, part: str, loads: Iterator[Load]) -> None:
        if part not in self.chosen:
            return
        for load in loads:
            say(f"{load.subject}: {load.connections} connections, {load.per_s:,.0f}/s")
            self.results.keep_load(load)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        default=["*"],
        metavar="NAME",
        help=f"parts to run, also as patterns like 'sqlite-*': {', '.join(PARTS)}",
    )
    parser.add_argument("--seconds", type=float, help="length of one measurement (default: 1)")
    parser.add_argument(
        "--patience", type=float, help="seconds to wait for a quiet machine before each measurement (20)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer, shorter measurements: for a first look")
    parser.add_argument("--json", type=Path, default=LATEST, metavar="FILE", help="where the figures go")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a limit is missed")
    parser.add_argument(
        "--uvicorn", metavar="PYTHON", help="an interpreter that has uvicorn, uvloop and httptools"
    )
    arguments = parser.parse_args()
    run = Run(arguments)
    if not run.chosen:
        parser.error(f"nothing is called {' or '.join(arguments.only)}")
    # Also a run that is stopped half-way shows what it has found.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run.everything()
    except KeyboardInterrupt:
        say("stopped; what follows is not everything")
    run.results.judge()
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(run.results)) + b"\n")
    print(show(run.results))
    return 1 if arguments.strict and not all(limit.holds for limit in run.results.limits) else 0


if __name__ == "__main__":
    sys.exit(main())
