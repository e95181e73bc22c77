"""What changes of Iceberg tables cost: manifest lists and manifests, counted where they are read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from inver.errors import Invalid
from inver.ports import Commit, ObjectStore, Store
from inver.protocols.http import Request, Response
from inver.services.sharing import iceberg, iceberg_ranges
from inver.services.sharing.iceberg_ranges import VERSIONS, check_length
from tests.fixtures import avro
from tests.fixtures.avro import container, data_file, manifest_file
from tests.fixtures.house import House, ask, house
from tests.fixtures.iceberg_sharing import FIELDS, names

ADDED, EXISTING = 1, 0
TABLES = "/iceberg/v1/main/namespaces/ns/tables"


class Counting:
    """A store that notes what is read of it."""

    def __init__(self, inner: ObjectStore, reads: list[str]) -> None:
        self._inner = inner
        self._reads = reads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        self._reads.append(path.rpartition("/")[2])
        return await self._inner.get_range(path, start, length)


class Ledger:
    """A store that notes which commits are read of it."""

    def __init__(self, inner: Store, read: set[int]) -> None:
        self._inner = inner
        self._read = read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commits(self, *asked: Any) -> list[Commit]:
        found = await self._inner.commits(*asked)
        self._read.update(commit.version for commit in found)
        return found


class Shared:
    """A table whose manifests are written by hand, and its one recipient. Each method makes one version."""

    def __init__(self, home: House, location: str, token: str) -> None:
        self.home = home
        self.location = location
        self.reads: list[str] = []
        self.version = self.snapshot = 0
        self.told: list[tuple[int, str]] = []
        """Files that were appended, with the version."""
        self._token = token
        self._folder = Path(location.removeprefix("file://")) / "metadata"
        self._lines: list[dict[str, Any]] = []
        self._fields = FIELDS
        self._schemas = 1
        manifests: Any = home.app.services.iceberg.planning._manifests
        opened = manifests._open
        manifests._open = lambda root: Counting(opened(root), self.reads)
        self.commits: set[int] = set()
        logs: Any = home.app.sharing.tables._iceberg
        logs._store = Ledger(home.app.store, self.commits)

    async def append(
        self, *files: str, apart: int = 1, merge: int = 0, said: bool = True, turned: bool = False
    ) -> None:
        """In `apart` manifests; of those before, the first `merge` are put together with the last of them,
        and the others may be turned around."""
        number = self._next()
        merged, self._lines = self._lines[:merge], self._lines[merge:]
        if turned:
            self._lines.reverse()
        old = [entry for line in merged for entry in line["entries"]]
        groups = [files[at::apart] for at in range(apart)]
        lines = [
            self._manifest(number, at, group, old if at == apart - 1 else ())
            for at, group in enumerate(groups)
        ]
        self._lines = [*lines, *self._lines]
        summary = {"operation": "append"} | ({"added-data-files": str(len(files))} if said else {})
        await self._commit(number, summary)
        self.told += [(self.version, file) for group in groups for file in group]

    async def rewrite(self) -> None:
        """All manifests become one, which adds nothing."""
        number = self._next()
        old = [entry for line in self._lines for entry in line["entries"]]
        self._lines = [self._manifest(number, 0, (), old)]
        await self._commit(number, {"operation": "replace"})

    async def touch(self) -> None:
        await self._update({"action": "set-properties", "updates": {"touched": str(self.version)}})

    async def widen(self) -> None:
        self._schemas += 1
        more = {"id": 2 + self._schemas, "name": f"c{self._schemas}", "required": False, "type": "long"}
        self._fields = [*self._fields, more]
        schema = {"type": "struct", "fields": self._fields}
        await self._update(
            {"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}
        )

    def _next(self) -> int:
        self.snapshot += 1
        return self.snapshot

    def _manifest(self, number: int, at: int, files: Any, old: Any) -> dict[str, Any]:
        entries = [*((number, file) for file in files), *old]
        rows = [
            {
                "status": ADDED if by == number else EXISTING,
                "snapshot_id": by,
                "sequence_number": by,
                "data_file": data_file(f"{self.location}/data/{file}.parquet"),
            }
            for by, file in entries
        ]
        path = f"{number}-m{at}.avro"
        (self._folder / path).write_bytes(container(avro.manifest_schema(), rows, "deflate"))
        line = manifest_file(
            f"{self.location}/metadata/{path}",
            added_files_count=len(files),
            existing_files_count=len(old),
            deleted_files_count=0,
            sequence_number=number,
            min_sequence_number=1,
            added_snapshot_id=number,
        )
        return {"line": line, "entries": entries}

    async def _commit(self, number: int, summary: dict[str, str]) -> None:
        lines = [each["line"] for each in self._lines]
        (self._folder / f"snap-{number}.avro").write_bytes(container(avro.manifest_list_schema(), lines))
        snapshot = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": self.home.clock.now_ms(),
            "manifest-list": f"{self.location}/metadata/snap-{number}.avro",
            "summary": summary,
            "schema-id": self._schemas - 1,
        } | ({"parent-snapshot-id": number - 1} if number > 1 else {})
        await self._update(
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number},
        )

    async def _update(self, *updates: dict[str, Any]) -> None:
        await send(self.home, f"{TABLES}/t", {"requirements": [], "updates": updates})
        self.version += 1

    async def changes(self, status: int = 200, **params: Any) -> list[Any]:
        """The lines of an answer; `reads` has what was read for it."""
        self.reads.clear()
        self.commits.clear()
        request = Request(
            "GET",
            b"/delta-sharing/shares/s/schemas/ns/tables/t/changes",
            urlencode(params).encode(),
            [(b"authorization", f"Bearer {self._token}".encode())],
            b"",
            "10.0.0.1",
            "request",
        )
        found = self.home.app.public.dispatch(request)
        answer = found if isinstance(found, Response) else await found
        body = (
            answer.body if isinstance(answer.body, bytes) else b"".join([some async for some in answer.body])
        )
        assert answer.status == status, body
        return [json.loads(line) for line in body.splitlines()]

    @property
    def lists(self) -> list[str]:
        return [name for name in self.reads if name.startswith("snap-")]

    @property
    def manifests(self) -> list[str]:
        return [name for name in self.reads if not name.startswith("snap-")]

    def since(self, version: int) -> list[str]:
        return [file for at, file in self.told if at >= version]

    async def pages(self, most: int, **params: Any) -> AsyncIterator[list[Any]]:
        token: str | None = None
        while True:
            given = params | {"maxFiles": most} | ({} if token is None else {"pageToken": token})
            lines = await self.changes(**given)
            token = lines[-1]["endStreamAction"].get("nextPageToken")
            yield lines[:-1]
            if token is None:
                return


async def send(home: House, url: str, body: Any) -> Any:
    headers = {"Authorization": f"Bearer {home.admin.token}"}
    answer = await ask(home.app.public, "POST", url, body, headers.items())
    assert answer.status == 200, answer
    return answer.json


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[Shared]:
    async with house(tmp_path / "home") as home:
        await home.schema("main", "ns")
        made = await send(home, TABLES, {"name": "t", "schema": {"type": "struct", "fields": FIELDS}})
        await home.admin.post("/shares", {"name": "s"})
        await home.admin.ok("POST", "/shares/s/items", {"name": ["main", "ns", "t"]})
        guest = await home.admin.ok("POST", "/recipients", {"name": "r", "activate": False})
        await home.admin.ok("PUT", "/shares/s/recipients/r", {})
        yield Shared(home, made["metadata"]["location"], guest["profile"]["bearerToken"])


async def test_a_range_takes_one_list(table: Shared):
    for at in range(40):
        await table.append(f"f{at}")
    lines = await table.changes(startingVersion=2)
    assert names(lines) == table.since(2)
    assert [line["add"]["version"] for line in lines[2:]] == list(range(2, 41))
    assert table.lists == ["snap-40.avro"]
    assert len(table.manifests) == 39
    # With the first snapshot, which is told as it is.
    assert names(await table.changes(startingVersion=0)) == table.since(0)
    assert sorted(table.lists) == ["snap-1.avro", "snap-40.avro"]
    assert names(await table.changes(startingVersion=5, endingVersion=7)) == ["f4", "f5", "f6"]
    assert table.lists == ["snap-7.avro"]


async def test_a_page_reads_what_it_tells(table: Shared, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(iceberg, "WINDOW", 10)
    for at in range(40):
        await table.append(f"f{at}")
    found, number = [], 0
    async for lines in table.pages(6, startingVersion=2):
        found += names(lines)
        number += 1
        assert len(table.lists) == 1, "of the first page the newest, then the newest of its window"
        # One more shows whether there is another page.
        assert len(table.manifests) <= 7
    assert found == table.since(2)
    assert number == 7


async def test_a_page_does_not_begin_with_the_range(table: Shared, monkeypatch: pytest.MonkeyPatch):
    """Not even where every list has to be read, and long before the range ends it is full."""
    monkeypatch.setattr(iceberg, "WINDOW", 10)
    for at in range(40):
        await table.append(f"f{at}", said=False)
    found: list[str] = []
    async for lines in table.pages(5, startingVersion=2):
        first = 2 + len(found)
        if found:
            # The heads of the range, what was appended last, and a window.
            assert table.commits == {2, first - 1, *range(first, min(first + 10, 41)), 40}
            assert sorted(table.lists) == sorted(
                f"snap-{version}.avro" for version in range(first, min(first + 10, 41))
            )
        found += names(lines)
    assert found == table.since(2)


async def test_lists_are_read_where_manifests_were_merged_away(table: Shared):
    for at in range(1, 41):
        await table.append(f"f{at}", merge=9 if at % 10 == 0 else 0)
    assert names(await table.changes(startingVersion=2)) == table.since(2)
    assert table.lists == ["snap-40.avro", "snap-39.avro", "snap-29.avro", "snap-19.avro", "snap-9.avro"]
    await table.rewrite()
    assert names(await table.changes(startingVersion=2)) == table.since(2)
    assert table.lists[0] == "snap-40.avro", "the rewrite has added nothing"


async def test_a_snapshot_of_which_a_part_was_merged_away(table: Shared):
    await table.append("a")
    await table.append("b", "c", "d", apart=2)
    await table.append("e", merge=1)
    lines = await table.changes(startingVersion=2)
    assert sorted(names(lines)) == ["b", "c", "d", "e"]
    assert [line["add"]["version"] for line in lines[2:]] == [2, 2, 2, 3]
    assert table.lists == ["snap-3.avro", "snap-2.avro"]


async def test_what_snapshots_do_not_say_is_read(table: Shared):
    for at in range(12):
        await table.append(f"f{at}", said=at % 3 > 0)
    assert names(await table.changes(startingVersion=2)) == table.since(2)
    assert table.lists == [f"snap-{number}.avro" for number in (12, 10, 7, 4)]


async def test_so_many_lists_are_not_read(table: Shared, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(iceberg, "LISTS", 5)
    monkeypatch.setattr(iceberg_ranges, "LISTS", 5)
    for at in range(12):
        await table.append(f"f{at}", said=False)
    (refused,) = await table.changes(400, startingVersion=3)
    assert "Give an endingVersion of at most 7," in refused["message"]
    assert table.reads == []
    assert len(names(await table.changes(startingVersion=3, endingVersion=7))) == 5
    assert len(table.lists) == 5
    # Where it shows on the way, it ends there.
    for at in range(12):
        await table.append(f"g{at}", merge=1)
    (refused,) = await table.changes(400, startingVersion=13)
    assert "Give an endingVersion of at most 17," in refused["message"]
    assert len(table.lists) == 5


async def test_so_many_versions_are_refused(table: Shared, monkeypatch: pytest.MonkeyPatch):
    check_length(7, 7 + VERSIONS - 1)
    with pytest.raises(Invalid, match=f"endingVersion of at most {7 + VERSIONS - 1},") as refused:
        check_length(7, 7 + VERSIONS)
    assert refused.value.field == "endingVersion"
    monkeypatch.setattr(iceberg_ranges, "VERSIONS", 4)
    await table.append("a")
    for _ in range(3):
        await table.touch()
    (told,) = await table.changes(400, startingVersion=0)
    assert "Give an endingVersion of at most 3," in told["message"]
    assert table.reads == []
    assert names(await table.changes(startingVersion=0, endingVersion=3)) == ["a"]
    assert names(await table.changes(startingVersion=1, endingVersion=99)) == ["a"]


async def history(table: Shared) -> None:
    await table.touch()
    await table.append("a", "b")
    await table.append("c", said=False)
    await table.touch()
    await table.widen()
    await table.append("d", "e", "f", apart=3)
    await table.rewrite()
    await table.touch()
    await table.rewrite()
    await table.append("g", merge=1)
    for _ in range(4):
        await table.touch()
    await table.widen()
    await table.append("h")
    await table.append("i", "j", apart=2, merge=2)
    await table.append("k", "l", "m", apart=3)
    for _ in range(3):
        await table.touch()
    await table.append("n", turned=True)
    await table.touch()


@pytest.mark.parametrize("metadata", ["true", "false"])
@pytest.mark.parametrize("start", [0, 2, 3, 7, 10])
async def test_pages_are_the_whole(table: Shared, monkeypatch: pytest.MonkeyPatch, start: int, metadata: str):
    monkeypatch.setattr(iceberg, "WINDOW", 2)
    await history(table)
    asked: dict[str, Any] = {"startingVersion": start, "includeHistoricalMetadata": metadata}
    whole = [told(line) for line in await table.changes(**asked)]
    assert sorted(names(whole)) == sorted(table.since(start))
    for most in (1, 2, 3, 50):
        found = whole[:2]
        async for lines in table.pages(most, **asked):
            assert [told(line) for line in lines[:2]] == whole[:2]
            found += map(told, lines[2:])
        assert found == whole, most


async def test_pages_of_a_range_with_too_much_to_note(table: Shared, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("inver.services.sharing.iceberg_plans.LONGEST", 0)
    await history(table)
    found = [name async for lines in table.pages(2, startingVersion=2) for name in names(lines)]
    assert sorted(found) == sorted(table.since(2))


def told(line: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from one time to the next: the signature."""
    ((kind, value),) = line.items()
    if "url" in value:
        value = {**value, "url": value["url"].partition("?")[0]}
        value.pop("expirationTimestamp", None)
    return {kind: value}
