"""Counters, and their Prometheus text.

Counting must not be felt by a request: a meter is a dict, a list and a float that belong to one
route. Everything else happens when somebody reads `/metrics`.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

import msgspec

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NO_LABELS: Mapping[str, str] = {}


class Meter:
    """Answers of one route and method: how many by status, and how long they took."""

    __slots__ = ("buckets", "method", "route", "seconds", "statuses")

    def __init__(self, method: str, route: str) -> None:
        self.method = method
        self.route = route
        self.statuses: dict[int, int] = {}
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def record(self, status: int, seconds: float) -> None:
        statuses = self.statuses
        statuses[status] = statuses.get(status, 0) + 1
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def add(self, other: Meter) -> None:
        for status, count in other.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + count
        self.buckets = [mine + theirs for mine, theirs in zip(self.buckets, other.buckets, strict=True)]
        self.seconds += other.seconds


class _Sample(msgspec.Struct, frozen=True):
    labels: str
    read: Callable[[], float]


class _Family(msgspec.Struct):
    kind: str
    help: str
    samples: list[_Sample]


class Snapshot(msgspec.Struct):
    """What one process has counted, for another to add to its own."""

    meters: list[tuple[str, str, dict[int, int], list[int], float]]
    numbers: dict[str, float]


_decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode


class Telemetry:
    """What `/metrics` shows: the meters of some applications, and numbers that others register.

    `peers` gives the snapshots of the other worker processes; everything is added up.
    """

    def __init__(self) -> None:
        self._meters: list[Callable[[], Iterable[Meter]]] = []
        self._families: dict[str, _Family] = {}
        self.peers: Callable[[], Iterable[bytes]] = tuple

    def watch(self, meters: Callable[[], Iterable[Meter]]) -> None:
        """Include an application's meters; the same route of two applications is added up."""
        self._meters.append(meters)

    def gauge(
        self, name: str, help: str, read: Callable[[], float], labels: Mapping[str, str] = _NO_LABELS
    ) -> None:
        self._register("gauge", name, help, read, labels)

    def counter(
        self, name: str, help: str, read: Callable[[], float], labels: Mapping[str, str] = _NO_LABELS
    ) -> None:
        self._register("counter", name, help, read, labels)

    def render(self) -> bytes:
        peers = [_decode_snapshot(peer) for peer in self.peers()]
        sources = [*self._meters, *(lambda peer=peer: map(_meter_of, peer.meters) for peer in peers)]
        lines: list[str] = []
        _render_requests(_added(sources), lines)
        for name, family in self._families.items():
            _head(lines, name, family.kind, family.help)
            for sample in family.samples:
                series = name + sample.labels
                total = _value(sample.read) + sum(peer.numbers.get(series, 0.0) for peer in peers)
                lines.append(f"{series} {_number(total)}")
        return "\n".join((*lines, "")).encode()

    def snapshot(self) -> bytes:
        meters = [(m.method, m.route, m.statuses, m.buckets, m.seconds) for m in _added(self._meters)]
        numbers = {
            name + sample.labels: _value(sample.read)
            for name, family in self._families.items()
            for sample in family.samples
        }
        return msgspec.msgpack.encode(Snapshot(meters, numbers))

    def _register(
        self, kind: str, name: str, help: str, read: Callable[[], float], labels: Mapping[str, str]
    ) -> None:
        if not _NAME.fullmatch(name) or not all(_NAME.fullmatch(label) for label in labels):
            raise ValueError(f"{name!r} with labels {sorted(labels)} is not a metric's name")
        family = self._families.setdefault(name, _Family(kind, help, []))
        sample = _Sample(_labels(labels), read)
        if family.kind != kind or any(known.labels == sample.labels for known in family.samples):
            raise ValueError(f"metric {name}{sample.labels} is registered twice")
        family.samples.append(sample)


def _added(sources: Iterable[Callable[[], Iterable[Meter]]]) -> list[Meter]:
    total: dict[tuple[str, str], Meter] = {}
    for source in sources:
        for meter in source():
            if meter.statuses:
                key = (meter.method, meter.route)
                total.setdefault(key, Meter(*key)).add(meter)
    return [total[key] for key in sorted(total)]


def _render_requests(meters: list[Meter], lines: list[str]) -> None:
    name = "inver_http_requests_total"
    _head(lines, name, "counter", "Answered requests by method, route template and status.")
    for meter in meters:
        for status in sorted(meter.statuses):
            labels = _labels({"method": meter.method, "route": meter.route, "status": str(status)})
            lines.append(f"{name}{labels} {meter.statuses[status]}")
    name = "inver_http_request_duration_seconds"
    _head(lines, name, "histogram", "Time from a complete request to its answer.")
    for meter in meters:
        route = {"method": meter.method, "route": meter.route}
        seen = 0
        for bound, count in zip((*BOUNDS, math.inf), meter.buckets, strict=True):
            seen += count
            le = "+Inf" if bound == math.inf else repr(bound)
            lines.append(f"{name}_bucket{_labels({**route, 'le': le})} {seen}")
        lines.append(f"{name}_sum{_labels(route)} {meter.seconds!r}")
        lines.append(f"{name}_count{_labels(route)} {seen}")


def _head(lines: list[str], name: str, kind: str, help: str) -> None:
    escaped = help.replace("\\", "\\\\").replace("\n", "\\n")
    lines.append(f"# HELP {name} {escaped}")
    lines.append(f"# TYPE {name} {kind}")


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _meter_of(counted: tuple[str, str, dict[int, int], list[int], float]) -> Meter:
    meter = Meter(counted[0], counted[1])
    meter.statuses, meter.buckets, meter.seconds = counted[2:]
    return meter


def _value(read: Callable[[], float]) -> float:
    """One number that cannot be read must not hide all the others."""
    try:
        return float(read())
    except Exception:
        return math.nan


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value).replace("inf", "Inf")
