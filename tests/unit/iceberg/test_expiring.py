"""Which snapshots may go: by when they ceased to be current, and who still names them."""

from __future__ import annotations

from typing import Any

import msgspec

from inver.domain.iceberg.expiring import History, endangered, expired

NOW, HOUR = 1_000 * 3_600_000, 3_600_000


def history(*snapshots: tuple[int, int | None, int], **fields: Any) -> History:
    """Snapshots as id, parent and hours ago; main is at the last one."""
    listed = [
        {
            "snapshot-id": id_,
            "timestamp-ms": NOW - ago * HOUR,
            **({} if parent is None else {"parent-snapshot-id": parent}),
        }
        for id_, parent, ago in snapshots
    ]
    last = snapshots[-1][0]
    document: dict[str, Any] = {
        "format-version": 2,
        "location": "file:///t",
        "current-snapshot-id": last,
        "snapshots": listed,
        "snapshot-log": [{"snapshot-id": id_, "timestamp-ms": NOW - ago * HOUR} for id_, _, ago in snapshots],
        "refs": {"main": {"snapshot-id": last, "type": "branch"}},
    }
    return msgspec.convert(document | fields, History)


def gone(table: History, hours: int = 24, least: int = 1, pinned: set[int] | None = None) -> list[int]:
    return expired(table, now_ms=NOW, keep_ms=hours * HOUR, min_snapshots=least, pinned=pinned or set())


LINE = ((1, None, 100), (2, 1, 50), (3, 2, 30), (4, 3, 10))


def test_what_was_replaced_long_ago_goes():
    assert gone(history(*LINE)) == [1, 2]
    assert gone(history(*LINE), hours=40) == [1]
    assert gone(history(*LINE), hours=0) == [1, 2, 3]


def test_age_is_counted_from_when_a_snapshot_ceased_to_be_current():
    """The third is older than a day, and was read until ten hours ago."""
    assert 3 not in gone(history(*LINE), hours=24)


def test_the_newest_stay():
    assert gone(history(*LINE), hours=0, least=3) == [1]
    assert gone(history(*LINE), hours=0, least=9) == []


def test_names_and_pins_keep():
    refs = {
        "main": {"snapshot-id": 4, "type": "branch"},
        "release": {"snapshot-id": 1, "type": "tag"},
    }
    assert gone(history(*LINE, refs=refs)) == [2]
    assert gone(history(*LINE), pinned={2}) == [1]


def test_a_branch_keeps_its_own_line():
    refs = {"main": {"snapshot-id": 4, "type": "branch"}, "dev": {"snapshot-id": 2, "type": "branch"}}
    assert gone(history(*LINE, refs=refs)) == [1]
    assert gone(history(*LINE, refs=refs), least=2) == []


def test_a_branch_says_itself_how_long():
    main = {"snapshot-id": 4, "type": "branch"}
    assert gone(history(*LINE, refs={"main": main | {"max-snapshot-age-ms": 40 * HOUR}})) == [1]
    assert gone(history(*LINE, refs={"main": main | {"min-snapshots-to-keep": 3}}), hours=0) == [1]


def test_what_a_rollback_left_was_current_until_then():
    """From 3 back to 2 two hours ago, and on to 4."""
    table = history(
        (1, None, 100),
        (2, 1, 50),
        (3, 2, 30),
        (4, 2, 1),
        **{
            "snapshot-log": [
                {"snapshot-id": id_, "timestamp-ms": NOW - ago * HOUR}
                for id_, ago in ((1, 100), (2, 50), (3, 30), (2, 2), (4, 1))
            ]
        },
    )
    assert gone(table) == [1]
    assert gone(table, hours=0) == [1, 2, 3]


def test_a_staged_snapshot_goes_by_its_age():
    table = history((1, None, 100), (9, 1, 90), (2, 1, 50), **{"snapshot-log": []})
    assert gone(table) == [1, 9]
    assert gone(table, hours=95) == []


def test_pinned_snapshots_that_a_branch_gives_up():
    main = {"snapshot-id": 4, "type": "branch", "max-snapshot-age-ms": 40 * HOUR}
    assert endangered(history(*LINE, refs={"main": main}), {1, 3}, NOW) == [1]
    assert endangered(history(*LINE), {1, 3}, NOW) == []


def test_how_many_files_all_snapshots_name():
    def with_summaries(*summaries: dict[str, str]) -> History:
        listed = [{"snapshot-id": n, "timestamp-ms": n, "summary": each} for n, each in enumerate(summaries)]
        return history((1, None, 1), snapshots=listed)

    first = {"operation": "append", "added-data-files": "7", "total-data-files": "7"}
    last = {"operation": "delete", "total-data-files": "3"}
    assert with_summaries(first, last).files == 14
    assert with_summaries(first, {"operation": "append"}).files is None
    assert with_summaries().files == 0
    assert history(*LINE).files is None
