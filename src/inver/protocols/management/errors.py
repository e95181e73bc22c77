"""Every error as an RFC 9457 problem."""

from __future__ import annotations

import msgspec

from inver import errors
from inver.protocols.http import BadMessage, Request, Response
from inver.protocols.management.change_wire import ConflictInfo, Problem

# The first class that matches decides, so subclasses stand before their parents.
_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.TooLarge, 413, "too-large"),
    (errors.Invalid, 400, "invalid"),
    (errors.Unauthenticated, 401, "unauthenticated"),
    (errors.Forbidden, 403, "forbidden"),
    (errors.NotFound, 404, "not-found"),
    (errors.MethodNotAllowed, 405, "method-not-allowed"),
    (errors.AlreadyExists, 409, "already-exists"),
    (errors.NotEmpty, 409, "not-empty"),
    (errors.PreconditionFailed, 412, "precondition-failed"),
    (errors.Conflict, 409, "conflict"),
    (errors.KeyReused, 422, "idempotency-key-reused"),
    (errors.Unsupported, 406, "unsupported"),
    (errors.RateLimited, 429, "rate-limited"),
    (errors.Refused, 409, "refused"),
    (errors.Unavailable, 503, "unavailable"),
    (errors.OutcomeUnknown, 500, "outcome-unknown"),
)
CONTENT_TYPE = b"application/problem+json"


def status_of(error: Exception) -> tuple[int, str]:
    if isinstance(error, BadMessage):
        return error.status, "invalid"
    for kind, status, name in _STATUS:
        if isinstance(error, kind):
            return status, name
    return 500, "internal"


def render(error: Exception, request: Request | None) -> Response:
    status, name = status_of(error)
    detail = error.message if isinstance(error, errors.InverError) else "an unexpected error; see the log"
    problem = Problem(
        type=f"urn:inver:problem:{name}",
        title=name.replace("-", " "),
        status=status,
        detail=detail,
        field=getattr(error, "field", None),
        fix=getattr(error, "fix", None),
        request_id=request.request_id if request is not None else None,
        operation=getattr(error, "operation", None),
    )
    if isinstance(error, errors.Conflict):
        problem.conflicts = [ConflictInfo.of(conflict) for conflict in error.conflicts]
    return Response(status, msgspec.json.encode(problem), CONTENT_TYPE)
