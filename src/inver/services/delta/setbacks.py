"""Tables that could not be published, each tried again later and later."""

from __future__ import annotations

FIRST_DELAY_S = 5.0
LONGEST_DELAY_S = 300.0
TABLES = 20_000


class Setbacks:
    def __init__(self) -> None:
        self._failed: dict[str, tuple[float, float]] = {}

    def __contains__(self, table_id: str) -> bool:
        return table_id in self._failed

    def failed(self, table_id: str, now: float) -> None:
        _, before = self._failed.get(table_id, (0.0, 0.0))
        delay = min(2 * before, LONGEST_DELAY_S) or FIRST_DELAY_S
        if len(self._failed) >= TABLES:
            # They are found again by the next look at the database.
            self._failed.clear()
        self._failed[table_id] = now + delay, delay

    def over(self, table_id: str) -> None:
        self._failed.pop(table_id, None)

    def must_wait(self, table_id: str, now: float) -> bool:
        until, _ = self._failed.get(table_id, (now, 0.0))
        return now < until

    def due(self, now: float) -> list[str]:
        return [table_id for table_id, (until, _) in self._failed.items() if until <= now]
