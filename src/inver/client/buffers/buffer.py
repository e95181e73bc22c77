"""The operations of a transaction that has not been sent yet."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from inver.client.naming import dotted
from inver.errors import Invalid

MOST = 1_000
"""Operations that the server takes at once."""
COMMITS = frozenset({"delta-commit", "iceberg-commit", "lance"})


class Buffer:
    """`names` says for each operation which table it is about."""

    def __init__(self) -> None:
        self.id = str(uuid.uuid4())
        self.operations: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.placeholders: list[tuple[str, ...]] = []
        """Tables that stand only for the names which they get when the transaction ends."""
        self.endings: list[Callable[[], None]] = []
        """What tidies up after the block, whatever became of it."""
        self._ended = False
        self._lock = threading.Lock()

    def add(self, operation: dict[str, Any], name: str | Sequence[str]) -> None:
        with self._lock:
            self.check()
            if len(self.operations) >= MOST:
                raise Invalid(f"a transaction has at most {MOST} operations", field="operations")
            self.operations.append(operation)
            self.names.append(name if isinstance(name, str) else dotted(name))

    def check(self) -> None:
        if self._ended:
            raise Invalid("the transaction has ended", fix="begin another one")

    def end(self) -> None:
        """Commits go first: they call tables by the names that these have on the server before the block."""
        with self._lock:
            self._ended = True
            order = sorted(range(len(self.operations)), key=lambda index: not self._commits(index))
            self.operations = [self.operations[index] for index in order]
            self.names = [self.names[index] for index in order]

    def _commits(self, index: int) -> bool:
        return self.operations[index]["op"] in COMMITS
