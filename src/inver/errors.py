"""Everything that can go wrong, as one tree.

    InverError
    +-- Refused                   the request is certainly not applied, and never will be
    |   +-- Invalid               a value is wrong; `field` says which
    |   |   +-- TooLarge          the request exceeds a limit
    |   +-- Unauthenticated       nobody we know is asking
    |   |   +-- TokenExpired          it was somebody, until a while ago
    |   +-- Forbidden             we know who asks, and they may not
    |   +-- NotFound              it is not there, or the caller may not see it
    |   +-- AlreadyExists         the name or id is taken
    |   +-- NotEmpty              it still contains something
    |   +-- Conflict              somebody else was first; `conflicts` says what won
    |   |   +-- PreconditionFailed    what the caller had seen has changed since
    |   +-- KeyReused             an idempotency key came back with another request
    |   +-- Unsupported           understood, and not offered here
    |   +-- MethodNotAllowed      the path exists, the method does not
    |   +-- RateLimited           too many failures from one source
    +-- Unavailable               not applied; the same request may be sent again
    |   +-- Overloaded            a queue is full
    |   +-- Stale                 grants changed meanwhile; the server asks itself again
    +-- OutcomeUnknown            it may or may not have been applied
    +-- Broken                    stored state or configuration is not what it must be

Protocol adapters map this tree to their own envelope; no HTTP status appears here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inver.domain.ledger import ConflictDetail


class InverError(Exception):
    """Base of every error that Inver raises on purpose."""

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class Refused(InverError):
    operation: int | None = None
    """Which of the operations that were asked for together was refused."""


class Invalid(Refused):
    def __init__(self, message: str, *, field: str | None = None, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.field = field


class TooLarge(Invalid):
    pass


class Unauthenticated(Refused):
    pass


class TokenExpired(Unauthenticated):
    pass


class Forbidden(Refused):
    pass


class NotFound(Refused):
    """`kind` is the securable that is missing: catalog, schema, table, route, ..."""

    def __init__(self, message: str, *, kind: str = "resource", fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.kind = kind


class AlreadyExists(Refused):
    def __init__(self, message: str, *, kind: str = "resource", fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.kind = kind


class NotEmpty(Refused):
    pass


class Conflict(Refused):
    def __init__(
        self, message: str, conflicts: Sequence[ConflictDetail] = (), *, fix: str | None = None
    ) -> None:
        super().__init__(message, fix=fix)
        self.conflicts = tuple(conflicts)


class PreconditionFailed(Conflict):
    pass


class KeyReused(Refused):
    pass


class Unsupported(Refused):
    pass


class MethodNotAllowed(Refused):
    def __init__(self, message: str, allowed: Sequence[str]) -> None:
        super().__init__(message)
        self.allowed = tuple(allowed)


class RateLimited(Refused):
    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unavailable(InverError):
    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(Unavailable):
    pass


class Stale(Unavailable):
    def __init__(self) -> None:
        super().__init__("grants changed while the request was decided; send it again")


class OutcomeUnknown(InverError):
    pass


class Broken(InverError):
    pass
