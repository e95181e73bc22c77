"""Idempotency keys: a mutation may be sent twice and takes effect once.

The record of a success is written in the mutation's own transaction; the record of a certain
refusal after its rollback, because the client may already have acted on it. What depends on the
moment (authentication, rate, overload, unknown outcomes) is never recorded.
"""

from __future__ import annotations

import msgspec

from inver.domain.uuids import is_uuid
from inver.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    KeyReused,
    NotEmpty,
    NotFound,
    TooLarge,
    Unsupported,
)

LIFETIME_MS = 30 * 60 * 1000
GRACE_MS = 5 * 60 * 1000

_FINAL = (Invalid, NotFound, AlreadyExists, NotEmpty, Conflict, Unsupported)
_MOMENTARY = (TooLarge,)


class KeyedRequest(msgspec.Struct, frozen=True):
    """A request under a key. `fingerprint` covers the operation, its target and the parsed payload."""

    scope: str
    key: str
    principal: str
    fingerprint: str


class KeyRecord(msgspec.Struct, frozen=True):
    """What became of a keyed request: a transaction and its results, or a refusal to repeat."""

    request: KeyedRequest
    transaction: int | None
    at: int
    outcome: bytes


def parse_key(value: str) -> str:
    if not is_uuid(value):
        raise Invalid(
            "Idempotency-Key must be a UUID of 36 characters",
            field="Idempotency-Key",
            fix="send a fresh UUID for each new request and the same one for its retries",
        )
    return value.lower()


def require_same(record: KeyRecord, request: KeyedRequest) -> None:
    """A key belongs to one principal and one request; anything else is a programming error of the caller."""
    if record.request != request:
        raise KeyReused(
            f"idempotency key {request.key} was used for a different request",
            fix="send a fresh UUID for each new request",
        )


def is_final(error: Exception) -> bool:
    """True for refusals that must be repeated word for word when the key comes back."""
    return isinstance(error, _FINAL) and not isinstance(error, _MOMENTARY)


def expired(created_at: int, now: int) -> bool:
    return now - created_at > LIFETIME_MS + GRACE_MS
