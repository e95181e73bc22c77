"""What a store of local files does without waiting for the disk, and that it is still never half done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inver.domain.locations import Location
from inver.errors import Invalid
from inver.storage import local
from inver.storage.local import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(Location.parse(str(tmp_path / "table")), trusted=Location.parse(str(tmp_path)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "table"


async def test_a_whole_object_without_the_disk(store: LocalStore, folder: Path):
    assert await store.put_if_absent("a/b", b"first", durable=False, whole=True) is True
    assert await store.put_if_absent("a/b", b"second", durable=False, whole=True) is False
    assert await store.get("a/b") == b"first"
    assert [path.name for path in (folder / "a").iterdir()] == ["b"]


async def test_put_at_once_writes_only_what_is_absent_and_small(store: LocalStore, folder: Path):
    assert store.put_at_once("a/b", b"first") is True
    assert store.put_at_once("a/b", b"second") is False
    assert store.put_at_once("a/large", b"x" * (64 * 1024 + 1)) is None
    assert not (folder / "a" / "large").exists()
    await store.sync("a/b")
    assert await store.get("a/b") == b"first"


async def test_a_second_name_is_given_once(store: LocalStore):
    await store.put("v/staged", b"bytes")
    assert store.link_at_once("v/staged", "v/final", b"bytes") is True
    await store.put("v/other", b"others")
    assert store.link_at_once("v/other", "v/final", b"others") is False
    assert await store.get("v/final") == b"bytes"
    assert await store.delete("v/staged", durable=False) is True
    assert await store.get("v/final") == b"bytes"
    assert store.link_at_once("v/none", "v/new", b"bytes") is None
    assert store.link_at_once("v/other", "w/other", b"others") is None


async def test_a_second_name_tells_of_other_bytes(store: LocalStore):
    await store.put("v/staged", b"written since")
    assert store.link_at_once("v/staged", "v/final", b"bytes") is False
    assert await store.get("v/final") == b"written since"


async def test_a_second_name_where_the_kernel_opens_no_folder(store: LocalStore, monkeypatch):
    monkeypatch.setattr(local, "open_folder", lambda path: None)
    await store.put("v/staged", b"bytes")
    assert store.link_at_once("v/staged", "v/final", b"bytes") is True
    assert store.link_at_once("v/staged", "v/final", b"bytes") is False
    assert store.link_at_once("w/none", "w/new", b"bytes") is None


async def test_a_link_of_somebody_else_leads_nowhere(store: LocalStore, folder: Path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (folder / "v").mkdir(parents=True)
    os.symlink(secret, folder / "v" / "staged")
    assert store.link_at_once("v/staged", "v/final", b"secret") is not True
    assert store.get_at_once("v/final") is None
    os.symlink(folder / "v", folder / "w")
    (folder / "v" / "own").write_bytes(b"own")
    with pytest.raises(Invalid, match="symbolic link"):
        store.link_at_once("w/own", "w/new", b"own")
    assert not (folder / "v" / "new").exists()
    os.symlink(tmp_path, folder / "outside")
    with pytest.raises(Invalid, match="symbolic link"):
        store.put_at_once("outside/x", b"x")
    with pytest.raises(Invalid, match="symbolic link"):
        await store.put_if_absent("outside/x", b"x", durable=False)
    assert not (tmp_path / "x").exists()


async def test_deleting_without_the_disk_leaves_its_folder(store: LocalStore, folder: Path):
    await store.put("a/b", b"x")
    assert await store.delete("a/b", durable=False) is True
    assert await store.delete("a/b", durable=False) is False
    assert (folder / "a").is_dir()
