"""Refusals as bytes, so that one recorded under an idempotency key can be given again word for word."""

from __future__ import annotations

from typing import Any

import msgspec

from inver import errors
from inver.domain.iceberg import IllegalArgument
from inver.domain.ledger import ConflictDetail
from inver.errors import Refused


class _Stored(msgspec.Struct, omit_defaults=True):
    error: str
    message: str
    fix: str | None = None
    field: str | None = None
    kind: str | None = None
    conflicts: tuple[ConflictDetail, ...] = ()
    operation: int | None = None


_KINDS: dict[str, type[Any]] = {**vars(errors), IllegalArgument.__name__: IllegalArgument}
_decode = msgspec.json.Decoder(_Stored).decode


def freeze(error: Refused) -> bytes:
    return msgspec.json.encode(
        _Stored(
            _kind(error).__name__,
            error.message,
            error.fix,
            getattr(error, "field", None),
            getattr(error, "kind", None),
            getattr(error, "conflicts", ()),
            error.operation,
        )
    )


def _kind(error: Refused) -> type[Refused]:
    """The nearest class that can be made again; others have constructors of their own."""
    return next(kind for kind in type(error).__mro__ if _KINDS.get(kind.__name__) is kind)


def thaw(outcome: bytes) -> Refused:
    stored = _decode(outcome)
    refused = _thawed(stored)
    refused.operation = stored.operation
    return refused


def _thawed(stored: _Stored) -> Refused:
    kind: Any = _KINDS[stored.error]
    if issubclass(kind, errors.Conflict):
        conflict: errors.Conflict = kind(stored.message, stored.conflicts, fix=stored.fix)
        return conflict
    extra: dict[str, Any] = {"fix": stored.fix}
    if stored.field is not None:
        extra["field"] = stored.field
    if stored.kind is not None:
        extra["kind"] = stored.kind
    refused: Refused = kind(stored.message, **extra)
    return refused
