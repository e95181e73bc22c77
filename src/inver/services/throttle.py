"""Failed authentications are counted per source: guessing gets slower and slower."""

from __future__ import annotations

from inver.clock import Clock
from inver.errors import RateLimited

SOURCES_LIMIT = 10_000


class Throttle:
    """A bucket of `burst` failures per source that refills by one every `refill_ms`."""

    def __init__(self, clock: Clock, burst: int = 20, refill_ms: int = 3_000) -> None:
        self._clock = clock
        self._burst = burst
        self._refill_ms = refill_ms
        self._failures: dict[str, tuple[float, int]] = {}

    def check(self, source: str) -> None:
        count = self._count(source)
        if count >= self._burst:
            wait_s = max(1, int((count - self._burst + 1) * self._refill_ms / 1000))
            raise RateLimited("too many failed authentications from this address", retry_after=wait_s)

    def failed(self, source: str) -> None:
        if len(self._failures) >= SOURCES_LIMIT:
            self._forget()
        self._failures[source] = (self._count(source) + 1, self._clock.now_ms())

    def _count(self, source: str) -> float:
        count, since = self._failures.get(source, (0.0, 0))
        return max(0.0, count - (self._clock.now_ms() - since) / self._refill_ms)

    def _forget(self) -> None:
        """Drop the sources that have nothing left to answer for; if none has, the oldest half."""
        self._failures = {
            source: entry for source, entry in self._failures.items() if self._count(source) > 0
        }
        if len(self._failures) >= SOURCES_LIMIT:
            kept = sorted(self._failures.items(), key=lambda item: item[1][1])[SOURCES_LIMIT // 2 :]
            self._failures = dict(kept)
