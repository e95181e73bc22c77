"""From the requirements and actions of delta/v1 to one proposal.

The order of actions means nothing, and all of them are applied or none. So each may be there once,
and two of them may not touch the same key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from inver.domain.delta import CommitInfo
from inver.domain.tables import Table, TableKind
from inver.domain.uuids import is_uuid
from inver.errors import Invalid, PreconditionFailed
from inver.protocols.unity import columns as cols
from inver.protocols.unity import delta_wire as wire
from inver.services.delta.types import Changes, Proposal

T = TypeVar("T")


class Updating(msgspec.Struct, frozen=True):
    uuid: str
    etag: str | None
    actions: dict[type, Any]

    def proposal(self, table: Table) -> Proposal:
        if self._action(wire.UpdateSnapshotVersion) and table.kind is not TableKind.EXTERNAL:
            raise Invalid(
                "update-metadata-snapshot-version is for external tables; the catalog knows the versions "
                "of its own",
                field="updates",
            )
        commit = self._action(wire.AddCommit)
        published = self._action(wire.SetLatestBackfilledVersion)
        return Proposal(
            table_id=self.uuid,
            info=self.info,
            published=None if published is None else published.latest_published_version,
            changes=self._changes(),
            uniform=None if commit is None or commit.uniform is None else commit.uniform.uniform(),
            expect_etag=_counter(table, self.etag),
        )

    @property
    def info(self) -> CommitInfo | None:
        commit = self._action(wire.AddCommit)
        return None if commit is None else commit.commit.info()

    def _action(self, kind: type[T]) -> T | None:
        found: T | None = self.actions.get(kind)
        return found

    def _changes(self) -> Changes | None:
        given: dict[str, Any] = {}
        for action in self.actions.values():
            match action:
                case wire.SetProperties():
                    given["set_properties"] = action.updates
                case wire.RemoveProperties():
                    given["remove_properties"] = tuple(action.removals)
                case wire.SetProtocol():
                    given["protocol"] = action.protocol.protocol()
                case wire.SetColumns():
                    given["columns"] = cols.encode(cols.from_struct(action.columns))
                case wire.SetPartitionColumns():
                    given["partition_columns"] = tuple(action.partition_columns)
                case wire.SetTableComment():
                    given["comment"] = action.comment or None
                case wire.SetDomainMetadata():
                    given["set_domains"] = action.updates.domains()
                    if not given["set_domains"]:
                        raise Invalid("set-domain-metadata sets no domain", field="updates")
                case wire.RemoveDomainMetadata():
                    given["remove_domains"] = tuple(action.domains)
                case wire.UpdateSnapshotVersion():
                    given["snapshot_version"] = action.last_commit_version
                    given["snapshot_timestamp"] = action.last_commit_timestamp_ms
        _require_apart(given, "properties")
        _require_apart(given, "domains")
        return Changes(**given) if given else None


def plain_proposal(body: wire.Update) -> Proposal | None:
    """Of an update that depends on nothing but the table's id and version; None for any other."""
    requirements = body.requirements
    if len(requirements) != 1 or type(requirements[0]) is not wire.AssertTableUuid:
        return None
    info = published = uniform = None
    for action in body.updates:
        if type(action) is wire.AddCommit and info is None:
            info = action.commit.info()
            uniform = None if action.uniform is None else action.uniform.uniform()
        elif type(action) is wire.SetLatestBackfilledVersion and published is None:
            published = action.latest_published_version
        else:
            return None
    if info is None:
        return None
    return Proposal(table_id=requirements[0].uuid.lower(), info=info, published=published, uniform=uniform)


def read_update(body: wire.Update) -> Updating:
    requirements = _by_kind(body.requirements, "requirements")
    actions = _by_kind(body.updates, "updates")
    if not actions:
        raise Invalid("updates is empty", field="updates")
    table = requirements.get(wire.AssertTableUuid)
    if table is None:
        raise Invalid("assert-table-uuid is required", field="requirements")
    if not is_uuid(table.uuid):
        raise Invalid("the uuid of assert-table-uuid is no UUID", field="requirements")
    etag = requirements.get(wire.AssertEtag)
    return Updating(table.uuid.lower(), None if etag is None else etag.etag, actions)


def _by_kind(given: Sequence[Any], field: str) -> dict[type, Any]:
    found: dict[type, Any] = {}
    for index, each in enumerate(given):
        if type(each) in found:
            name = type(each).__struct_config__.tag
            raise Invalid(f"{field}[{index}]: {name} is there more than once", field=f"{field}[{index}]")
        found[type(each)] = each
    return found


def _require_apart(given: dict[str, Any], what: str) -> None:
    both = set(given.get(f"set_{what}", ())) & set(given.get(f"remove_{what}", ()))
    if both:
        raise Invalid(f"{min(both)!r} is both set and removed", field="updates")


def _counter(table: Table, etag: str | None) -> int | None:
    if etag is None:
        return None
    digits = etag.removeprefix("etag-")
    if digits.isascii() and digits.isdigit() and len(digits) < 19 and etag.startswith("etag-"):
        return int(digits)
    # It is no etag of ours, so it is not the one that the table has.
    raise PreconditionFailed(f"the table has the etag etag-{table.etag}")
