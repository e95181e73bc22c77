"""The files of an Iceberg snapshot as the services give them to who shares a table; bounds of planning."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from inver.domain.iceberg.content import Content
from inver.domain.iceberg.scans import ScanRequest, ScanTask
from inver.domain.tables import Table
from inver.errors import NotFound, Unsupported
from inver.services.iceberg import manifests as reading
from inver.services.iceberg import planning
from tests.fixtures import avro
from tests.fixtures.avro import container, data_file, manifest_file, optional
from tests.fixtures.house import Answer, House, house
from tests.fixtures.iceberg_house import TABLES, Client, two_servers

DAY = [optional(1000, "d", {"type": "int", "logicalType": "date"})]
SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "day", "required": False, "type": "date"},
    ],
}


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path / "home") as made:
        await made.schema("main", "ns")
        await create(made)
        yield made


async def create(home: House) -> None:
    fields = [{"source-id": 2, "transform": "day", "name": "d"}]
    partitioned: dict[str, Any] = {"partition-spec": {"fields": fields}}
    await Client(home).create(schema=SCHEMA, **partitioned)


async def asked(home: House, method: str, path: str, body: Any = None) -> Answer:
    return await Client(home).ask(method, f"{TABLES}{path}", body)


async def send(home: House, path: str, body: Any) -> Any:
    return await Client(home).ok("POST", f"{TABLES}{path}", body)


async def found(home: House) -> Table:
    table = await home.app.store.table_by_name("main", ["ns"], "t")
    assert table is not None
    return table


async def commit(home: House, number: int, *groups: list[dict[str, Any]]) -> None:
    """A snapshot of these files; a group is one manifest, of deletes if its first file is one."""
    location = (await found(home)).location
    folder = Path(location.removeprefix("file://")) / "metadata"
    lines = []
    for at, files in enumerate(groups):
        name = f"{number}-{at}.avro"
        rows = [{"status": 1, "data_file": file} for file in files]
        (folder / name).write_bytes(container(avro.manifest_schema(DAY), rows, "deflate"))
        lines.append(
            manifest_file(
                f"{location}/metadata/{name}",
                content=min(files[0]["content"], 1),
                added_files_count=len(files),
                sequence_number=number if files[0]["content"] else 1,
                added_snapshot_id=number,
            )
        )
    (folder / f"snap-{number}.avro").write_bytes(container(avro.manifest_list_schema(), lines))
    snapshot = {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": home.clock.now_ms(),
        "manifest-list": f"{location}/metadata/snap-{number}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number},
    ]
    await send(home, "/t", {"requirements": [], "updates": updates})


async def live(home: House, **request: Any) -> list[ScanTask]:
    services, table = home.app.services.iceberg, await found(home)
    state = (await services.table_relations.load(table)).state
    pages = services.planning.live_files(table, state, ScanRequest(**request))
    return [task async for tasks in pages for task in tasks]


def in_day(path: str, day: int, **more: Any) -> dict[str, Any]:
    return data_file(path, partition={"d": day}, **more)


async def test_files_with_partitions_rows_sizes_and_deletes(home: House) -> None:
    assert await live(home) == []
    await commit(home, 1, [in_day("a", 1, record_count=5)])
    await commit(
        home,
        2,
        [in_day("a", 1, record_count=5), in_day("b", 2, record_count=7, file_size_in_bytes=70)],
        [in_day("del", 1, content=1), in_day("eq", 2, content=2, equality_ids=[1])],
    )
    tasks = {task.file.path: task for task in await live(home)}
    assert list(tasks) == ["a", "b"]
    assert tasks["a"].file.partition == (1,)
    assert (tasks["b"].file.record_count, tasks["b"].file.size) == (7, 70)
    [[position], [equality]] = [tasks[name].deletes for name in "ab"]
    assert (position.path, position.content) == ("del", Content.POSITION_DELETES)
    assert (equality.path, equality.equality_ids) == ("eq", (1,))
    assert [task.file.path for task in await live(home, snapshot_id=1)] == ["a"]
    filter_ = {"type": "eq", "term": "day", "value": "1970-01-03"}
    assert [task.file.path for task in await live(home, filter=filter_)] == ["b"]


async def test_manifests_are_read_a_few_at_a_time(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await commit(home, 1, *[[in_day(f"f{n:02}", 1)] for n in range(20)])
    planning = home.app.services.iceberg.planning
    running = most = 0
    real = planning._manifests._bytes

    async def counted(*arguments: Any) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await real(*arguments)
        finally:
            running -= 1

    monkeypatch.setattr(planning._manifests, "_bytes", counted)
    assert [task.file.path for task in await live(home)] == [f"f{n:02}" for n in range(20)]
    assert 1 < most <= reading.AT_ONCE


async def test_too_much_is_refused(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    deletes = [in_day(f"d{n}", 1, content=1) for n in range(5)]
    await commit(home, 1, [in_day("a", 1)], deletes)
    monkeypatch.setattr(reading, "MAX_DELETES", 4)
    with pytest.raises(Unsupported, match="more than 4 delete files"):
        await live(home)
    monkeypatch.setattr(reading, "MAX_DELETES", 5)
    assert len((await live(home))[0].deletes) == 5
    monkeypatch.setattr(reading, "MAX_FILE", 100)
    with pytest.raises(Unsupported, match="larger than 100 bytes"):
        await live(home)


async def test_a_failure_does_not_block_the_next_scan(home: House) -> None:
    await commit(home, 1, *[[in_day(f"f{n:02}", 1)] for n in range(20)])
    lost = Path((await found(home)).location.removeprefix("file://")) / "metadata" / "1-3.avro"
    data = lost.read_bytes()
    lost.unlink()
    for _ in range(2 * reading.AT_ONCE):
        with pytest.raises(NotFound, match=r"1-3\.avro"):
            await live(home)
    lost.write_bytes(data)
    assert len(await live(home)) == 20


# --- plans ---


async def task_of(home: House, plan_task: str) -> tuple[int, str]:
    """What is answered for a plan task: the status, and the tasks or the kind of refusal."""
    answer = await asked(home, "POST", "/t/tasks", {"plan-task": plan_task})
    told = answer.json
    return answer.status, told["error"]["type"] if answer.status != 200 else told["file-scan-tasks"]


async def test_a_plan_ends_by_itself(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PAGE", 1)
    await commit(home, 1, [in_day(name, 1) for name in "ab"])
    told = await send(home, "/t/plan", {})
    [token] = told["plan-tasks"]
    cancelled = await send(home, "/t/plan", {})
    assert (await asked(home, "DELETE", f"/t/plan/{cancelled['plan-id']}")).status == 204
    plans = home.app.services.iceberg.planning
    home.clock.advance(planning.LIFETIME_MS)
    assert await plans.forget() == 0, "its tokens are good still, were it not cancelled"
    assert (await task_of(home, token))[0] == 200
    home.clock.advance(1)
    assert await task_of(home, token) == (404, "NoSuchPlanTaskException")
    for plan_id in (told["plan-id"], cancelled["plan-id"]):
        for method in ("GET", "DELETE"):
            answer = await asked(home, method, f"/t/plan/{plan_id}")
            assert (answer.status, answer.json["error"]["type"]) == (404, "NoSuchPlanIdException")
    assert await plans.forget() == 1


async def test_tasks_behind_a_task_end_with_their_plan(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PAGE", 1)
    monkeypatch.setattr(planning, "TASKS_SIZE", 1)
    await commit(home, 1, [in_day(name, 1) for name in "abcd"])
    told = await send(home, "/t/plan", {})
    [second] = told["plan-tasks"]
    [third] = (await send(home, "/t/tasks", {"plan-task": second}))["plan-tasks"]
    assert (await send(home, "/t/tasks", {"plan-task": third}))["plan-tasks"]
    assert (await asked(home, "DELETE", f"/t/plan/{told['plan-id']}")).status == 204
    for token in (second, third):
        assert await task_of(home, token) == (404, "NoSuchPlanTaskException")


async def test_a_filter_that_is_long_makes_short_pages(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file may come with the whole of it."""
    filter_ = {"type": "in", "term": "id", "values": list(range(100))}
    monkeypatch.setattr(planning, "RESIDUALS_SIZE", 700)
    await commit(home, 1, [in_day(name, 1) for name in "abcde"])
    told = await send(home, "/t/plan", {"filter": filter_})
    assert [len(told["file-scan-tasks"]), len(told["plan-tasks"])] == [2, 2]
    monkeypatch.setattr(planning, "RESIDUALS_SIZE", 1)
    pages = [(await task_of(home, token))[1] for token in told["plan-tasks"]]
    assert [len(page) for page in pages] == [2, 1]


@pytest.mark.postgres
async def test_a_plan_is_cancelled_on_all_servers(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "PAGE", 1)
    async with two_servers(tmp_path, postgres_url) as (first, second):
        one, two = first.home, second.home
        two.admin = one.admin.at(two)
        await create(one)
        await commit(one, 1, [in_day(name, 1) for name in "ab"])
        told = await send(one, "/t/plan", {})
        [token] = told["plan-tasks"]
        assert (await task_of(two, token))[0] == 200
        assert (await asked(two, "DELETE", f"/t/plan/{told['plan-id']}")).status == 204
        for home in (one, two):
            assert await task_of(home, token) == (404, "NoSuchPlanTaskException")
            assert (await asked(home, "GET", f"/t/plan/{told['plan-id']}")).json == {"status": "cancelled"}
