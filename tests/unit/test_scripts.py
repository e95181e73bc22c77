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


def test_unknown_programs_are_refused():
    result = subprocess.run([sys.executable, need.__file__, "emacs"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "need.py" in result.stderr
