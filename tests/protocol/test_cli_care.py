"""`inver care status | plan | history | policy`, as people and programs read them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inver.client import Client
from inver.domain.care import Outcome, Result
from tests.fixtures.cli import Shell
from tests.fixtures.delta import add_file, new_schema, new_table, unity
from tests.fixtures.server import InverServer

CLICKS = "main.web.clicks"


@pytest.fixture(scope="module")
def filled(cli_server: InverServer) -> InverServer:
    """A table of a hundred small files, and one that only has a name."""
    with unity(cli_server) as http, Client(cli_server.url, cli_server.token) as client:
        new_schema(http, "main.web")
        table = new_table(http, CLICKS)
        table.append(1, *(add_file(f"f{number}", 2**20, 10) for number in range(100)))
        client.create_table("main.web.plain", "delta", location=None)
        ticket = client.start_care(CLICKS, "vacuum", worker="w")
        result = Result(
            outcome=Outcome.DONE,
            message="three files",
            before={"files": 103, "bytes": 2048},
            after={"files": 100, "bytes": 1024},
            measured={"seconds": 1.5},
        )
        client.finish_care(ticket.run_id, result)
    return cli_server


@pytest.fixture
def cared(filled: InverServer, shell: Shell) -> Iterator[Shell]:
    yield shell
    for name in ("main", CLICKS):
        shell("care", "policy", name, "--drop")


def test_status_of_all(cared: Shell):
    heads, *rows, scheduler = cared.good("care", "status").rows
    assert scheduler == ["scheduler:", "off"]
    assert heads[:7] == ["TABLE", "FORMAT", "FILES", "SIZE", "SMALL", "DELETED", "DEAD"]
    assert [row[:2] for row in rows] == [[CLICKS, "DELTA"], ["main.web.plain", "DELTA"]]
    assert rows[0][2:6] == ["100", "100", "MiB", "100"]
    assert {"compact", "vacuum", "done,"} <= set(rows[0])
    found = cared.good("care", "status", "--findings", "--catalog", "main", "-o", "json").json
    assert [table["full_name"] for table in found] == [CLICKS.split(".")]
    assert found[0]["health"]["small_files"] == 100
    assert cared.good("care", "status", "--quiet").out == f"{CLICKS}\nmain.web.plain\n"


def test_status_of_one(cared: Shell):
    told = cared.good("care", "status", CLICKS).out
    assert "worth doing: compact" in told
    assert "100 of 100 files are smaller than 96 MiB" in told
    assert "last vacuum" in told
    assert cared.good("care", "status", CLICKS, "-o", "json").json["policy"]["enabled"] is True
    assert cared.good("care", "status", CLICKS, "--quiet").out == "compact\n"


def test_plan(cared: Shell):
    # It was written a moment ago, and has so many small files that nobody waits for quiet.
    heads, row = cared.good("care", "plan").rows
    assert heads == ["TABLE", "JOB", "GAIN", "COST", "REASON"]
    assert row[:5] == [CLICKS, "compact", "99", "8", "s"]
    assert cared.good("care", "plan", "--budget", "1s", "-o", "json").json == {
        "steps": [],
        "count": 0,
        "cost_seconds": 0.0,
    }
    assert cared.good("care", "plan", "--quiet").out == f"{CLICKS} compact\n"


def test_history(cared: Shell):
    heads, row = cared.good("care", "history").rows
    assert heads == ["STARTED", "TABLE", "JOB", "OUTCOME", "FILES", "BYTES", "EXPECTED", "TOOK", "MESSAGE"]
    assert row[2:] == [
        *[CLICKS, "vacuum", "done", "103", "->", "100"],
        *["2", "KiB", "->", "1", "KiB", "1.5", "s", "three", "files"],
    ]
    (run,) = cared.good("care", "history", CLICKS, "--limit", "5", "-o", "json").json
    assert run["result"]["measured"] == {"seconds": 1.5}
    assert cared.good("care", "history", "main.web.plain", "-o", "json").json == []


def test_policies(cared: Shell):
    assert "no care policy" in cared.refused(3, "care", "policy", "main")
    made = cared.good(
        *("care", "policy", "main", "--set", "retention_hours=336", "--set", "cluster_columns=a, b"),
        *("--job", "compact", "--job", "vacuum", "-o", "json"),
    ).json
    options = {"retention_hours": 336, "cluster_columns": ["a", "b"]}
    assert made == {"enabled": True, "jobs": ["compact", "vacuum"], "options": options}
    assert cared.good("care", "policy", "main", "-o", "json").json == made
    changed = cared.good(
        "care", "policy", "main", "--disable", "--unset", "cluster_columns", "-o", "json"
    ).json
    assert changed == {**made, "enabled": False, "options": {"retention_hours": 336}}
    assert "none: care is disabled" in cared.good("care", "status", CLICKS).out
    again = cared.good("care", "policy", "main", "--enable", "--all-jobs", "-o", "json").json
    assert (again["enabled"], again["jobs"]) == (True, None)
    assert cared.good("care", "policy", "main", "--drop").out == "dropped the care policy of main\n"


def test_policies_that_are_refused(cared: Shell):
    told = cared.refused(1, "care", "policy", CLICKS, "--set", "retention_hours=1")
    assert "below the floor of 168 hours" in told
    assert "options.retention_hours" in told
    assert "allow_short_retention" in told
    cared.good("care", "policy", CLICKS, "--set", "retention_hours=1", "--set", "allow_short_retention=true")
    assert "not a value" in cared.refused(1, "care", "policy", CLICKS, "--set", "full=perhaps")
    assert "unknown field" in cared.refused(1, "care", "policy", CLICKS, "--set", "colour=1")
    assert "nothing to set" in cared.refused(1, "care", "policy", CLICKS, "--drop", "--job", "compact")
    cared.refused(3, "care", "policy", "main.web.none", "--disable")
    cared.refused(3, "care", "status", "main.web.none")
