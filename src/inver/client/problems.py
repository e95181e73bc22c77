"""From a refused answer to the error that the server raised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from inver import errors
from inver.errors import InverError

PREFIX = "urn:inver:problem:"


class Unreachable(errors.Unavailable):
    """No server answered; nothing was applied."""


class Winner(msgspec.Struct):
    version: int
    transaction: str
    at: int
    by: str


class ConflictInfo(msgspec.Struct):
    """`operation` is the index in the transaction; `winner` is the commit that was first."""

    operation: int
    subject: str
    reason: str
    expected: int | str | None = None
    current: int | str | None = None
    winner: Winner | None = None


class Problem(msgspec.Struct):
    """RFC 9457, as the management API fills it in."""

    type: str = ""
    title: str = ""
    status: int = 0
    detail: str = ""
    message: str = ""
    """What Unity's envelope has in place of the detail."""
    field: str | None = None
    fix: str | None = None
    request_id: str | None = None
    operation: int | None = None
    conflicts: list[ConflictInfo] = []


_BY_TYPE: dict[str, type[InverError]] = {
    "too-large": errors.TooLarge,
    "invalid": errors.Invalid,
    "unauthenticated": errors.Unauthenticated,
    "forbidden": errors.Forbidden,
    "not-found": errors.NotFound,
    "method-not-allowed": errors.MethodNotAllowed,
    "already-exists": errors.AlreadyExists,
    "not-empty": errors.NotEmpty,
    "conflict": errors.Conflict,
    "precondition-failed": errors.PreconditionFailed,
    "idempotency-key-reused": errors.KeyReused,
    "unsupported": errors.Unsupported,
    "rate-limited": errors.RateLimited,
    "refused": errors.Refused,
    "unavailable": errors.Unavailable,
    "outcome-unknown": errors.OutcomeUnknown,
}
# What a proxy in between answers has a status and nothing more.
_BY_STATUS: dict[int, type[InverError]] = {
    400: errors.Invalid,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    409: errors.Conflict,
    412: errors.PreconditionFailed,
    413: errors.TooLarge,
    429: errors.RateLimited,
    503: errors.Unavailable,
}
_decode = msgspec.json.Decoder(Problem).decode


def error_of(status: int, headers: Mapping[str, str], body: bytes, *, reads: bool) -> InverError:
    """The error, with `fix`, `field`, `conflicts`, `request_id` and `retry_after` as the server gave them."""
    try:
        problem = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = Problem()
    kind = (
        _BY_TYPE.get(problem.type.removeprefix(PREFIX)) or _BY_STATUS.get(status) or _by_class(status, reads)
    )
    error = _make(
        kind, problem.detail or problem.message or f"the server answered with status {status}", headers
    )
    error.fix = problem.fix
    extra: dict[str, Any] = {"field": problem.field, "request_id": problem.request_id}
    extra["operation"] = problem.operation
    if problem.conflicts:
        extra["conflicts"] = tuple(problem.conflicts)
    for name, value in extra.items():
        if value is not None:
            setattr(error, name, value)
    return error


def _by_class(status: int, reads: bool) -> type[InverError]:
    if status < 500:
        return errors.Refused
    if status in (502, 504):
        return errors.Unavailable if reads else errors.OutcomeUnknown
    return errors.Broken if reads else errors.OutcomeUnknown


def _make(kind: type[InverError], message: str, headers: Mapping[str, str]) -> InverError:
    makers: dict[type[InverError], Callable[[], InverError]] = {
        errors.MethodNotAllowed: lambda: errors.MethodNotAllowed(
            message, headers.get("allow", "").split(", ")
        ),
        errors.RateLimited: lambda: errors.RateLimited(message, _retry_after(headers)),
        errors.Unavailable: lambda: errors.Unavailable(message, _retry_after(headers)),
    }
    maker = makers.get(kind)
    return kind(message) if maker is None else maker()


def _retry_after(headers: Mapping[str, str]) -> int:
    value = headers.get("retry-after", "")
    return int(value) if value.isdecimal() else 1
