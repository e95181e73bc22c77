"""What docs/care.md says of options, jobs, floors and formulas is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from inver.domain import findings, plans
from inver.domain.care import Job, Options
from inver.domain.events import KINDS, cloud_type
from inver.domain.learning import back_off_ms
from inver.domain.runs import FLOORS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "care.md").read_text(encoding="utf-8")


def rows(head: str) -> dict[str, list[str]]:
    """The cells of a table by its first one."""
    lines = PAGE.split(f"| {head} |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("` "): row[1:] for row in cells}


def test_every_option_is_explained_with_its_default():
    told = rows("Option")
    defaults = msgspec.to_builtins(msgspec.structs.asdict(Options()))
    assert told.keys() == defaults.keys()
    for name, default in defaults.items():
        if isinstance(default, bool):
            shown = str(default).lower()
        elif isinstance(default, str):
            shown = default
        else:
            shown = f"{default:.12g}" if isinstance(default, int | float) else ", ".join(default)
        assert told[name][0] == shown, name
        assert told[name][1]


def test_every_job_has_its_rule():
    assert rows("Job").keys() == {str(job) for job in Job}
    named = set(re.findall(r"`([a-z_]+)`", PAGE.split("## What is found")[1].split("## What is planned")[0]))
    assert named - {str(job) for job in Job} - {"gain"} <= set(Options.__struct_fields__)


def test_floors_and_formulas():
    assert FLOORS == {
        "retention_hours": 168,
        "log_retention_hours": 24,
        "snapshot_hours": 24,
        "staged_hours": 1,
    }
    assert f"cost  = {plans.STARTUP_S:g} s + " in PAGE
    assert f"{plans.BYTES_S // 2**20} MiB where there are none" in PAGE
    assert f"for {back_off_ms(1) // 60_000} minutes after the first time" in PAGE
    assert (findings.OVERDUE, findings.CLUSTER_FILES) == (10, 4)


def test_every_event_is_named():
    for kind in (kind for kind in KINDS.values() if kind.startswith("care.")):
        assert cloud_type(kind) in PAGE
