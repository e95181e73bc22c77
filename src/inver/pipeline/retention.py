"""How long snapshots and versions stay."""

from __future__ import annotations

from inver.domain.care import HOUR_MS, Options
from inver.domain.runs import FLOORS
from inver.errors import Refused


def snapshot_ms(options: Options) -> int:
    floor = FLOORS["snapshot_hours"]
    if options.snapshot_hours < floor and not options.allow_short_retention:
        raise Refused(
            f"snapshots of {options.snapshot_hours:g} hours are below the floor of {floor:g}",
            fix="set allow_short_retention if no reader or writer runs that long",
        )
    return int(options.snapshot_hours * HOUR_MS)
