"""What of a Delta log is due: which commits to compact, and what a checkpoint has made needless."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

MIN_COMMITS = 10
"""Readers of fewer files gain nothing from a compaction."""

_VERSIONED = re.compile(
    r"(\d{20})\.(?:json|crc|checkpoint\.parquet|checkpoint\.\d{10}\.\d{10}\.parquet"
    r"|checkpoint\.[0-9A-Za-z-]{36}\.(?:json|parquet))"
)
_COMPACTED = re.compile(r"(\d{20})\.\d{20}\.compacted\.json")


def compaction_range(checkpoint: int, published: int, files: int) -> tuple[int, int] | None:
    """The commits to put into one file, if `files` files must be read after the checkpoint.

    The newest commit stays by itself: what it says of its own origin is in no compaction.
    """
    first, last = checkpoint + 1, published - 1
    return (first, last) if files >= MIN_COMMITS and last > first else None


def cut_of(checkpoints: Collection[int], last_expired: int | None, pinned_from: int | None) -> int | None:
    """The checkpoint before which the log may end: the newest that is neither after the last version past
    its retention nor after a pinned one."""
    if last_expired is None:
        return None
    limit = last_expired if pinned_from is None else min(last_expired, pinned_from)
    return max((version for version in checkpoints if version <= limit), default=None)


def cleanable(names: Iterable[str], cut: int) -> list[str]:
    """Names of files in the log that the checkpoint of `cut` makes needless, oldest version first.

    The commit of that version stays, since it alone says when it was made.
    """
    found = []
    for name in names:
        versioned, compacted = _VERSIONED.fullmatch(name), _COMPACTED.fullmatch(name)
        if (versioned and int(versioned[1]) < cut) or (compacted and int(compacted[1]) <= cut):
            found.append(name)
    return sorted(found)
