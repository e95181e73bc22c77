"""Where the jars of a connector come from, and what is said where they cannot be had."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from inver.pipeline.jars import pom
from tests.fixtures import jvm
from tests.fixtures.jvm import JvmMissing
from tests.fixtures.spark import CONNECTOR, connector

JAR = "unitycatalog-spark_4.1_2.13-0.6.0.jar"


@pytest.fixture(autouse=True)
def nothing_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither Maven, nor jars of earlier runs, nor a folder that is named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(jvm, "TOOLS", tmp_path / "tools")
    monkeypatch.delenv("INVER_CONNECTOR_JARS", raising=False)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The one that INVER_CONNECTOR_JARS names, with the jar of something else."""
    folder = tmp_path / "connectors"
    folder.mkdir()
    (folder / "lance-spark-4.1_2.13-0.5.0.jar").touch()
    monkeypatch.setenv("INVER_CONNECTOR_JARS", str(folder))
    return folder


@pytest.fixture
def resolved(tmp_path: Path) -> Path:
    """What Maven has brought before."""
    home = tmp_path / "tools" / "jars" / "unitycatalog-spark"
    home.mkdir(parents=True)
    wanted = pom("tests", [CONNECTOR], transitive=False)
    (home / ".made").write_text(hashlib.sha256(wanted.encode()).hexdigest())
    (home / JAR).touch()
    return home


def test_the_folder_is_looked_into_first(folder: Path, resolved: Path):
    (folder / JAR).touch()
    assert connector() == [folder / JAR]


def test_what_the_folder_has_not_is_resolved_by_coordinates(folder: Path, resolved: Path):
    assert connector() == [resolved / JAR]


def test_without_a_folder_it_is_resolved_by_coordinates(resolved: Path):
    assert connector() == [resolved / JAR]


def test_what_cannot_be_had_is_said_with_both_places():
    with pytest.raises(JvmMissing, match=r"mvn is not on the PATH.*INVER_CONNECTOR_JARS can name a folder"):
        connector()


def test_a_folder_that_has_it_not_is_named(folder: Path):
    with pytest.raises(
        JvmMissing, match=rf"mvn.*INVER_CONNECTOR_JARS names {folder}, which has no unitycatalog"
    ):
        connector()
