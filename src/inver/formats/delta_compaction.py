"""Log compactions: many commits as one file, each action as its writer wrote it."""

from __future__ import annotations

import io
from collections.abc import Sequence

from inver.domain.delta_actions import FileKey, file_key
from inver.formats.delta_log.actions import Action, actions


def compacted(commits: Sequence[tuple[str, bytes]]) -> bytes:
    """Names and contents of commits, oldest first. What a newer one says silences the older ones."""
    said: set[object] = set()
    lines: list[bytes] = []
    for name, data in reversed(commits):
        found = [(line, action) for line in io.BytesIO(data) for action in actions(line, name)]
        # In one commit an addition wins over a removal of the same file, in whatever order they come.
        found.sort(key=lambda each: each[1].add is None)
        for line, action in found:
            subject = _subject(action)
            if subject is not None and subject not in said:
                said.add(subject)
                lines.append(line.rstrip(b"\r\n") + b"\n")
    return b"".join(lines)


def _subject(action: Action) -> FileKey | tuple[str, str, None] | str | None:
    """What an action is about; None for what tells only of its own commit."""
    file = action.add or action.remove
    if file is not None:
        return file_key(file)
    if action.txn is not None:
        return "txn", action.txn.app_id, None
    if action.domain_metadata is not None:
        return "domainMetadata", action.domain_metadata.domain, None
    if action.protocol is not None:
        return "protocol"
    return "metaData" if action.meta_data is not None else None
