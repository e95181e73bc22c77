"""The parts of one kind, in order, as bytes that nobody decodes.

A series is a window on a log that only grows. Adding to the newest window adds to the log, so the
older windows stay what they were and nothing is copied; adding to an older window, or taking parts
away in the middle, makes a new log. Full blocks of the log are joined once and kept, so writing a
document out costs the bytes and not the number of parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

_FEW = 8
_SMALL = _FEW * _FEW
_LARGE = _SMALL * _SMALL
_WITHIN = {_LARGE: _SMALL, _SMALL: _FEW}
"""The blocks of which a larger one is made, and which it replaces."""


class _Log:
    __slots__ = ("bodies", "joined", "keys", "ordinals", "positions")

    def __init__(self) -> None:
        self.ordinals: dict[str, int] = {}
        self.keys: list[str] = []
        self.positions: list[int] = []
        self.bodies: list[bytes] = []
        self.joined: dict[tuple[int, int], bytes] = {}

    def add(self, key: str, position: int, body: bytes) -> None:
        self.ordinals[key] = len(self.bodies)
        self.keys.append(key)
        self.positions.append(position)
        self.bodies.append(body)

    def block(self, start: int, size: int) -> bytes:
        found = self.joined.get((start, size))
        if found is None:
            found = b",".join(self.bodies[start : start + size])
            self.joined[start, size] = found
            if within := _WITHIN.get(size):
                for small in range(start, start + size, within):
                    self.joined.pop((small, within), None)
        return found


class Series:
    """Parts by key and in order. Every change gives another series and leaves this one as it is."""

    __slots__ = ("_end", "_log", "_start")

    def __init__(self, log: _Log, start: int, end: int) -> None:
        self._log = log
        self._start = start
        self._end = end

    @staticmethod
    def of(parts: Iterable[tuple[str, int, bytes]] = ()) -> Series:
        """From (key, position, body), ordered by position."""
        log = _Log()
        for key, position, body in parts:
            log.add(key, position, body)
        return Series(log, 0, len(log.bodies))

    def __len__(self) -> int:
        return self._end - self._start

    def __contains__(self, key: str) -> bool:
        ordinal = self._log.ordinals.get(key)
        return ordinal is not None and self._start <= ordinal < self._end

    def get(self, key: str) -> bytes | None:
        ordinal = self._log.ordinals.get(key)
        if ordinal is None or not self._start <= ordinal < self._end:
            return None
        return self._log.bodies[ordinal]

    def position(self, key: str) -> int:
        return self._log.positions[self._log.ordinals[key]]

    @property
    def next_position(self) -> int:
        """Behind every position that this log has given away, so that a key made of it is new."""
        return self._log.positions[self._end - 1] + 1 if self._end else 0

    def keys(self) -> list[str]:
        return self._log.keys[self._start : self._end]

    def bodies(self) -> list[bytes]:
        return self._log.bodies[self._start : self._end]

    def items(self) -> Iterator[tuple[str, int, bytes]]:
        """(key, position, body) in order."""
        window = slice(self._start, self._end)
        return zip(self._log.keys[window], self._log.positions[window], self._log.bodies[window], strict=True)

    def add(self, key: str, position: int, body: bytes) -> Series:
        """With one more part at the end; the key is not in the series."""
        log = self._log
        if self._end != len(log.bodies) or key in log.ordinals or self._start > max(_LARGE, len(self)):
            log = self._copy()
        log.add(key, position, body)
        end = len(log.bodies)
        return Series(log, end - len(self) - 1, end)

    def without(self, gone: Collection[str]) -> Series:
        """Without these of its keys; taking away from the front only moves the window."""
        start = self._start + len(gone)
        if all(key in gone for key in self._log.keys[self._start : start]):
            return Series(self._log, start, self._end)
        return Series.of(item for item in self.items() if item[0] not in gone)

    def replace(self, bodies: dict[str, bytes]) -> Series:
        return Series.of((key, position, bodies.get(key, body)) for key, position, body in self.items())

    def write(self, out: list[bytes]) -> None:
        """Append the bodies with commas between them, in as few pieces as there are."""
        log, at, end = self._log, self._start, self._end
        while at < end:
            if at != self._start:
                out.append(b",")
            if not at % _LARGE and at + _LARGE <= end:
                out.append(log.block(at, _LARGE))
                at += _LARGE
            elif not at % _SMALL and at + _SMALL <= end:
                out.append(log.block(at, _SMALL))
                at += _SMALL
            elif not at % _FEW and at + _FEW <= end:
                out.append(log.block(at, _FEW))
                at += _FEW
            else:
                stop = min(end, at - at % _FEW + _FEW)
                out.append(b",".join(log.bodies[at:stop]))
                at = stop

    def _copy(self) -> _Log:
        log = _Log()
        log.keys = self.keys()
        log.ordinals = {key: ordinal for ordinal, key in enumerate(log.keys)}
        log.positions = self._log.positions[self._start : self._end]
        log.bodies = self.bodies()
        if self._start == 0:
            log.joined = {
                block: joined for block, joined in self._log.joined.items() if sum(block) <= self._end
            }
        return log
