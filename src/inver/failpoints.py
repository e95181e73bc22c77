"""Named places at which a test may kill the process, as a power cut would.

`INVER_CRASH_AT=name` or `name:n` ends the process without any clean-up the n-th time that
`hit(name)` runs. Unset, which is always so outside tests, `hit` is one comparison.
"""

from __future__ import annotations

import os

NAMES = (
    "before_decide",
    "decided_before_commit",
    "committed_before_answer",
    "followup_claimed",
    "followup_done_before_record",
    "published_before_mark",
    "lance_written_before_decide",
    "lance_decided_before_finalize",
)


def _parse(value: str | None) -> tuple[str | None, int]:
    if not value:
        return None, 0
    name, _, count = value.partition(":")
    if name not in NAMES:
        raise ValueError(f"INVER_CRASH_AT names no crash point: {name!r}; there are {', '.join(NAMES)}")
    return name, int(count or 1)


_armed, _left = _parse(os.environ.get("INVER_CRASH_AT"))


def hit(name: str) -> None:
    global _left
    if name != _armed:
        return
    _left -= 1
    if _left <= 0:
        os._exit(137)
