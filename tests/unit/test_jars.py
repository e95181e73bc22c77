"""Pinned jars: from a repository into a folder, and never another one than was pinned."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from inver.cli.main import main
from inver.errors import Broken, Invalid
from inver.pipeline import jars
from inver.pipeline.jars import Jar, fetch, locked, pom


def silent(progress: float, message: str) -> None:
    """Nobody listens."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "repository"


@pytest.fixture
def pinned(repository: Path) -> list[Jar]:
    """Two jars that are in the repository as they are pinned."""
    found = []
    for name in ("one", "two"):
        jar = Jar("test", f"org.example.deep:{name}:1.0", hashlib.sha256(name.encode()).hexdigest())
        path = repository / "org" / "example" / "deep" / name / "1.0" / f"{name}-1.0.jar"
        path.parent.mkdir(parents=True)
        path.write_bytes(name.encode())
        found.append(jar)
    return found


def test_jars_are_fetched_once(pinned, repository, tmp_path):
    folder = tmp_path / "jars"
    assert fetch(pinned, folder, repository.as_uri(), silent) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["one-1.0.jar", "two-1.0.jar"]
    assert fetch(pinned, folder, "https://unreachable.invalid", silent) == 0


def test_one_that_was_damaged_is_fetched_again(pinned, repository, tmp_path):
    folder = tmp_path / "jars"
    fetch(pinned, folder, repository.as_uri(), silent)
    (folder / "one-1.0.jar").write_bytes(b"")
    assert fetch(pinned, folder, repository.as_uri(), silent) == 1
    assert (folder / "one-1.0.jar").read_bytes() == b"one"


def test_another_jar_than_the_pinned_one_never_arrives(pinned, repository, tmp_path):
    next(repository.rglob("two-1.0.jar")).write_bytes(b"evil")
    with pytest.raises(Broken, match="checksum"):
        fetch(pinned, tmp_path / "jars", repository.as_uri(), silent)
    assert [path.name for path in (tmp_path / "jars").iterdir()] == ["one-1.0.jar"]


def test_a_repository_without_the_jar(pinned, repository, tmp_path):
    next(repository.rglob("one-1.0.jar")).unlink()
    with pytest.raises(Broken, match="cannot be fetched"):
        fetch(pinned, tmp_path / "jars", repository.as_uri(), silent)


@pytest.mark.parametrize("address", ["ftp://x", "/etc"])
def test_what_is_no_repository(pinned, tmp_path, address):
    with pytest.raises(Invalid, match="no address"):
        fetch(pinned, tmp_path / "jars", address, silent)


def test_without_maven_and_without_a_repository(pinned, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(jars.REPOSITORY, raising=False)
    with pytest.raises(Broken, match="mvn is not on the PATH") as refused:
        fetch(pinned, tmp_path / "jars", None, silent)
    assert jars.REPOSITORY in (refused.value.fix or "")


def test_the_lock_names_each_file_once():
    files = [jar.file for jar in locked()]
    assert len(files) == len(set(files))
    assert all(len(jar.sha256) == 64 for jar in locked())
    assert {jar.connector for jar in locked(["iceberg"])} == {"iceberg"}
    with pytest.raises(Invalid, match="nope"):
        locked(["nope"])


def test_a_project_depends_on_jars_alone_or_with_all_that_they_need():
    assert "<exclusions>" in pom("x", ["a:b:1"], transitive=False)
    assert "<exclusions>" not in pom("x", ["a:b:1"], transitive=True)
    assert "<classifier>tests</classifier>" in pom("x", ["a:b:1:tests"], transitive=True)


def test_the_command_prints_the_folder(pinned, repository, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(jars, "locked", lambda connectors: pinned)
    words = ["spark", "jars", "--folder", str(tmp_path / "jars"), "--repository", repository.as_uri()]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{tmp_path / 'jars'}\n"
    assert main([*words, "-o", "json"]) == 0
    assert '"fetched": 0' in capsys.readouterr().out
