"""From new files to versions: committed in batches, and rebased on whoever was first."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import TypeAlias

from inver import __version__
from inver.client.core import Policy
from inver.clock import SystemClock
from inver.domain.delta_bins import Bin, deleted_rows, records
from inver.domain.delta_rebase import Winner, follow, untouched
from inver.domain.delta_rewrites import NewFile, Operation, rewrite_commit
from inver.errors import Conflict, Invalid, Refused
from inver.pipeline.delta.table import State, TableLog

ATTEMPTS = 12
"""How often a batch is proposed; each time somebody else was first."""

_PAUSES = Policy(first_wait=0.02, longest_wait=1.0)

Made: TypeAlias = tuple[Bin, Sequence[NewFile]]
"""A bin, and the files that take the place of its own."""


class Rewrite:
    """The commits of one run. `before_each` is called before each attempt, and may end the run.

    What a writer touched since the run was planned is never replaced, however many commits ago that was.
    """

    def __init__(
        self, log: TableLog, state: State, before_each: Callable[[], None], cluster_by: tuple[str, ...] = ()
    ) -> None:
        self._log = log
        self._standing = state.standing
        self._raw_paths = state.raw_paths
        self._before_each = before_each
        self._cluster_by = cluster_by
        self._winners: list[Winner] = []
        self.commits = 0
        self.rebases = 0
        self.dropped = 0
        """Bins that writers have touched meanwhile."""
        self.replaced: list[Made] = []
        self.lost = ""
        """Why the last batch was not committed."""

    def untouched(self, bins: Sequence[Bin]) -> list[Bin]:
        kept = list(bins)
        for winner in self._winners:
            kept = untouched(kept, winner)
        self.dropped += len(bins) - len(kept)
        return kept

    def commit(self, made: Sequence[Made]) -> None:
        """Replace the files of these bins, as far as nobody has touched them.

        Conflict where the table is not the one for which the files were made, or writers were always
        first. Files that no commit names are deleted, unless it is not known whether one does.
        """
        kept = list(made)
        try:
            for bin, files in made:
                _check_rows(bin, files)
            kept = self._committed(kept)
        except Refused as lost:
            self.lost = lost.message
            self._log.delete(_paths(made))
            raise
        named = set(_paths(kept))
        self._log.delete([path for path in _paths(made) if path not in named])
        self.replaced += kept

    def _committed(self, kept: list[Made]) -> list[Made]:
        for attempt in range(1, ATTEMPTS + 1):
            if not kept:
                self.lost = "writers have changed every file of it meanwhile"
                return kept
            self._before_each()
            commit = rewrite_commit(
                self._standing,
                [file for bin, _ in kept for file in bin.files],
                [file for _, files in kept for file in files],
                self._operation(),
                SystemClock().now_ms(),
                self._raw_paths,
            )
            try:
                self._log.commit(commit, self._before_each)
            except Conflict:
                time.sleep(_PAUSES.pause(attempt))
                kept = self._rebased(kept)
                continue
            self._standing = commit.after
            self.commits += 1
            return kept
        raise Conflict(f"writers were first {ATTEMPTS} times in a row")

    def _rebased(self, made: list[Made]) -> list[Made]:
        winners = self._log.winners(self._standing.version)
        for winner in winners:
            self._standing = follow(self._standing, winner)
        self._winners += winners
        self.rebases += 1
        kept = {id(bin) for bin in self.untouched([bin for bin, _ in made])}
        return [each for each in made if id(each[0]) in kept]

    def _operation(self) -> Operation:
        return Operation(
            cluster_by=self._cluster_by, engine=f"Inver/{__version__}", transaction=str(uuid.uuid4())
        )


def _check_rows(bin: Bin, files: Sequence[NewFile]) -> None:
    """The last look before rows could be lost or doubled, whatever would be the reason."""
    known = [records(file) for file in bin.files]
    if None in known:
        return
    live = sum(count or 0 for count in known) - sum(deleted_rows(file) for file in bin.files)
    written = sum(file.rows for file in files)
    if written != live:
        raise Invalid(f"{live} rows were to be rewritten, and {written} were", field="table")


def _paths(made: Sequence[Made]) -> list[str]:
    return [file.path for _, files in made for file in files]
