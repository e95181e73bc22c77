"""Every error in the envelope of the Lance Namespace: a message, and a code that clients go by."""

from __future__ import annotations

import msgspec

from inver import errors
from inver.domain.lance import SchemaInvalid, WrongState
from inver.protocols.http import BadMessage, Request, Response

UNSUPPORTED, INVALID, CONCURRENT, UNAVAILABLE, INTERNAL = 0, 13, 14, 17, 18

_MISSING = {
    "catalog": 1,
    "schema": 1,
    "table": 4,
    "view": 4,
    "index": 6,
    "tag": 8,
    "transaction": 10,
    "version": 11,
    "column": 12,
    "branch": 22,
    "route": UNSUPPORTED,
}
_TAKEN = {"catalog": 2, "schema": 2, "table": 5, "location": 5, "index": 7, "tag": 9, "branch": 23}

# The first class that matches decides, so subclasses stand before their parents.
_TABLE: tuple[tuple[type[Exception], int, int], ...] = (
    (errors.TooLarge, 413, INVALID),
    (errors.Invalid, 400, INVALID),
    (errors.Unauthenticated, 401, 16),
    (errors.Forbidden, 403, 15),
    (errors.MethodNotAllowed, 405, UNSUPPORTED),
    (errors.NotEmpty, 409, 3),
    (WrongState, 409, 19),
    (errors.Conflict, 409, CONCURRENT),
    (errors.KeyReused, 409, CONCURRENT),
    (errors.Unsupported, 406, UNSUPPORTED),
    (errors.RateLimited, 429, 21),
    (errors.Refused, 400, INVALID),
    (errors.Unavailable, 503, UNAVAILABLE),
)


def code_of(error: Exception) -> tuple[int, int]:
    """HTTP status and the protocol's own code."""
    if isinstance(error, BadMessage):
        return error.status, INVALID
    if isinstance(error, SchemaInvalid):
        return 400, 20
    if isinstance(error, errors.NotFound):
        return 404, _MISSING.get(error.kind, 4)
    if isinstance(error, errors.AlreadyExists):
        return 409, _TAKEN.get(error.kind, 5)
    for kind, status, code in _TABLE:
        if isinstance(error, kind):
            return status, code
    return 500, INTERNAL


def render(error: Exception, request: Request | None) -> Response:
    status, code = code_of(error)
    known = isinstance(error, errors.InverError)
    body: dict[str, str | int] = {
        "error": error.message
        if isinstance(error, errors.InverError)
        else "an unexpected error; see the log",
        "code": code,
    }
    details = []
    field = getattr(error, "field", None)
    if field:
        details.append(f"field: {field}")
    if known and getattr(error, "fix", None):
        details.append(str(getattr(error, "fix", None)))
    for conflict in getattr(error, "conflicts", ()):
        details.append(f"{conflict.reason}: expected {conflict.expected}, found {conflict.current}")
    if details:
        body["detail"] = "; ".join(details)
    if request is not None:
        place = request.raw_path.decode("latin-1")
        operation = getattr(error, "operation", None)
        if operation is not None and place.rstrip("/").endswith(("/batch-commit", "/batch-create")):
            member = "operations" if "batch-commit" in place else "entries"
            place = f"{place}#{member}[{operation}]"
        body["instance"] = place
    return Response(status, msgspec.json.encode(body))
