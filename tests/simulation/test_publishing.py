"""Readers see every ratified version once, whatever becomes of those who publish.

The server dies between copying commits into the log and noting that it did, or is killed at any
moment; a client publishes the same commits at the same time; writers go on. A reader does what the
protocol says: it asks the catalog for the commits, lists the log, and puts both together.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.delta import DeltaTable, add_file, new_schema, new_table, unity
from tests.fixtures.server import InverServer, NotStarted, running_inver
from tests.fixtures.waiting import PATIENCE_S, eventually

FIRST = 50
LIVES = 6
LATER = {"INVER_DELTA__PUBLISH_AFTER_S": "3600"}
SOON = {"INVER_DELTA__PUBLISH_AFTER_S": "0.05"}
DIES = {**SOON, "INVER_CRASH_AT": "published_before_mark:1"}
CRASHED = 137

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


class World:
    """A server that comes and goes, one table, and what has been acknowledged of it."""

    def __init__(self, server: InverServer, table: DeltaTable) -> None:
        self.server = server
        self.table = table
        self.log = table.folder / "_delta_log"
        self.staged: dict[int, dict[str, Any]] = {}
        self.acknowledged = 0
        self.reads = 0
        self.found: list[str] = []
        self.ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._safely, args=(work,), daemon=True)
            for work in (self._read, self._publish)
        ]

    def __enter__(self) -> World:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def commit(self, version: int) -> bool:
        """Send a commit, the same one again if it was sent before; False without an answer."""
        if version not in self.staged:
            self.staged[version] = self.table.stage(version, [add_file(f"file-{version}")])
        body = {
            "requirements": [{"type": "assert-table-uuid", "uuid": self.table.id}],
            "updates": [{"action": "add-commit", "commit": self.staged[version]}],
        }
        try:
            with unity(self.server) as http:
                answer = http.post(self.table.url, json=body)
        except httpx.TransportError:
            return False
        assert answer.status_code == 200, answer.text
        self.acknowledged = version
        return True

    def look(self, http: httpx.Client) -> None:
        """One read of the whole table; what is wrong with it is noted."""
        before = self.acknowledged
        body = {"table_id": self.table.id, "table_uri": self.table.location, "start_version": 0}
        told = http.request("GET", "/delta/commits", json=body).raise_for_status().json()
        listed = {
            int(path.stem): path for path in self.log.iterdir() if path.suffix == ".json" and path.is_file()
        }
        latest = told["latest_table_version"]
        if latest < before:
            self.found.append(f"at {latest} after {before} was acknowledged")
        catalog: dict[int, Path] = {}
        for commit in told["commits"]:
            if commit["version"] in catalog:
                self.found.append(f"{commit['version']} is told twice")
            catalog[commit["version"]] = self.log / "_staged_commits" / commit["file_name"]
        for version in range(latest + 1):
            sources = [files[version] for files in (catalog, listed) if version in files]
            contents = {source.read_bytes() for source in sources}
            if len(contents) != 1:
                self.found.append(f"version {version} of {latest} has {len(contents)} contents")
            elif version and f'"file-{version}"'.encode() not in contents.pop():
                self.found.append(f"version {version} is another commit")
        self.reads += 1

    def _safely(self, work: Any) -> None:
        while not self.ending.is_set():
            try:
                with unity(self.server) as http:
                    work(http)
            except (httpx.TransportError, OSError):
                time.sleep(0.01)  # the server is not there
            except Exception as error:
                self.found.append(repr(error))
                return

    def _read(self, http: httpx.Client) -> None:
        while not self.ending.is_set():
            self.look(http)

    def _publish(self, http: httpx.Client) -> None:
        """What a client does that publishes: copy in order where nothing is, and say so."""
        for turn in itertools.count():
            if self.ending.is_set():
                return
            told = self.table.load_with(http)
            done = 0
            for commit in sorted(told["commits"], key=lambda each: each["version"])[: 5 + turn % 7]:
                data = (self.log / "_staged_commits" / commit["file-name"]).read_bytes()
                target = self.log / f"{commit['version']:020d}.json"
                temporary = self.log / f".client-{commit['version']}.tmp"
                temporary.write_bytes(data)
                with suppress(FileExistsError):
                    os.link(temporary, target)
                temporary.unlink()
                done = commit["version"]
            if done:
                http.post(
                    "/delta/commit",
                    json={
                        "table_id": self.table.id,
                        "table_uri": self.table.location,
                        "latest_published_version": done,
                    },
                ).raise_for_status()
            time.sleep(0.02)


def test_readers_see_every_ratified_version_once(database: str | None, tmp_path: Path) -> None:
    rng = random.Random(7)
    with running_inver(tmp_path / "home", database, env=LATER) as server:
        with unity(server) as http:
            new_schema(http, "main.s")
            table = new_table(http, "main.s.t")
            world = World(server, table)
            for version in range(1, FIRST + 1):
                assert world.commit(version)
            assert len(table.load_with(http)["commits"]) == FIRST
            assert table.published == [0]
            world.look(http)
        server.kill()
        deaths = 0
        with world:
            for life in range(LIVES):
                deaths += _live(world, rng, killed=life % 2 == 1)
            server.start(SOON)
            _finish(world)
        assert world.found == []
        assert world.reads > LIVES
        assert deaths >= LIVES // 2, "the server was to die after a copy"
        staged = world.log / "_staged_commits"
        for version, commit in world.staged.items():
            published = (world.log / f"{version:020d}.json").read_bytes()
            assert published == (staged / commit["file-name"]).read_bytes()
        assert server.stop() == 0


def _live(world: World, rng: random.Random, killed: bool) -> int:
    """One life of the server, with commits until it dies; 1 if it died where it was told to."""
    server = world.server
    try:
        server.start(SOON if killed else DIES)
    except NotStarted as ended:
        if ended.code != CRASHED:
            raise
        return 1
    deadline = time.monotonic() + (rng.uniform(0.1, 0.6) if killed else PATIENCE_S)
    while world.commit(world.acknowledged + 1):
        if time.monotonic() > deadline:
            assert killed, "the server did not die"
            server.kill()
            return 0
        time.sleep(rng.uniform(0, 0.03))
    code = server.await_end()
    assert code in (CRASHED, -signal.SIGKILL), code
    return 1


def _finish(world: World) -> None:
    """A last life, at whose end everything is published and the catalog has nothing more to tell."""
    last = world.acknowledged + 1
    assert world.commit(last)
    with unity(world.server) as http:
        eventually(lambda: not world.table.load_with(http)["commits"])
        world.look(http)
    assert world.table.published == list(range(last + 1))
