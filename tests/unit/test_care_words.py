"""What `inver care run` takes and says."""

from __future__ import annotations

import pytest

from inver.cli.care_run import Done, changed, options_of, status_of
from inver.domain.care import Job, Outcome, Result
from inver.errors import Invalid

D, N, L, R, F, S = (
    Outcome.DONE,
    Outcome.NOTHING,
    Outcome.LOST,
    Outcome.REFUSED,
    Outcome.FAILED,
    Outcome.STOPPED,
)


def test_options_have_the_types_of_the_policy() -> None:
    given = [
        ("target_file_size", "256MiB"),
        ("min_small_files", "2"),
        ("deleted_ratio", "0.5"),
        ("full", "true"),
        ("cluster_columns", "day, region"),
    ]
    assert options_of(given) == {
        "target_file_size": 256 << 20,
        "min_small_files": 2,
        "deleted_ratio": 0.5,
        "full": True,
        "cluster_columns": ("day", "region"),
    }


def test_an_option_that_was_given_is_sent_even_as_its_default() -> None:
    assert options_of([("retention_hours", "168")]) == {"retention_hours": 168}
    assert options_of([]) == {}


@pytest.mark.parametrize(
    "pair",
    [("no_such", "1"), ("target_file_size", "big"), ("min_small_files", "2.5"), ("full", "perhaps")],
    ids=lambda pair: pair[0],
)
def test_other_options_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(Invalid) as refused:
        options_of([pair])
    assert refused.value.field == "--option"


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [([], 0), ([D, N], 0), ([D, L], 4), ([S], 4), ([D, R], 1), ([L, F], 1)],
)
def test_the_exit_status_is_that_of_the_worst_step(outcomes: list[Outcome], status: int) -> None:
    done = [Done("a.b.c", Job.COMPACT, Result(outcome=outcome)) for outcome in outcomes]
    assert status_of(done) == status


def test_a_change_is_told_by_the_numbers_that_moved() -> None:
    before, after = {"files": 200, "bytes": 5.0, "rows": 9}, {"files": 1, "bytes": 5.0, "version": 3}
    assert changed(Result(outcome=D, before=before, after=after)) == "files 200 -> 1"
    assert changed(Result(outcome=N)) == ""
