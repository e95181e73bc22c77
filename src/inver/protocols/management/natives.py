"""Requests in the words of the formats' own protocols, as parts of a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from inver.domain import iceberg
from inver.domain.tables import Format
from inver.errors import Invalid
from inver.protocols.management import change_wire as wire
from inver.services.iceberg.naming import Identifier
from inver.services.names import split_name
from inver.services.portions import Native

Read = Callable[[bytes], Any]


class Natives:
    """`delta` reads a commit of Unity Catalog, `lance` an operation of a batch."""

    def __init__(self, delta: Read, lance: Read) -> None:
        self._delta = delta
        self._lance = lance

    def read(self, operation: wire.NativeOp) -> Native:
        match operation:
            case wire.DeltaCommitOp(commit=body):
                return Native(Format.DELTA, body, _read(self._delta, body, "commit"))
            case wire.LanceOp(operation=body):
                return Native(Format.LANCE, body, _read(self._lance, body, "operation"))
            case wire.IcebergCommitOp(commit=body, table=name):
                asked = Identifier(*split_name(name, "table")), _read(iceberg.decode_commit, body, "commit")
                whole = msgspec.Raw(msgspec.json.encode((name, body)))
                return Native(Format.ICEBERG, whole, asked)


def _read(read: Read, body: msgspec.Raw, field: str) -> Any:
    try:
        return read(bytes(body))
    except Invalid as error:
        place = field if error.field in (None, "body") else f"{field}.{error.field}"
        raise Invalid(error.message, field=place, fix=error.fix) from None
