"""Every error in the envelope of Delta Sharing: a code and a message."""

from __future__ import annotations

import msgspec

from inver import errors
from inver.protocols.http import BadMessage, Request, Response

JSON = b"application/json; charset=utf-8"

# The first class that matches decides, so subclasses stand before their parents. Clients send a
# request again after 429 and 5xx, so whatever would be the same the next time is another 4xx.
_CODES: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.TooLarge, 413, "INVALID_PARAMETER_VALUE"),
    (errors.Invalid, 400, "INVALID_PARAMETER_VALUE"),
    (errors.Unauthenticated, 401, "UNAUTHENTICATED"),
    (errors.Forbidden, 403, "PERMISSION_DENIED"),
    (errors.MethodNotAllowed, 405, "UNSUPPORTED_OPERATION"),
    (errors.Unsupported, 400, "UNSUPPORTED_OPERATION"),
    (errors.RateLimited, 429, "REQUEST_LIMIT_EXCEEDED"),
    (errors.Refused, 400, "INVALID_PARAMETER_VALUE"),
    (errors.Unavailable, 503, "TEMPORARILY_UNAVAILABLE"),
)


def code_of(error: Exception) -> tuple[int, str]:
    if isinstance(error, BadMessage):
        return error.status, "MALFORMED_REQUEST"
    if isinstance(error, errors.NotFound):
        # A table that has lost its log is there, and will be like this the next time too.
        return 400 if error.kind == "log" else 404, "RESOURCE_DOES_NOT_EXIST"
    if isinstance(error, errors.Invalid) and error.field == "body":
        return 400, "MALFORMED_REQUEST"
    for kind, status, code in _CODES:
        if isinstance(error, kind):
            return status, code
    return 500, "INTERNAL_ERROR"


def render(error: Exception, request: Request | None) -> Response:
    status, code = code_of(error)
    message = "an unexpected error; see the log"
    if isinstance(error, errors.InverError):
        message = error.message if error.fix is None else f"{error.message}; {error.fix}"
    return Response(status, msgspec.json.encode({"errorCode": code, "message": message}), JSON)
