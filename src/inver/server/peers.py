"""Counters of several worker processes, added up by the one that serves `/metrics`.

Every worker leaves its snapshot in a folder that they share; what it shows is at most a second old.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from inver.server.telemetry import Telemetry


class Peers:
    def __init__(self, folder: Path, number: int, telemetry: Telemetry) -> None:
        self._folder = folder
        self._mine = folder / f"{number}.snapshot"
        self._telemetry = telemetry
        telemetry.peers = self.others

    async def share(self) -> None:
        await asyncio.to_thread(self._write, self._telemetry.snapshot())

    def _write(self, snapshot: bytes) -> None:
        temporary = self._mine.with_suffix(".new")
        temporary.write_bytes(snapshot)
        os.replace(temporary, self._mine)

    def others(self) -> Iterator[bytes]:
        for path in sorted(self._folder.glob("*.snapshot")):
            if path != self._mine:
                with suppress(FileNotFoundError):
                    yield path.read_bytes()
