"""Delta commits on each store: what becomes of those who want the same version, and what is published."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path

import msgspec
import pytest

from inver.domain.delta import (
    CLUSTERING,
    ROW_TRACKING,
    CommitInfo,
    CommitSummary,
    head_of,
)
from inver.domain.ledger import MAIN, AlterTable, Reason, Receipt, Transaction, Winner
from inver.domain.principals import ADMIN
from inver.errors import Broken, Conflict, Invalid, PreconditionFailed
from inver.formats.delta_commit import summarize
from inver.services.delta.publishing import GLANCE, Publishing
from inver.services.delta.staged import MAX_COMMIT
from inver.services.delta.types import Changes, Proposal
from tests.fixtures.delta import add_file
from tests.fixtures.lake import Lake
from tests.fixtures.ledger import admin, append, outcomes
from tests.fixtures.waiting import PATIENCE_S

TRACKED = {"rowIdHighWaterMark": 7}


async def test_who_wants_a_version_that_is_being_decided_is_told_who_got_it(lake: Lake):
    """Nobody looks at their files, which are not there."""
    first, rivals = lake.stage(2), [lake.info(2) for _ in range(9)]
    won, *lost = await outcomes(*(lake.propose(each) for each in (first, *rivals)))
    assert isinstance(won, Receipt)
    winner = Winner(2, first.file_name, won.transaction, won.at, ADMIN.id)
    for refused in lost:
        assert isinstance(refused, Conflict)
        assert refused.message == "version 2 is taken; the table is at version 2"
        [detail] = refused.conflicts
        assert (detail.operation, detail.subject, detail.reason) == (0, lake.id, Reason.VERSION_TAKEN)
        assert (detail.expected, detail.current, detail.winner) == (1, 2, winner)
    assert await lake.book.version(lake.id) == 2
    assert (await lake.propose(lake.stage(3))).results[0].version == 3


async def test_a_commit_sent_again_while_it_is_being_decided_is_the_same_commit(lake: Lake):
    first = lake.stage(2)
    answers = await outcomes(*(lake.propose(first) for _ in range(5)))
    receipts = [each for each in answers if isinstance(each, Receipt)]
    assert len(receipts) == 5, answers
    assert [each.replayed for each in receipts] == [False, True, True, True, True]
    assert {each.transaction for each in receipts} == {receipts[0].transaction}
    assert await lake.book.version(lake.id) == 2


async def test_after_a_gap_everybody_is_told_of_it(lake: Lake):
    """The table is at 1, so nobody gets 5, and each is refused for itself."""
    answers = await outcomes(*(lake.propose(lake.stage(5)) for _ in range(4)))
    for refused in answers:
        assert isinstance(refused, Conflict)
        assert refused.conflicts[0].reason is Reason.VERSION_GAP
    assert (await lake.propose(lake.stage(2))).results[0].version == 2


async def test_who_waited_for_one_that_fails_may_win(lake: Lake):
    missing, good = lake.info(2), lake.stage(2)
    refused, won = await outcomes(lake.propose(missing), lake.propose(good))
    assert isinstance(won, Receipt)
    assert isinstance(refused, Invalid | Conflict)
    assert (await lake.book.tokens(lake.id))[-1] == good.file_name


async def test_what_a_writer_published_is_marked_bit_by_bit(lake: Lake):
    """However much a writer has published without a word, its commits catch up with it."""
    await lake.services.publishing.publish(lake.id)
    last = 1 + GLANCE + 3
    infos = [lake.stage(version) for version in range(2, last + 1)]
    for info in infos:
        assert (await lake.propose(info)).published == 1
        lake.publish(info)
    first = await lake.propose(lake.stage(last + 1), published=last)
    assert first.published == 1 + GLANCE
    second = await lake.propose(lake.stage(last + 2), published=last)
    assert second.published == last


async def test_a_published_file_that_is_another_is_not_marked(lake: Lake):
    """What was seen before it is."""
    await lake.services.publishing.publish(lake.id)
    second, third = lake.stage(2), lake.stage(3)
    for info in (second, third):
        assert (await lake.propose(info)).published == 1
    lake.publish(second)
    (lake.log / f"{3:020d}.json").write_bytes(b"{}\n")
    assert (await lake.propose(lake.stage(4), published=3)).published == 2


async def test_a_commit_that_is_lost_is_no_missing_table(lake: Lake):
    """Clients take what is not found for the table itself."""
    [staged] = (lake.log / "_staged_commits").iterdir()
    staged.unlink()
    notice = Proposal(table_id=lake.id, published=1)
    with pytest.raises(Broken):
        await lake.services.delta.propose(await admin(lake.book.store), notice)
    assert (await lake.book.table(lake.id)).published < 1


async def test_every_table_is_found_again_however_many_cannot_be_published(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As after a start: nobody has told this publisher of any commit."""
    monkeypatch.setattr("inver.services.delta.publishing.SCAN_LIMIT", 1)
    book, broken = lake.book, "00000000-0000-7000-8000-000000000001"
    assert broken < lake.id
    await book.create_table("broken", id=broken, location=(tmp_path / "nowhere").as_uri())
    await book.decide(append(broken, 1, head=b"{}"))
    publishing = Publishing(book.store, lake.services.publishing._places, summarize, delay_s=0.01)
    running = asyncio.ensure_future(publishing.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (await book.table(lake.id)).published < 1:
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
    assert (lake.log / f"{1:020d}.json").exists()
    assert publishing.failed > 0


async def test_who_loses_to_a_change_of_metadata_has_lost_the_version(lake: Lake):
    """The winner has moved the etag too, of which the other one has never spoken."""
    infos = [lake.stage(2), lake.stage(2)]
    first, second = [await lake.prepare(info, Changes(comment=info.file_name)) for info in infos]
    won = await lake.book.decide(first)
    with pytest.raises(Conflict) as lost:
        await lake.book.decide(second)
    [detail] = lost.value.conflicts
    assert (detail.reason, detail.expected, detail.current) == (Reason.VERSION_TAKEN, 1, 2)
    assert detail.winner == Winner(2, infos[0].file_name, won.transaction, won.at, ADMIN.id)
    again = await lake.book.decide(first)
    assert (again.replayed, again.transaction) == (True, won.transaction)


def tracking(lake: Lake, version: int) -> tuple[CommitInfo, Changes]:
    """A commit that marks how far row ids go."""
    written = {"domain": ROW_TRACKING, "configuration": json.dumps(TRACKED), "removed": False}
    info = lake.stage(version, "WRITE", {"domainMetadata": written})
    return info, Changes(set_domains={ROW_TRACKING: TRACKED})


async def test_a_mark_of_row_ids_does_not_undo_what_changed_meanwhile(lake: Lake):
    clustered = {"clusteringColumns": [["id"]]}
    info, changes = tracking(lake, 2)
    late = await lake.prepare(info, changes)
    head = head_of((await lake.book.table(lake.id)).head)
    head = msgspec.structs.replace(head, domains={CLUSTERING: clustered})
    await lake.book.decide(AlterTable(table_id=lake.id, head=msgspec.json.encode(head)))
    with pytest.raises(PreconditionFailed):
        await lake.book.decide(late)
    await lake.book.decide(await lake.prepare(info, changes))
    table = await lake.book.table(lake.id)
    assert table.version == 2
    assert head_of(table.head).domains == {ROW_TRACKING: TRACKED, CLUSTERING: clustered}


@pytest.mark.parametrize("operation", ["a\x1fb", "\x1f", "\ufeff", "\U0001f600", "NULL", "{}", "\\", "'"])
async def test_an_operation_may_be_called_anything(lake: Lake, operation: str):
    """Beside others, with which it is decided together."""
    beside = [(await lake.book.create_table(f"t{number}")) for number in range(3)]
    info = lake.stage(2, operation)
    answers = await outcomes(*(lake.book.decide(append(each, 1)) for each in beside), lake.propose(info))
    assert all(isinstance(each, Receipt) for each in answers), answers
    [kept] = await lake.book.store.commits(lake.id, MAIN, 2, 2, 1)
    assert (kept.operation, kept.token) == (operation, info.file_name)


async def test_a_file_with_what_no_database_keeps_is_refused(lake: Lake):
    """And not tried for ever: its writer is told what is wrong with it."""
    with pytest.raises(Invalid, match=re.escape("U+0000")):
        await lake.propose(lake.stage(2, "a\x00b"))
    assert (await lake.propose(lake.stage(2))).results[0].version == 2


async def test_a_change_of_metadata_undoes_no_mark_of_row_ids(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    """The commit moves the mark without the etag, between the look at the table and the change."""
    commit = await lake.prepare(*tracking(lake, 2))
    decide = lake.book.store.decide

    async def late(transaction: Transaction) -> Receipt:
        if await lake.book.version(lake.id) < 2:
            await decide(lake.book.transaction(commit))
        return await decide(transaction)

    monkeypatch.setattr(lake.book.store, "decide", late)
    change = Proposal(table_id=lake.id, changes=Changes(comment="ours"))
    await lake.services.delta.propose(await admin(lake.book.store), change)
    full = await lake.book.store.full_table(lake.id)
    assert full is not None
    assert (full.table.version, full.details.comment) == (2, "ours")
    assert head_of(full.table.head).domains == {ROW_TRACKING: TRACKED}


async def test_a_large_file_is_read_beside_everybody_else(lake: Lake):
    """And one that is too large by nobody."""
    readers: list[threading.Thread] = []

    def watched(data: bytes) -> CommitSummary:
        readers.append(threading.current_thread())
        return summarize(data)

    lake.services.delta._commits._staged._summarize = watched
    for version, count in ((2, 1), (3, 3_000)):
        added = [add_file(f"{version}-{number}") for number in range(count)]
        await lake.propose(lake.stage(version, "WRITE", *added))
    small, large = readers
    assert small is threading.current_thread()
    assert large is not small
    huge = msgspec.structs.replace(lake.stage(4), file_size=MAX_COMMIT + 1)
    with (lake.log / "_staged_commits" / huge.file_name).open("ab") as file:
        file.truncate(huge.file_size)
    with pytest.raises(Invalid, match="at most"):
        await lake.propose(huge)
    assert len(readers) == 2
    assert (await lake.propose(lake.stage(4))).results[0].version == 4
