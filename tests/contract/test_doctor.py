"""Each invariant of the database, unbroken and then broken by hand, on every store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from inver.clock import Clock, ManualClock, SystemClock
from inver.domain.ledger import Work
from inver.domain.locations import Location
from inver.domain.principals import ADMIN, Principal, PrincipalKind
from inver.errors import Forbidden
from inver.ids import new_id
from inver.ports import Finding, ObjectStore
from inver.services.access import Access
from inver.services.audit import Audit
from inver.services.context import Caller
from inver.services.doctor import Doctor, Status
from inver.storage.open import open_store
from inver.storage.options import StorageOptions
from inver.stores.invariants import KEYS_LATE_MS, PAGE, STALLED_MS, WINDOW
from inver.stores.sql import Steps
from tests.fixtures.ledger import Book, append, create_table, keyed

HOUR_MS = 3_600_000
NAMES = {
    "versions",
    "commits",
    "events",
    "names",
    "parents",
    "grants",
    "idempotency",
    "work-failed",
    "work-stalled",
    "unpublished",
    "event-times",
}


async def examine(book: Book) -> dict[str, Finding]:
    """What offends; nothing else."""
    found = await book.store.invariants(book.clock.now_ms())
    assert {finding.name for finding in found} == NAMES
    return {finding.name: finding for finding in found if finding.count}


async def change(book: Book, sql: str, *parameters: Any) -> None:
    def steps() -> Steps[None]:
        yield sql, parameters

    await book.store.write(steps)


async def test_a_new_database_is_sound(book: Book) -> None:
    assert await examine(book) == {}


async def test_a_used_database_is_sound(book: Book) -> None:
    table = await book.create_table()
    registered = await book.create_table("late", version=40)
    for version in range(1, 6):
        await book.decide(append(table, version))
        await book.decide(append(registered, 40 + version), keyed=keyed())
    await book.decide(append(table, 6))
    await book.decide(
        create_table(book, "worked"), work=(Work(kind="x", subject="s", not_before=book.clock.now_ms()),)
    )
    assert await examine(book) == {}


async def test_more_tables_than_a_page_holds(book: Book) -> None:
    creations = [create_table(book, f"t{number}") for number in range(PAGE + 7)]
    await book.decide(*creations)
    await book.decide(*(append(creation.id, 1) for creation in creations))
    assert await examine(book) == {}
    lost = creations[-1].id
    await change(book, "DELETE FROM commits WHERE table_id = ?1", lost)
    await change(book, "UPDATE tables SET version = 2 WHERE id = ?1", creations[PAGE + 3].id)
    assert (await examine(book))["versions"].samples == (creations[PAGE + 3].id,)


async def test_a_table_that_stands_elsewhere_than_its_commits(book: Book) -> None:
    table = await book.create_table()
    for version in range(1, 4):
        await book.decide(append(table, version))
    await change(book, "UPDATE tables SET version = 2 WHERE id = ?1", table)
    assert (await examine(book)) == {"versions": Finding("versions", 1, (table,))}


async def test_a_gap_in_the_versions(book: Book) -> None:
    table = await book.create_table()
    for version in range(1, 4):
        await book.decide(append(table, version))
    await change(book, "DELETE FROM commits WHERE table_id = ?1 AND version = 2", table)
    assert (await examine(book)) == {"versions": Finding("versions", 1, (table,))}


async def test_commits_without_a_table(book: Book) -> None:
    table = await book.create_table()
    await book.decide(append(table, 1))
    await change(book, "DELETE FROM tables WHERE id = ?1", table)
    assert (await examine(book)) == {"commits": Finding("commits", 1, (table,))}


async def test_a_gap_in_the_feed(book: Book) -> None:
    for name in ("a", "b", "c"):
        await book.create_table(name)
    last = await book.store.last_event()
    await change(book, "DELETE FROM events WHERE seq = ?1", last - 1)
    (finding,) = (await examine(book)).values()
    assert finding.name == "events"
    assert finding.samples == (f"1 missing between 1 and {last}",)


async def test_a_feed_that_ends_before_its_head(book: Book) -> None:
    last = await book.store.last_event()
    await change(book, "DELETE FROM events WHERE seq = ?1", last)
    assert (await examine(book))["events"].samples == (f"head {last}, newest {last - 1}",)
    await change(book, "DELETE FROM events")
    assert (await examine(book))["events"].samples == (f"head {last}, no events",)


async def test_an_old_feed_may_start_late(book: Book) -> None:
    """Events that were removed from its beginning are no gap."""
    for name in ("a", "b", "c"):
        await book.create_table(name)
    await change(book, "DELETE FROM events WHERE seq <= 2")
    assert await examine(book) == {}
    assert WINDOW > 3


async def test_a_name_that_is_taken_twice(book: Book) -> None:
    await book.create_table("orders")
    second = await book.create_table("other")
    await change(book, "DROP INDEX tables_name")
    try:
        await change(book, "UPDATE tables SET name = 'ORDERS', name_key = 'orders' WHERE id = ?1", second)
        assert (await examine(book))["names"].count == 1
    finally:
        # The next test gets the same database, with the constraint.
        await change(book, "DELETE FROM tables")
        await change(
            book,
            """CREATE UNIQUE INDEX tables_name ON tables (schema_id, name_key)
               WHERE state IN ('live', 'declared')""",
        )


async def test_schemas_and_tables_without_a_parent(book: Book) -> None:
    inner = await book.create_schema("inner", parent=await book.create_schema("outer"))
    table = await book.create_table()
    await change(book, "DELETE FROM schemas WHERE name = 'outer' OR id = ?1", book.schema)
    finding = (await examine(book))["parents"]
    assert (finding.count, set(finding.samples)) == (2, {inner, table})


async def test_a_grant_to_nobody(book: Book) -> None:
    nobody = new_id()
    row = (book.catalog, nobody, "SELECT", "catalog", 1, nobody)
    await change(book, "INSERT INTO grants VALUES (?1, ?2, ?3, ?4, ?5, ?6)", *row)
    assert (await examine(book)) == {"grants": Finding("grants", 1, (book.catalog,))}


async def test_idempotency_records_that_stayed(book: Book) -> None:
    request = keyed()
    await book.decide(create_table(book), keyed=request)
    book.clock.advance(HOUR_MS // 2)
    assert await examine(book) == {}
    book.clock.advance(HOUR_MS // 2 + KEYS_LATE_MS)
    assert (await examine(book)) == {"idempotency": Finding("idempotency", 1, (request.key,))}


async def test_work_that_failed_or_stalled(book: Book) -> None:
    work = Work(kind="publish", subject="t1", not_before=book.clock.now_ms())
    await book.decide(create_table(book), work=(work,))
    assert await examine(book) == {}
    book.clock.advance(STALLED_MS + 1)
    assert (await examine(book)) == {"work-stalled": Finding("work-stalled", 1, ("publish t1",))}
    await book.store.claim_work(["publish"], "me", book.clock.now_ms(), 60_000, 10)
    assert await examine(book) == {}
    await change(book, "UPDATE work SET state = 'failed'")
    assert (await examine(book)) == {"work-failed": Finding("work-failed", 1, ("publish t1",))}


async def test_events_from_the_future(book: Book) -> None:
    later = book.clock.now_ms() + 2 * 60_000
    await book.decide(create_table(book), at=later)
    finding = (await examine(book))["event-times"]
    assert finding.samples == (str(await book.store.last_event()),)


async def test_many_offenders_are_counted_and_a_few_are_named(book: Book) -> None:
    works = tuple(Work(kind="k", subject=f"s{number}", not_before=0) for number in range(9))
    await book.decide(create_table(book), work=works)
    finding = (await examine(book))["work-stalled"]
    assert (finding.count, len(finding.samples)) == (9, 5)


async def test_the_database_knows_the_time(book: Book) -> None:
    assert await book.store.database_time() == pytest.approx(SystemClock().now_ms(), abs=60_000)


# --- what the service makes of it ---


def doctor(book: Book, warehouse: Path, clock: Clock | None = None) -> Doctor:
    root = Location.parse(str(warehouse))
    access = Access(book.store, Audit(book.store, book.clock))

    def open_objects(location: Location) -> ObjectStore:
        return open_store(location, StorageOptions(), allowed_roots=[root])

    return Doctor(book.store, clock or SystemClock(), access, open_objects, root)


async def admin(book: Book) -> Caller:
    return Caller(msgspec.structs.replace(ADMIN, epoch=await book.store.epoch()))


async def test_everything_is_well(book: Book, tmp_path: Path) -> None:
    checks = await doctor(book, tmp_path).examine(await admin(book))
    assert {check.name for check in checks} == NAMES | {"clock", "storage"}
    assert {check.status for check in checks} == {Status.OK}
    assert [file for file in tmp_path.iterdir() if "probe" in file.name] == []


async def test_work_that_was_given_up_is_tried_again(book: Book, tmp_path: Path) -> None:
    work = Work(kind="publish", subject="t1", not_before=0)
    await book.decide(create_table(book), work=(work,))
    await change(book, "UPDATE work SET state = 'failed', attempts = 12")
    examined = doctor(book, tmp_path)
    somebody = Principal(new_id(), "somebody", PrincipalKind.USER, epoch=await book.store.epoch())
    with pytest.raises(Forbidden):
        await examined.retry(Caller(somebody))
    assert await examined.retry(await admin(book)) == 1
    assert await examined.retry(await admin(book)) == 0
    (item,) = await book.store.claim_work(["publish"], "me", SystemClock().now_ms(), 60_000, 10)
    assert (item.subject, item.attempts) == ("t1", 1)


async def test_offenders_are_named_with_what_to_do(book: Book, tmp_path: Path) -> None:
    works = tuple(Work(kind="k", subject=f"s{number}", not_before=0) for number in range(9))
    await book.decide(create_table(book), work=works)
    checks = await doctor(book, tmp_path).examine(await admin(book))
    (stalled,) = [check for check in checks if check.status is not Status.OK]
    assert (stalled.name, stalled.status) == ("work-stalled", Status.WARNING)
    assert "9 (k s" in stalled.detail
    assert stalled.detail.endswith(", ...)")
    assert stalled.fix


async def test_clocks_that_differ(book: Book, tmp_path: Path) -> None:
    checks = await doctor(book, tmp_path, ManualClock()).examine(await admin(book))
    (clock,) = [check for check in checks if check.name == "clock"]
    assert clock.status is Status.WARNING
    assert "s apart" in clock.detail


async def test_storage_that_cannot_be_used(book: Book, tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("a file where a folder belongs")
    checks = await doctor(book, tmp_path / "warehouse").examine(await admin(book))
    (storage,) = [check for check in checks if check.status is not Status.OK]
    assert (storage.name, storage.status) == ("storage", Status.FAILED)
    assert "storage" in str(storage.fix)


async def test_not_everybody_may_look(book: Book, tmp_path: Path) -> None:
    somebody = Principal(new_id(), "somebody", PrincipalKind.USER, epoch=await book.store.epoch())
    with pytest.raises(Forbidden):
        await doctor(book, tmp_path).examine(Caller(somebody))
