"""Progress on standard error: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from inver.cli.output import visible

LINE_EVERY_S = 5.0

Show = Callable[[float, str], None]


class Progress:
    """`with progress.step("main.sales.orders compact") as show: show(0.4, "3 of 7 bins")`."""

    def __init__(self, steps: int, shown: bool) -> None:
        self._steps = steps
        self._number = 0
        # A way of our own to standard error: while Java starts, that is a file.
        self._file = os.fdopen(os.dup(2), "w", encoding="utf-8") if shown else None
        self._bars: Any = _bars(self._file) if self._file is not None and self._file.isatty() else None

    def __enter__(self) -> Progress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()
        if self._file is not None:
            self._file.close()

    @contextmanager
    def step(self, title: str) -> Iterator[Show]:
        self._number += 1
        title = f"[{self._number}/{self._steps}] {visible(title)}"
        if self._bars is not None:
            task = self._bars.add_task(title, total=1.0, message="")
            yield lambda done, message: self._bars.update(task, completed=done, message=visible(message))
            self._bars.update(task, completed=1.0, message="")
        elif self._file is not None:
            yield _Lines(title, self._file).show
        else:
            yield lambda done, message: None


class _Lines:
    def __init__(self, title: str, file: TextIO) -> None:
        self._title = title
        self._file = file
        self._due = 0.0

    def show(self, done: float, message: str) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + LINE_EVERY_S
            print(f"{self._title}: {done:4.0%} {visible(message)}", file=self._file, flush=True)


def _bars(file: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns: list[ProgressColumn] = [
        # Names and messages are somebody else's text, and no markup.
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}", markup=False),
    ]
    return Bars(*columns, console=Console(file=file))
