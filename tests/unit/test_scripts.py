"""The scripts of the build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import need
from scripts.count import count


def program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("attributes", "line"),
    [
        ('tests="7" failures="0" errors="0" skipped="2"', "5 passed, 0 failed, 2 skipped"),
        ('tests="7" failures="1" errors="2" skipped="0"', "4 passed, 3 failed, 0 skipped"),
    ],
)
def test_count(tmp_path, attributes, line):
    report = tmp_path / "junit.xml"
    report.write_text(f"<testsuites><testsuite {attributes}/></testsuites>")
    assert count(report) == line


def test_count_without_a_report(tmp_path):
    assert count(tmp_path / "junit.xml") == "0 passed, 0 failed, 0 skipped"


def test_a_link_to_initdb_leads_to_the_programs_beside_it(tmp_path, monkeypatch):
    program(tmp_path / "lib", "postgres")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "initdb").symlink_to(program(tmp_path / "lib", "initdb"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert need.find_postgres() == tmp_path / "lib"


def test_versitygw_is_found_in_gobin(tmp_path, monkeypatch):
    path = program(tmp_path / "gobin", "versitygw")
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv("GOBIN", str(path.parent))
    assert need.find_versitygw() == path


def test_what_is_missing_and_optional_is_said_and_no_error(monkeypatch, capsys):
    def refuse() -> None:
        raise need.Missing("no disk left")

    monkeypatch.setitem(need.PROGRAMS, "postgres", (lambda: None, refuse))
    assert need.main("postgres") == 0
    assert "skipped: no disk left" in capsys.readouterr().err


def test_uv_is_required(monkeypatch, capsys):
    def refuse() -> None:
        raise need.Missing("no network")

    monkeypatch.setitem(need.PROGRAMS, "uv", (lambda: None, refuse))
    assert need.main("uv") == 1
    assert "no network" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "script", "chosen"),
    [
        ("'--enable-optimizations' '--with-lto'", "exit 0", need.NEWEST_FOUND),
        ("'--enable-shared'", "exit 0", None),
        ("'--enable-shared'", "exit 1", need.NEWEST_FOUND),
        ("'--enable-shared'", None, need.NEWEST_FOUND),
    ],
    ids=["optimized", "plain beside one that suits", "plain beside one that does not", "plain and alone"],
)
def test_an_interpreter_without_optimization_gives_way(tmp_path, monkeypatch, options, script, chosen):
    other = tmp_path / "bin" / "python3"
    if script:
        program(other.parent, other.name).write_text(f"#!/bin/sh\n{script}\n")
    monkeypatch.setattr(need, "DISTRIBUTIONS", other)
    monkeypatch.setattr("sysconfig.get_config_var", {"CONFIG_ARGS": options}.get)
    assert need.find_python() == (chosen or str(other))


def test_the_question_that_decides_is_one_that_this_interpreter_passes():
    assert subprocess.run([sys.executable, "-I", "-c", need.SUITS], check=False).returncode == 0


def test_unknown_programs_are_refused():
    result = subprocess.run([sys.executable, need.__file__, "emacs"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "need.py" in result.stderr
