"""What the catalog says of a table's versions: which is the last, and which are not published yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from inver.client.core import Call, json_answer, query_of
from inver.domain.delta import CommitInfo, staged_name
from inver.formats.delta_log.source import Log
from inver.ports import ObjectInfo, ObjectStore

if TYPE_CHECKING:
    from inver.client import Client
    from inver.domain.care import Ticket

UNITY = "/api/2.1/unity-catalog"


class Ratified(msgspec.Struct, frozen=True):
    """`commits` are those that may not be published, newest first."""

    latest: int = msgspec.field(name="latest_table_version")
    commits: tuple[CommitInfo, ...] = ()

    @property
    def published(self) -> int:
        """Up to here every version is an ordinary file of the log."""
        return min((commit.version for commit in self.commits), default=self.latest + 1) - 1

    def log(self, objects: ObjectStore, table_id: str) -> Log:
        tail = {
            commit.version: ObjectInfo(
                staged_name(commit.file_name), commit.file_size, commit.file_modification_timestamp
            )
            for commit in self.commits
        }
        return Log(objects, table_id, self.latest, tail)


def ratified(client: Client, ticket: Ticket) -> Ratified:
    asked = query_of(table_id=ticket.table_id, table_uri=ticket.location, start_version=0)
    return client.run(
        Call(method="GET", path="/delta/commits", query=asked, read=json_answer(Ratified), mount=UNITY)
    )
